"""Activation functions and softmax.

Half precision is computed in float32 and rounded once, as PyTorch does. A formula that a second derivative goes through keeps
every branch of a `where` finite, for a zero gradient times infinity is nan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_rows
from torchgrad_jax.declaration.converting import is_half, rounded, where, wide, zeros_like
from torchgrad_jax.declaration.numpy_parts import narrow
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.declaration.promotion import fitting
from torchgrad_jax.declaration.refusals import refusing, unsupported
from torchgrad_jax.operators.kernels import rowwise
from torchgrad_jax.operators.kernels.whole import of_reals
from torchgrad_jax.runtime.baseline import Forms, loops
from torchgrad_jax.runtime.baseline.elementwise import squashing
from torchgrad_jax.runtime.operation import stand_in

SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
# PyTorch has this one in single precision.
SIXTH = float(np.float32(1 / 6))
SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


def floating_only(kernel: str, complex_too: bool = False) -> Callable[..., None]:
    """The `validate` of an operator that PyTorch implements for floating point alone. NotImplementedError."""

    def validate(self: Any, *others: Any, dim: int = -1, **statics: Any) -> None:
        category = dtypes.category(self.dtype)
        if category != dtypes.FLOAT and not (complex_too and category == dtypes.COMPLEX):
            if "softmax" in kernel and 0 in self.shape:
                return  # PyTorch returns before it asks
            name = kernel.replace("softmax_kernel", "softmax_lastdim_kernel") if dim % max(self.ndim, 1) == max(self.ndim, 1) - 1 else kernel
            raise NotImplementedError(f"\"{name}\" not implemented for '{dtypes.of(self.dtype).title}'")

    return validate


def _narrow(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` computed in the wide precision and rounded to the input's dtype."""

    def rounded(x: Any, **statics: Any) -> Any:
        return function(wide(x), **statics).astype(x.dtype)

    rounded.__doc__ = function.__doc__
    return rounded


def sigmoid_of(x: Any) -> Any:
    """1 / (1 + exp(-x)), rounded once: XLA makes several operations of it."""
    return lax.logistic(wide(x)).astype(x.dtype)


def _declare(schema: str, function: Callable[..., Any], kernel: str, grads: dict[str, Any], **options: Any) -> Any:
    options = {"method": False, "toplevel": False, "elementwise": True, "validate": floating_only(kernel), **options}
    return op(schema, grads=grads, **options)(_narrow(function))


# ---------------------------------------------------------------------- clipped and piecewise linear


def clamp_types(name: str) -> Callable[..., None]:
    """PyTorch's refusals of dtypes by what clips."""

    def validate(self: Any, **statics: Any) -> None:
        if self.dtype == np.bool_:
            raise RuntimeError("Boolean inputs not supported for relu" if name == "relu" else f"Bool inputs not supported for {name}")
        if dtypes.category(self.dtype) == dtypes.COMPLEX:
            raise NotImplementedError("clamp is not supported for complex types")
        if self.dtype.kind == "u" and int(statics.get("min_val", 0)) < 0:
            raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")

    return validate


@op("relu(Tensor self)", elementwise=True, again=("result",), inplace=True, out=False, validate=clamp_types("relu"),
    grads={"self": lambda grad, result: where(result <= 0, zeros_like(grad), grad)})  # fmt: skip
def relu(x: Any) -> Any:
    """max(self, 0)."""
    return lax.max(x, zeros_like(x))


@op("hardtanh(Tensor self, number min_val, number max_val)", elementwise=True, method=False, toplevel=False, validate=clamp_types("hardtanh"),
    again=("self",),
    grads={"self": lambda grad, self, min_val, max_val: where((self <= min_val) | (self >= max_val), zeros_like(grad), grad)})  # fmt: skip
def hardtanh(x: Any, min_val: float, max_val: float) -> Any:
    """self, kept between `min_val` and `max_val`."""
    return lax.clamp(jnp.asarray(min_val).astype(x.dtype), x, jnp.asarray(max_val).astype(x.dtype))


def _check_threshold(self: Any, threshold: float, value: float) -> None:
    refusing("threshold_cpu", "bc")(self)
    if self.dtype.kind in "iu":
        for number in (threshold, value):
            fitting(int(number) if -256 < number < 0 else number, self.dtype)  # it was an int, if the dtype has no sign
        return
    compared = np.dtype(np.float32) if is_half(self.dtype) else self.dtype
    for number, held in ((threshold, compared), (value, self.dtype)):
        if float(jnp.finfo(held).max) < abs(number) < math.inf:
            raise RuntimeError(f"value cannot be converted to type {dtypes.of(held).word} without overflow")


for _name, _node in (("threshold", "ThresholdBackward0"), ("threshold_written", "ThresholdBackward1")):

    @op(f"{_name}(Tensor self, number threshold, number value)", elementwise=True, method=False, toplevel=False, node=_node,
        validate=_check_threshold, again=("self",),
        grads={"self": lambda grad, self, threshold: where(wide(self) <= threshold, zeros_like(grad), grad)})  # fmt: skip
    def _threshold(x: Any, threshold: float, value: float) -> Any:
        """self where it is above `threshold`, else `value`."""
        return where(wide(x) <= threshold, jnp.asarray(value).astype(x.dtype), x)


def _leaky(x: Any, negative_slope: float) -> Any:
    """self where positive, else negative_slope * self."""
    return where(x > 0, x, x * negative_slope)


def _leaky_grad(grad: Any, self: Any, negative_slope: Any) -> Any:
    return where(self > 0, wide(grad), wide(grad) * negative_slope)


def _leaky_grad_of_result(grad: Any, result: Any, negative_slope: Any) -> Any:
    # For a negative slope the result's sign would not tell the input's; the caller refuses that.
    return where(result > 0, wide(grad), wide(grad) * negative_slope)


for _name, _node in (("leaky_relu", "LeakyReluBackward"), ("rrelu_with_noise", "RreluWithNoiseBackward")):
    _declare(
        f"{_name}(Tensor self, number negative_slope)",
        _leaky,
        "leaky_relu_cpu",
        {"self": _leaky_grad},
        node=_node + "0",
        keeps_order=_name == "leaky_relu",
        again=("self",),
    )
    _declare(
        f"{_name}_written(Tensor self, number negative_slope)",
        _leaky,
        "leaky_relu_cpu",
        {"self": _leaky_grad_of_result},
        node=_node + "1",
        again=("result",),
    )


def check_drawn_slopes(self: Any) -> None:
    """PyTorch draws slopes for floating point, but not for float16. NotImplementedError."""
    if self.dtype == np.float16 or dtypes.category(self.dtype) != dtypes.FLOAT:
        raise unsupported("rrelu_with_noise_out_cpu", self.dtype)


for _name, _node, _kept in (
    ("_scaled_by_noise", "RreluWithNoiseBackward0", "self"), ("_scaled_by_noise_written", "RreluWithNoiseBackward1", "result"),
):  # fmt: skip

    @op(f"{_name}(Tensor self, Tensor noise)", method=False, toplevel=False, node=_node, keeps=(_kept,),
        grads={"self": lambda grad, noise: grad * noise})  # fmt: skip
    def _scaled_by_noise(x: Any, noise: Any) -> Any:
        """self * noise: rrelu with the slopes drawn."""
        return x * noise


@op("_prelu_kernel(Tensor self, Tensor weight)", method=False, toplevel=False, promote="common", node="PreluKernelBackward0",
    validate=refusing("prelu_cpu", "biuc"), again=("self",), shows=("self", "weight"),
    grads={"self": lambda grad, self, weight: where(self > 0, wide(grad), wide(weight) * wide(grad)),
           "weight": lambda grad, self: where(self > 0, 0, wide(self) * wide(grad))})  # fmt: skip
def prelu_kernel(x: Any, weight: Any) -> Any:
    """self where positive, else weight * self."""
    return where(x > 0, wide(x), wide(weight) * wide(x)).astype(x.dtype)


@op("hardshrink(Tensor self, number lambd)", elementwise=True, method=False, toplevel=False, validate=floating_only("hardshrink_cpu"),
    again=("self",),
    grads={"self": lambda grad, self, lambd: where((self >= -lambd) & (self <= lambd), zeros_like(grad), grad)})  # fmt: skip
def hardshrink(x: Any, lambd: float) -> Any:
    """self, 0 where it is between -lambd and lambd, rounded to its dtype."""
    return where((x >= -lambd) & (x <= lambd), zeros_like(x), x)


_declare("softshrink(Tensor self, number lambd)", lambda x, lambd: where(x > lambd, x - lambd, where(x < -lambd, x + lambd, x * 0)),
         "softshrink_check",
         {"self": lambda grad, self, lambd: where((self >= -lambd) & (self <= lambd), zeros_like(grad), grad)},
         again=("self",))  # fmt: skip


def _hardswish_grad(grad: Any, self: Any) -> Any:
    x, g = wide(self), wide(grad)
    return where(x <= -3, zeros_like(g), where(x < 3, g * (x / 3 + 0.5), g))


def _relu6(x: Any) -> Any:
    return lax.clamp(jnp.zeros((), x.dtype), x, jnp.full((), 6, x.dtype))


_declare("hardswish(Tensor self)", of_reals("hardswish")(lambda x: x * _relu6(x + 3) / 6), "hardswish_cpu", {"self": _hardswish_grad})
_declare("hardsigmoid(Tensor self)", of_reals("hardsigmoid")(lambda x: _relu6(x + 3) / 6), "hardsigmoid_cpu",
         {"self": lambda grad, self: where((self > -3) & (self < 3), wide(grad) * SIXTH, 0)})  # fmt: skip


# ---------------------------------------------------------------------- exponential


def _negative_part(x: Any) -> Any:
    return where(x <= 0, x, zeros_like(x))


def _elu(x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    """scale * self where positive, else scale * alpha * (exp(input_scale * self) - 1)."""
    return where(x <= 0, lax.expm1(_negative_part(x) * input_scale) * (alpha * scale), x * scale)


def _elu_grad(grad: Any, self: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    x, g = wide(self), wide(grad)
    return where(x <= 0, g * (input_scale * alpha * scale) * lax.exp(_negative_part(x) * input_scale), g * scale)


def _elu_grad_of_result(grad: Any, result: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    y, g = wide(result), wide(grad)
    return where(y <= 0, g * input_scale * (y + alpha * scale), g * scale)


_ELU, _CELU = "(Tensor self, number alpha, number scale, number input_scale)", "(Tensor self, number alpha)"
_declare("elu" + _ELU, _elu, "elu_cpu", {"self": _elu_grad})
_declare("elu_written" + _ELU, _elu, "elu_cpu", {"self": _elu_grad_of_result}, node="EluBackward1")


def _celu(x: Any, alpha: float) -> Any:
    """self where positive, else alpha * (exp(self / alpha) - 1)."""
    return _elu(x, alpha, 1.0, 1.0 / alpha)


_declare("celu" + _CELU, _celu, "elu_cpu", {"self": lambda grad, self, alpha: _elu_grad(grad, self, alpha, 1.0, 1.0 / alpha)})
_declare("celu_written" + _CELU, _celu, "elu_cpu", node="CeluBackward1",
         grads={"self": lambda grad, result, alpha: _elu_grad_of_result(grad, result, alpha, 1.0, 1.0 / alpha)})  # fmt: skip


def gelu_cdf(x: Any) -> Any:
    """The normal distribution function."""
    return 0.5 * (1 + lax.erf(x * SQRT_HALF))


def _gelu(x: Any, approximate: str) -> Any:
    """self times the normal distribution function of self, or tanh's approximation of it."""
    if approximate == "none":
        return x * gelu_cdf(x)
    return 0.5 * x * (1 + lax.tanh(SQRT_2_OVER_PI * (x + 0.044715 * (x * x * x))))


def _gelu_grad(grad: Any, self: Any, approximate: Any) -> Any:
    x, g = wide(self), wide(grad)
    if approximate == "none":
        return g * (gelu_cdf(x) + x * (lax.exp(-0.5 * (x * x)) * (SQRT_2_OVER_PI * 0.5)))
    inside = lax.tanh(SQRT_2_OVER_PI * (x + 0.044715 * (x * x * x)))
    slope = SQRT_2_OVER_PI * (1 + 3 * 0.044715 * (x * x))
    return g * (0.5 * (1 + inside) + 0.5 * x * (1 - inside * inside) * slope)


_declare("gelu(Tensor self, str approximate)", _gelu, "GeluKernelImpl", {"self": _gelu_grad})


def _silu_grad(grad: Any, self: Any) -> Any:
    x = wide(self)
    s = lax.logistic(x)
    return wide(grad) * (s * (1 + x * (1 - s))).conj()


_declare("silu(Tensor self)", lambda x: x * lax.logistic(x), "silu_cpu", {"self": _silu_grad}, real="silu",
         validate=floating_only("silu_cpu", complex_too=True))  # fmt: skip


def _log_one_plus_exp(x: Any) -> Any:
    return jnp.logaddexp(x, zeros_like(x))


def _mish_grad(grad: Any, self: Any) -> Any:
    x = wide(self)
    t = lax.tanh(_log_one_plus_exp(x))
    return wide(grad) * (t + x * lax.logistic(x) * (1 - t * t))


_declare("mish(Tensor self)", lambda x: x * lax.tanh(_log_one_plus_exp(x)), "mish_cpu", {"self": _mish_grad})


def _softplus(x: Any, beta: float, threshold: float) -> Any:
    """log(1 + exp(beta * self)) / beta; self where beta * self is above `threshold`."""
    linear = x * beta > threshold
    return where(linear, x, lax.log1p(lax.exp(where(linear, zeros_like(x), x * beta))) / beta)


def _softplus_grad(grad: Any, self: Any, beta: Any, threshold: Any) -> Any:
    x, g = wide(self), wide(grad)
    return where(x * beta > threshold, g, g * lax.logistic(x * beta))


_declare("softplus(Tensor self, number beta, number threshold)", _softplus, "softplus_cpu", {"self": _softplus_grad})


def log_sigmoid_of(x: Any) -> Any:
    """log(sigmoid(x)), rounded once."""
    return (-_log_one_plus_exp(-wide(x))).astype(x.dtype)


_declare("log_sigmoid(Tensor self)", log_sigmoid_of, "log_sigmoid_cpu",
         {"self": lambda grad, self: wide(grad) * lax.logistic(-wide(self))}, keeps_order=False)  # fmt: skip


def _halves(x: Any, dim: int) -> tuple[Any, Any]:
    half = x.shape[dim] // 2
    return lax.slice_in_dim(x, 0, half, axis=dim), lax.slice_in_dim(x, half, 2 * half, axis=dim)


def _glu(x: Any, dim: int) -> Any:
    """The first half of `dim` times the sigmoid of the second."""
    a, b = _halves(x, dim)
    return a * lax.logistic(b)


def _glu_grad(grad: Any, self: Any, dim: Any) -> Any:
    a, b = _halves(wide(self), dim)
    s, g = lax.logistic(b), wide(grad)
    return lax.concatenate([g * s, g * a * s * (1 - s)], dim)


def _array_halves(x: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    half = x.shape[dim] // 2
    return narrow(x, dim % x.ndim, 0, half), narrow(x, dim % x.ndim, half, half)


def _glu_of_array(x: np.ndarray, dim: int) -> np.ndarray:
    a, b = _array_halves(x, dim)
    return a * squashing("logistic", x.dtype)(b)


def _glu_result(x: np.ndarray, dim: int) -> np.ndarray | None:
    return stand_in(_array_halves(x, dim)[0].shape, x.dtype) if x.dtype.char in "fd" and x.size and x.shape[dim] % 2 == 0 else None


def _glu_of_array_back(grad: np.ndarray, aval: Any, x: np.ndarray, dim: int) -> np.ndarray:
    a, b = _array_halves(x, dim)
    s = squashing("logistic", x.dtype)(b)
    found, of_first = np.empty(x.shape, x.dtype), grad * s
    for half, made in zip(_array_halves(found, dim), (of_first, grad * a * s * (1 - s)), strict=True):
        half[...] = made
    return found


def _glu_back_result(grad: np.ndarray, aval: Any, x: np.ndarray, dim: int) -> np.ndarray | None:
    return stand_in(aval.shape, aval.dtype) if x.dtype.char in "fd" and x.size and grad.dtype == x.dtype else None


# As many nanoseconds as the logistic of an element takes.
_EACH_LOGISTIC = 2.0
_declare("glu(Tensor self, int dim)", _glu, "glu_cpu", {"self": _glu_grad}, elementwise=False, keeps_order=True,
         numpy=Forms(_glu_of_array, _glu_result, True, each=_EACH_LOGISTIC, planned=True),
         numpy_vjp=Forms(_glu_of_array_back, _glu_back_result, True, each=_EACH_LOGISTIC, planned=True))  # fmt: skip


# ---------------------------------------------------------------------- softmax


def _along(x: Any, dim: int) -> tuple[int, ...]:
    return (dim,) if x.ndim else ()


def _shifted(x: Any, dim: int) -> Any:
    largest = jnp.max(x, axis=_along(x, dim), keepdims=True, initial=None if x.size else 0)
    return x - lax.stop_gradient(largest)


def _by_loop(of: int, dim: int, *arrays: Any) -> Any:
    """What a loop of C's makes of arrays along a dimension; None where it is not for them."""
    shape = arrays[0].shape
    if not shape or not rowwise.knows(*arrays):
        return None
    return rowwise.by_rows(of, *arrays, length=shape[dim], inner=math.prod(shape[dim % len(shape) + 1 :]))[0]


def softmax_along(x: Any, dim: int) -> Any:
    """exp(self) over its sum along `dim`."""
    found = _by_loop(loops.SOFTMAX, dim, x)
    return _said_softmax(x, dim) if found is None else found


def _said_softmax(x: Any, dim: int) -> Any:
    if not x.size:  # of any dtype
        return x
    e = lax.exp(_shifted(x, dim))
    return e / jnp.sum(e, axis=_along(x, dim), keepdims=True)


def safe_softmax_along(x: Any, dim: int) -> Any:
    """The softmax, but 0 where all of a row is -inf."""
    found = _by_loop(loops.SAFE_SOFTMAX, dim, x) if dim in (-1, x.ndim - 1) else None
    return _said_safe_softmax(x, dim) if found is None else found


def _said_safe_softmax(x: Any, dim: int) -> Any:
    return where(jnp.max(x, axis=dim, keepdims=True) == -jnp.inf, 0, _said_softmax(x, dim)) if x.size else x


def softmax_grad_along(grad: Any, result: Any, dim: Any) -> Any:
    found = _by_loop(loops.SOFTMAX_GRAD, dim, grad, result)
    return _said_softmax_grad(grad, result, dim) if found is None else found


def _said_softmax_grad(grad: Any, result: Any, dim: Any) -> Any:
    y, g = wide(result), wide(grad)
    return y * (g - jnp.sum(g * y, axis=_along(y, dim), keepdims=True))


_declare("softmax(Tensor self, int dim)", softmax_along, "softmax_kernel_impl", {"self": softmax_grad_along}, elementwise=False,
         numpy=numpy_rows.along(loops.SOFTMAX), numpy_vjp=numpy_rows.along_vjp(loops.SOFTMAX_GRAD))  # fmt: skip


def _log_softmax(x: Any, dim: int) -> Any:
    """self minus the logarithm of the sum of exp(self) along `dim`."""
    found = _by_loop(loops.LOG_SOFTMAX, dim, x)
    return _said_log_softmax(x, dim) if found is None else found


def _said_log_softmax(x: Any, dim: int) -> Any:
    if not x.size:  # of any dtype
        return x
    shifted = _shifted(wide(x), dim)
    total = jnp.sum(lax.exp(shifted), axis=_along(x, dim), keepdims=True)
    if dim % max(x.ndim, 1) == x.ndim - 1:  # where PyTorch rounds the sum and its logarithm too
        return (shifted - rounded(lax.log(rounded(total, x)), x)).astype(x.dtype)
    return (shifted - lax.log(total)).astype(x.dtype)


def _log_softmax_grad(grad: Any, result: Any, dim: Any) -> Any:
    found = _by_loop(loops.LOG_SOFTMAX_GRAD, dim, grad, result)
    return _said_log_softmax_grad(grad, result, dim) if found is None else found


def _said_log_softmax_grad(grad: Any, result: Any, dim: Any) -> Any:
    y, g = wide(result), wide(grad)
    return g - lax.exp(y) * jnp.sum(g, axis=_along(y, dim), keepdims=True)


def _said_by_rows(said: Callable[..., Any], *arrays: Any, length: int, eps: float, inner: int) -> list[Any]:
    shape = arrays[0].shape
    dim = next(d for d, n in enumerate(shape) if n == length and math.prod(shape[d + 1 :]) == inner)
    return [said(*arrays, dim)]


for _of, _said in (
    (loops.SOFTMAX, _said_softmax), (loops.LOG_SOFTMAX, _said_log_softmax), (loops.SOFTMAX_GRAD, _said_softmax_grad),
    (loops.LOG_SOFTMAX_GRAD, _said_log_softmax_grad), (loops.SAFE_SOFTMAX, _said_safe_softmax),
):  # fmt: skip
    rowwise.said(_of, partial(_said_by_rows, _said), lambda shape, length: [shape])


op("log_softmax(Tensor self, int dim)", method=False, toplevel=False, validate=floating_only("log_softmax_kernel_impl"),
   grads={"self": _log_softmax_grad}, numpy=numpy_rows.along(loops.LOG_SOFTMAX), numpy_vjp=numpy_rows.along_vjp(loops.LOG_SOFTMAX_GRAD))(
       _log_softmax)  # fmt: skip


# ---------------------------------------------------------------------- gradients of softmax by themselves, for backwards written by hand


def _total(x: Any, dim: int) -> Any:
    return jnp.sum(x, axis=_along(x, dim), keepdims=True)


def _like_output(grad_output: Any, output: Any, dim: int) -> None:
    """RuntimeError where the gradient is not of the result's sizes."""
    if grad_output.shape != output.shape:
        raise RuntimeError(
            f"Expected tensor for argument #1 'grad' to have same size as tensor for argument #2 'output'; but {list(grad_output.shape)} does not "
            f"equal {list(output.shape)} (while checking arguments for softmax_backward)"
        )


@op("_softmax_backward_data(Tensor grad_output, Tensor output, int dim)", method=False, toplevel=False, validate=_like_output,
    grads={"grad_output": lambda grad, output, dim: softmax_grad_along(grad, output, dim),
           "output": lambda grad, grad_output, output, dim: grad * (grad_output - _total(grad_output * output, dim))
           - grad_output * _total(grad * output, dim)})  # fmt: skip
def softmax_backward_data(grad_output: Any, output: Any, dim: int) -> Any:
    """The gradient of what `output` is the softmax of."""
    return softmax_grad_along(grad_output, output, dim).astype(output.dtype)


@op("_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim)", method=False, toplevel=False, validate=_like_output,
    grads={"grad_output": lambda grad, output, dim: grad - _total(grad * lax.exp(output), dim),
           "output": lambda grad, grad_output, output, dim: -grad * lax.exp(output) * _total(grad_output, dim)})  # fmt: skip
def log_softmax_backward_data(grad_output: Any, output: Any, dim: int) -> Any:
    """The gradient of what `output` is the logarithm of the softmax of."""
    return _log_softmax_grad(grad_output, output, dim).astype(output.dtype)
