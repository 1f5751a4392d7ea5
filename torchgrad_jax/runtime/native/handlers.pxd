from torchgrad_jax.runtime.native cimport convolving, multiplying, sharing
