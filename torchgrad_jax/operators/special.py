"""Further element-wise operators: remainders, special functions, parts of floating point numbers, bits."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.scipy import special

from torchgrad_jax.declaration import dtypes, numpy_losses
from torchgrad_jax.declaration.converting import broadcast_shapes, convert, is_half, where, wide, zeros_like, zeros_like_grad
from torchgrad_jax.declaration.operator import NOT_IMPLEMENTED, SAME, op, registry
from torchgrad_jax.declaration.refusals import NO_COMPLEX32, kernel, no_derivative, not_implemented, refusing
from torchgrad_jax.operators.kernels import whole
from torchgrad_jax.operators.kernels.gaussian import erfcx, log_ndtr, quantile
from torchgrad_jax.operators.pointwise import sign
from torchgrad_jax.operators.reduction import title
from torchgrad_jax.operators.special_functions.gamma import digamma, hurwitz_zeta, polygamma
from torchgrad_jax.runtime.baseline.inlining import WHOLE
from torchgrad_jax.runtime.operation import signature

# ---------------------------------------------------------------------- division with remainder
# `_checked`: integers whose divisors are not known when the operation is recorded.


def _of_integers(name: str) -> Any:
    """Of a function of integers: taken as a whole by the interpreter, by that name. It has no derivative."""

    def named(function: Any) -> Any:
        function.__name__ = WHOLE + name
        taken = jax.custom_jvp(function)

        @taken.defjvp
        def jvp(primals: Any, tangents: Any) -> Any:
            found = taken(*primals)
            return found, np.zeros(found.shape, jax.dtypes.float0)

        return taken

    return named


@_of_integers("remainder")
def _remainder_of_integers(x: Any, y: Any) -> Any:
    return whole.modulo(x, y)


@_of_integers("floor_divide")
def _floor_divide_integers(x: Any, y: Any) -> Any:
    return lax.div(x, y) - ((lax.rem(x, y) != 0) & ((x < 0) != (y < 0))).astype(x.dtype)


def _remainder(x: Any, y: Any) -> Any:
    """The remainder with the divisor's sign."""
    if x.dtype.kind == "u":
        return lax.rem(x, y)
    return _remainder_of_integers(x, y) if x.dtype.kind == "i" else whole.remainder(x, y)


def _floor_divide(x: Any, y: Any) -> Any:
    """The quotient rounded down, consistent with the remainder."""
    if x.dtype.kind in "iu":
        return lax.div(x, y) if x.dtype.kind == "u" else _floor_divide_integers(x, y)
    return whole.floor_divide(x, y)


def _alike(grad: Any, *operands: Any) -> Any:
    """Saved operands as the operation took them: of one shape and dtype."""
    return jnp.broadcast_arrays(*[convert(x, np.dtype(grad.dtype)) for x in operands])


def _without_zeros(function: Any, x: Any, y: Any) -> Any:
    """The function where the divisor is not 0, and whether it is 0 somewhere."""
    zero = (y == 0).any().astype(np.int64)
    return function(x, where(y == 0, jnp.ones_like(y), y)), jnp.stack([zero, zeros_like(zero)])


def _refuse_complex(name: str, x: Any) -> None:
    if x.dtype.kind == "c":
        raise RuntimeError(f"{name} is not supported for complex tensors.")


def _zero_division(_: int) -> Exception:
    return RuntimeError("ZeroDivisionError")


def _declare_division(name: str, kernel: str, function: Any, nodes: dict[str, str], grads: dict[str, Any], doc: str, opmath: bool = False) -> None:
    refuse = refusing(kernel, "cb")

    def checked(x: Any, y: Any) -> Any:
        return _without_zeros(function, x, y)

    def plain(x: Any, y: Any) -> Any:
        refuse(x)
        return function(x, y)

    plain.__doc__ = doc
    schema = "(Tensor|Scalar self, Tensor|Scalar other)"
    options = {"promote": "common", "opmath": opmath, "method": False, "toplevel": False}
    for suffix, node in nodes.items():
        op(f"{name}{suffix}{schema}", node=node, grads=grads, edges=("self",) if suffix == "_number" else None, **options)(plain)

    def form(bound: Any, specs: Any) -> Any:
        return numpy_losses.without_zeros(signature(registry[f"{name}_tensor"].bind(bound.layout, bound.device), specs))

    op(f"{name}_checked{schema}", differentiable=False, check=_zero_division, numpy_of=form, **options)(checked)


_declare_division(
    "fmod", "fmod_cpu", lax.rem, {"_number": "FmodBackward0", "_tensor": "FmodBackward1"},
    {"self": SAME, "other": lambda grad, self, other: -grad * jnp.trunc(self / other)}, "The remainder with the dividend's sign.",
)  # fmt: skip
_declare_division(
    "remainder", "remainder_cpu", _remainder, {"_number": "RemainderBackward0", "_tensor": "RemainderBackward1", "_reflected": NOT_IMPLEMENTED},
    {"self": SAME, "other": lambda grad, self, other: -grad * _floor_divide(*_alike(grad, self, other))}, "The remainder with the divisor's sign.",
)  # fmt: skip
_declare_division(
    "floor_divide", "div_floor_cpu", _floor_divide, {"_tensor": NOT_IMPLEMENTED}, {n: no_derivative("floor_divide") for n in ("self", "other")},
    "self / other, rounded down.", opmath=True,
)  # fmt: skip


def _quotient(x: Any, y: Any, rounding_mode: str) -> Any:
    """self / other, rounded."""
    refusing(f"div_{rounding_mode}_cpu", "cb")(x)
    if rounding_mode == "floor":
        return _floor_divide(x, y)
    return lax.div(x, y) if x.dtype.kind in "iu" else whole.truncated(x, y)


@op("div_rounded(Tensor|Scalar self, Tensor|Scalar other, str rounding_mode)", promote="common", opmath=True, method=False, toplevel=False,
    node="DivBackward2", keeps=("self if other", "other"), grads={"self": zeros_like_grad, "other": zeros_like_grad},
    attributes="rounding_mode")  # fmt: skip
def div_rounded(x: Any, y: Any, rounding_mode: str) -> Any:
    """self / other, rounded."""
    return _quotient(x, y, rounding_mode)


@op("div_rounded_checked(Tensor|Scalar self, Tensor|Scalar other, str rounding_mode)", promote="common", method=False, toplevel=False,
    differentiable=False, check=_zero_division, attributes="rounding_mode")  # fmt: skip
def div_rounded_checked(x: Any, y: Any, rounding_mode: str) -> Any:
    """self / other, rounded, of integers."""
    return _without_zeros(lambda x, y: _quotient(x, y, rounding_mode), x, y)


@op("frac(Tensor self)", elementwise=True, inplace=True, validate=refusing("frac_cpu", "iubc"), out="same", grads={"self": SAME})
def frac(x: Any) -> Any:
    """What is left without the integer part."""
    return whole.fraction(x)


# ---------------------------------------------------------------------- sums of exponentials, interpolation


@op("hypot(Tensor self, Tensor other)", promote="common", inplace=True,
    grads={"self": lambda grad, self, result: grad * (self / result), "other": lambda grad, other, result: grad * (other / result)})  # fmt: skip
@kernel("hypot_cpu", "biuc")
def hypot(x: Any, y: Any) -> Any:
    """The length of the vector (self, other), without overflow."""
    return jnp.hypot(x, y)


@op("logaddexp(Tensor self, Tensor other)", promote="common",
    grads={"self": lambda grad, self, other: grad / (1 + lax.exp(other - self)).conj(),
           "other": lambda grad, self, other: grad / (1 + lax.exp(self - other)).conj()})  # fmt: skip
@kernel("logaddexp_cpu", "biu")
def logaddexp(x: Any, y: Any) -> Any:
    """log(exp(self) + exp(other)), without overflow."""
    if x.dtype.kind == "c":  # the imaginary part stays the larger operand's
        first = x.real >= y.real
        large, small = where(first, x, y), where(first, y, x)
        return large + lax.log1p(lax.exp(small - large))
    return jnp.logaddexp(x, y)


@op("logaddexp2(Tensor self, Tensor other)", promote="common",
    grads={"self": lambda grad, self, other: grad / (1 + jnp.exp2(other - self)),
           "other": lambda grad, self, other: grad / (1 + jnp.exp2(self - other))})  # fmt: skip
@kernel("logaddexp2_cpu", "biuc")
def logaddexp2(x: Any, y: Any) -> Any:
    """log2(2 ** self + 2 ** other), without overflow."""
    return jnp.logaddexp2(x, y)


@kernel("lerp_kernel_scalar", "biu")
def _lerp(x: Any, end: Any, weight: Any) -> Any:
    """self + weight * (end - self), exact at both ends."""
    size, way = lax.abs(weight), lax.sub(end, x)
    near, rest = lax.lt(size, lax.full_like(size, 0.5)), lax.sub(lax.full_like(weight, 1), weight)
    return lax.select(near, lax.add(x, lax.mul(weight, way)), lax.sub(end, lax.mul(way, rest)))


def _same_dtypes(x: Any, end: Any, weight: Any) -> None:
    for label, a in (("end", end), ("weight", weight)):
        if not isinstance(a, type) and a.dtype != x.dtype and (label == "end" or a.ndim):
            raise RuntimeError(f"expected dtype {dtypes.of(np.dtype(x.dtype)).word} for `{label}` but got dtype {dtypes.of(np.dtype(a.dtype)).word}")


_LERP_GRADS = {"self": lambda grad, weight: grad * (1 - weight).conj(), "end": lambda grad, weight: grad * weight.conj()}
op("lerp_number(Tensor self, Tensor end, Scalar weight)", promote="common", opmath=True, method=False, toplevel=False, node="LerpBackward0",
   validate=_same_dtypes, grads=_LERP_GRADS)(_lerp)  # fmt: skip
op("lerp_tensor(Tensor self, Tensor end, Tensor weight)", promote="common", opmath=True, method=False, toplevel=False, node="LerpBackward1",
   validate=_same_dtypes, shows=("weight",), grads={**_LERP_GRADS, "weight": lambda grad, self, end: grad * (end - self).conj()})(_lerp)  # fmt: skip


# ---------------------------------------------------------------------- x log y


def _declare_xlog(name: str, nodes: tuple[str, str, str], shift: int) -> None:
    def log(y: Any) -> Any:
        return lax.log1p(y) if shift else lax.log(y)

    @kernel(f"{name.removeprefix('special_')}_cpu", "c")
    def xlog(x: Any, y: Any) -> Any:
        zero = x == 0
        return where(y != y, y, where(zero, 0, x * log(where(zero, jnp.ones_like(y), y)))).astype(x.dtype)

    def grad_of_self(grad: Any, self: Any, other: Any) -> Any:
        other = convert(other, grad.dtype)
        flat = (self == 0) & (other <= -shift)
        return where(flat, 0, grad * log(where(flat, jnp.ones_like(other), other))).astype(grad.dtype)

    xlog.__doc__ = f"self * log({'1 + ' * shift}other), 0 where self is 0."
    for suffix, node, edges in zip(("_tensors", "_self_number", "_other_number"), nodes, (None, ("other",), ("self",)), strict=True):
        op(f"{name}{suffix}(Tensor|Scalar self, Tensor|Scalar other)", promote="float", method=False, toplevel=False, node=node, edges=edges,
           grads={"self": grad_of_self, "other": lambda grad, self, other: grad * self / (other + shift)})(xlog)  # fmt: skip


_declare_xlog("xlogy", ("XlogyBackward0", "XlogyBackward1", "XlogyBackward2"), 0)
_declare_xlog("special_xlog1py", ("SpecialXlog1PyBackward0", "SpecialXlog1PyBackward1", "SpecialXlog1PyBackward2"), 1)


# ---------------------------------------------------------------------- functions of one float


def _unary(schema: str, function: Any, doc: str, gradient: Any = None, **options: Any) -> None:
    def of_array(x: Any, **statics: Any) -> Any:
        return function(wide(x), **statics).astype(x.dtype)

    of_array.__doc__ = doc
    if gradient is not None:
        options["grads"] = {"self": gradient}
    op(schema, promote="float", **options)(of_array)


def _logit_grad(grad: Any, self: Any, eps: Any) -> Any:
    low, high = (0, 1) if eps is None else (eps, 1 - eps)
    outside = (self < low) | (self > high)
    return where(outside, jnp.nan if eps is None else 0, grad / (self * (1 - self))).astype(grad.dtype)


@op("logit(Tensor self, float? eps=None)", promote="float", inplace=True, aliases=("special_logit",), grads={"self": _logit_grad})
def logit(x: Any, eps: Any) -> Any:
    """log(self / (1 - self)); self kept in [eps, 1 - eps]."""
    refusing("logit_cpu", "c")(x)
    if eps is not None:
        low, high = jnp.asarray(eps, x.dtype), jnp.asarray(1 - eps, x.dtype)
        x = where(x < low, low, where(x > high, high, x))
    return lax.log(x / (1 - x))  # PyTorch rounds half precision after each of the three steps


def _sinc_grad(grad: Any, self: Any) -> Any:
    at = convert(wide(self) * math.pi, self.dtype)
    below = convert(wide(self * self) * math.pi, self.dtype)
    zero = below == 0  # also where a square is too small for a number
    slope = (at * lax.cos(at) - lax.sin(at)) / where(zero, jnp.ones_like(below), below)
    return where(zero, zeros_like(slope), grad * slope.conj())


_unary("sinc(Tensor self)", jnp.sinc, "sin(pi * self) / (pi * self), 1 at 0.", _sinc_grad, inplace=True, aliases=("special_sinc",))
_unary("deg2rad(Tensor self)", lambda x: x * jnp.asarray(math.pi / 180, x.dtype), "Degrees as radians.",
       lambda grad: grad * jnp.asarray(math.pi / 180, grad.dtype), inplace=True, node="Deg2RadBackward0",
       validate=lambda x: _refuse_complex("deg2rad", x))  # fmt: skip
_unary("rad2deg(Tensor self)", lambda x: x * jnp.asarray(180 / math.pi, x.dtype), "Radians as degrees.",
       lambda grad: grad * jnp.asarray(180 / math.pi, grad.dtype), inplace=True, node="Rad2DegBackward0",
       validate=lambda x: _refuse_complex("rad2deg", x))  # fmt: skip
_unary("lgamma(Tensor self)", lax.lgamma, "log(abs(gamma(self))).", lambda grad, self: grad * digamma(self), inplace=True,
       aliases=("special_gammaln",), validate=refusing("lgamma_vml_cpu", "c"))  # fmt: skip
_unary("digamma(Tensor self)", digamma, "The derivative of lgamma.", lambda grad, self: grad * polygamma(self, 1), inplace=True,
       aliases=("special_psi", "special_digamma"))  # fmt: skip
_POLYGAMMA = {0: "digamma", 1: "trigamma"}  # the kernels that PyTorch has for the first of them
for _name, _node in (("polygamma_n", "PolygammaBackward0"), ("polygamma_written", "PolygammaBackward1")):
    _unary(f"{_name}(Tensor self, int n)", polygamma, "The n-th derivative of digamma.",
           lambda grad, self, n: grad * polygamma(self, n + 1), method=False, toplevel=False, node=_node,
           validate=lambda x, n: refusing(_POLYGAMMA.get(n, "polygamma"), "c")(x))  # fmt: skip
_i0, _i1 = whole.by_c("i0")(special.i0), whole.by_c("i1")(special.i1)
_unary("i0(Tensor self)", _i0, "The modified Bessel function of order 0.", lambda grad, self: grad * _i1(self), inplace=True,
       aliases=("special_i0",), validate=refusing("i0_vml_cpu", "c"))  # fmt: skip


@whole.by_c("entr")
def _entr(x: Any) -> Any:
    safe = where(x > 0, x, 1)
    return where(x != x, x, where(x > 0, -safe * lax.log(safe), where(x == 0, 0, -jnp.inf))).astype(x.dtype)


def _hidden(name: str, function: Any, doc: str, gradient: Any = None, **options: Any) -> None:
    _unary(f"special_{name}(Tensor self)", function, doc, gradient, method=False, toplevel=False, **options)


_SQRT_PI = math.sqrt(math.pi)
_hidden("entr", _entr, "-self * log(self), 0 at 0, -inf below.", lambda grad, self: grad * -(lax.log(self) + 1), validate=refusing("entr_cpu", "c"))
_hidden(
    "erfcx",
    whole.by_c("erfcx")(erfcx),
    "exp(self ** 2) * erfc(self).",
    lambda grad, self, result: grad * (2 * self * result - 2 / _SQRT_PI),
    validate=refusing("erfcx_cpu", "ch"),
)
_hidden("i0e", whole.by_c("i0e")(special.i0e), "exp(-abs(self)) * i0(self).", node="SpecialI0EBackward0", keeps=("result",),
        validate=refusing("i0e_cpu", "c"))  # fmt: skip
_hidden("i1", _i1, "The modified Bessel function of order 1.", keeps=("result",), validate=refusing("i1_cpu", "c"))
_hidden("i1e", whole.by_c("i1e")(special.i1e), "exp(-abs(self)) * i1(self).", node="SpecialI1EBackward0", keeps=("result",),
        validate=refusing("i1e_cpu", "c"))  # fmt: skip
_hidden(
    "ndtri",
    whole.by_c("ndtri", lambda given, at: jax.jvp(special.ndtri, at, given)[1])(quantile),
    "The inverse of ndtr.",
    lambda grad, result: grad * lax.exp(result * result / 2) * math.sqrt(2 * math.pi),
    validate=refusing("ndtri_cpu", "ch"),
)
_hidden("log_ndtr", whole.by_c("log_ndtr")(log_ndtr), "log(ndtr(self)), exact for negative numbers.",
        lambda grad, self, result: grad * lax.exp(-self * self / 2 - result) / math.sqrt(2 * math.pi),
        validate=refusing("log_ndtr_cpu", "ch"))  # fmt: skip


@op("special_zeta(Tensor|Scalar self, Tensor|Scalar other)", promote="float", method=False, toplevel=False, edges=("self", "other"),
    number_node="SpecialZetaBackward1",
    grads={"self": not_implemented("zeta"), "other": lambda grad, self, other: -grad * self * hurwitz_zeta(self + 1, other)})  # fmt: skip
@kernel("zeta_cpu", "ch")
def zeta(x: Any, q: Any) -> Any:
    """The Hurwitz zeta function."""
    return hurwitz_zeta(x, q)


def _gamma_density(grad: Any, self: Any, other: Any) -> Any:
    return grad * lax.exp((self - 1) * lax.log(other) - other - lax.lgamma(self))


def _incomplete(function: Any, x: Any, y: Any, at_zero: int) -> Any:
    """The function with PyTorch's values at the ends of both ranges: `at_zero` for y = 0."""
    inside = (x > 0) & (y > 0) & (x < jnp.inf) & (y < jnp.inf)
    one = jnp.ones_like(x)
    found = where(y == jnp.inf, 1 - at_zero, where(y == 0, at_zero, jnp.nan))
    found = where(x == jnp.inf, where(y == jnp.inf, jnp.nan, at_zero), found)
    found = where(x == 0, where(y > 0, 1 - at_zero, jnp.nan), found)
    outside = where((x < 0) | (y < 0), jnp.nan, found)
    return where(inside, function(where(inside, x, one), where(inside, y, one)), outside).astype(x.dtype)


@whole.by_c("igamma")
def _gamma_lower(x: Any, y: Any) -> Any:
    return _incomplete(special.gammainc, x, y, 0)


@whole.by_c("igammac")
def _gamma_upper(x: Any, y: Any) -> Any:
    return _incomplete(special.gammaincc, x, y, 1)


@op("igamma(Tensor self, Tensor other)", promote="common", inplace=True, aliases=("special_gammainc",),
    grads={"self": not_implemented("igamma: input"), "other": _gamma_density})  # fmt: skip
@kernel("igamma_cpu", "biuc")
def igamma(x: Any, y: Any) -> Any:
    """The regularized lower incomplete gamma function."""
    return _gamma_lower(x, y)


@op("igammac(Tensor self, Tensor other)", promote="common", inplace=True, aliases=("special_gammaincc",),
    grads={"self": not_implemented("igammac: input"), "other": lambda grad, self, other: -_gamma_density(grad, self, other)})  # fmt: skip
@kernel("igammac_cpu", "biuc")
def igammac(x: Any, y: Any) -> Any:
    """The regularized upper incomplete gamma function."""
    return _gamma_upper(x, y)


def _mvlgamma_grad(grad: Any, self: Any, p: int) -> Any:
    return grad * sum(digamma(self - i / 2) for i in range(p))


def _check_mvlgamma(x: Any, p: int) -> None:
    if x.dtype == np.bool_:
        raise RuntimeError("The input tensor may not be a boolean tensor.")
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    refusing("arange_cpu", "c")(x)  # PyTorch makes the numbers x - i / 2 by arange


@op("mvlgamma(Tensor self, int p)", promote="float", validate=_check_mvlgamma, keeps_order=False, inplace=True, aliases=("special_multigammaln",),
    grads={"self": _mvlgamma_grad})  # fmt: skip
def mvlgamma(x: Any, p: int) -> Any:
    """The logarithm of the multivariate gamma function of dimension `p`."""
    total: Any = sum(lax.lgamma(x - i / 2) for i in range(p))
    return (total + p * (p - 1) / 4 * math.log(math.pi)).astype(x.dtype)


# ---------------------------------------------------------------------- parts of floating point numbers


def _check_heaviside(x: Any, values: Any) -> None:
    if "c" in (x.dtype.kind, values.dtype.kind):
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if x.dtype != values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    broadcast_shapes(x.shape, values.shape)


@op("heaviside(Tensor self, Tensor values)", elementwise=True, inplace=True, node=NOT_IMPLEMENTED, validate=_check_heaviside,
    grads={"self": no_derivative("heaviside"), "values": no_derivative("heaviside")})  # fmt: skip
def heaviside(x: Any, values: Any) -> Any:
    """0 below 0, 1 above, `values` at 0."""
    x, values = jnp.broadcast_arrays(x, values)
    return where(x == 0, values, convert(x > 0, np.dtype(x.dtype)))


def _copysign(x: Any, y: Any) -> Any:
    """The magnitude of self with the sign of other."""
    refusing("copysign_cpu", "c")(x)
    return whole.signed(x, y)


def _copysign_grad(grad: Any, self: Any, result: Any) -> Any:
    return grad * where(self == 0, 0, result / where(self == 0, 1, self)).astype(grad.dtype)


for _suffix, _node in (("tensor", "CopysignBackward0"), ("number", "CopysignBackward1")):
    op(f"copysign_{_suffix}(Tensor self, Tensor|Scalar other)", promote="float", method=False, toplevel=False, node=_node,
       edges=("self",) if _suffix == "number" else None, shows=("result",),
       grads={"self": _copysign_grad, "other": zeros_like_grad})(_copysign)  # fmt: skip


@op("nextafter(Tensor self, Tensor other)", promote="common", inplace=True,
    grads={"self": lambda grad, self, other: where(self == other, zeros_like(grad), grad),
           "other": zeros_like_grad})  # fmt: skip
@kernel("nextafter_cpu", "iubc")
def nextafter(x: Any, y: Any) -> Any:
    """The next floating point number from self towards other."""
    return lax.nextafter(x, y)


def _floats_only(x: Any) -> None:
    if dtypes.category(x.dtype) != dtypes.FLOAT:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")


@op("frexp(Tensor self)", keeps_order=True, results=("mantissa", "exponent"), validate=_floats_only,
    grads={"self": lambda grad0, exponent: lax.mul(grad0, jnp.exp2(-exponent.astype(grad0.dtype)))})  # fmt: skip
def frexp(x: Any) -> Any:
    """Mantissas of magnitude in [0.5, 1) and exponents of 2."""
    mantissa, exponent = jnp.frexp(wide(x))
    finite = jnp.isfinite(x)
    return where(finite, mantissa.astype(x.dtype), x), where(finite, exponent, 0).astype(np.int32)


@op("ldexp(Tensor self, Tensor other)", promote="float", inplace=True, shows=("result",),
    grads={"self": lambda grad, other: grad * jnp.exp2(other), "other": lambda grad, result: grad * result * math.log(2)})  # fmt: skip
def ldexp(x: Any, y: Any) -> Any:
    """self * 2 ** other."""
    return x * jnp.exp2(y)


@op("nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None)", elementwise=True, keeps_order=True,
    inplace=True, real="nan_to_num", keeps=("self",), grads={"self": lambda grad, self: grad * jnp.isfinite(self).astype(grad.dtype)})  # fmt: skip
def nan_to_num(x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    """nan, inf and -inf replaced by numbers: 0 and the ends of the dtype's range where None."""
    return jnp.nan_to_num(x, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf) if dtypes.is_float(np.dtype(x.dtype)) else x


def _test(name: str, function: Any, doc: str, **options: Any) -> None:
    def test(x: Any) -> Any:
        return function(x)

    test.__doc__ = doc
    op(f"{name}(Tensor self)", differentiable=False, keeps_order=True, **options)(test)


def _refuse_complex_infinity(name: str, x: Any) -> None:
    if x.dtype.kind == "c":
        raise RuntimeError(f"{name} does not support complex inputs.")


def _refuse_complex_sign(x: Any) -> None:
    if x.dtype.kind == "c":
        raise NotImplementedError("signbit is not implemented for complex tensors.")


_test("isposinf", jnp.isposinf, "Whether inf.", validate=lambda x: _refuse_complex_infinity("isposinf", x))
_test("isneginf", jnp.isneginf, "Whether -inf.", validate=lambda x: _refuse_complex_infinity("isneginf", x))
_test("isreal", lambda x: x.imag == 0 if x.dtype.kind == "c" else jnp.ones(x.shape, bool), "Whether the imaginary part is 0.", out=False)
_test("signbit", lambda x: jnp.signbit(x) if jnp.issubdtype(x.dtype, jnp.floating) else x < 0, "Whether the sign is set.",
      validate=_refuse_complex_sign)  # fmt: skip


# ---------------------------------------------------------------------- whole numbers and bits


def _whole(name: str, function: Any, doc: str, schema: str = "(Tensor self, Tensor other)", **options: Any) -> None:
    refuse = refusing(options.pop("kernel", f"{name}_cpu"), "fcbV")

    def of_integers(x: Any, y: Any) -> Any:
        refuse(x)
        return function(x, y)

    of_integers.__doc__ = doc
    op(f"{name}{schema}", promote="common", inplace=True, differentiable=False, **options)(of_integers)


def _shifted(function: Any, emptied: Any) -> Any:
    def shift(x: Any, y: Any) -> Any:
        width = x.dtype.itemsize * 8
        out_of_range = (y < 0) | (y >= width)
        return where(out_of_range, emptied(x), function(x, where(out_of_range, 0, y).astype(x.dtype)))

    return shift


_whole("gcd", jnp.gcd, "The greatest common divisor.")
_whole("lcm", jnp.lcm, "The least common multiple.")
_whole("bitwise_left_shift", _shifted(lax.shift_left, jnp.zeros_like), "The bits moved up by `other` places.",
       "(Tensor|Scalar self, Tensor|Scalar other)", kernel="lshift_cpu")  # fmt: skip
_whole("bitwise_right_shift",
       _shifted(lambda x, y: lax.shift_right_logical(x, y) if x.dtype.kind == "u" else lax.shift_right_arithmetic(x, y),
                lambda x: where(x < 0, -1, 0).astype(x.dtype) if x.dtype.kind == "i" else zeros_like(x)),
       "The bits moved down by `other` places.", "(Tensor|Scalar self, Tensor|Scalar other)", kernel="rshift_cpu")  # fmt: skip


# ---------------------------------------------------------------------- complex numbers


@op("sgn(Tensor self)", keeps_order=True, inplace=True, out="same", keeps=("result",), shows=("self",))
def sgn(x: Any) -> Any:
    """The sign; for complex numbers the number divided by its magnitude, 0 at 0."""
    if x.dtype.kind != "c":
        return sign.function(x)
    zero = x == 0
    safe = where(zero, 1, x)
    size = jnp.abs(safe)
    return where(zero, 0, lax.complex(lax.real(safe) / size, lax.imag(safe) / size))


@op("conj_physical(Tensor self)", keeps_order=True, inplace=True, grads={"self": lambda grad: grad.conj()})
def conj_physical(x: Any) -> Any:
    """The complex conjugate."""
    return lax.conj(x) if x.dtype.kind == "c" else x


@op("angle(Tensor self)", promote="float",
    grads={"self": lambda grad, self: _angle_grad(grad, self)})  # fmt: skip
def angle(x: Any) -> Any:
    """The angle to the positive real axis: 0 or pi for real numbers."""
    if x.dtype.kind == "c":
        return lax.atan2(x.imag, x.real)
    return whole.angle(x)


def _angle_grad(grad: Any, self: Any) -> Any:
    if self.dtype.kind != "c":
        return zeros_like(self)
    squares = self.real * self.real + self.imag * self.imag
    scale = where(squares == 0, 0, grad / where(squares == 0, 1, squares)).astype(grad.dtype)
    return lax.complex(-self.imag * scale, self.real * scale)


def _two_reals(name: str) -> Any:
    def validate(x: Any, y: Any) -> None:
        for a in (x, y):
            if a.dtype not in (np.float16, np.float32, np.float64):
                raise RuntimeError(f"Expected both inputs to be Half, Float or Double tensors but got {title(x)} and {title(y)}")
        if x.dtype != y.dtype:
            raise RuntimeError(f"Expected object of scalar type {title(x)} but got scalar type {title(y)} for second argument")

    return validate


@op("complex(Tensor real, Tensor imag)", method=False, out="same", promote="common", validate=_two_reals("complex"),
    grads={"real": lambda grad, real: grad.real, "imag": lambda grad, imag: grad.imag})  # fmt: skip
def complex_(x: Any, y: Any) -> Any:
    """The complex numbers of two real parts."""
    if is_half(x.dtype):
        raise RuntimeError(NO_COMPLEX32)
    return lax.complex(x, y)


@op(
    "polar(Tensor abs, Tensor angle)", method=False, out="same", promote="common", validate=_two_reals("polar"),
    grads={"abs": lambda grad, result: (grad.conj() * sgn.function(result)).real,
           "angle": lambda grad, result: grad.imag * result.real - grad.real * result.imag},
)  # fmt: skip
@kernel("polar_cpu", "h")
def polar(x: Any, y: Any) -> Any:
    """The complex numbers of magnitudes and angles."""
    return lax.complex(x * lax.cos(y), x * lax.sin(y))
