"""One declaration per operator: a pure JAX function and what autograd must know of it. Knows no Tensor."""

from torchgrad_jax.ops import (
    activation,
    convolution,
    cumulative,
    embedding,
    extreme,
    indexing,
    linalg,
    linear,
    loss,
    matrix,
    norm,
    normalization,
    padding,
    pointwise,
    pooling,
    reduction,
    shape,
    sorting,
    special,
    views,
)

__all__ = [
    "activation", "convolution", "cumulative", "embedding", "extreme", "indexing", "linalg", "linear", "loss", "matrix", "norm", "normalization",
    "padding", "pointwise", "pooling", "reduction", "shape", "sorting", "special", "views",
]  # fmt: skip
