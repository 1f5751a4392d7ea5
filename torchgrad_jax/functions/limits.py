"""`torch.finfo` and `torch.iinfo`: the limits of dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.only_named import NamedDtype


class finfo:
    """The limits of a floating point dtype, of a complex one's parts; by default of the default dtype. TypeError for any other."""

    __slots__ = ("dtype", "bits", "eps", "max", "min", "resolution", "smallest_normal", "tiny")

    def __init__(self, type: Any = None) -> None:
        given: Any = dtypes.get_default_dtype() if type is None else dtypes.PYTHON.get(type, type)
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
        type = dtypes.PYTHON.get(type, type)
        if isinstance(type, NamedDtype) or type.np.kind not in "iu":
            raise TypeError("torch.iinfo() requires an integer input type. Use torch.finfo to handle 'torch.iinfo'")
        known = np.iinfo(type.np)
        self.dtype, self.bits, self.max, self.min = type.name, known.bits, int(known.max), int(known.min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
