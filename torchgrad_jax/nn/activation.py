"""`torch.nn.functional`: activation functions and softmax."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.calling.expecting import expect_tensor
from torchgrad_jax.calling.out import with_out, write_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.called import unary
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.core.writing import apply_inplace
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import is_half
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.declaration.promotion import fitting
from torchgrad_jax.declaration.schema import plain_number, real_number
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.functions.random import default_generator
from torchgrad_jax.functions.views import reshape
from torchgrad_jax.operators import activation as ops_activation
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.user_code import warn_user

__all__ = [
    "celu", "celu_", "elu", "elu_", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_", "leaky_relu",
    "leaky_relu_", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "relu_", "rrelu", "rrelu_", "selu", "selu_", "sigmoid",
    "silu", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "threshold_",
]  # fmt: skip


@lru_cache(maxsize=4096)
def _function(operator: str, name: str, statics: tuple[Static, ...]) -> Callable[[Any], Tensor]:
    """The function of one tensor that the operator is with these static arguments."""
    bound = registry[operator].bind((ARRAY, *statics))

    def general(input: Any) -> Tensor:
        expect_tensor(name, input)
        return apply(bound, (input,))

    return unary(bound, name, general)


def _call(operator: str, input: Any, statics: tuple[Any, ...] = (), inplace: bool = False, name: str | None = None) -> Tensor:
    """One operator on one tensor, its static arguments given in order."""
    given = tuple([Static(s) for s in statics])
    if not inplace:
        return _function(operator, name or operator, given)(input)
    expect_tensor(name or operator.removesuffix("_written"), input)
    return apply_inplace(registry[operator].bind((ARRAY, *given)), (input,))


# ---------------------------------------------------------------------- clipped and piecewise linear

_RELU = _function("relu", "relu", ())


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0), element by element."""
    return _call("relu", input, inplace=True) if inplace else _RELU(input)


def relu_(input: Tensor) -> Tensor:
    """In-place `relu`."""
    return _call("relu", input, inplace=True)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """The input, kept between `min_val` and `max_val`. ValueError where they are in the wrong order."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return _call("hardtanh", input, (_real(min_val, input), _real(max_val, input)), inplace)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """In-place `hardtanh`."""
    return hardtanh(input, min_val, max_val, True)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """The input, kept between 0 and 6."""
    return _call("hardtanh", input, (0, 6), inplace, "relu6")


def _real(number: Any, input: Tensor, dtype: str | None = None) -> Any:
    """A number that is taken for a real one, of `input`'s dtype or the C++ type `dtype`. RuntimeError for one with an imaginary part."""
    number = plain_number(number.item() if isinstance(number, Tensor) else number)
    half = isinstance(input, Tensor) and is_half(input._aval.dtype)
    real_number(number, dtype or ("float" if half or not isinstance(input, Tensor) else input.dtype.word))
    return number


def _bound(number: Any, input: Tensor) -> Any:
    """The same of what the input is compared with, or replaced by, which its dtype must have."""
    number = _real(number, input)
    if isinstance(number, float) and number < 0 and isinstance(input, Tensor) and input._aval.dtype.kind == "u":
        fitting(number, input._aval.dtype)
    return number


@public("torch")
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The input where it is above `threshold`, else `value`."""
    made = _call("threshold_written" if inplace else "threshold", input, (_bound(threshold, input), _bound(value, input)), inplace)
    return with_out("threshold", out, made)


@public("torch")
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """In-place `threshold`."""
    return _call("threshold_written", input, (_bound(threshold, input), _bound(value, input)), True)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """The input where positive, else negative_slope * input."""
    # A negative slope makes the written result's sign ambiguous, so backward then keeps the input.
    slope = _real(negative_slope, input)
    written = "_written" if inplace and slope.real >= 0 else ""
    return _call("leaky_relu" + written, input, (slope,), inplace)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """In-place `leaky_relu`."""
    return leaky_relu(input, negative_slope, True)


@public("torch")
def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False) -> Tensor:
    """Leaky relu with slope (lower + upper) / 2; in training, each negative element has its own slope drawn from [lower, upper]."""
    lower, upper = (real_number(plain_number(bound)) for bound in (lower, upper))
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if training:
        return _with_drawn_slopes(input, lower, upper, inplace)
    return _call("rrelu_with_noise" + ("_written" if inplace else ""), input, ((lower + upper) / 2,), inplace, "rrelu")


def _with_drawn_slopes(input: Tensor, lower: float, upper: float, inplace: bool) -> Tensor:
    """Looks at the values: one slope is drawn for each element that is not positive, in order."""
    expect_tensor("rrelu", input)
    ops_activation.check_drawn_slopes(input._aval)
    array = np.asarray(input._concrete())
    noise = np.ones(array.shape, array.dtype)
    drawn = array <= 0
    noise[drawn] = default_generator.uniform((int(drawn.sum()),), np.float64, float(lower), float(upper)).astype(array.dtype)
    operands = (input, created(from_data(noise, None, input.device)))
    bound = registry["_scaled_by_noise_written" if inplace else "_scaled_by_noise"].bind((ARRAY, ARRAY))
    return apply_inplace(bound, operands) if inplace else apply(bound, operands)


@public("torch")
def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """In-place `rrelu`."""
    return rrelu(input, lower, upper, training, True)


_PRELU = registry["_prelu_kernel"].bind((ARRAY, ARRAY))


@public("torch", "torch.Tensor")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """The input where positive, else weight * input, with one weight or one for each channel (dimension 1). RuntimeError for other sizes."""
    expect_tensor("prelu", input)
    expect_tensor("prelu", weight, "weight", 2)
    x, w = input._aval, weight._aval
    if x.dtype != w.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {dtypes.of(x.dtype).title} and {dtypes.of(w.dtype).title}")
    if w.ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {w.ndim}")
    if w.size != 1:
        if not x.ndim:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = x.shape[1] if x.ndim > 1 else 1
        if channels != w.size:
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {w.size} and channel size = {channels}."
            )
    if x.ndim != w.ndim or x.ndim > 1:
        shape = (1,) * x.ndim if w.size == 1 or x.ndim < 2 else (1, w.size, *(1,) * (x.ndim - 2))
        weight = reshape(weight, shape)
    return apply(_PRELU, (input, weight))


@public("torch", "torch.Tensor")
def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """The input where its magnitude is above `lambd`, else 0."""
    return with_out("hardshrink", out, _call("hardshrink", input, (_real(lambd, input),)))


def softshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """The input brought `lambd` nearer to 0, and 0 where it is nearer than that. RuntimeError for a negative `lambd`."""
    expect_tensor("softshrink", input)
    lambd = _real(lambd, input, "double")
    if lambd.real < 0 and dtypes.category(input._aval.dtype) == dtypes.FLOAT:
        largest = float(np.finfo(input._aval.dtype).max) if input._aval.dtype.kind == "f" else 3.38953e38
        raise RuntimeError(
            f"lambda must be in range [0, {largest:g}] for input dtype {dtypes.of(input._aval.dtype).title}, but found {lambd.real:g}"
        )  # fmt: skip
    return with_out("softshrink", out, _call("softshrink", input, (lambd,)))


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * relu6(input + 3) / 6."""
    return _call("hardswish", input, (), inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(input + 3) / 6."""
    return _call("hardsigmoid", input, (), inplace)


# ---------------------------------------------------------------------- exponential


def _elu(name: str, input: Tensor, constants: tuple[Any, ...], inplace: bool, public: str) -> Tensor:
    written = "_written" if inplace and constants[0].real >= 0 else ""
    return _call(name + written, input, constants, inplace, public)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input where positive, else alpha * (exp(input) - 1)."""
    return _elu("elu", input, (_real(alpha, input), 1, 1), inplace, "elu")


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place `elu`."""
    return elu(input, alpha, True)


@public("torch")
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`elu` with the constants of self-normalizing networks (Klambauer et al. 2017)."""
    return _elu("elu", input, (ops_activation.SELU_ALPHA, ops_activation.SELU_SCALE, 1), inplace, "selu")


@public("torch")
def selu_(input: Tensor) -> Tensor:
    """In-place `selu`."""
    return selu(input, True)


@public("torch")
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input where positive, else alpha * (exp(input / alpha) - 1). RuntimeError for alpha = 0."""
    expect_tensor("celu", input)
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _elu("celu", input, (_real(alpha, input, "double"),), inplace, "celu")


@public("torch")
def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place `celu`."""
    return celu(input, alpha, True)


def gelu(input: Tensor, approximate: str = "none", *, out: Tensor | None = None) -> Tensor:
    """input times the normal distribution function of it; `approximate` "tanh" for the approximation (Hendrycks and Gimpel 2016)."""
    expect_tensor("gelu", input)
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return with_out("gelu", out, _call("gelu", input, (approximate,)))


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input)."""
    return _call("silu", input, (), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input))."""
    return _call("mish", input, (), inplace)


def softplus(input: Tensor, beta: float = 1, threshold: float = 20, *, out: Tensor | None = None) -> Tensor:
    """log(1 + exp(beta * input)) / beta; the input itself where beta * input is above `threshold`."""
    return with_out("softplus", out, _call("softplus", input, (_real(beta, input), _real(threshold, input))))


def logsigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log(sigmoid(input))."""
    return with_out("log_sigmoid", out, _call("log_sigmoid", input))


def softsign(input: Tensor) -> Tensor:
    """input / (1 + abs(input))."""
    return input / (input.abs() + 1)


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return input - input.tanh()


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input))."""
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return input.tanh()


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of `dim` times the sigmoid of the second half. RuntimeError where the dimension is odd."""
    if input.dim() == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    dim = wrap_dim(dim, input._aval.ndim)
    size = input._aval.shape[dim]
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    return _call("glu", input, (dim,))


# ---------------------------------------------------------------------- softmax


def _implicit_dim(name: str, ndim: int, stacklevel: int) -> int:
    warn_user(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.", further=stacklevel - 3)
    return 0 if ndim in (0, 1, 3) else 1


def _along(name: str, input: Any, dim: Any, dtype: Any, position: int = 1) -> Tensor:
    expect_tensor(name, input)
    if type(dim) is not int:
        if isinstance(dim, bool) or not hasattr(dim, "__index__"):
            raise TypeError(f"{name}(): argument 'dim' (position {position}) must be int, not {type(dim).__name__}")
        dim = dim.__index__()
    if dtype is not None:
        input = cast(input, dtype)
    return _function(name, name, (Static(wrap_dim(dim, input._aval.ndim)),))(input)


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(input) over its sum along `dim`; `dtype` converts the input first."""
    return _along("softmax", input, _implicit_dim("softmax", input.dim(), _stacklevel) if dim is None else dim, dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`, without its loss of small numbers."""
    return _along("log_softmax", input, _implicit_dim("log_softmax", input.dim(), _stacklevel) if dim is None else dim, dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-input)."""
    return _along("softmax", -input, _implicit_dim("softmin", input.dim(), _stacklevel) if dim is None else dim, dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A draw from the classes along `dim`, relaxed to softmax((logits + noise) / tau) (Jang et al. 2017). With `hard` the result is one-hot and has
    the gradient of the relaxed one. `eps` does nothing, as in PyTorch.

    RuntimeError for other than floating point.
    """
    if eps != 1e-10:
        warn_user("`eps` parameter is deprecated and has no effect.", UserWarning)
    expect_tensor("empty_like", logits)
    noise = -logits.new_empty(logits._aval.shape).exponential_().log()
    relaxed = softmax((logits + noise) / tau, dim)
    if not hard:
        return relaxed
    largest = relaxed.max(dim, keepdim=True)[1]
    return relaxed.new_zeros(relaxed._aval.shape).scatter_(dim, largest, 1.0) - relaxed.detach() + relaxed


_MISSING: Any = object()


def along_dim(name: str) -> Any:
    """`softmax` or `log_softmax` as `torch` and `torch.special` have it: a function of its own for each."""

    def call(input: Tensor, dim: Any = _MISSING, dtype: Any = None, *, out: Any = None) -> Tensor:
        if dim is _MISSING:
            raise TypeError(f'{name}() missing 1 required positional arguments: "dim"')
        made = _along(name, input, dim, dtype, 2)
        if out is None:
            return made
        return write_out(name, out, made)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = globals()[name].__doc__
    return call


def _by_the_librarys_name(name: str) -> None:
    """Publish `torch._softmax` or `torch._log_softmax`, and its gradient by itself: backwards written by hand ask for that."""

    def along(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
        if not half_to_float:
            return _along(name, input, dim, None, 2)
        expect_tensor(f"_{name}", input)
        if input.device.type == "cpu":
            raise RuntimeError("softmax with half to float conversion is not supported on CPU")
        if input.dtype is not dtypes.float16:
            raise RuntimeError("conversion is supported for Half type only")
        return _along(name, input, dim, dtypes.float32, 2)

    def backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
        layout = (ARRAY, ARRAY, Static(wrap_dim(dim, output._aval.ndim)))
        return apply(registry[f"_{name}_backward_data"].bind(layout), (grad_output, output))

    along.__doc__ = f"`{name}`; half_to_float: of float16 in float32, on a GPU. RuntimeError where that is asked for elsewhere or of another dtype."
    backward.__doc__ = f"The gradient of what `output` is `{name}` of, given that of `output`. RuntimeError where their sizes differ."
    for function, called in ((along, f"_{name}"), (backward, f"_{name}_backward_data")):
        function.__name__ = function.__qualname__ = called
        public("torch")(function)


_SOFTMAX = {"softmax": along_dim("softmax"), "log_softmax": along_dim("log_softmax")}


for _name in ("softmax", "log_softmax"):
    public("torch", "torch.Tensor", "torch.special")(along_dim(_name))
    _by_the_librarys_name(_name)
