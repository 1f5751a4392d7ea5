"""`torch.autocast`: blocks in which operators choose the dtype that they compute in, and what a thread's settings of it are."""

from __future__ import annotations

import collections.abc
import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from torchgrad_jax.calling.kinds import type_name
from torchgrad_jax.core.autocasting import Autocast, autocast_of
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.autocast import TYPES
from torchgrad_jax.runtime.device import device, gpus
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_user

__all__ = [
    "autocast", "autocast_decorator", "autocast_decrement_nesting", "autocast_increment_nesting", "clear_autocast_cache", "custom_bwd", "custom_fwd",
    "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype", "get_autocast_ipu_dtype", "get_autocast_xla_dtype",
    "is_autocast_available", "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled", "is_autocast_ipu_enabled",
    "is_autocast_xla_enabled", "set_autocast_cache_enabled", "set_autocast_cpu_dtype", "set_autocast_cpu_enabled", "set_autocast_dtype",
    "set_autocast_enabled", "set_autocast_gpu_dtype", "set_autocast_ipu_dtype", "set_autocast_ipu_enabled", "set_autocast_xla_dtype",
    "set_autocast_xla_enabled",
]  # fmt: skip

_LOWER = (dtypes.bfloat16, dtypes.float16)


def _present() -> Autocast:
    return autocast_of(per_thread.recorder)


# ---------------------------------------------------------------------- blocks


class autocast:
    """A block in which operators compute in lower precision where that is quicker, and in float32 where they need it, by PyTorch's "Autocast Op
    Reference". Context manager and decorator.

    device_type: of the tensors whose operators do; for another one the block changes nothing. dtype: the lower precision, bfloat16 or float16; by
    default `torch.get_autocast_dtype(device_type)`. enabled: False is a block without, within one with. cache_enabled: whether what a leaf that
    requires grad was converted to is used again, until the outermost block ends: by default as it is outside. Backward belongs outside: an operator's
    gradient has the dtype that it computed in.

    ValueError, RuntimeError where there is no such type of device, or no autocast for it. For CUDA without a GPU, and for other dtypes, it warns and
    is off.

    Example::

        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model(x), y)
        loss.backward()
    """

    __module__ = "torchgrad_jax.amp.autocast_mode"  # where users find it

    def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
        _expect_type(device_type)
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        if not is_autocast_available(device_type):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self._cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        if enabled and device_type == "cuda" and not gpus():
            warn_user("CUDA is not available or torch_xla is imported. Disabling autocast.")
            enabled = False
        elif enabled and self.fast_dtype not in _LOWER:
            name = device_type.upper()
            warn_user(
                f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n{name} Autocast only supports dtypes of "
                "torch.bfloat16, torch.float16 currently."
            )
            enabled = False
        self._enabled = enabled

    def __enter__(self) -> autocast:
        self.prev_cache_enabled, self.prev = is_autocast_cache_enabled(), is_autocast_enabled(self.device)
        self.prev_fastdtype = get_autocast_dtype(self.device)
        set_autocast_enabled(self.device, self._enabled)
        set_autocast_dtype(self.device, self.fast_dtype)
        autocast_increment_nesting()
        set_autocast_cache_enabled(self._cache_enabled)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if autocast_decrement_nesting() == 0:
            clear_autocast_cache()
        set_autocast_enabled(self.device, self.prev)
        set_autocast_dtype(self.device, self.prev_fastdtype)
        set_autocast_cache_enabled(self.prev_cache_enabled)
        return False

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. Did you mean to use autocast as a context manager? For "
                "example:\n    with torch.autocast(device_type=...):\n        output = model(input)"
            )
        return autocast_decorator(self, func)


def autocast_decorator(autocast_instance: autocast, func: Callable[..., Any]) -> Callable[..., Any]:
    """`func` within a block of autocast."""

    @functools.wraps(func)
    def decorate_autocast(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance:
            return func(*args, **kwargs)

    decorate_autocast.__script_unsupported = "@autocast() decorator is not supported in script mode"  # type: ignore[attr-defined] - as PyTorch's
    return decorate_autocast


# ---------------------------------------------------------------------- the settings of a thread


def is_autocast_available(device_type: str) -> bool:
    """Whether there is autocast for a type of device. RuntimeError for an unknown one."""
    return _type(device_type, "_is_autocast_available") in TYPES


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on for a type of device. RuntimeError where there is none."""
    return _switched(device_type, "is_autocast_enabled") in _present().on


def set_autocast_enabled(device_type: Any, enabled: Any = None) -> None:
    """Turn autocast on or off for a type of device, or with one argument for ``"cuda"``. TypeError, RuntimeError as PyTorch's."""
    position = 1 if enabled is None else 2
    if enabled is None:
        device_type, enabled = "cuda", device_type
    where = _switched(device_type, "set_autocast_enabled")
    if not isinstance(enabled, bool):
        raise TypeError(f"set_autocast_enabled(): argument 'enabled' (position {position}) must be bool, not {type_name(enabled)}")
    _present().switch(per_thread.recorder, where, enabled)


def get_autocast_dtype(device_type: str) -> dtypes.dtype:
    """What lower precision is on a type of device. RuntimeError where there is none."""
    found = _present().dtype(_type(device_type, "get_autocast_dtype"))
    if found is None:
        raise RuntimeError("unsupported scalarType")
    return found


def set_autocast_dtype(device_type: str, dtype: dtypes.dtype) -> None:
    """Set what lower precision is on a type of device."""
    where = _type(device_type, "set_autocast_dtype")
    if not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"set_autocast_dtype(): argument 'dtype' (position 2) must be torch.dtype, not {type_name(dtype)}")
    _present().dtypes[where] = dtype


def is_autocast_cache_enabled() -> bool:
    """Whether conversions of leaves that require grad are kept, until the outermost block ends."""
    return _present().keeps


def set_autocast_cache_enabled(enabled: bool, /) -> None:
    """Set whether they are. TypeError for what is no bool."""
    _present().keeps = _bool(enabled)


def clear_autocast_cache() -> None:
    """Forget the conversions that are kept."""
    per_thread.recorder.flags.casts.clear()


def autocast_increment_nesting() -> int:
    """Note that a block has begun. How many are open."""
    present = _present()
    present.nesting += 1
    return present.nesting


def autocast_decrement_nesting() -> int:
    """Note that a block has ended. How many are open."""
    present = _present()
    present.nesting -= 1
    return present.nesting


def _type(device_type: Any, function: str) -> str:
    if not isinstance(device_type, str):
        raise TypeError(f"{function}(): argument 'device_type' (position 1) must be str, not {type_name(device_type)}")
    return device(device_type).type


def _switched(device_type: Any, function: str) -> str:
    where = _type(device_type, function)
    if where not in TYPES:
        raise RuntimeError("unknown device type for autocast in get_autocast_dispatch_key_from_device_type")
    return where


def _bool(enabled: Any) -> bool:
    if not isinstance(enabled, bool):
        raise TypeError(f"enabled must be a bool (got {type_name(enabled)})")
    return enabled


def _expect_type(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


# The same for one type of device each: PyTorch's older names, which warn.


def _older(where: str, named: str) -> tuple[Any, Any, Any, Any]:
    """`is_autocast_X_enabled`, `set_autocast_X_enabled`, `get_autocast_X_dtype` and `set_autocast_X_dtype`. named: X."""

    def is_enabled() -> bool:
        _warn(f"is_autocast_{named}_enabled()", f"is_autocast_enabled('{where}')")
        return is_autocast_enabled(where)

    def set_enabled(enabled: bool, /) -> None:
        _warn(f"set_autocast_{named}_enabled(enabled)", f"set_autocast_enabled('{where}', enabled)")
        set_autocast_enabled(where, _bool(enabled))

    def get_dtype() -> dtypes.dtype:
        _warn(f"get_autocast_{named}_dtype()", f"get_autocast_dtype('{where}')")
        return get_autocast_dtype(where)

    def set_dtype(dtype: dtypes.dtype, /) -> None:
        _warn(f"set_autocast_{named}_dtype(dtype)", f"set_autocast_dtype('{where}', dtype)")
        if not isinstance(dtype, dtypes.dtype):
            raise TypeError(f"dtype must be a torch.dtype (got {type_name(dtype)})")
        set_autocast_dtype(where, dtype)

    found = is_enabled, set_enabled, get_dtype, set_dtype
    for made, begin, end in zip(found, ("is", "set", "get", "set"), ("enabled", "enabled", "dtype", "dtype"), strict=True):
        made.__name__ = made.__qualname__ = f"{begin}_autocast_{named}_{end}"
        made.__doc__ = f"The older name of `{begin}_autocast_{end}` for {where!r}. It warns, as in PyTorch."
    return found


def _warn(older: str, present: str) -> None:
    warn_user(f"torch.{older} is deprecated. Please use torch.{present} instead.", DeprecationWarning)


is_autocast_cpu_enabled, set_autocast_cpu_enabled, get_autocast_cpu_dtype, set_autocast_cpu_dtype = _older("cpu", "cpu")
is_autocast_ipu_enabled, set_autocast_ipu_enabled, get_autocast_ipu_dtype, set_autocast_ipu_dtype = _older("ipu", "ipu")
is_autocast_xla_enabled, set_autocast_xla_enabled, get_autocast_xla_dtype, set_autocast_xla_dtype = _older("xla", "xla")
_, _, get_autocast_gpu_dtype, set_autocast_gpu_dtype = _older("cuda", "gpu")


# ---------------------------------------------------------------------- the user's Functions


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: Any = None) -> Any:
    """Decorator of the `forward` of a Function, for autocast on a type of device.

    cast_inputs: where autocast is on, the floating point tensors of this device among the arguments (in lists and dicts too; those of double
    precision apart) are converted to this dtype, and forward runs with autocast off. None: it runs as it is called. Backward, under `custom_bwd`,
    runs with autocast as forward did. ValueError where `device_type` is no str.
    """
    _expect_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorate_fwd(*args: Any, **kwargs: Any) -> Any:
        ctx, on = args[0], is_autocast_enabled(device_type)
        ctx._dtype, ctx._fwd_used_autocast = get_autocast_dtype(device_type), on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        with autocast(device_type=device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorate_fwd


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """Decorator of the `backward` of a Function whose `forward` has `custom_fwd`: autocast is as it was there. ValueError where `device_type` is no
    str."""
    _expect_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorate_bwd(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type=device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return decorate_bwd


def _cast(given: Any, where: str, dtype: dtypes.dtype) -> Any:
    """What `custom_fwd` hands on of an argument."""
    if isinstance(given, Tensor):
        eligible = given.is_floating_point() and given.device.type == where and given.dtype is not dtypes.float64
        return given.to(dtype) if eligible else given
    if isinstance(given, (str, np.ndarray)):
        return given
    if isinstance(given, collections.abc.Mapping):
        return {_cast(key, where, dtype): _cast(value, where, dtype) for key, value in given.items()}
    if isinstance(given, collections.abc.Iterable):
        cast = (_cast(x, where, dtype) for x in given)
        return type(given)(cast) if isinstance(given, (list, tuple)) else cast  # type: ignore[call-arg] - of an iterable, as lists and tuples are
    return given
