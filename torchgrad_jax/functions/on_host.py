"""Python functions called for every element: `apply_`, `map_`. The content is computed first, and comes back from the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.calling.expecting import not_a_tensor
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import rewrite
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.functions.views import expand
from torchgrad_jax.runtime.recorder import per_thread


@public("torch.Tensor")
def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Put ``callable(x)`` in place of each element x. RuntimeError where a gradient is required."""
    return _each("apply_", self, (), callable)


@public("torch.Tensor")
def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Put ``callable(x, y)`` in place of each element x; y is the element of `tensor` there. RuntimeError where a gradient is required."""
    return _each("map_", self, (tensor,), callable)


@public("torch.Tensor")
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """See `map_`: of two more tensors."""
    return _each("map2_", self, (x, y), callable)


def _each(name: str, target: Tensor, others: tuple[Any, ...], function: Callable[..., Any]) -> Tensor:
    for position, other in enumerate(others, 1):
        if not isinstance(other, Tensor):
            raise not_a_tensor(name, other, "other", position)
    if target.requires_grad or any(t.requires_grad for t in others):
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    shape = target._aval.shape
    columns = [np.asarray(t._concrete()).reshape(-1).tolist() for t in (target, *[expand(t, shape) for t in others])]
    made = np.asarray([function(*elements) for elements in zip(*columns, strict=True)]).astype(target._aval.dtype).reshape(shape)
    rewrite(target, per_thread.recorder.alias(from_data(made, target.dtype, target.device)), name.removesuffix("_"))
    return target
