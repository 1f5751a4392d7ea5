"""What NumPy takes, in nanoseconds. The decision between interpreting and compiling needs no more than a factor of two.

Measured on three x86 processors with NumPy 2.4, on arrays of 8 and of 100,000 elements; a step is the call of one rule from a plan.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.runtime.baseline import blocks
from torchgrad_jax.runtime.native import blas

# One step, whatever it does.
STEP = 700.0
# An element of a cheap primitive (+, comparison, select, copy), of a transcendental one, by NumPy and by the functions of `blocks`, and of one of
# scipy.special.
CHEAP, DEAR, BY_BLOCKS, SPECIAL = 0.15, 1.0, 0.4, 60.0
# Importing scipy, which is done once, whatever the number of elements. So many operations that want it are left to XLA, which compiles each in a
# fifth to a third of that; then it is imported.
IMPORT, _LEFT = 1e8, 4
# A multiply-add of a matrix product, and what the product takes besides; from so many on `native` shares it with helpers, which takes this part.
MULTIPLY_ADD, PRODUCT = 0.03, 1500.0
HELPED_FROM, HELPED = 1 << 21, 0.5
# A product of more nanoseconds than this is shared by threads in XLA, where it is XLA's.
SHARED = 10_000.0
# An element of a chain of `blocks`: for each cheap operation, for each function, and for each byte of its operands and results where these are more
# than the caches near a processor hold.
LANE, FUNCTION, BYTE, CACHED = 0.05, 0.3, 0.03, 1 << 20
# What XLA takes for the same. Its numbers stay in registers: this share of cheap operations, where there are so many elements that threads share
# them, and as long where there are less. A function, which no threads share, takes an element of float32 this long; others, by name, this long; and
# one of float64 that many times as long. (Measured on an EPYC with AVX-512, of 3,000 to 3,000,000 elements.)
IN_REGISTERS, FUNCTION_BY_XLA = 0.55, 1.0
FUNCTIONS_BY_XLA = {
    "tan": 7.0, "asin": 9.0, "acos": 10.0, "atan": 6.0, "atan2": 10.0, "pow": 5.0, "rem": 8.0, "remainder": 8.0, "log1p": 2.0, "expm1": 2.0,
    "sinh": 2.0, "asinh": 2.0, "acosh": 2.0, "atanh": 2.0,
}  # fmt: skip
DOUBLE_BY_XLA = 1.5
# The share of the interpreter's time that XLA takes for the same primitives, but for what is not element-wise, and for what `blocks` has functions
# for.
FUSED = 0.4
# How many times as long as the interpreter XLA takes for what is not element-wise: as long for what is moved and reduced (measured: one to five times
# for rows that are taken by index or added up, four for sorting), but for what it calls a library of its own for.
BY_XLA_RELATIVE = {"sort": 3.0, "top_k": 0.3, "fft": 0.5}
# What XLA takes, too, or longer: loops of its own for the place of an extreme and for running sums, which it does not fuse. One, and an element.
BY_XLA = {name: (15_000.0, 4.0) for name in ("argmax", "argmin", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")}
# An element moved by an index array, one sorted (times the logarithm of how many), one combined by a ufunc's `at`.
INDEXED, SORTED, AT = 4.0, 2.0, 8.0
# One call of LAPACK through NumPy, and one matrix of a batch.
LAPACK, MATRIX = 7_000.0, 1_500.0
# What a view takes besides its step: nothing.
VIEW = 0.0

# What widening an element of half precision and rounding it takes: NumPy converts float16 bit by bit, C's loops by vectors.
_FLOAT16, _BFLOAT16 = (0.15, 0.25) if blocks.by_numbers else (6.0, 1.0)


_wanted = count()


def importing() -> float:
    """What scipy.special costs an operation that is made ready for the interpreter: nothing once it is there."""
    if "scipy.special" in sys.modules:
        return 0.0
    if next(_wanted) < _LEFT:
        return IMPORT
    import_module("scipy.special")
    return 0.0


def weight(dtype: np.dtype) -> float:
    """How much more an element of `dtype` takes than one of float32."""
    if dtype.kind == "c":
        return 3.0 * dtype.itemsize / 8
    return dtype.itemsize / 4 if dtype.itemsize > 4 else 1.0


def conversion(dtype: np.dtype) -> float:
    """What an element takes besides, if it is of half precision."""
    return _BFLOAT16 if dtype.kind == "V" else _FLOAT16 if dtype.kind == "f" and dtype.itemsize == 2 else 0.0


def elements(eqn: Any) -> int:
    """How many elements a primitive reads or writes, whichever are more."""
    return max([v.aval.size for v in (*eqn.outvars, *eqn.invars)], default=0)


def per_element(each: float, eqn: Any) -> float:
    """The cost of a primitive that takes `each` nanoseconds for an element of float32."""
    operands = eqn.invars or eqn.outvars
    dtype = operands[-1].aval.dtype
    return elements(eqn) * (each * weight(dtype) + conversion(dtype))


def per_result(each: float, eqn: Any) -> float:
    """The cost of a primitive that takes `each` nanoseconds for an element of a float32 result."""
    aval = eqn.outvars[0].aval
    dtype = eqn.invars[-1].aval.dtype if eqn.invars else aval.dtype
    return aval.size * (each * weight(dtype) + conversion(dtype))


def of_function(eqn: Any) -> float:
    """The cost of a transcendental primitive that `blocks` has functions of float32 and float64 for; half precision is computed by the former."""
    return per_result(BY_BLOCKS if blocks.by_numbers and eqn.outvars[0].aval.dtype.kind in "fV" else DEAR, eqn)


def chained_or(each: float) -> Callable[[Any], float]:
    """The cost of a primitive of which an element takes so long by NumPy, and is one of a chain of `blocks` where it is a real number."""
    return lambda eqn: per_result(CHEAP if blocks.by_numbers and eqn.outvars[0].aval.dtype.char in "fd" else each, eqn)


def product(batch: int, rows: int, inner: int, columns: int, dtype: np.dtype) -> float:
    """The cost of `batch` matrix products. BLAS multiplies floating point and complex numbers only."""
    each, count = MULTIPLY_ADD * weight(dtype) if dtype.kind in "fcV" else 1.5, batch * rows * inner * columns
    if count >= HELPED_FROM and multiplies_natively(dtype):
        each *= HELPED
    return PRODUCT + each * count + CHEAP * batch * inner * (rows + columns) + 60.0 * batch


def multiplies_natively(dtype: np.dtype) -> bool:
    """Whether products of a dtype are those of `native`, which XLA's programs call, too."""
    return dtype.char in "fd" and blas.multiplies()


def is_by_tiles(eqn: Any) -> bool:
    """Whether a primitive is a product of matrices that `native` multiplies: NumPy's BLAS multiplies vectors, and what has other dtypes."""
    if eqn.primitive.name != "dot_general":
        return False
    dtypes = {v.aval.dtype for v in (*eqn.invars, *eqn.outvars)}
    vector = eqn.invars[1].aval.ndim == 1 and not eqn.params["dimension_numbers"][1][0]
    return not vector and all([dtype.char in "fd" for dtype in dtypes]) and len(dtypes) == 1 and blas.multiplies()


class ChainWork(NamedTuple):
    """What a chain does: so many cheap operations and functions on `size` elements of `itemsize` bytes, maybe shared by threads. It reads and writes
    the arrays of these slots, of that size each."""

    size: int
    itemsize: int
    cheap: int
    functions: int
    slots: list[int]
    shared: bool


class ChainCosts(NamedTuple):
    """What chains take: by estimate of their operations one by one, as chains, and when they are compiled; and what by XLA, one by one (see
    `unfused`). In nanoseconds, as all here."""

    apart: float
    chained: float
    compiled: float
    unfused: float


def of_chains(chains: Sequence[ChainWork]) -> ChainCosts:
    """The costs of a program's chains. XLA fuses those that read the same: it reads each array once."""
    apart = chained = compiled = by_themselves = 0.0
    known: set[int] = set()
    for chain in chains:
        times = chain.size * chain.itemsize / 4
        each = times * (HELPED if chain.shared else 1.0)
        lanes, functions = each * LANE * chain.cheap, each * FUNCTION * chain.functions
        memory = 4 * times * BYTE if 4 * times * len(chain.slots) > CACHED else 0.0
        by_xla = times * FUNCTION_BY_XLA * chain.functions
        apart += times * (CHEAP * chain.cheap + BY_BLOCKS * chain.functions)
        by_themselves += times * CHEAP * chain.cheap + by_xla
        chained += max(lanes + functions, memory * len(chain.slots))
        compiled += max((IN_REGISTERS if chain.shared else 1.0) * lanes + by_xla, memory * len(set(chain.slots) - known))
        known.update(chain.slots)
    return ChainCosts(apart, chained, compiled, by_themselves if blocks.by_numbers else FUSED * apart)


def unfused(eqn: Any, name: str, cost: float) -> float:
    """What XLA takes for an element-wise primitive, which takes the interpreter `cost`, beyond its usual share of that: real numbers go through
    functions of C's here, which take no longer than XLA's."""
    dtype = eqn.outvars[0].aval.dtype
    if eqn.invars and dtype.char not in "fd":
        dtype = eqn.invars[-1].aval.dtype  # of comparisons
    if not blocks.by_numbers or dtype.char not in "fd":
        return 0.0
    each = FUNCTIONS_BY_XLA.get(name.rpartition(".")[2], FUNCTION_BY_XLA if cost > 2 * CHEAP * weight(dtype) * eqn.outvars[0].aval.size else 0.0)
    by_xla = each * (DOUBLE_BY_XLA if dtype.itemsize > 4 else 1.0) * eqn.outvars[0].aval.size
    return max(by_xla, cost) - FUSED * cost


def lapack(eqn: Any, element: float, matrix: float = MATRIX) -> float:
    """The cost of what takes `element` nanoseconds for each element of a small matrix, and twice that for one of 300 rows, and `matrix` besides."""
    aval = eqn.invars[0].aval
    *batch, rows, columns = aval.shape
    each = element * (weight(aval.dtype) if aval.dtype.kind == "c" else 1.0)
    return LAPACK + math.prod(batch) * (matrix + each * rows * columns * (1 + min(rows, columns) / 300))
