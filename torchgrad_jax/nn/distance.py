"""Distances and similarities of torch.nn.functional."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.calling.generate import function_of
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.matrices.norms import vector_norm
from torchgrad_jax.functions.overloads import with_number
from torchgrad_jax.functions.views import expand
from torchgrad_jax.operators import norm as _operators  # noqa: F401 - declares the operators
from torchgrad_jax.operators import registry

__all__ = ["cosine_similarity", "pairwise_distance", "pdist"]

pdist = function_of(registry["pdist"])


@public("torch")
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last dimension."""
    bound = registry["_pairwise_norm"].bind((ARRAY, Static(float(p)), Static(bool(keepdim))))
    return apply(bound, (with_number("add", x1 - x2, eps),))


@public("torch")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along `dim`, each norm at least `eps`. RuntimeError for integers and complex numbers."""
    common = dtypes.of(promotion.result_type([x1._aval, x2._aval]))
    if not common.is_floating_point:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {common.title}")
    shape = broadcast_shapes(x1._aval.shape, x2._aval.shape)
    axis = wrap_dim(dim, len(shape))
    a, b = (_unit(cast(x if x1._aval.shape == x2._aval.shape else expand(x, shape), common), axis, eps) for x in (x1, x2))
    return (a * b).sum(axis)


def _unit(x: Any, axis: int, eps: float) -> Any:
    return x / apply(registry["_raised"].bind((ARRAY, Static(float(eps)))), (vector_norm(x, 2, axis, True),))
