"""Arguments that are to be Tensors."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.calling.kinds import type_name
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
    return elements(tensors)


def listed(name: str, tensors: Any) -> Any:
    """A list or tuple. TypeError for what else a function so named, of a tensor or of several, was given."""
    if not isinstance(tensors, (tuple, list)):
        taken = "(Tensor input)\n * (tuple of Tensors tensors)\n"
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({type_name(tensors)}), but expected one of:\n * {taken}")
    return tensors


def elements(tensors: Any, place: int = 0) -> list[Tensor]:
    """The tensors of the argument at this place, a list or tuple. TypeError with PyTorch's text if there is anything else in it."""
    if not _are_tensors(map(type, tensors)):
        for i, t in enumerate(tensors):
            if not isinstance(t, Tensor):
                raise TypeError(f"expected Tensor as element {i} in argument {place}, but got {type_name(t)}")
    return list(tensors)


def elements_or_listed(tensors: tuple[Any, ...]) -> list[Tensor]:
    """`elements` of what was given one by one, or as one list."""
    return elements(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors)
