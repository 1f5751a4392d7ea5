"""`torch.result_type`, `torch.promote_types`, `torch.can_cast`: what type promotion will do."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.declaration.operator import NUMBERS


@public("torch")
def result_type(tensor: Any, other: Any) -> dtypes.dtype:
    """The dtype that an operation of two tensors or numbers has. TypeError for anything else."""
    for operand in (tensor, other):
        if not isinstance(operand, (Tensor, *NUMBERS)):
            given = ", ".join(type(o).__name__ for o in (tensor, other))
            raise TypeError(f"result_type() received an invalid combination of arguments - got ({given}), but expected two tensors or numbers")
    return dtypes.of(promotion.result_type([o._aval if isinstance(o, Tensor) else type(o) for o in (tensor, other)]))


@public("torch")
def promote_types(type1: dtypes.dtype, type2: dtypes.dtype) -> dtypes.dtype:
    """The smallest dtype that both convert to. TypeError for what is no dtype."""
    _check("promote_types", type1=type1, type2=type2)
    return dtypes.of(promotion.promote_types(type1.np, type2.np))


@public("torch")
def can_cast(from_: dtypes.dtype, to: dtypes.dtype) -> bool:
    """Whether an in-place operation may put a result of one dtype into a tensor of the other. TypeError for what is no dtype."""
    _check("can_cast", from_=from_, to=to)
    return promotion.can_cast(from_.np, to.np)


def _check(function: str, **given: Any) -> None:
    for position, (name, value) in enumerate(given.items(), 1):
        if not isinstance(value, dtypes.dtype):
            raise TypeError(f"{function}(): argument '{name}' (position {position}) must be torch.dtype, not {type(value).__name__}")
