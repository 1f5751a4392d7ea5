"""The keywords of functions that make tensors: which each has, and what they may be."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.strides import layout, strided
from torchgrad_jax.runtime.device import CPU, default, device

_OPTIONS = frozenset(("dtype", "device", "requires_grad", "layout", "pin_memory"))
_MORE = {"empty": ("out", "memory_format")} | dict.fromkeys(("zeros", "ones", "full", "arange", "eye", "linspace", "logspace", "range"), ("out",))
_MORE |= dict.fromkeys(("zeros_like", "ones_like", "full_like", "empty_like"), ("memory_format",))
_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "requires_grad": ("bool", (bool,)), "pin_memory": ("bool", (bool,)), "layout": ("torch.layout", (layout,)),
    "device": ("torch.device", (str, int, device)),
}  # fmt: skip
NO_PINNED = "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory allocator is available on this system."


def check_memory(name: str, options: dict[str, Any]) -> None:
    """TypeError for an option of the factory `name` that is of another type, RuntimeError for a kind of memory that there is none of."""
    for option, value in options.items():
        if value is None or option not in _TYPES:
            continue
        kind, classes = _TYPES[option]
        if type(value) not in classes:
            raise TypeError(f"{name}(): argument '{option}' must be {kind}, not {type(value).__name__}")
        if option == "layout" and value is not strided:
            raise RuntimeError(f"{name}(): torchgrad_jax makes strided tensors so, not {value}: use torch.sparse_coo_tensor(size=...)")
        if option == "pin_memory" and value:
            raise RuntimeError(NO_PINNED)


def check_options(name: str, options: dict[str, Any]) -> None:
    """`check_memory`, and TypeError for an option that the factory does not have."""
    for option in options:
        if option not in _OPTIONS and option not in _MORE.get(name, ()):
            raise TypeError(f"{name}() got an unexpected keyword argument '{option}'")
    check_memory(name, options)


def sizes_alone(size: tuple[Any, ...], options: dict[str, Any]) -> tuple[int, ...] | None:
    """The shape, where sizes are all that a factory was given; None where there is more to see to."""
    if options or not size:
        return None
    if len(size) == 1 and isinstance(size[0], tuple):
        (size,) = size
    return tuple(size) if _are_ints(map(type, size)) and (len(size) == 0 or min(size) >= 0) else None


_are_ints = frozenset((int,)).issuperset


_INT64 = np.dtype(np.int64)
_ORDINARY = 1e18  # what int64 and float32 hold
_NUMBERS = frozenset((int, float))


def dtype_alone(data: Any) -> np.dtype | None:
    """The dtype of a number, of a list or of rows of such, where they are ordinary ones on the host; None where there is more to see to."""
    kind = type(data)
    if kind is list:
        if data and type(data[0]) is list:
            if {*map(type, data)} != {list} or len({*map(len, data)}) != 1:
                return None
            data = [*chain.from_iterable(data)]
        kinds = {*map(type, data)}
        if len(kinds) != 1 or not kinds.issubset(_NUMBERS) or not (min(data) > -_ORDINARY and max(data) < _ORDINARY):
            return None
        (kind,) = kinds
    elif not ((kind is float or kind is int) and abs(data) < _ORDINARY):
        return None
    if default() is not CPU:
        return None
    found = dtypes.default_float() if kind is float else _INT64
    return found if found.itemsize > 2 else None
