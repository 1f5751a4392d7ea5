"""The command line of torchgrad_jax: running unmodified PyTorch scripts on JAX."""
