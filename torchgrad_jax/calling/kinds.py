"""Which values PyTorch takes for a parameter of each type, and what it calls the types of those that it does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.calling.signature import Parameter
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.strides import layout
from torchgrad_jax.runtime.device import device

_NAMED = {dtypes.dtype: "torch.dtype", device: "torch.device", layout: "torch.layout", Size: "torch.Size"}
_NAMED_BY_CLASS = {"memory_format": "torch.memory_format", "Generator": "torch._C.Generator"}


def type_name(value: Any) -> str:
    """The type of a value as PyTorch's errors name it."""
    kind = type(value)
    if kind in _NAMED:
        return _NAMED[kind]
    if kind.__module__.startswith("torchgrad_jax") and kind.__name__ in _NAMED_BY_CLASS:
        return _NAMED_BY_CLASS[kind.__name__]
    if kind.__module__.partition(".")[0] == "numpy":
        return f"{kind.__module__}.{kind.__name__}"
    return kind.__name__


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _is_one(value: Any) -> bool:
    """Whether it is a tensor that stands for a number."""
    return isinstance(value, Tensor) and not value._aval.ndim and not value.requires_grad


def is_int(value: Any) -> bool:
    """Whether it is an integer, or a 0-dim tensor of one."""
    kind = type(value)
    return kind is int or (kind is not bool and isinstance(value, (int, np.integer))) or (_is_one(value) and value._aval.dtype.kind in "iu")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex, np.number, np.bool_)) or _is_one(value)


def _is_float(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating, np.bool_)) or _is_one(value)


def _is_element(value: Any) -> bool:
    """Whether it may be the first of a list of integers."""
    if isinstance(value, Tensor):
        return value._aval.size == 1 and value._aval.dtype.kind in "iub" and not value.requires_grad
    return is_int(value) or (hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_, np.ndarray)))


def _are_ints(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and (len(value) == 0 or _is_element(value[0]))


def _are_floats(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and (len(value) == 0 or _is_float(value[0]))


def _are_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_number, value))


def _is_dtype(value: Any) -> bool:
    return isinstance(value, dtypes.dtype) or (isinstance(value, type) and value in dtypes.PYTHON)


def _is_device(value: Any) -> bool:
    return isinstance(value, (str, device)) or (is_int(value) and not isinstance(value, Tensor))


_TAKES: dict[str, Callable[[Any], bool]] = {
    "Tensor": _is_tensor, "Tensor|Scalar": lambda v: isinstance(v, Tensor) or _is_number(v), "Scalar": _is_number, "int": is_int,
    "float": _is_float, "bool": lambda v: isinstance(v, bool), "str": lambda v: isinstance(v, str), "int[]": _are_ints,
    "float[]": _are_floats, "Scalar[]": _are_numbers, "Tensor[]": lambda v: isinstance(v, (list, tuple)), "dtype": _is_dtype,
    "device": _is_device, "layout": lambda v: isinstance(v, layout), "memory_format": lambda v: type(v).__name__ == "memory_format",
    "Generator": lambda v: type(v).__name__ == "Generator",
    "truth": lambda v: bool(v) or True, "bool!": lambda v: (bool(v) or True) and isinstance(v, bool), "any": lambda v: True,
}  # fmt: skip


def takes(p: Parameter, value: Any) -> bool:
    """Whether the parameter takes the value."""
    if value is None and p.takes_none:
        return True
    if p.width and p.kind == "int[]" and not isinstance(value, (list, tuple)):
        return is_int(value) or (isinstance(value, Tensor) and _is_element(value))
    if p.width and p.kind == "float[]" and not isinstance(value, (list, tuple)):
        return _is_float(value)
    return hasattr(value, p.kind[1:]) if p.kind[0] == "." else _TAKES[p.kind](value)


def odd_element(p: Parameter, value: Any) -> tuple[int, str] | None:
    """Where an element stands that fits no list of integers, though the first does, and what PyTorch says of it."""
    if p.kind != "int[]" or not isinstance(value, (list, tuple)):
        return None
    for i, v in enumerate(value):
        if not _is_element(v) and not isinstance(v, bool):
            return i, f"type must be {p.word},but got {type_name(v)}"
    return None


def integers(sizes: Sequence[Any], argument: str) -> list[int]:
    """The elements of an argument so named. TypeError for what is no integer."""
    for i, size in enumerate(sizes):
        if not hasattr(size, "__index__"):
            kind = type_name(size)
            raise TypeError(f'{argument} failed to unpack the object at pos {i + 1} with error "type must be tuple of ints,but got {kind}"')
    return [int(size) for size in sizes]


def split_sizes(given: Any) -> list[int]:
    """The sizes of pieces that `split` was given, where it is no integer. TypeError where it is no list of integers."""
    if isinstance(given, bool):
        ways = "".join([f" * (Tensor input, {kind} split_size, int dim = 0)\n" for kind in ("int", "tuple of ints")])
        raise TypeError(f"split() received an invalid combination of arguments - got (Tensor, bool, int), but expected one of:\n{ways}")
    argument = "split_with_sizes(): argument 'split_sizes'"
    if not isinstance(given, (tuple, list)):
        raise TypeError(f"{argument} (position 2) must be tuple of ints, not {type_name(given)}")
    if len(given) and not _is_element(given[0]):
        raise TypeError(f"{argument} (position 2) must be tuple of ints, but found element of type {type_name(given[0])} at pos 0")
    return integers(given, argument)
