"""Random programs, run line by line with PyTorch and with torchgrad_jax and compared in all that is seen: `python -m compat_suite fuzz`."""
