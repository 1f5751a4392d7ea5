"""`torch.FloatTensor` and its like: the old classes that name a dtype, as constructors and for `isinstance`."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.calling.factory_options import check_options
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.strides import strided
from torchgrad_jax.functions.creation import from_data, from_host, target_of, zeros
from torchgrad_jax.runtime.device import CPU, default, device, gpus, set_default, settled
from torchgrad_jax.runtime.device import device as as_device
from torchgrad_jax.runtime.user_code import warn_once, warn_user


class tensortype(type):
    """The class of the typed tensor classes: tensors of their dtype, on the host or on a GPU, are their instances."""

    dtype: dtypes.dtype
    is_cuda: bool
    is_sparse = False
    layout = strided

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        """A tensor of the given sizes, of a sequence's elements, or on a tensor's memory. TypeError for anything else, and for a GPU's where there
        is none; RuntimeError for a `device` of the other kind."""
        return new_legacy(cls.dtype, args, settled(as_device("cuda")) if check_there(cls).is_cuda else CPU, device)

    def __repr__(cls) -> str:
        return f"<class '{_dotted(cls)}'>"

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype and (instance.is_cuda if cls.is_cuda else instance.is_cpu)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls


def check_there(kind: tensortype) -> tensortype:
    """The class, TypeError where it is that of tensors on a GPU and there is none."""
    if kind.is_cuda and not gpus():
        raise TypeError(f"type {_dotted(kind)} not available. Torch not compiled with CUDA enabled.")
    return kind


def _dotted(kind: tensortype) -> str:
    return f"torch.{'cuda.' if kind.is_cuda else ''}{kind.__name__}"


def new_legacy(dtype: dtypes.dtype, args: tuple[Any, ...], home: device, where: Any = None) -> Tensor:
    """What the constructor of `dtype`'s old class gives, of those on `home`'s kind of device; `where`: the device, if not `home`. Its content is zero
    where only sizes are given."""
    if where is not None:
        given = as_device(where)
        if given.type != home.type:
            raise RuntimeError(f"legacy constructor expects device type: {home.type} but device type: {given.type} was passed")
        home = settled(given)
    if not args:
        return zeros(0, dtype=dtype, device=home)
    data = args[0]
    if isinstance(data, Tensor):
        if data.dtype is not dtype or data.device.type != home.type:
            raise TypeError(f"expected {_options(dtype, home)} (got {_options(data.dtype, data.device)})")
        return data.detach()
    if isinstance(data, Size):
        return zeros(*data, dtype=dtype, device=home)
    if all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in args):
        return zeros(*args, dtype=dtype, device=home)
    if isinstance(data, (float, complex, bool)):
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
    return created(from_data(data, dtype, home))


def _options(dtype: dtypes.dtype, where: device) -> str:
    return (
        f"TensorOptions(dtype={dtype.word}, device={where}, layout=Strided, requires_grad=false (default), pinned_memory=false (default), "
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
    if isinstance(t, str):
        place, _, name = t.rpartition(".")
        if place not in _PLACES or name not in classes():
            raise TypeError(f"invalid type: '{t}'")
        t = classes(place)[name]
    if not isinstance(t, tensortype):
        raise TypeError("invalid type object: only floating-point types are supported as the default type")
    if not check_there(t).dtype.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    if t.is_cuda:
        set_default(as_device("cuda"))
    dtypes.set_default_dtype(t.dtype)


_TITLES = ("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double")


_PLACES = {"torch": "the host", "torch.cuda": "a GPU"}


@cache
def classes(place: str = "torch") -> dict[str, tensortype]:
    """The typed classes by name: those in "torch", of tensors on the host, or those in "torch.cuda"."""
    found = {}
    for d in dtypes.ALL:
        if d.title in _TITLES:
            said = f"Tensors of {d.name} on {_PLACES[place]}: as a constructor, and for `isinstance`."
            told = {"dtype": d, "is_cuda": place != "torch", "__module__": place.replace("torch", "torchgrad_jax"), "__doc__": said}
            found[f"{d.title}Tensor"] = tensortype(f"{d.title}Tensor", (), told)
    return found


def type_named(text: str) -> tuple[dtypes.dtype, bool]:
    """The dtype that a dotted name of a typed class means, and whether it is one of a GPU's; "torch.Tensor" is what new tensors are. ValueError for
    what is none."""
    if text == "torch.Tensor":
        return dtypes.get_default_dtype(), default().type == "cuda"
    place, _, name = text.rpartition(".")
    found = next((d for d in dtypes.ALL if name == f"{d.title}Tensor"), None)
    if found is None or place not in _PLACES:
        raise ValueError(f"invalid type: '{text}'")
    return found, place != "torch"


def _removed(name: str, instead: str, *places: str) -> None:
    def refuse(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"This function was deprecated since version 1.9 and is now removed. Use {instead}.")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"RuntimeError: PyTorch has removed it. Use {instead}."
    public(*places or ("torch", "torch.Tensor"))(refuse)


_removed("eig", "torch.linalg.eig, which gives complex numbers")
_removed("lstsq", "torch.linalg.lstsq, whose arguments are the other way round")
_removed("solve", "torch.linalg.solve, whose arguments are the other way round")
_removed("matrix_rank", "torch.linalg.matrix_rank", "torch")
_removed("symeig", "torch.linalg.eigh, which looks at the lower triangle")


@public("torch.Tensor")
def reinforce(self: Tensor, reward: Any) -> None:
    """RuntimeError: PyTorch has removed it. Use `log_prob` of `torch.distributions`."""
    raise RuntimeError(
        "reinforce() was removed.\nUse torch.distributions instead: draw the action as m.sample() of m = Categorical(probs), and call backward() of "
        "-m.log_prob(action) * reward."
    )
