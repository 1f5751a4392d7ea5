"""Element-wise arithmetic, comparisons, logic and the functions that NumPy has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline import blocks, lanes
from torchgrad_jax.runtime.baseline.blocks import converted, widened
from torchgrad_jax.runtime.baseline.chains import NUMBERS
from torchgrad_jax.runtime.baseline.cost import CHEAP, DEAR, chained_or, of_function
from torchgrad_jax.runtime.baseline.inlining import WHOLE, name_of
from torchgrad_jax.runtime.baseline.rules import Unknown, Writing, is_floating, is_half, rule

# From this size on half precision is computed on a whole array widened to float32; below, the two conversions cost more than elements by themselves.
_WIDENED = 256
# From this size on a selection is made by masking bits, 0.6 ns an element. `np.where` takes 4 ns where the mask is irregular.
_MASKED = 8192
# From this size on a scalar is made an array for the larger or smaller of both.
_SPREAD = 8192

_CHEAP = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs, "floor": np.floor,
    "ceil": np.ceil, "sqrt": np.sqrt, "square": np.square, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "is_finite": np.isfinite, "real": np.real, "imag": np.imag,
}  # fmt: skip
_DEAR = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "expm1": np.expm1, "log1p": np.log1p, "log2": np.log2, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "atan2": np.arctan2, "cbrt": np.cbrt,
}  # fmt: skip


def of_numbers(number: int, dtype: np.dtype = blocks.SINGLE) -> Writing | None:
    """A function of float32, or of float64, that is C's here (`blocks`), in place of NumPy's, which takes twice as long; None where it is not
    compiled."""
    if not blocks.by_numbers:
        return None
    function = blocks.Function(number, dtype)
    NUMBERS[function] = number
    return Writing(function, function.over)


def of_reals(number: int, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """A function of float32 and float64 that is C's here (`blocks`), and the other one where that is not compiled."""
    function = blocks.Operation(number, otherwise) if blocks.by_numbers else otherwise
    NUMBERS[function] = number
    return function


_LANES = {
    "exp": lanes.EXP, "log": lanes.LOG, "log1p": lanes.LOG1P, "tanh": lanes.TANH, "logistic": lanes.LOGISTIC, "sin": lanes.SIN, "cos": lanes.COS,
}  # fmt: skip
_SINGLE = {name: of_numbers(number) for name, number in _LANES.items()}
_DOUBLE = {name: of_numbers(number, np.dtype(np.float64)) for name, number in _LANES.items()}


def _of_dtype(name: str, dtype: np.dtype) -> Writing | None:
    """C's function of float32 or float64, None where there is none."""
    return _SINGLE.get(name) if dtype == np.float32 else _DOUBLE.get(name) if dtype == np.float64 else None


def _direct(function: Callable[..., Any], name: str = "") -> Callable[[Any], Any]:
    """The maker of a primitive that one function of NumPy carries out, or of this name that C has a function for."""

    def make(eqn: Any) -> Any:
        dtype = eqn.outvars[0].aval.dtype
        if (by_c := _of_dtype(name, dtype)) is not None:
            return by_c
        if eqn.params.get("out_dtype") not in (None, dtype):
            raise Unknown("out_dtype")
        if is_half(eqn.invars[0].aval.dtype):
            single = _SINGLE.get(name)
            return of_halves(function if single is None else single.function, dtype, single is not None)
        return function

    return make


@cache
def of_halves(function: Callable[..., Any], dtype: np.dtype, always: bool = False) -> Callable[..., Any]:
    """A function of half precision, computed in float32 and rounded; by the function of half precision where arrays are small, but not `always`."""

    def run(*arrays: Any) -> Any:
        if not always and arrays[0].size < _WIDENED and arrays[-1].size < _WIDENED:
            return function(*arrays)
        found = function(*map(widened, arrays))
        return found if found.dtype == dtype else converted(found, dtype)

    if function in NUMBERS:
        NUMBERS[run] = NUMBERS[function]
    return run


for _name, _function in _CHEAP.items():
    rule(_name, each=CHEAP, elementwise=True)(_direct(_function))
for _name, _function in _DEAR.items():
    _cost = of_function if _name in _LANES else None
    rule(_name, WHOLE + _name, each=DEAR, cost=_cost, elementwise=True)(_direct(_function, _name))


# ---------------------------------------------------------------------- larger and smaller


_FEW = 1024
_SIGN_BIT = {n: (np.dtype(f"i{n}"), np.array(np.iinfo(f"i{n}").min, f"i{n}")) for n in (2, 4, 8)}


def _alongside(ufunc: Any, a: Any, b: Any) -> Any:
    """`np.maximum` or `np.minimum`. With a scalar they take 1.1 ns an element, with an array 0.3, and filling one takes 0.15."""
    if a.size >= _SPREAD and not b.ndim:
        b = np.full(a.shape, b)
    elif b.size >= _SPREAD and not a.ndim:
        a = np.full(b.shape, a)
    return ufunc(a, b)


def larger(a: Any, b: Any) -> Any:
    """`np.maximum`, for which 0.0 is larger than -0.0 on every processor."""
    if not b.ndim and not b.tobytes().strip(b"\0"):
        return _positive_part(a, b)
    found = _alongside(np.maximum, a, b)
    if not _has_negative_zero(found):
        return found
    return np.where((a == 0) & (b == 0), np.add(a, b), found)


def smaller(a: Any, b: Any) -> Any:
    """`np.minimum`, for which -0.0 is smaller than 0.0 on every processor."""
    found = _alongside(np.minimum, a, b)
    if not (_has_negative_zero(a) or _has_negative_zero(b)):
        return found
    return np.where((a == 0) & (b == 0), np.negative(np.subtract(np.negative(a), b)), found)


def _has_negative_zero(x: Any) -> bool:
    if x.size <= _FEW and np.count_nonzero(x) == x.size:  # a microsecond less
        return False
    bits, sign = _SIGN_BIT[x.dtype.itemsize]
    return bool(np.count_nonzero(np.equal(x.view(bits), sign)))


def _positive_part(a: Any, b: Any) -> Any:
    found = _alongside(np.maximum, a, b)
    return np.add(found, b, out=found) if found.ndim else found + b


_PLAIN = {plain: partial(_alongside, plain) for plain in (np.maximum, np.minimum)}


def _extreme(eqn: Any, plain: Any, exact: Any, dtype: np.dtype) -> Any:
    """`exact` only where the operands may be zeros of both signs."""
    if dtype.kind == "c":
        raise Unknown("order of complex numbers")
    if not is_floating(dtype):
        return plain
    literals = [v.val for v in eqn.invars if hasattr(v, "val")]
    found = _PLAIN[plain] if any([value != 0 for value in literals]) else exact
    return of_halves(found, dtype) if is_half(dtype) else found


@rule("max", cost=chained_or(3 * CHEAP), elementwise=True, fresh=True)
def _max(eqn: Any) -> Any:
    dtype, second = eqn.outvars[0].aval.dtype, eqn.invars[1]
    if is_floating(dtype) and hasattr(second, "val") and second.val == 0 and not np.signbit(second.val):
        return of_halves(_positive_part, dtype) if is_half(dtype) else _positive_part
    return _extreme(eqn, np.maximum, larger, dtype)


@rule("min", cost=chained_or(3 * CHEAP), elementwise=True, fresh=True)
def _min(eqn: Any) -> Any:
    return _extreme(eqn, np.minimum, smaller, eqn.outvars[0].aval.dtype)


NUMBERS.update({larger: lanes.LARGER, _positive_part: lanes.LARGER, smaller: lanes.SMALLER})


@rule("clamp", elementwise=True, fresh=True)
def _clamp(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    if dtype.kind == "c":
        raise Unknown("order of complex numbers")
    bounds = [eqn.invars[0], eqn.invars[2]]
    exact = is_floating(dtype) and (blocks.by_numbers or not all([hasattr(v, "val") and v.val != 0 for v in bounds]))
    return of_halves(_CLAMPED if exact else _clamped, dtype) if is_half(dtype) else _CLAMPED if exact else _clamped


def _clamped_exactly(low: Any, x: Any, high: Any) -> Any:
    return smaller(larger(x, low), high)


_CLAMPED = of_reals(lanes.CLAMP, _clamped_exactly)


def _clamped(low: Any, x: Any, high: Any) -> Any:
    return _alongside(np.minimum, _alongside(np.maximum, x, low), high)


# ---------------------------------------------------------------------- arithmetic that NumPy has otherwise


@rule("sign", elementwise=True, fresh=True)
def _sign(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    if is_half(dtype):
        return of_halves(_signs, dtype)
    return _signs if is_floating(dtype) else np.sign


def _signs(x: Any) -> Any:
    return np.copysign(np.sign(x), x)


NUMBERS[_signs] = lanes.SIGN


@rule("div", elementwise=True)
def _div(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    if dtype.kind in "iu":
        return _quotient(dtype)
    return _direct(np.true_divide)(eqn)


def _quotient(dtype: np.dtype) -> Any:
    """Division of integers as XLA has it: towards zero, and -1 (all bits set) for division by zero."""
    one, unit = np.ones((), dtype), np.array(-1).astype(dtype)

    def quotient(a: Any, b: Any) -> Any:
        if has_zero(b):
            zero = np.equal(b, 0)
            return np.where(zero, unit, quotient(a, np.where(zero, one, b)))
        # Without its rest a number is a multiple, of which nothing is rounded.
        return np.floor_divide(np.subtract(a, np.fmod(a, b)) if dtype.kind == "i" else a, b)

    return quotient


def has_zero(divisor: Any) -> bool:
    """Whether there is a 0 among integers."""
    return not (divisor if divisor.ndim == 0 else np.logical_and.reduce(divisor, None))


@rule("rem", elementwise=True)
def _rem(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    if dtype.char in "fd":
        return _REST
    return _rest(np.fmod, dtype) if dtype.kind in "iu" else _direct(np.fmod)(eqn)


_REST, _NEXT = of_reals(lanes.REM, np.fmod), of_reals(lanes.NEXTAFTER, np.nextafter)
# What operators say of float32 and float64 in several primitives (`operators/kernels/whole.py`).
_OF_REALS = {
    "remainder": lanes.REMAINDER, "floor_divide": lanes.FLOOR_DIVIDE, "quotient": lanes.QUOTIENT, "copysign": lanes.COPYSIGN,
    "direction": lanes.DIRECTION, "fraction": lanes.FRACTION, "angle": lanes.ANGLE, "hardsigmoid": lanes.HARDSIGMOID,
    "hardswish": lanes.HARDSWISH,
}  # fmt: skip
_WHOLE = {WHOLE + name: of_reals(number, lanes.OF_REALS[number - lanes.REM]) for name, number in _OF_REALS.items()}


@rule(*[name for name in _WHOLE if name not in (WHOLE + "remainder", WHOLE + "floor_divide")], elementwise=True)
def _of_reals(eqn: Any) -> Any:
    return _WHOLE[name_of(eqn)]


@rule(WHOLE + "trunc", elementwise=True)
def _trunc(_: Any) -> Any:
    return np.trunc


@rule(WHOLE + "remainder", elementwise=True)
def _remainder(eqn: Any) -> Any:
    if eqn.outvars[0].aval.dtype.kind == "f":
        return _of_reals(eqn)
    return _rest(np.remainder, eqn.outvars[0].aval.dtype)


def _rest(function: np.ufunc, dtype: np.dtype) -> Any:
    """What integers leave when divided by others: by 0, themselves."""
    one = np.ones((), dtype)

    def rest(a: Any, b: Any) -> Any:
        if has_zero(b):
            zero = np.equal(b, 0)
            return np.where(zero, a, function(a, np.where(zero, one, b)))
        return function(a, b)

    return rest


@rule(WHOLE + "floor_divide", elementwise=True)
def _floor_divide(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    if dtype.kind == "f":
        return _of_reals(eqn)
    one, unit = np.ones((), dtype), np.array(-1).astype(dtype)

    def divide(a: Any, b: Any) -> Any:
        if has_zero(b):  # `_quotient` rounded down
            zero = np.equal(b, 0)
            return np.where(zero, unit - np.less(a, 0).astype(dtype), np.floor_divide(a, np.where(zero, one, b)))
        return np.floor_divide(a, b)

    return divide


@rule("pow", each=3 * DEAR, elementwise=True)
def _pow(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    if dtype.kind in "biu":
        raise Unknown("pow of integers")
    power = _direct(np.power)(eqn)
    if eqn.invars[1].aval.dtype == dtype:
        return power
    return lambda a, b: power(a, b.astype(dtype))


@rule("integer_pow", elementwise=True)
def _integer_pow(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    exponent, one = eqn.params["y"], np.ones((), dtype)
    square, multiply, divide = np.square, np.multiply, np.true_divide
    if is_half(dtype):
        square, multiply, divide = of_halves(square, dtype), of_halves(multiply, dtype), of_halves(divide, dtype)
    if exponent == 2:
        return square

    def power(x: Any) -> Any:
        found: Any = None
        base, left = x, abs(exponent)
        while left:
            if left & 1:
                found = base if found is None else multiply(found, base)
            left >>= 1
            if left:
                base = multiply(base, base)
        return divide(one, found) if exponent < 0 else found

    return power if exponent else np.ones_like


@rule("one_minus_square", elementwise=True, fresh=True)
def _one_minus_square(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    one, add, subtract, multiply = np.ones((), dtype), np.add, np.subtract, np.multiply
    if is_half(dtype):
        add, subtract, multiply = of_halves(add, dtype), of_halves(subtract, dtype), of_halves(multiply, dtype)
    return lambda x: multiply(add(one, x), subtract(one, x))


@rule("rsqrt", elementwise=True, fresh=True)
def _rsqrt(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    one, divide, root = np.ones((), dtype), np.true_divide, np.sqrt
    if is_half(dtype):
        divide, root = of_halves(divide, dtype), of_halves(root, dtype)
    return lambda x: divide(one, root(x))


@rule("logistic", cost=of_function, elementwise=True, fresh=True)
def _logistic(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    return _of_dtype("logistic", dtype) or _logistic_of(dtype)


@cache
def squashing(name: str, dtype: np.dtype) -> Callable[..., Any]:
    """tanh or logistic, of arrays that are float32 or float64."""
    found = _of_dtype(name, dtype)
    if found is not None:
        return found.function
    return np.tanh if name == "tanh" else _logistic_of(dtype)


def _logistic_of(dtype: np.dtype) -> Callable[..., Any]:
    one = np.ones((), dtype)

    def logistic(x: Any) -> Any:
        found = np.negative(x)
        if not found.ndim:
            return np.true_divide(one, np.add(np.exp(found), one))
        np.exp(found, out=found)
        np.add(found, one, out=found)
        return np.true_divide(one, found, out=found)

    return logistic


@rule("round", elementwise=True)
def _round(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    if int(eqn.params["rounding_method"]) == 1:
        return of_halves(np.rint, dtype) if is_half(dtype) else np.rint
    half = np.array(0.5, dtype)

    def away_from_zero(x: Any) -> Any:
        whole = np.trunc(x)
        return np.add(whole, np.copysign(np.greater_equal(np.abs(np.subtract(x, whole)), half).astype(dtype), x))

    return away_from_zero


@rule("nextafter", elementwise=True)
def _nextafter(eqn: Any) -> Any:
    if eqn.outvars[0].aval.dtype.kind == "f" and eqn.outvars[0].aval.dtype.itemsize > 2:
        return _NEXT
    return lambda a, b: np.where(np.equal(a, b), b, np.nextafter(a, b))  # of zeros NumPy gives the first in half precision


@rule("complex", elementwise=True)
def _complex(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype

    def join(real: Any, imaginary: Any) -> Any:
        found = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), dtype)
        found.real = real
        found.imag = imaginary
        return found

    return join


@rule("conj", elementwise=True)
def _conj(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    return np.conjugate if eqn.invars[0].aval.dtype == dtype else lambda x: x.astype(dtype)


# ---------------------------------------------------------------------- bits


@rule("shift_left", "shift_right_logical", "shift_right_arithmetic", elementwise=True)
def _shift(eqn: Any) -> Any:
    """Shifts by as many bits as there are, or more, or by a negative count, leave zeros, or copies of the sign."""
    dtype = eqn.outvars[0].aval.dtype
    bits, unsigned, signed = 8 * dtype.itemsize, np.dtype(f"u{dtype.itemsize}"), np.dtype(f"i{dtype.itemsize}")
    zero, most = np.zeros((), unsigned), np.array(bits - 1, unsigned)

    def arithmetic(a: Any, count: Any) -> Any:
        return np.right_shift(a.view(signed), np.minimum(count.view(unsigned), most).view(signed)).view(dtype)

    if eqn.primitive.name == "shift_right_arithmetic":
        return arithmetic
    move = np.left_shift if eqn.primitive.name == "shift_left" else np.right_shift

    def logical(a: Any, count: Any) -> Any:
        count = count.view(unsigned)
        return np.where(np.less_equal(count, most), move(a.view(unsigned), np.minimum(count, most)), zero).view(dtype)

    return logical


@rule("population_count", elementwise=True)
def _population_count(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return lambda x: np.bitwise_count(x.view(unsigned)).astype(dtype)


@rule("clz", elementwise=True)
def _leading_zeros(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    unsigned, bits = np.dtype(f"u{dtype.itemsize}"), 8 * dtype.itemsize

    def count(x: Any) -> Any:
        x, shift = x.view(unsigned), 1
        while shift < bits:  # copies the leading one to all places after it
            x = np.bitwise_or(x, np.right_shift(x, np.array(shift, unsigned)))
            shift *= 2
        return (bits - np.bitwise_count(x)).astype(dtype)

    return count


# ---------------------------------------------------------------------- selection


@rule("select_n", cost=chained_or(5 * CHEAP), elementwise=True)
def _select_n(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    if eqn.invars[0].aval.dtype == bool and len(eqn.invars) == 3:
        return _selection(dtype)
    if len(eqn.invars) > 30:  # np.choose takes 32
        raise Unknown("select of many")

    if len(eqn.invars) == 2:
        return lambda which, only: np.broadcast_to(only, np.broadcast_shapes(which.shape, only.shape))
    return lambda which, *cases: np.choose(which, cases, mode="clip")


@cache
def _selection(dtype: np.dtype) -> Any:
    """`np.where` with the case of False first."""
    bits = np.dtype(f"i{dtype.itemsize}") if dtype.itemsize <= 8 else None

    def select(which: Any, no: Any, yes: Any) -> Any:
        if which.ndim == 0 and no.shape == yes.shape:
            return yes if which else no
        if which.size < _MASKED or bits is None:
            return np.where(which, yes, no)
        mask, no = which.view(np.int8).astype(bits), no.view(bits)
        differing = np.bitwise_xor(no, yes.view(bits))
        np.negative(mask, out=mask)
        if differing.shape not in (mask.shape, ()):
            return np.bitwise_xor(np.bitwise_and(mask, differing), no).view(dtype)
        np.bitwise_and(mask, differing, out=mask)
        return np.bitwise_xor(mask, no, out=mask).view(dtype)

    NUMBERS[select] = lanes.SELECT
    return select


# ---------------------------------------------------------------------- the total order of floating-point numbers


@rule("lt_to", "le_to", elementwise=True)
def _total_order(eqn: Any) -> Any:
    dtype = eqn.invars[0].aval.dtype
    compare = np.less if eqn.primitive.name == "lt_to" else np.less_equal
    if dtype.kind == "c":
        raise Unknown("order of complex numbers")
    if not is_floating(dtype):
        return compare
    signed = np.dtype(f"i{dtype.itemsize}")
    magnitude, zero = np.array(np.iinfo(signed).max, signed), np.zeros((), signed)

    def place(x: Any) -> Any:
        x = x.view(signed)
        return np.where(np.less(x, zero), np.bitwise_xor(x, magnitude), x)

    return lambda a, b: compare(place(a), place(b))
