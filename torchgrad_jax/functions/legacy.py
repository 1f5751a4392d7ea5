"""`torch.FloatTensor` and its like: the old classes that name a dtype, as constructors and for `isinstance`."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.calling.factory_options import check_options
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Size, Tensor, created
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import from_data, from_host, target_of, zeros
from torchgrad_jax.runtime.device import device, gpus, set_default
from torchgrad_jax.runtime.user_code import warn_once, warn_user


class tensortype(type):
    """The class of the typed tensor classes: tensors of their dtype on the host are their instances."""

    dtype: dtypes.dtype

    def __call__(cls, *args: Any) -> Tensor:
        """A tensor of the given sizes, of a sequence's elements, or on a tensor's memory. TypeError for anything else."""
        return new_legacy(cls.dtype, args)

    def __repr__(cls) -> str:
        return f"<class 'torch.{cls.__name__}'>"

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype and instance.is_cpu

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls


def new_legacy(dtype: dtypes.dtype, args: tuple[Any, ...]) -> Tensor:
    """What the constructor of `dtype`'s old class gives. Its content is zero where only sizes are given."""
    if not args:
        return zeros(0, dtype=dtype)
    data = args[0]
    if isinstance(data, Tensor):
        if data.dtype is not dtype:
            raise TypeError(f"expected {_options(dtype)} (got {_options(data.dtype)})")
        return data.detach()
    if isinstance(data, Size):
        return zeros(*data, dtype=dtype)
    if all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in args):
        return zeros(*args, dtype=dtype)
    if isinstance(data, (float, complex, bool)):
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
    return created(from_data(data, dtype, None))


def _options(dtype: dtypes.dtype) -> str:
    return (
        f"TensorOptions(dtype={dtype.word}, device=cpu, layout=Strided, requires_grad=false (default), pinned_memory=false (default), "
        "memory_format=(nullopt))"
    )


# ---------------------------------------------------------------------- deprecated functions, and those that PyTorch has removed


@public("torch.range")
def range_(start: Any, end: Any, step: Any = 1, **options: Any) -> Tensor:
    """Deprecated: start, start + step ... up to end, which is included. Keywords: dtype, device, requires_grad, out. See `torch.arange`."""
    warn_user(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with Python's range builtin. "
        "Instead, use torch.arange, which produces values in [start, end).",
        UserWarning,
    )
    check_options("range", options)
    if not step:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start:g} -> {end:g}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    numbers = start + step * np.arange(math.floor((end - start) / step) + 1)
    return from_host("range", numbers.astype(target_of("range", options, None)), options)


@public("torch")
def set_default_tensor_type(t: Any, /) -> None:
    """Deprecated: `torch.set_default_dtype`, by an old class or its name; one of CUDA's sets the default device too. TypeError for what is none, or
    none of floating point numbers."""
    warn_once(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and torch.set_default_device() as "
        "alternatives."
    )
    name = t if isinstance(t, str) else ""
    if name:
        module, _, short = name.rpartition(".")
        if module not in ("torch", "torch.cuda") or short not in classes():
            raise TypeError(f"invalid type: '{name}'")
        t = classes()[short]
    if not isinstance(t, tensortype):
        raise TypeError("invalid type object: only floating-point types are supported as the default type")
    if not t.dtype.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    if name.startswith("torch.cuda."):
        if not gpus():
            raise TypeError(f"type {name} not available. Torch not compiled with CUDA enabled.")
        set_default(device("cuda"))
    dtypes.set_default_dtype(t.dtype)


_TITLES = ("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double")


@cache
def classes() -> dict[str, tensortype]:
    """The typed classes by name."""
    found = {}
    for d in dtypes.ALL:
        if d.title in _TITLES:
            said = f"Tensors of {d.name} on the host: as a constructor, and for `isinstance`."
            found[f"{d.title}Tensor"] = tensortype(f"{d.title}Tensor", (), {"dtype": d, "__module__": "torchgrad_jax", "__doc__": said})
    return found


def _removed(name: str, instead: str) -> None:
    def refuse(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"This function was deprecated since version 1.9 and is now removed. Use {instead}.")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"RuntimeError: PyTorch has removed it. Use {instead}."
    public("torch.Tensor")(refuse)


_removed("eig", "torch.linalg.eig, which gives complex numbers")
_removed("lstsq", "torch.linalg.lstsq, whose arguments are the other way round")
_removed("solve", "torch.linalg.solve, whose arguments are the other way round")
_removed("symeig", "torch.linalg.eigh, which looks at the lower triangle")


@public("torch.Tensor")
def reinforce(self: Tensor, reward: Any) -> None:
    """RuntimeError: PyTorch has removed it. Use `log_prob` of `torch.distributions`."""
    raise RuntimeError(
        "reinforce() was removed.\nUse torch.distributions instead: draw the action as m.sample() of m = Categorical(probs), and call backward() of "
        "-m.log_prob(action) * reward."
    )
