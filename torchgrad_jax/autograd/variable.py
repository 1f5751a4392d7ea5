"""`Variable`, PyTorch's old name of a Tensor that autograd follows."""

from __future__ import annotations

from typing import Any, NoReturn

from torchgrad_jax.autograd.engine import ExecutionEngine
from torchgrad_jax.core.made import detached
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import empty
from torchgrad_jax.runtime.user_code import warn_user


def volatile(self: Tensor) -> bool:
    """False: what `no_grad` does now was once an attribute."""
    warn_user("volatile was removed (Variable.volatile is always False)", UserWarning)
    return False


class VariableMeta(type):
    """Makes every Tensor an instance of `Variable`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=VariableMeta):
    """``Variable(tensor, requires_grad)`` gives a Tensor on the same memory; every Tensor is an instance."""

    _execution_engine = ExecutionEngine()

    def __new__(cls, data: Any = None, requires_grad: Any = False, volatile: bool = False) -> Any:
        if volatile:
            warn_user("volatile was removed and now has no effect. Use `with torch.no_grad():` instead.", UserWarning)
        if data is None:
            data = empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        made = detached(data)
        if requires_grad:
            if not (made.is_floating_point() or made.is_complex()):
                raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
            made.requires_grad = True
        return made


def variable(*args: Any, **kwargs: Any) -> NoReturn:
    """Removed from PyTorch. RuntimeError, always."""
    raise RuntimeError("torch.autograd.variable(...) is deprecated, use torch.tensor(...) instead")


# `torch.autograd.variable` is this function, and programs import the class from the module that PyTorch had under its name.
variable.Variable = Variable  # type: ignore[attr-defined] - functions have attributes
setattr(Tensor, "volatile", property(volatile))  # noqa: B010 - Tensor's own attributes are declared in its class
