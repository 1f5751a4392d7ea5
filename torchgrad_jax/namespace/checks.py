"""`torch._check` and its kin: conditions that a program states, each raising an error of a class of its own. What a build has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torchgrad_jax.calling.for_users import handle_torch_function, has_torch_function
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime import device as devices
from torchgrad_jax.runtime.user_code import warn_user

_NO_MESSAGE = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an enhancement request to PyTorch.)"
)


def _raise_unless(kind: type[Exception], cond: Any, message: Callable[[], Any] | None) -> None:
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        raise kind(_NO_MESSAGE)
    if not callable(message):
        raise TypeError("message must be a callable")
    raise kind(str(message()))


def _check(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """RuntimeError with what `message` returns unless `cond` is True."""
    _raise_unless(RuntimeError, cond, message)


def _check_index(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """IndexError with what `message` returns unless `cond` is True."""
    _raise_unless(IndexError, cond, message)


def _check_value(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """ValueError with what `message` returns unless `cond` is True."""
    _raise_unless(ValueError, cond, message)


def _check_type(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """TypeError with what `message` returns unless `cond` is True."""
    _raise_unless(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """NotImplementedError with what `message` returns unless `cond` is True."""
    _raise_unless(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Callable[[], Any] | None = None, *, max: Any = None) -> None:
    """RuntimeError unless 0 <= i, and i <= max where that is given."""
    warn_user(
        "_check_is_size will be removed in a future PyTorch release along with guard_size_oblivious.     Use _check(i >= 0) instead.", FutureWarning
    )
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _assert(condition: Any, message: Any) -> None:
    """AssertionError with the message unless the condition, which may be a tensor of one element, holds."""
    if type(condition) is not Tensor and has_torch_function((condition,)):
        return handle_torch_function(_assert, (condition,), condition, message)
    assert bool(condition) if isinstance(condition, Tensor) else condition, message


def is_vulkan_available() -> bool:
    """False."""
    return False


def compiled_with_cxx11_abi() -> bool:
    """True: what is compiled here is not C++ of PyTorch's."""
    return True


def get_device_module(device: Any = None) -> Any:
    """The module of a device's type: `torch.cpu` or `torch.cuda`; without one that of the GPU where there is one, else of the CPU."""
    found = ("cuda" if devices.gpus() else "cpu") if device is None else device
    kind = devices.device(found).type
    module = sys.modules.get(f"torchgrad_jax.{kind}")
    if module is None:
        raise RuntimeError(f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'.")
    return module


FUNCTIONS = {
    f.__name__: f
    for f in (
        _check,
        _check_index,
        _check_value,
        _check_type,
        _check_not_implemented,
        _check_is_size,
        _assert,
        is_vulkan_available,
        compiled_with_cxx11_abi,
        get_device_module,
    )
}
