"""``torchgrad-jax scan``: which of torch's names a code base uses, told from its source alone."""
