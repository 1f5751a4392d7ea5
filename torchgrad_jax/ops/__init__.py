"""One declaration per operator: a pure JAX function and what autograd must know of it. Knows no Tensor."""

from torchgrad_jax.ops import indexing, matrix, pointwise, reduction, shape, views

__all__ = ["indexing", "matrix", "pointwise", "reduction", "shape", "views"]
