"""PyTorch's type promotion: one table, one function."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.dtypes import BOOL, COMPLEX, FLOAT, INT
from torchgrad_jax.runtime.operation import ArgSpec
from torchgrad_jax.runtime.recorder import large_int

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


def check_factor(name: str, number: Any, specs: Sequence[ArgSpec]) -> None:
    """RuntimeError with PyTorch's text where the factor `name` is of a higher category than the result of operands like `specs`."""
    kind = dtypes.category(result_type(specs))
    if isinstance(number, bool) and kind != BOOL:
        raise RuntimeError(f"Boolean {name} only supported for Boolean results.")
    if isinstance(number, float) and kind <= INT:
        raise RuntimeError(f"For integral input tensors, argument {name} must not be a floating point number.")
    if isinstance(number, complex) and kind != COMPLEX:
        raise RuntimeError(f"For non-complex input tensors, argument {name} must not be a complex number.")


def can_cast(source: np.dtype, target: np.dtype) -> bool:
    """Whether an in-place operation may put a result of dtype `source` into a tensor of dtype `target`."""
    high, low = dtypes.category(source), dtypes.category(target)
    return high <= low or (high == INT and low == INT)


# What PyTorch's errors call the types that a number is converted to.
_WORDS = {"int32": "int", "float16": "double", "bfloat16": "double", "float32": "float", "float64": "double", "complex64": "c10::complex<float>"}


def fitting(number: Any, array_type: np.dtype) -> Any:
    """The number, if the dtype holds it: what a tensor is filled with. RuntimeError with PyTorch's text if not, OverflowError beyond 64 bits."""
    kind = array_type.kind
    if isinstance(number, int):
        large_int(number, kind)
    if kind == "b" or not (isinstance(number, complex) or abs(number) > 127 or number != number or (number < 0 and kind == "u")):
        return number
    real, imag = (number.real, number.imag) if isinstance(number, complex) else (number, 0)
    if kind in "iu":
        bounds = np.iinfo(array_type)
        # The limits of a float are floats too, and below zero it fits no unsigned type. An integer does, as what is left when it wraps around.
        low, high = (bounds.min, bounds.max) if isinstance(real, int) else (float(bounds.min), float(bounds.max))
        fits = imag == 0 and (-high if kind == "u" and isinstance(real, int) else low) <= real <= high
    else:
        limit = float(np.finfo(array_type).max) if array_type.itemsize > 2 and kind in "fc" else float("inf")
        fits = (imag == 0 or kind == "c") and not any(limit < abs(part) < float("inf") for part in (real, imag))
    if not fits:
        name = dtypes.of(array_type).name
        raise RuntimeError(f"value cannot be converted to type {_WORDS.get(name, f'{name}_t')} without overflow")
    return number if kind == "c" or not isinstance(number, complex) else real
