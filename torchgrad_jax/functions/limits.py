"""`torch.finfo` and `torch.iinfo`: the limits of dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from torchgrad_jax.calling.kinds import type_name
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.only_named import NamedDtype

_NOT_GIVEN: Any = object()


def _dtype(name: str, given: Any) -> Any:
    """TypeError with PyTorch's text for what is no dtype, nor a type of Python's that stands for one."""
    known = dtypes.PYTHON.get(given) if isinstance(given, type) else given
    if not isinstance(known, dtypes.dtype):
        raise TypeError(f"{name}(): argument 'type' (position 1) must be torch.dtype, not {type_name(given)}")
    return known


class finfo:
    """The limits of a floating point dtype, of a complex one's parts; by default of the default dtype. TypeError for any other."""

    __slots__ = ("dtype", "bits", "eps", "max", "min", "resolution", "smallest_normal", "tiny")

    def __init__(self, type: Any = _NOT_GIVEN) -> None:
        given = _dtype("finfo", type) if type is not _NOT_GIVEN else dtypes.get_default_dtype()
        if not (given.is_floating_point or given.is_complex):
            raise TypeError("torch.finfo() requires a floating point input type. Use torch.iinfo to handle 'torch.finfo'")
        kind = given.to_real() if given.is_complex else given
        known: Any = ml_dtypes.finfo(kind.limits if isinstance(kind, NamedDtype) else kind.np)
        self.dtype, self.bits = kind.name, known.bits
        self.eps, self.max, self.min = float(known.eps), float(known.max), float(known.min)
        # Of eight bits no decimal digit is sure.
        self.resolution = 1.0 if known.bits == 8 else 10.0**-known.precision
        self.smallest_normal, self.tiny = float(known.smallest_normal), float(known.tiny)

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:
    """The limits of an integer dtype. TypeError for any other."""

    __slots__ = ("dtype", "bits", "max", "min")

    def __init__(self, type: Any) -> None:
        type = _dtype("iinfo", type)
        if type is dtypes.bool_:
            raise TypeError("torch.bool is not supported by torch.iinfo")
        if isinstance(type, NamedDtype) or type.np.kind not in "iu":
            raise TypeError("torch.iinfo() requires an integer input type. Use torch.finfo to handle 'torch.iinfo'")
        known = np.iinfo(type.np)
        self.dtype, self.bits, self.max, self.min = type.name, known.bits, int(known.max), int(known.min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
