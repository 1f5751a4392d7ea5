"""Half precision: conversions between float16, bfloat16 and float32, by loops of C's where they are compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline import blocks, lanes
from torchgrad_jax.runtime.baseline.copying import copied

SINGLE, BFLOAT16 = np.dtype(np.float32), blocks.BFLOAT16
# Below, NumPy's conversion of the elements one by one takes no longer.
_FEW = 256
_NUMBERS = {
    ("e", "f"): (lanes.WIDEN_HALF, lanes.HALF, ord("f")), (BFLOAT16.char, "f"): (lanes.WIDEN_BRAIN, lanes.BRAIN, ord("f")),
    ("f", "e"): (lanes.NARROW_HALF, ord("f"), lanes.HALF), ("f", BFLOAT16.char): (lanes.NARROW_BRAIN, ord("f"), lanes.BRAIN),
}  # fmt: skip


def converted(x: Any, target: np.dtype) -> Any:
    """An array of another dtype, in memory of its own: what `astype` gives."""
    how = _NUMBERS.get((x.dtype.char, target.char)) if x.size >= _FEW and blocks.by_numbers else None
    if how is None:
        return x.astype(target)
    flags = x.flags
    if not flags.c_contiguous:
        return converted(x.T, target).T if flags.f_contiguous else converted(copied(x), target)
    made = np.empty(x.shape, target)
    blocks.convert(x, made, *how)
    return made


def widened(x: Any) -> Any:
    """Half precision as float32; anything else as it is."""
    return converted(x, SINGLE) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x
