"""Arguments that are to be Tensors."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.tensor import Tensor


def not_a_tensor(name: str, x: Any, argument: str = "input", position: int = 1) -> TypeError:
    """PyTorch's error for an argument of the function `name` that is no Tensor."""
    return TypeError(f"{name}(): argument '{argument}' (position {position}) must be Tensor, not {type(x).__name__}")


def expect_tensor(name: str, x: Any, argument: str = "input", position: int = 1) -> None:
    """TypeError with PyTorch's text unless `x` is a Tensor."""
    if not isinstance(x, Tensor):
        raise not_a_tensor(name, x, argument, position)
