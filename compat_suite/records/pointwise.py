"""Operators that work element by element."""

from __future__ import annotations

import jax
from jax import numpy as jnp
from jax.scipy import special

import torchgrad_jax as tj
from compat_suite.records.record import REAL, Make, Record, each, given, pairs

SHAPES = ((3, 4), (), (2, 1, 3))
unary = each(*SHAPES)
positive = each(*SHAPES, low=0.2, high=3.0)
within_one = each(*SHAPES, low=-0.9, high=0.9)
PAIRED = (((3, 4), (3, 4)), ((2, 1, 3), (4, 1)), ((), (3,)))
binary = pairs(*PAIRED)
positive_pairs = pairs(*PAIRED, low=0.3, high=3.0)


def with_numbers(make: Make):
    """Two tensors, and a tensor with a number."""
    yield from binary(make)
    yield make(3, 4), 1.5


def divisors(make: Make):
    """A second operand that is far from zero."""
    yield make(3, 4), make(4, low=0.5, high=3.0)
    yield make(2, 1), make(3, low=-3.0, high=-0.5)


def integers(make: Make):
    """Two integer tensors."""
    yield make.integers(3, 4), make.integers(4)
    yield make.bools(3, 4), make.bools(3, 4)


def truth(make: Make):
    """Two tensors of truth values, and two of numbers."""
    yield make.bools(3, 4), make.bools(4)
    yield make.integers(3, 4, high=2), make(3, 4, gradient=False)


def compared(make: Make):
    """Two tensors with equal elements among them."""
    yield make.integers(3, 4, high=3), make.integers(4, high=3)
    x = make(3, 4)
    yield x, x.detach().roll(1, 0).where(make.bools(3, 4), x.detach())


def powers(make: Make):
    """Bases and exponents."""
    yield make(3, 4, low=0.3, high=2.0), make(4)
    yield make(3, 4), 3
    yield make(3, low=0.3, high=2.0), -1.5


def three(make: Make):
    """A tensor and two that broadcast with it, and the factor."""
    yield make(3, 4), make(3, 4), make(4, low=0.5, high=2.0)
    yield make(3, 4), make(4), make(3, 1, low=0.5, high=2.0), {"value": 0.5}


def clamped(make: Make):
    """Bounds that are numbers, and such that are tensors."""
    yield make(3, 4), -0.5, 0.7
    yield make(3, 4), make(4, low=-1.5, high=-0.1), make(3, 1, low=0.1, high=1.5)


def special_values(make: Make):
    """Numbers among infinities and what is no number."""
    yield tj.tensor([1.0, float("inf"), float("-inf"), float("nan"), -2.0], dtype=make.dtype, requires_grad=True)


def divided(how: str | None):
    """Samples of div in one rounding mode."""
    return lambda make: ((*pair, {"rounding_mode": how}) for pair in divisors(make))


RECORDS = [
    Record("abs", unary, jnp.abs),
    Record("acos", within_one, jnp.arccos),
    Record("acosh", each(*SHAPES, low=1.2, high=3.0), jnp.arccosh),
    Record("add", lambda make: (*with_numbers(make), (make(3), make(3), {"alpha": 2.5})), lambda x, y, alpha=1: x + alpha * y),
    Record("addcdiv", three, lambda x, y, z, value=1: x + value * y / z),
    Record("addcmul", three, lambda x, y, z, value=1: x + value * y * z),
    Record("angle", unary, jnp.angle),
    Record("asin", within_one, jnp.arcsin),
    Record("asinh", within_one, jnp.arcsinh),
    Record("atan", within_one, jnp.arctan),
    Record("atan2", binary, jnp.arctan2, dtypes=REAL),
    Record("atanh", within_one, jnp.arctanh),
    Record("bitwise_and", integers, jnp.bitwise_and, dtypes=REAL, derivatives=0),
    Record("bitwise_not", lambda make: [make.integers(3, 4), make.bools(3)], jnp.bitwise_not, dtypes=REAL, derivatives=0),
    Record("bitwise_or", integers, jnp.bitwise_or, dtypes=REAL, derivatives=0),
    Record("ceil", unary, jnp.ceil, dtypes=REAL),
    Record("clamp", clamped, jnp.clip, dtypes=REAL),
    Record("clamp_max", given(((3, 4), 0.5)), jnp.minimum, dtypes=REAL),
    Record("clamp_min", given(((3, 4), 0.5)), jnp.maximum, dtypes=REAL),
    Record("clone", unary, jnp.copy),
    Record("complex", lambda make: [(make(3, 4), make(3, 4)), (make(3, 4), make(4))], lambda x, y: x + 1j * y, dtypes=REAL),
    Record("conj", unary, jnp.conj),
    Record("cos", unary, jnp.cos),
    Record("cosh", unary, jnp.cosh),
    Record("digamma", positive, special.digamma, dtypes=REAL),
    Record("div.floor_rounding", divided("floor"), lambda x, y, rounding_mode: jnp.floor(x / y), dtypes=REAL),
    Record("div.no_rounding_mode", divided(None), lambda x, y, rounding_mode: x / y),
    Record("eq", compared, jnp.equal, derivatives=0),
    Record("erf", unary, special.erf, dtypes=REAL),
    Record("erfc", unary, special.erfc, dtypes=REAL),
    Record("erfinv", within_one, special.erfinv, dtypes=REAL),
    Record("exp", unary, jnp.exp),
    Record("expm1", unary, jnp.expm1),
    Record("floor", unary, jnp.floor, dtypes=REAL),
    Record("floor_divide", divisors, jnp.floor_divide, dtypes=REAL, derivatives=None),
    Record("fmod", divisors, jnp.fmod, dtypes=REAL),
    Record("ge", compared, jnp.greater_equal, dtypes=REAL, derivatives=0),
    Record("gt", compared, jnp.greater, dtypes=REAL, derivatives=0),
    Record("hypot", pairs(((3, 4), (4,))), jnp.hypot, dtypes=REAL),
    Record("imag", unary, jnp.imag, dtypes=("complex128",)),
    Record("isclose", compared, jnp.isclose, derivatives=0),
    Record("isfinite", special_values, jnp.isfinite, derivatives=0),
    Record("isinf", special_values, jnp.isinf, derivatives=0),
    Record("isnan", special_values, jnp.isnan, derivatives=0),
    Record("le", compared, jnp.less_equal, dtypes=REAL, derivatives=0),
    Record("lerp", lambda make: [(make(3, 4), make(3, 4), 0.3), (make(3), make(3), make(3))], lambda x, y, w: x + w * (y - x)),
    Record("lgamma", positive, special.gammaln, dtypes=REAL),
    Record("log", positive, jnp.log),
    Record("log10", positive, jnp.log10),
    Record("log1p", positive, jnp.log1p),
    Record("log2", positive, jnp.log2),
    Record("logaddexp", binary, jnp.logaddexp, dtypes=REAL),
    Record("logical_and", truth, jnp.logical_and, derivatives=0),
    Record("logical_not", lambda make: [make.bools(3, 4), make.integers(4, high=2)], jnp.logical_not, derivatives=0),
    Record("logical_or", truth, jnp.logical_or, derivatives=0),
    Record("logical_xor", truth, jnp.logical_xor, derivatives=0),
    Record("logit", each(*SHAPES, low=0.1, high=0.9), special.logit, dtypes=REAL),
    Record("lt", compared, jnp.less, dtypes=REAL, derivatives=0),
    Record("max.binary", binary, jnp.maximum, dtypes=REAL),
    Record("maximum", binary, jnp.maximum, dtypes=REAL),
    Record("min.binary", binary, jnp.minimum, dtypes=REAL),
    Record("minimum", binary, jnp.minimum, dtypes=REAL),
    Record("mul", with_numbers, jnp.multiply),
    Record("nan_to_num", lambda make: [make(3, 4), *(x.detach() for x in special_values(make))], jnp.nan_to_num, dtypes=REAL),
    Record("ne", compared, jnp.not_equal, derivatives=0),
    Record("neg", unary, jnp.negative),
    Record("polar", pairs(((3, 4), (3, 4))), lambda r, angle: r * jnp.exp(1j * angle), dtypes=REAL),
    Record("pow", powers, jnp.power),
    Record("real", unary, jnp.real),
    Record("reciprocal", positive, jnp.reciprocal),
    Record("remainder", divisors, jnp.remainder, dtypes=REAL),
    Record("round", unary, jnp.round, dtypes=REAL),
    Record("rsqrt", positive, jax.lax.rsqrt),
    Record("sgn", unary, lambda x: x / jnp.abs(x)),
    Record("sigmoid", unary, jax.nn.sigmoid),
    Record("sign", unary, jnp.sign, dtypes=REAL),
    Record("sin", unary, jnp.sin),
    Record("sinc", unary, jnp.sinc),
    Record("sinh", unary, jnp.sinh),
    Record("sqrt", positive, jnp.sqrt),
    Record("square", unary, jnp.square),
    Record("sub", lambda make: (*with_numbers(make), (make(3), make(3), {"alpha": 2.5})), lambda x, y, alpha=1: x - alpha * y),
    Record("tan", within_one, jnp.tan),
    Record("tanh", unary, jnp.tanh),
    Record("true_divide", divisors, jnp.true_divide),
    Record("trunc", unary, jnp.trunc, dtypes=REAL),
    Record("where", lambda make: [(make.bools(3, 4), make(3, 4), make(4)), (make.bools(3, 1), make(4), make(3, 1))], jnp.where),
    Record("xlogy", positive_pairs, special.xlogy, dtypes=REAL),
    Record("__radd__", given(((3, 4), 2.5)), lambda x, n: n + x),
    Record("__rdiv__", lambda make: [(make(3, 4, low=0.5, high=2.0), 2.5)], lambda x, n: n / x),
    Record("__rmul__", given(((3, 4), 2.5)), lambda x, n: n * x),
    Record("__rpow__", given(((3, 4), 2.5)), lambda x, n: n**x),
    Record("__rsub__", given(((3, 4), 2.5)), lambda x, n: n - x),
    Record("fill", given(((3, 4), 2.5)), lambda x, n: jnp.full_like(x, n)),
    Record("zero_", lambda make: [make(3, 4)], jnp.zeros_like, lambda x: x.clone().zero_()),
    Record("allclose", compared, jnp.allclose, derivatives=0),
    Record("equal", compared, jnp.array_equal, derivatives=0),
]  # fmt: skip
