"""`Variable`, PyTorch's old name of a Tensor that autograd follows."""

from __future__ import annotations

import warnings
from typing import Any

from torchgrad_jax.autograd.engine import ExecutionEngine
from torchgrad_jax.tensor.inplace import detached
from torchgrad_jax.tensor.tensor import Tensor


def volatile(self: Tensor) -> bool:
    """False: what `no_grad` does now was once an attribute."""
    warnings.warn("volatile was removed (Variable.volatile is always False)", UserWarning, stacklevel=2)
    return False


class _VariableMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableMeta):
    """``Variable(tensor, requires_grad)`` gives a Tensor on the same memory; every Tensor is an instance."""

    _execution_engine = ExecutionEngine()

    def __new__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Any:
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        made = detached(data)
        made.requires_grad = requires_grad
        return made


setattr(Tensor, "volatile", property(volatile))  # noqa: B010 - Tensor's own attributes are declared in its class
