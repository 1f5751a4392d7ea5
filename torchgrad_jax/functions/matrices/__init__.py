"""Functions of matrices: products, decompositions, norms, and what is made of them."""

from torchgrad_jax.functions.matrices import decompositions, einsum, low_rank, norms, products

__all__ = ["decompositions", "einsum", "low_rank", "norms", "products"]
