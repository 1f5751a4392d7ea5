"""Suites that compare torchgrad_jax with PyTorch and with JAX by hand, run from a checkout; the package does not depend on them."""
