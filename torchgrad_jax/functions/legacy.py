"""`torch.FloatTensor` and its like: the old classes that name a dtype, as constructors and for `isinstance`."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.core.tensor import Size, Tensor, created
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import from_data, zeros


class tensortype(type):
    """The class of the typed tensor classes: tensors of their dtype on the host are their instances."""

    dtype: dtypes.dtype

    def __call__(cls, *args: Any) -> Tensor:
        """A tensor of the given sizes, of a sequence's elements, or on a tensor's memory. TypeError for anything else."""
        return new_legacy(cls.dtype, args)

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


_TITLES = ("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double")


def classes() -> dict[str, tensortype]:
    """The typed classes by name."""
    found = {}
    for d in dtypes.ALL:
        if d.title in _TITLES:
            said = f"Tensors of {d.name} on the host: as a constructor, and for `isinstance`."
            found[f"{d.title}Tensor"] = tensortype(f"{d.title}Tensor", (), {"dtype": d, "__module__": "torch", "__doc__": said})
    return found
