"""Element-wise operators: arithmetic, powers, exponentials, trigonometry, rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_placing, promotion
from torchgrad_jax.declaration import numpy_forms as forms
from torchgrad_jax.declaration.converting import broadcast_shapes, convert, where, wide, zeros_like, zeros_like_grad
from torchgrad_jax.declaration.factors import SLOPES
from torchgrad_jax.declaration.operator import ARRAY, SAME, BoundOperator, Static, op
from torchgrad_jax.declaration.refusals import kernel, not_implemented, refusing
from torchgrad_jax.operators.kernels import circular
from torchgrad_jax.operators.kernels.powers import power, power_of_integers
from torchgrad_jax.operators.kernels.whole import of_reals
from torchgrad_jax.runtime.compiling.platforms import by_platform
from torchgrad_jax.runtime.value import Aval, aval_of


def _refuse_integer_division(x: Any, a: Any, b: Any, _: Any) -> None:
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true division of tensor1 and "
            "tensor2. The historic addcdiv behavior can be implemented as (input + value * torch.trunc(tensor1 / tensor2)).to(input.dtype) for "
            "integer inputs and as (input + value * tensor1 / tensor2) for float inputs. The future addcdiv behavior is just the latter "
            "implementation: (input + value * tensor1 / tensor2), for all dtypes."
        )


def _refuse_bool_sub(a: Any, b: Any, *_: Any) -> None:
    if _is_bool(a) and _is_bool(b):
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.")
    if _is_bool(a) or _is_bool(b):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
            "`logical_not()` operator instead."
        )


def _is_bool(a: Any) -> bool:
    return a is bool or (not isinstance(a, type) and a is not None and a.dtype == np.bool_)


# ---------------------------------------------------------------------- arithmetic


@op("add(Tensor|Scalar self, Tensor|Scalar other)", promote="common", inplace=True, grads={"self": SAME, "other": SAME}, attributes="alpha=1")
def add(x: Any, y: Any) -> Any:
    """self + other, element by element."""
    return lax.bitwise_or(x, y) if x.dtype == np.bool_ else lax.add(x, y)


@op(
    "add_scaled(Tensor|Scalar self, Tensor|Scalar other, Scalar alpha)", promote="common", inplace=True, method=False, toplevel=False,
    node="AddBackward0", grads={"self": SAME, "other": lambda grad, alpha: grad * alpha},
)  # fmt: skip
def add_scaled(x: Any, y: Any, alpha: Any) -> Any:
    return x | (y & alpha) if x.dtype == np.bool_ else (wide(x) + wide(alpha) * wide(y)).astype(x.dtype)


@op("sub(Tensor|Scalar self, Tensor|Scalar other)", promote="common", inplace=True, validate=_refuse_bool_sub,
    grads={"self": SAME, "other": lambda grad: -grad}, attributes="alpha=1")  # fmt: skip
def sub(x: Any, y: Any) -> Any:
    """self - other, element by element."""
    return lax.sub(x, y)


@op(
    "sub_scaled(Tensor|Scalar self, Tensor|Scalar other, Scalar alpha)", promote="common", inplace=True, method=False, toplevel=False,
    node="SubBackward0", validate=lambda a, b, c: _refuse_bool_sub(a, b), grads={"self": SAME, "other": lambda grad, alpha: -grad * alpha},
)  # fmt: skip
def sub_scaled(x: Any, y: Any, alpha: Any) -> Any:
    return (wide(x) - wide(alpha) * wide(y)).astype(x.dtype)


@op("rsub(Tensor self, Tensor|Scalar other)", promote="common", method=False, validate=_refuse_bool_sub, number_node="RsubBackward1",
    grads={"self": lambda grad: -grad, "other": SAME}, attributes="alpha=1")  # fmt: skip
def rsub(x: Any, y: Any) -> Any:
    """other - self, element by element."""
    return lax.sub(y, x)


@op("rsub_scaled(Tensor self, Tensor|Scalar other, Scalar alpha)", promote="common", validate=_refuse_bool_sub, method=False, toplevel=False,
    node="RsubBackward0", number_node="RsubBackward1", grads={"self": lambda grad, alpha: -grad * alpha.conj(), "other": SAME})  # fmt: skip
def rsub_scaled(x: Any, y: Any, alpha: Any) -> Any:
    """other - alpha * self, element by element."""
    return (wide(y) - wide(alpha) * wide(x)).astype(x.dtype)


@op("mul(Tensor|Scalar self, Tensor|Scalar other)", promote="common", opmath=True, inplace=True, aliases=("multiply",),
    grads={"self": lambda grad, other: grad * other.conj(), "other": lambda grad, self: grad * self.conj()})  # fmt: skip
def mul(x: Any, y: Any) -> Any:
    """self * other, element by element."""
    return lax.bitwise_and(x, y) if x.dtype == np.bool_ else lax.mul(x, y)


@op(
    "div(Tensor|Scalar self, Tensor|Scalar other)", promote="float", opmath=True, inplace=True, aliases=("divide", "true_divide"),
    grads={"self": lambda grad, other: grad / other.conj(), "other": lambda grad, self, other: -grad * ((self / other) / other).conj()},
)  # fmt: skip
def div(x: Any, y: Any) -> Any:
    """self / other, element by element. Integers divide to the default floating point dtype."""
    return lax.div(x, y)


# PyTorch's name for it where a rounding mode is given, None included.
op("_div_unrounded(Tensor|Scalar self, Tensor|Scalar other)", promote="float", opmath=True, method=False, toplevel=False, node="DivBackward2",
   grads=div.grads, attributes="rounding_mode=None")(div.function)  # fmt: skip


@op("neg(Tensor self)", elementwise=True, inplace=True, out="same", aliases=("negative",), grads={"self": lambda grad: -grad})
def neg(x: Any) -> Any:
    """-self. RuntimeError for booleans."""
    if x.dtype == np.bool_:
        raise RuntimeError("Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
                           "`logical_not()` operator instead.")  # fmt: skip
    return lax.neg(x)


@op("reciprocal(Tensor self)", promote="float", inplace=True, grads={"self": lambda grad, result: -grad * (result * result).conj()})
def reciprocal(x: Any) -> Any:
    """1 / self."""
    return lax.div(jnp.ones_like(x), x)


@op("square(Tensor self)", elementwise=True, inplace=True, node="PowBackward0", again=("self",),
    grads={"self": lambda grad, self: grad * (2 * self).conj()})  # fmt: skip
def square(x: Any) -> Any:
    """self ** 2."""
    x = convert(x, np.dtype(np.int64)) if x.dtype == np.bool_ else x
    return lax.mul(x, x)


def _scaled(tensor: Any, value: Any) -> Any:
    """tensor * value as PyTorch multiplies a tensor by a number: a number of a higher category makes it the dtype."""
    target = promotion.result_type([aval_of((1,), np.dtype(tensor.dtype)), _NUMBER_TYPES[value.dtype.kind]])
    return convert(convert(tensor, target) * value, target)


_NUMBER_TYPES = {"i": int, "f": float, "c": complex}


def _as_divided(value: Any, tensor: Any) -> Any:
    """A number that is divided by a tensor. RuntimeError where PyTorch's backward has one: the quotient is written into the tensor's dtype."""
    if tensor.dtype.kind in "biu":
        dtype, title = (dtypes.of(np.dtype(d)).title for d in (dtypes.default_float(), tensor.dtype))
        raise RuntimeError(f"result type {dtype} can't be cast to the desired output type {title}")
    if value.dtype.kind == "c" and tensor.dtype.kind != "c":
        raise RuntimeError(f"value cannot be converted to type {'double' if tensor.dtype == np.float64 else 'float'} without overflow")
    return convert(value, tensor.dtype)


@op(
    "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1)", promote="common", opmath=True, inplace=True,
    grads={"self": SAME, "tensor1": lambda grad, tensor2, value: grad * _scaled(tensor2, value).conj(),
           "tensor2": lambda grad, tensor1, value: grad * _scaled(tensor1, value).conj()},
)  # fmt: skip
@kernel("addcmul_cpu_out", "b")
def addcmul(x: Any, a: Any, b: Any, value: Any) -> Any:
    """self + value * tensor1 * tensor2."""
    return x + value * a * b


@op(
    "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1)", promote="common", opmath=True, inplace=True,
    validate=_refuse_integer_division, shows=("tensor2",),
    grads={"self": SAME, "tensor1": lambda grad, tensor2, value: grad * (_as_divided(value, tensor2) / tensor2).conj(),
           "tensor2": lambda grad, tensor1, tensor2, value: -grad * (_scaled(tensor1, value) / (tensor2 * tensor2)).conj()},
)  # fmt: skip
def addcdiv(x: Any, a: Any, b: Any, value: Any) -> Any:
    """self + value * tensor1 / tensor2."""
    return x + value * (a / b)


# ---------------------------------------------------------------------- arithmetic with a number within PyTorch's own functions
# There a number is no tensor, so that the node has another name and no edge for it.


def _with_number(name: str, function: Any, gradient: Any) -> None:
    def with_number(x: Any, number: Any) -> Any:
        return function(x, number)

    with_number.__doc__ = f"{name} of a tensor and a number."
    op(f"_{name}_number(Tensor self, Scalar other)", elementwise=True, method=False, toplevel=False, node=f"{name.capitalize()}Backward1",
       grads={"self": gradient})(with_number)  # fmt: skip


_with_number("add", lax.add, SAME)
_with_number("sub", lax.sub, SAME)
_with_number("mul", lax.mul, lambda grad, other: grad * other)
_with_number("div", lax.div, lambda grad, other: grad / other)


# ---------------------------------------------------------------------- powers


@op("pow_scalar(Tensor self, any exponent)", elementwise=True, inplace=True, method=False, toplevel=False, node="PowBackward0", again=("self",),
    grads={"self": lambda grad, self, exponent: grad * (exponent * power(self, exponent - 1)).conj() if exponent else zeros_like(grad)}
)  # fmt: skip
def pow_scalar(x: Any, exponent: Any) -> Any:
    """self ** exponent for a Python number."""
    if dtypes.category(x.dtype) == dtypes.INT and isinstance(exponent, int) and exponent < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    return power(convert(x, promotion.result_type([aval_of(x.shape, np.dtype(x.dtype)), type(exponent)])), exponent)


def _pow_grad_exponent(grad: Any, self: Any, exponent: Any, result: Any) -> Any:
    # 0 ** y is constant for y >= 0, although its logarithm is infinite.
    flat = (self == 0) & (exponent.real >= 0)
    safe = where(flat, jnp.ones_like(self), self)
    return grad * where(flat, zeros_like(result), result * jnp.log(safe)).conj()


@op(
    "pow_tensor(Tensor|Scalar self, Tensor exponent)",
    promote="common",
    inplace=True,
    method=False,
    toplevel=False,
    node="PowBackward1",
    number_node="PowBackward2",
    shows=("result",),
    grads={
        "self": lambda grad, self, exponent: where(exponent == 0, zeros_like(grad), grad * (exponent * jnp.power(self, exponent - 1)).conj()),
        "exponent": _pow_grad_exponent,
    },
)
def pow_tensor(x: Any, y: Any) -> Any:
    """self ** exponent, element by element."""
    refusing("pow", "b")(x)
    if x.dtype.kind == "i":
        negative = where(x == 1, 1, where(x == -1, where(y % 2 == 0, 1, -1), 0)).astype(x.dtype)
        return where(y < 0, negative, power_of_integers(x, jnp.maximum(y, 0)))
    return power_of_integers(x, y) if x.dtype.kind == "u" else jnp.power(x, y)


# ---------------------------------------------------------------------- exponentials and roots


def _float_unary(name: str, function: Any, gradient: Any, doc: str, **options: Any) -> Any:
    # In half precision each of the steps that XLA makes of a function would be rounded.
    function_of_array = lambda x: function(wide(x)).astype(x.dtype)  # noqa: E731 - a fresh function object carries the docstring
    function_of_array.__doc__ = doc
    return op(f"{name}(Tensor self)", promote="float", **{"inplace": True, **options}, grads={"self": gradient})(function_of_array)


def _real_unary(name: str, function: Any, gradient: Any, doc: str, **options: Any) -> Any:
    return _float_unary(name, function, gradient, doc, validate=refusing(f"{name}_vml_cpu", "c"), **options)


exp = _float_unary("exp", lax.exp, lambda grad, result: grad * result.conj(), "e ** self.")
exp2 = _float_unary("exp2", jnp.exp2, lambda grad, result: grad * result.conj() * np.log(2), "2 ** self.")
expm1 = _float_unary("expm1", lax.expm1, lambda grad, result: grad * (result.conj() + 1), "e ** self - 1, exact near 0.")
log = _float_unary("log", lax.log, lambda grad, self: grad / self.conj(), "The natural logarithm.")
log2 = _float_unary("log2", jnp.log2, lambda grad, self: grad / (self.conj() * np.log(2)), "The logarithm to base 2.")
log10 = _float_unary("log10", jnp.log10, lambda grad, self: grad / (self.conj() * np.log(10)), "The logarithm to base 10.")
log1p = _float_unary("log1p", lax.log1p, lambda grad, self: grad / (self + 1).conj(), "log(1 + self), exact near 0.", node="Log1PBackward0")
sqrt = _float_unary("sqrt", lax.sqrt, lambda grad, result: grad / (2 * result.conj()), "The square root.")


def _complex_reciprocal(x: Any) -> Any:
    """1 / x by PyTorch's scaled division, which makes nan of infinities."""
    a, b = lax.real(x), lax.imag(x)
    across = abs(a) >= abs(b)
    large, small = where(across, a, b), where(across, b, a)
    ratio = where(large == 0, 0, small / large)
    scale = 1 / (large + small * ratio)
    real, imag = (1 + 0 * ratio) * scale, where(large == 0, jnp.nan, ratio * -scale)
    return lax.complex(where(across, real, ratio * scale), where(across, imag, -scale))


def _rsqrt(x: Any) -> Any:
    if x.dtype.kind == "c":
        return _complex_reciprocal(lax.sqrt(x))
    # XLA's CPU code for rsqrt is five times slower than a root and a division, which it would make an rsqrt of without the two signs.
    return by_platform(x, cpu=lambda a: -1 / -lax.sqrt(a), default=lax.rsqrt)


rsqrt = _float_unary("rsqrt", _rsqrt, lambda grad, result: -0.5 * grad * (result * result * result).conj(), "1 / sqrt(self).")
sin = _float_unary("sin", circular.sin, lambda grad, self: grad * circular.cos(self).conj(), "The sine.")
cos = _float_unary("cos", circular.cos, lambda grad, self: -grad * circular.sin(self).conj(), "The cosine.")
tan = _float_unary("tan", lax.tan, lambda grad, result: grad * (1 + result * result).conj(), "The tangent.")
asin = _float_unary("asin", jnp.arcsin, lambda grad, self: grad * lax.rsqrt(1 - self * self).conj(), "The arc sine.", aliases=("arcsin",))
acos = _float_unary("acos", jnp.arccos, lambda grad, self: -grad * lax.rsqrt(1 - self * self).conj(), "The arc cosine.", aliases=("arccos",))
atan = _float_unary("atan", jnp.arctan, lambda grad, self: grad / (self * self + 1).conj(), "The arc tangent.", aliases=("arctan",))
sinh = _float_unary("sinh", lax.sinh, lambda grad, self: grad * lax.cosh(self).conj(), "The hyperbolic sine.")
cosh = _float_unary("cosh", lax.cosh, lambda grad, self: grad * lax.sinh(self).conj(), "The hyperbolic cosine.")
tanh = _float_unary("tanh", lax.tanh, lambda grad, result: grad * (1 - result * result).conj(), "The hyperbolic tangent.")


def _acosh_slope(x: Any) -> Any:
    # The branch of a complex root is that of the product's factors.
    return lax.rsqrt(x - 1) * lax.rsqrt(x + 1) if x.dtype.kind == "c" else lax.rsqrt(x * x - 1)


for _name, _function, _gradient, _inverted in (
    ("asinh", lax.asinh, lambda grad, self: grad * lax.rsqrt(self * self + 1).conj(), "sinh"),
    ("acosh", lax.acosh, lambda grad, self: grad * _acosh_slope(self).conj(), "cosh"),
    ("atanh", lax.atanh, lambda grad, self: grad / (1 - self * self).conj(), "tanh"),
):
    _float_unary(_name, _function, _gradient, f"The inverse of {_inverted}.", inplace=f"{_name}_written", aliases=(f"arc{_inverted}",))
    # PyTorch has no derivative of the operation in place.
    _float_unary(f"{_name}_written", _function, not_implemented(f"inplace version of {_name}"), f"{_name} in place.", inplace=False, method=False,
                 toplevel=False, node=f"{_name.capitalize()}Backward1")  # fmt: skip
sigmoid = _float_unary(
    "sigmoid", lax.logistic, lambda grad, result: wide(grad) * ((1 - wide(result)) * wide(result)).conj(), "1 / (1 + exp(-self)).",
    aliases=("special_expit",),
)  # fmt: skip
SLOPES.update(
    exp=(lambda r: r, 1.0), tanh=(lambda r: 1 - r * r, lambda r: -2 * r, -2.0), sigmoid=(lambda r: (1 - r) * r, lambda r: 1 - 2 * r, -2.0),
    sin=(circular.cos, lambda x: -circular.sin(x), lambda x: -circular.cos(x), circular.sin),
    cos=(lambda x: -circular.sin(x), lambda x: -circular.cos(x), circular.sin, circular.cos),
)  # fmt: skip
erf = _real_unary("erf", lax.erf, lambda grad, self: grad * (2 / np.sqrt(np.pi)) * lax.exp(-self * self), "The error function.")
erfc = _real_unary("erfc", lax.erfc, lambda grad, self: -grad * (2 / np.sqrt(np.pi)) * lax.exp(-self * self), "1 - erf(self).")
erfinv = _real_unary(
    "erfinv", lax.erf_inv, lambda grad, self: grad * (np.sqrt(np.pi) / 2) * lax.exp(lax.square(lax.erf_inv(self))), "The inverse of erf."
)


def _atan2_slope(grad: Any, part: Any, self: Any, other: Any) -> Any:
    squares = self * self + other * other
    return grad * part * where(squares == 0, 0, 1 / where(squares == 0, 1, squares)).astype(squares.dtype)


@op("atan2(Tensor self, Tensor other)", promote="float", inplace=True, aliases=("arctan2",),
    grads={"self": lambda grad, self, other: _atan2_slope(grad, other, self, other),
           "other": lambda grad, self, other: -_atan2_slope(grad, self, self, other)})  # fmt: skip
@kernel("atan2_cpu", "c")
def atan2(x: Any, y: Any) -> Any:
    """The angle of the point (other, self)."""
    return lax.atan2(x, y)


# ---------------------------------------------------------------------- sign and rounding


def _refuse_complex_abs(x: Any) -> None:
    if x.dtype.kind == "c":
        raise RuntimeError("In-place abs is not supported for complex tensors.")


@op("abs(Tensor self)", elementwise=True, inplace="abs_written", out="same", aliases=("absolute",),
    grads={"self": lambda grad, self: grad * direction_of(self)})  # fmt: skip
def abs_(x: Any) -> Any:
    """The magnitude. Its gradient at 0 is 0."""
    if x.dtype == np.bool_:
        raise NotImplementedError("\"abs_cpu\" not implemented for 'Bool'")
    return x if x.dtype.kind == "u" else lax.abs(x)


op("abs_written(Tensor self)", method=False, toplevel=False, node="AbsBackward0", validate=_refuse_complex_abs, grads=abs_.grads)(abs_.function)


def direction_of(x: Any) -> Any:
    """x / abs(x), 0 where that is 0 or nan."""
    if x.dtype.kind == "c":
        return where(x == 0, zeros_like(x), x / jnp.abs(where(x == 0, 1, x)))
    return _direction_of_real(x)


@of_reals("direction")
def _direction_of_real(x: Any) -> Any:
    return where((x == 0) | (x != x), zeros_like(x), lax.sign(x))


@op("sign(Tensor self)", elementwise=True, inplace=True, out="same", grads={"self": zeros_like_grad}, numpy_grads=numpy_placing.zero)
def sign(x: Any) -> Any:
    """-1, 0 or 1; 0 for nan."""
    if x.dtype == np.bool_:
        return x
    if x.dtype.kind == "c":
        raise NotImplementedError("Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead.")
    return where(x > 0, 1, 0).astype(x.dtype) if x.dtype.kind == "u" else direction_of(x)


def _rounding(name: str, function: Any, doc: str, **options: Any) -> Any:
    def round_array(x: Any) -> Any:
        if x.dtype == np.bool_:
            raise NotImplementedError(f"\"{name}_vml_cpu\" not implemented for 'Bool'")
        if x.dtype.kind == "c":
            raise NotImplementedError(f"{name} is not supported for complex inputs")
        return function(x) if jnp.issubdtype(x.dtype, jnp.floating) else x

    round_array.__doc__ = doc
    return op(f"{name}(Tensor self)", inplace=True, out="same", elementwise=True, grads={"self": zeros_like_grad}, numpy_grads=numpy_placing.zero,
              **options)(round_array)  # fmt: skip


floor = _rounding("floor", lax.floor, "The largest integer that is not above.")
ceil = _rounding("ceil", lax.ceil, "The smallest integer that is not below.")
trunc = _rounding("trunc", of_reals("trunc")(jnp.trunc), "The integer part.", aliases=("fix",))


def _refuse_round(x: Any, decimals: int | None) -> None:
    # Integers are round already, except to who asks for decimals, be it none.
    refusing("round_cpu" if decimals else "round_vml_cpu", "bc" if decimals is None else "bciu")(x)


@op(
    "round(Tensor self, *, int? decimals=None)",
    elementwise=True,
    inplace=True,
    out="same",
    validate=_refuse_round,
    grads={"self": zeros_like_grad},
    numpy_grads=numpy_placing.zero,
    node=lambda decimals: f"RoundBackward{int(decimals is not None)}",
)
def round_(x: Any, decimals: int | None) -> Any:
    """The nearest number of `decimals` decimals, of none where None, halves to even."""
    return _rounded(x, decimals)


def _rounded(x: Any, decimals: int | None) -> Any:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    if not decimals:
        return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    scale = 10.0**decimals
    return lax.round(x * scale, lax.RoundingMethod.TO_NEAREST_EVEN) / scale


@op("special_round(Tensor self, *, int decimals=0)", elementwise=True, method=False, toplevel=False, grads={"self": zeros_like_grad},
    validate=_refuse_round, node="RoundBackward1", numpy_grads=numpy_placing.zero)  # fmt: skip
def special_round(x: Any, decimals: int) -> Any:
    """`round`, under the node that PyTorch gives it where decimals are passed on."""
    return _rounded(x, decimals)


# ---------------------------------------------------------------------- choosing


def refuse_complex(name: str) -> Any:
    """A `validate` that refuses complex operands. RuntimeError."""

    def validate(*operands: Any) -> None:
        if any(a is complex or (isinstance(a, Aval) and a.dtype.kind == "c") for a in operands):
            raise RuntimeError(f"{name} not implemented for complex tensors.")

    return validate


def _share(grad: Any, lost: Any, tied: Any) -> Any:
    """What does not lose gets the gradient, nan too; ties share it."""
    none = zeros_like(grad)  # and not 0 times the gradient, which may be infinite or nan
    return where(lost, none, where(tied, grad * jnp.asarray(0.5, grad.dtype), grad))


@op("maximum(Tensor self, Tensor other)", promote="common", validate=refuse_complex("maximum"), keeps=("self", "other"),
    grads={"self": lambda grad, self, other: _share(grad, self < other, self == other),
           "other": lambda grad, self, other: _share(grad, other < self, self == other)})  # fmt: skip
def maximum(x: Any, y: Any) -> Any:
    """The larger of both; nan where one is. Ties share the gradient."""
    return lax.max(x, y)


@op("minimum(Tensor self, Tensor other)", promote="common", validate=refuse_complex("minimum"), keeps=("self", "other"),
    grads={"self": lambda grad, self, other: _share(grad, self > other, self == other),
           "other": lambda grad, self, other: _share(grad, other > self, self == other)})  # fmt: skip
def minimum(x: Any, y: Any) -> Any:
    """The smaller of both; nan where one is. Ties share the gradient."""
    return lax.min(x, y)


@op("where_self(Tensor condition, Tensor|Scalar self, Tensor|Scalar other)", promote=None, elementwise=True, method=False, toplevel=False,
    node="WhereBackward0", grads={"self": lambda grad, condition: where(condition, grad, zeros_like(grad)),
           "other": lambda grad, condition: where(condition, zeros_like(grad), grad)})  # fmt: skip
def where_self(condition: Any, x: Any, y: Any) -> Any:
    """self where the condition holds, else other. Both are of one dtype already."""
    return where(condition, x, y)


@op("where_converted(Tensor condition, Tensor|Scalar self, Tensor|Scalar other, any dtype)", promote=None, elementwise=True, method=False,
    toplevel=False, node="WhereBackward0", grads=where_self.grads)  # fmt: skip
def where_converted(condition: Any, x: Any, y: Any, dtype: Any) -> Any:
    """The same of tensors of several dtypes."""
    return where(condition, convert(x, dtype), convert(y, dtype))


def _refuse_fill(x: Any, mask: Any, value: Any) -> None:
    """What cannot fill: PyTorch's errors, which name the in-place function in both cases."""
    if mask.dtype != np.bool_:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {dtypes.of(np.dtype(mask.dtype)).word}")
    if isinstance(value, Aval) and value.ndim:
        raise RuntimeError(f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s).")
    if (value is complex or (isinstance(value, Aval) and value.dtype.kind == "c")) and x.dtype.kind != "c":
        promotion.fitting(1j, x.dtype)
    broadcast_shapes(mask.shape, x.shape)


@op("masked_fill(Tensor self, Tensor mask, Tensor|Scalar value)", inplace=True, promote=None, elementwise=True, keeps_order=False,
    into_expanded=("masked_fill_", "tensor[mask] = scalar"), validate=_refuse_fill,
    node="MaskedFillBackward1", number_node="MaskedFillBackward0",
    grads={"self": lambda grad, mask: where(mask, zeros_like(grad), grad),
           "value": lambda grad, mask: where(mask, grad, zeros_like(grad)).sum()})  # fmt: skip
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """`value` where `mask` is true, else self."""
    return where(mask, convert(value, np.dtype(x.dtype)), x)


# ---------------------------------------------------------------------- conversion


@op("_to_copy(Tensor self, dtype dtype)", method=False, toplevel=False, keeps_order="exactly", node="ToCopyBackward0", grads={"self": SAME},
    numpy=forms.to_copy, numpy_vjp=forms.to_copy_vjp)  # fmt: skip
def to_copy(x: Any, dtype: Any) -> Any:
    """A copy of another dtype."""
    return convert(x, dtype)


def cast_to(array_type: Any) -> BoundOperator:
    """The BoundOperator that converts to a dtype."""
    bound = to_copy.bind((ARRAY, Static(array_type)))
    bound.differentiable = dtypes.is_float(array_type)
    return bound


@op("_zeros_of(Tensor self)", method=False, toplevel=False, differentiable=False, numpy=forms.zeros_like)
def zeros_of(x: Any) -> Any:
    """Zeros of the same shape and dtype."""
    return zeros_like(x)


# ---------------------------------------------------------------------- filling


def _refuse_filling(x: Any, value: Any) -> None:
    if isinstance(value, Aval) and value.ndim:
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
    if value is complex and x.dtype.kind != "c":
        promotion.fitting(1j, x.dtype)


@op("fill(Tensor self, Tensor|Scalar value)", elementwise=True, method=False, validate=_refuse_filling, node="FillBackward1",
    number_node="FillBackward0",
    grads={"self": zeros_like_grad, "value": lambda grad: grad.sum()}, numpy=forms.fill)  # fmt: skip
def fill(x: Any, value: Any) -> Any:
    """`value` everywhere."""
    return jnp.broadcast_to(convert(value, np.dtype(x.dtype)), x.shape)


@op("zero(Tensor self)", method=False, toplevel=False, node="ZeroBackward0", grads={"self": zeros_like_grad}, numpy=forms.zeros_like,
    numpy_grads=numpy_placing.zero)  # fmt: skip
def zero(x: Any) -> Any:
    """Zeros."""
    return zeros_like(x)
