"""Arguments that are to be Tensors."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor


def not_a_tensor(name: str, x: Any, argument: str = "input", position: int = 1) -> TypeError:
    """PyTorch's error for an argument of the function `name` that is no Tensor."""
    return TypeError(f"{name}(): argument '{argument}' (position {position}) must be Tensor, not {type(x).__name__}")


def expect_tensor(name: str, x: Any, argument: str = "input", position: int = 1) -> None:
    """TypeError with PyTorch's text unless `x` is a Tensor."""
    if not isinstance(x, Tensor):
        raise not_a_tensor(name, x, argument, position)


_are_tensors = frozenset((Tensor, Parameter)).issuperset


def tensors_in(name: str, tensors: Any) -> list[Tensor]:
    """The tensors of a list or tuple that function `name` was given. TypeError with PyTorch's text for anything else."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, (tuple, list)):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}")
    if not _are_tensors(map(type, tensors)):
        for i, t in enumerate(tensors):
            if not isinstance(t, Tensor):
                raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(t).__name__}")
    return list(tensors)
