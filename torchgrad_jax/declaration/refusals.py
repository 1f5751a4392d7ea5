"""What operators refuse: derivatives that PyTorch has not either, and dtypes that its kernels do not take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import is_half


def no_derivative(name: str) -> Callable[[Any], Any]:
    """The gradient formula of an operator that PyTorch has no derivative of: backward raises its RuntimeError."""

    def refuse(grad: Any) -> Any:
        raise RuntimeError(f"derivative for aten::{name} is not implemented")

    return refuse


def not_implemented(what: str) -> Callable[[Any], Any]:
    """The gradient formula of what PyTorch refuses to differentiate though the operator has a node: backward raises NotImplementedError."""

    def refuse(grad: Any) -> Any:
        raise NotImplementedError(f"the derivative for '{what}' is not implemented.")

    return refuse


# What is said where PyTorch makes complex numbers of float16.
NO_COMPLEX32 = "torchgrad_jax has no complex32, the complex numbers of two float16: arrays of JAX have no such type. Use float32."


def refusing(kernel: str, kinds: str, but: Any = None) -> Callable[..., None]:
    """A `validate` that refuses tensors of these kinds (NumPy's letters; h for half precision) but for one dtype: NotImplementedError with
    PyTorch's text, which names its kernel."""

    def validate(x: Any, *_: Any, **__: Any) -> None:
        if not isinstance(x, type) and (x.dtype.kind in kinds or ("h" in kinds and is_half(x.dtype))) and (but is None or x.dtype != but):
            raise unsupported(kernel, x.dtype)

    return validate


def unsupported(kernel: str, dtype: Any) -> NotImplementedError:
    """What PyTorch raises where its kernel has not this dtype."""
    return NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.of(np.dtype(dtype)).title}'")


def kernel(name: str, refuses: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes an operator's function refuse these kinds after promotion, as PyTorch's kernel of this name does."""
    refuse = refusing(name, refuses)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(x: Any, *args: Any, **kwargs: Any) -> Any:
            refuse(x)
            return function(x, *args, **kwargs)

        return checked

    return decorate
