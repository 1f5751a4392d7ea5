"""Functions of operators, thin ones in front of `hot.py`: they are Python's own where that is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.core.hot import Called, of_one, of_two
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.operator import BoundOperator
from torchgrad_jax.runtime.recorder import per_thread

MISSING: Any = object()


def unary(bound: BoundOperator, name: str, otherwise: Callable[..., Any]) -> Callable[..., Tensor]:
    """The function of an operator of one tensor and no other arguments. `otherwise` is its general form."""
    called = Called(bound, name, otherwise, False)

    def call(self: Any = MISSING, *args: Any, **kwargs: Any) -> Tensor:
        if args or kwargs or (type(self) is not Tensor and type(self) is not Parameter):
            return otherwise(*(() if self is MISSING else (self,)), *args, **kwargs)
        return of_one(called, self)

    call.__name__ = call.__qualname__ = name
    return call


def binary(bound: BoundOperator, name: str, otherwise: Callable[..., Any], numbers: bool = True) -> Callable[..., Tensor]:
    """The function of an operator of a tensor and a second one, or (`numbers`) a Python number. `otherwise` is its general form."""
    called = Called(bound, name, otherwise, numbers)

    def call(self: Any = MISSING, other: Any = MISSING, *args: Any, **kwargs: Any) -> Tensor:
        if args or kwargs or other is MISSING or (type(self) is not Tensor and type(self) is not Parameter):
            if self is MISSING and other is not MISSING:
                return otherwise(other=other, **kwargs)
            if other is MISSING and not args and not kwargs and (type(self) is Tensor or type(self) is Parameter) and not per_thread.recorder.rare:
                raise TypeError(f'{name}() missing 1 required positional arguments: "other"')
            return otherwise(*[x for x in (self, other) if x is not MISSING], *args, **kwargs)
        return of_two(called, self, other)

    call.__name__ = call.__qualname__ = name
    of_function[call] = called
    return call


# By the functions of `binary`, for what calls them by an operator.
of_function: dict[Any, Called] = {}
