"""PyTorch's type promotion: one table, one function."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from torchgrad_jax.ops import dtypes
from torchgrad_jax.ops.dtypes import BOOL, COMPLEX, FLOAT, INT
from torchgrad_jax.runtime.operation import ArgSpec

_NUMBER_CATEGORY = {bool: BOOL, int: INT, float: FLOAT, complex: COMPLEX}


@cache
def promote_types(a: np.dtype, b: np.dtype) -> np.dtype:
    """The smallest dtype of the table that both convert to, as between two tensors with dimensions."""
    if a == b:
        return a
    low, high = sorted((a, b), key=lambda d: (dtypes.category(d), d.itemsize))
    if dtypes.category(low) != dtypes.category(high):
        if dtypes.category(high) == COMPLEX:
            return dtypes.complex128.np if low == dtypes.float64.np else high
        return high
    if dtypes.category(high) == FLOAT and low.itemsize == high.itemsize == 2:
        return dtypes.float32.np
    if (low.kind == "u") != (high.kind == "u"):
        unsigned, signed = (low, high) if low.kind == "u" else (high, low)
        if unsigned.itemsize < signed.itemsize:
            return signed
        return {1: dtypes.int16, 2: dtypes.int32, 4: dtypes.int64, 8: dtypes.float32}[unsigned.itemsize].np
    return high


def result_type(specs: Sequence[ArgSpec]) -> np.dtype:
    """The dtype of an operation on these avals and Python number types.

    A class of operands (tensors with dimensions; 0-dim tensors; numbers) widens the result of the class before it only
    by raising the category: bool < integer < floating < complex.
    """
    dimensioned: np.dtype | None = None
    zero_dim: np.dtype | None = None
    number: np.dtype | None = None
    for spec in specs:
        if isinstance(spec, type):
            found = dtypes.of_number(spec)
            number = found if number is None else promote_types(number, found)
        elif spec.ndim:
            dimensioned = spec.dtype if dimensioned is None else promote_types(dimensioned, spec.dtype)
        else:
            zero_dim = spec.dtype if zero_dim is None else promote_types(zero_dim, spec.dtype)
    return _lift(_lift(dimensioned, zero_dim), number) or dtypes.default_float()


def _lift(main: np.dtype | None, other: np.dtype | None) -> np.dtype | None:
    if main is None or other is None:
        return other if main is None else main
    high, low = dtypes.category(other), dtypes.category(main)
    if high <= low:
        return main
    if high == COMPLEX and low == FLOAT:  # the category rises, the precision stays
        return dtypes.to_complex(main)
    return other


def to_float(array_type: np.dtype) -> np.dtype:
    """Integers and booleans become the default floating point dtype."""
    return array_type if dtypes.is_float(array_type) else dtypes.default_float()


def can_cast(source: np.dtype, target: np.dtype) -> bool:
    """Whether an in-place operation may put a result of dtype `source` into a tensor of dtype `target`."""
    high, low = dtypes.category(source), dtypes.category(target)
    return high <= low or (high == INT and low == INT)
