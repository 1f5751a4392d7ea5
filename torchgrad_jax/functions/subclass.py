"""Subclasses of Tensor: how they are made, and what operations on them give."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.calling.expecting import not_a_tensor
from torchgrad_jax.calling.overrides import DisableTorchFunction, DisableTorchFunctionSubclass, _disabled_torch_function_impl, is_pytorchs, nowrap
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.fields import TensorFields
from torchgrad_jax.core.made import created, detached
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.core.viewing import viewed
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions import creation

_new = TensorFields.__new__


def retyped(t: Tensor, cls: type) -> Tensor:
    """A tensor of class `cls` in the place of `t`, which nobody else holds."""
    if cls is Tensor:
        return t
    made = _new(cls)
    made._value, made._storage, made._view, made._rg, made._node, made._nr, made._extra = (
        t._value, t._storage, t._view, t._rg, t._node, t._nr, t._extra,
    )  # fmt: skip
    return made


def _check_class(cls: Any) -> None:
    if not isinstance(cls, type):
        raise TypeError(f"cls must be a type (got {type(cls).__name__})")
    if not issubclass(cls, Tensor):
        raise TypeError(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure your class inherits from Tensor."
        )


@public("torch.Tensor")
def as_subclass(self: Tensor, cls: type) -> Any:
    """The tensor as an instance of `cls`, a subclass of Tensor: an alias that shares its memory and takes part in its gradient."""
    _check_class(cls)
    return retyped(viewed("alias", self), cls)


def _make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Any:
    """An instance of `cls` on the memory of `data`, without its history."""
    _check_class(cls)
    if not isinstance(data, Tensor):
        raise not_a_tensor("_make_subclass", data, "data", 2)
    if require_grad and not dtypes.is_float(data._aval.dtype):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    made = retyped(detached(data), cls)
    if require_grad:
        with DisableTorchFunction():
            made.requires_grad = True
    return made


# ---------------------------------------------------------------------- the default answer


def default_answer(cls: type, func: Any, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """The result of `func`, its tensors as instances of the class; NotImplemented where a type among `types` is no superclass of it.

    What a subclass's own `__torch_function__` calls by ``super()``. A function of PyTorch's own has no result for our tensors.
    """
    if is_pytorchs(func) or not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        found = func(*args, **(kwargs or {}))
        return found if func in nowrap() else _converted(found, cls)


def _converted(found: Any, cls: type) -> Any:
    if cls is Tensor:
        return found
    if isinstance(found, Tensor):
        return found if isinstance(found, cls) else as_subclass(found, cls)
    if isinstance(found, (tuple, list)) and not isinstance(found, Size):
        parts = [_converted(part, cls) for part in found]
        return type(found)(*parts) if hasattr(found, "_fields") else type(found)(parts)
    return found


# ---------------------------------------------------------------------- the constructor


def _construct(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """``Tensor(2, 3)`` has a shape, ``Tensor([1, 2])`` data, as float; ``Tensor(t)`` is an alias of a tensor. TypeError, ValueError otherwise."""
    for name in ("data", "other", "size"):
        if name in kwargs and not args:
            args = (kwargs.pop(name),)
    if kwargs or (len(args) > 1 and not isinstance(args[0], int)):
        given = [type(a).__name__ for a in args] + [f"{name}={type(a).__name__}" for name, a in kwargs.items()]
        raise TypeError(f"new() received an invalid combination of arguments - got ({', '.join(given)})")
    if len(args) == 1 and not (isinstance(args[0], int) and not isinstance(args[0], bool)):
        return retyped(_of_data(args[0], device), cls)
    for i, n in enumerate(args):
        if not isinstance(n, int) or (isinstance(n, bool) and not i):
            raise TypeError(
                f"new(): argument 'size' failed to unpack the object at pos {i + 1} with error \"type must be tuple of ints,but got "
                f'{type(n).__name__}"'
            )
    return retyped(creation.empty(args or (0,), device=device), cls)


def _of_data(data: Any, device: Any) -> Tensor:
    if isinstance(data, Tensor):
        return viewed("alias", data)
    if isinstance(data, Size):
        return creation.empty(tuple(data), device=device)
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
    found = creation.from_data(data if isinstance(data, (np.ndarray, list, tuple)) else list(data), None, device)
    if found.aval.dtype.kind == "c":
        raise TypeError("must be real number, not complex")
    made = created(found)
    return made if made._aval.dtype == dtypes.default_float() else created(creation.from_data(data, dtypes.get_default_dtype(), device))


default_answer.__name__, default_answer.__qualname__ = "__torch_function__", "Tensor.__torch_function__"
public("torch.Tensor.__new__")(staticmethod(_construct))
public("torch.Tensor.__torch_function__")(classmethod(default_answer))
public("torch.Tensor._make_subclass")(staticmethod(_make_subclass))
setattr(Parameter, "__torch_function__", _disabled_torch_function_impl)  # noqa: B010 - what makes subclasses knows it, the class itself cannot
