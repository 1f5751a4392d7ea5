"""Results as figures that can be kept and compared: how far apart, in units of the last place and relatively, and whether that is rounding."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

# What counts as rounding, relative to the largest element: (one operator on the same inputs, a chain of operators).
ROUNDING = {
    "float": (1e-11, 1e-9), "complex": (1e-11, 1e-9), "float64": (1e-11, 1e-9), "complex128": (1e-11, 1e-9), "float32": (1e-5, 3e-5),
    "complex64": (1e-5, 3e-5), "float16": (4e-3, 1e-2),
    "bfloat16": (3e-2, 6e-2),
}  # fmt: skip
# The bits behind the point.
_DIGITS = {"float64": 52, "complex128": 52, "float32": 23, "complex64": 23, "float16": 10, "bfloat16": 7}
KEPT = 4096
WIDER = {"float32": "float64", "complex64": "complex128", "float16": "float32", "bfloat16": "float32"}
# How many times as far off as the other's own rounding a result may be, and how much of the largest element may be called rounding at all.
_AS_ROUNDED, _MOST_ROUNDED = 16, 0.01


@dataclasses.dataclass
class Figures:
    """A result: its dtype's name, its shape, elements of it (all, or as many as are kept, evenly spread), the norm of all of them, and whether it
    requires a gradient."""

    dtype: str
    shape: tuple[int, ...]
    sample: np.ndarray | None
    norm: float = 0.0
    requires_grad: bool = False

    @property
    def known(self) -> bool:
        """Whether its elements could be read: inside of a transform they cannot."""
        return self.sample is not None


@dataclasses.dataclass
class Distance:
    """How far one result is from another.

    what: "" where only numbers differ, else what else does. absolute: the largest difference. relative: that, relative to the largest element.
    ulp: the largest difference in units in the last place of the element itself.
    """

    what: str = ""
    absolute: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0
    dtype: str = ""

    def is_rounding(self, tolerance: float) -> bool:
        """Whether nothing but numbers differs, and they at most by `tolerance`."""
        return not self.what and self.relative <= tolerance

    def __str__(self) -> str:
        if self.what:
            return self.what
        if not self.absolute:
            return "equal"
        ulp = "" if math.isnan(self.ulp) else f", {self.ulp:.3g} ulp"
        return f"off by {self.absolute:.3g} ({self.relative:.2g} of the largest element{ulp})"


def tolerance(dtype: str, chain: bool = False) -> float:
    """How far results of this dtype may be apart by rounding, relative to the largest element; 0 where nothing is rounded."""
    return ROUNDING.get(dtype, (0.0, 0.0))[chain]


def array_of(torch: Any, tensor: Any) -> np.ndarray:
    """The elements of a tensor; half precision as float32, which holds it exactly. RuntimeError inside of transforms."""
    t = tensor.detach()
    if t.dtype in (torch.bfloat16, torch.float16):
        t = t.float()
    if hasattr(t, "is_sparse") and t.is_sparse:
        t = t.to_dense()
    t = t.cpu().resolve_conj().resolve_neg()
    return np.array(t.numpy())


def figures_of(torch: Any, result: Any, kept: int = KEPT) -> Figures:
    """The figures of a tensor or of a Python number."""
    if not isinstance(result, torch.Tensor):
        return Figures(type(result).__name__, (), np.asarray(result))
    dtype, shape = str(result.dtype).removeprefix("torch."), tuple(result.shape)
    try:
        array = array_of(torch, result)
    except (RuntimeError, TypeError, NotImplementedError, ValueError):
        return Figures(dtype, shape, None)
    flat = array.reshape(-1)
    if flat.size <= kept:
        return Figures(dtype, shape, flat, requires_grad=result.requires_grad)
    wide = flat.astype(np.complex128 if flat.dtype.kind == "c" else np.float64)
    with np.errstate(all="ignore"):
        norm = float(np.sqrt(np.sum(np.abs(wide) ** 2)))
    return Figures(dtype, shape, flat[:: -(-flat.size // kept)].copy(), norm, result.requires_grad)


def distance(ours: Figures, theirs: Figures) -> Distance:
    """How far `ours` is from `theirs`."""
    if ours.dtype != theirs.dtype:
        return Distance(f"dtype {ours.dtype} instead of {theirs.dtype}", dtype=ours.dtype)
    if ours.shape != theirs.shape:
        return Distance(f"shape {ours.shape} instead of {theirs.shape}", dtype=ours.dtype)
    if ours.sample is None or theirs.sample is None:
        return Distance(dtype=ours.dtype)
    if ours.requires_grad != theirs.requires_grad:
        return Distance(
            f"requires {'a' if ours.requires_grad else 'no'} gradient, and there it does{'' if theirs.requires_grad else ' not'}", dtype=ours.dtype
        )
    found = _of_arrays(ours.sample, theirs.sample, ours.dtype)
    if not found.what and (ours.norm or theirs.norm) and ours.norm != theirs.norm:
        among = abs(ours.norm - theirs.norm) / max(ours.norm, theirs.norm)
        if math.isfinite(among):
            found.relative = max(found.relative, among)
            found.absolute = max(found.absolute, abs(ours.norm - theirs.norm))
    return found


def _of_arrays(ours: np.ndarray, theirs: np.ndarray, dtype: str) -> Distance:
    if ours.size == 0:
        return Distance(dtype=dtype)
    if ours.dtype.kind in "OUS":
        return Distance("" if np.array_equal(ours, theirs) else f"{ours} instead of {theirs}", dtype=dtype)
    if ours.dtype.kind not in "fc":
        wrong = int(np.sum(ours != theirs))
        return Distance(f"{wrong} of {ours.size} elements differ" if wrong else "", dtype=dtype)
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):  # signaling NaNs
        a, b = ours.astype(wide), theirs.astype(wide)
    both = np.isfinite(a) & np.isfinite(b)
    odd = ~both & ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if odd.any():
        at = int(np.argmax(odd))
        return Distance(f"{int(odd.sum())} of {a.size} elements differ in being finite (such as {ours[at]} instead of {theirs[at]})", dtype=dtype)
    if not both.any():
        return Distance(dtype=dtype)
    a, b = a[both], b[both]
    apart, size = np.abs(a - b), np.abs(b)
    absolute, largest = float(apart.max()), float(max(size.max(), np.abs(a).max()))
    return Distance("", absolute, absolute / largest if largest else 0.0, _ulp(apart, size, dtype), dtype)


def _ulp(apart: np.ndarray, size: np.ndarray, dtype: str) -> float:
    digits = _DIGITS.get(dtype)
    if digits is None:
        return float("nan")
    _, exponent = np.frexp(np.maximum(size, np.finfo(np.float64).tiny))
    with np.errstate(over="ignore"):
        return float((apart / np.ldexp(1.0, exponent - 1 - digits)).max())


def as_rounded(ours: np.ndarray, theirs: np.ndarray, exactly: np.ndarray) -> bool:
    """Whether `ours` is no further from what wider dtypes give than the rounding of `theirs` explains: what cancels, such as 1 - tanh(x)**2 for large
    x, loses digits whoever computes it."""
    if not ours.shape == theirs.shape == exactly.shape or not np.isfinite(exactly).all():
        return False
    off, rounding = (float(np.max(np.abs(x - exactly), initial=0.0)) for x in (ours, theirs))
    return off <= _AS_ROUNDED * rounding <= _AS_ROUNDED * _MOST_ROUNDED * float(np.max(np.abs(exactly), initial=0.0))
