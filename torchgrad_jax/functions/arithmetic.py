"""Element-wise functions that choose among operators: remainders, floor division, shifts, parts of complex numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from torchgrad_jax.calling.expecting import expect_tensor, not_a_tensor
from torchgrad_jax.calling.generate import function_of
from torchgrad_jax.calling.out import write_out
from torchgrad_jax.calling.overrides import is_tensor_of_pytorchs
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import is_conj, is_neg
from torchgrad_jax.core.writing import apply_inplace
from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.declaration.operator import ARRAY, NUMBERS, Static, plain_number
from torchgrad_jax.functions import views
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.indexing import copy_
from torchgrad_jax.functions.overloads import may_divide_by_zero, with_number
from torchgrad_jax.functions.overloads import pow as power
from torchgrad_jax.functions.overloads import pow_ as write_power
from torchgrad_jax.operators import (
    registry,
    special,  # noqa: F401 - declares operators
)

_BOTH = (ARRAY, ARRAY)


def _operand(name: str, x: Any) -> Any:
    if isinstance(x, Tensor) or type(x) in NUMBERS:
        return x
    if isinstance(x, (*NUMBERS, np.number, np.bool_)):
        return plain_number(x)
    raise not_a_tensor(name, x, "other", 2)


def _spec(x: Any) -> Any:
    return x._aval if isinstance(x, Tensor) else type(x)


# ---------------------------------------------------------------------- division with remainder


def _division(name: str, a: Any, b: Any) -> Any:
    """The operator for these operands. RuntimeError for an integer divided by what is known to be 0."""
    if may_divide_by_zero(a, b):
        return registry[f"{name}_checked"].bind(_BOTH)
    if name == "floor_divide" or isinstance(b, Tensor):
        suffix = "_reflected" if name == "remainder" and not isinstance(a, Tensor) else "_tensor"
    else:
        suffix = "_number"
    return registry[name + suffix].bind(_BOTH)


def _divide(name: str, doc: str) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    def function(input: Any, other: Any, *, out: Any = None) -> Tensor:
        other = _operand(name, other)
        if name == "fmod" or not isinstance(other, Tensor):
            expect_tensor(name, input)
        made = apply(_division(name, input, other), (input, other))
        return made if out is None else write_out(name, out, made, inputs=(input, other))

    def inplace(self: Tensor, other: Any) -> Tensor:
        other = _operand(name, other)
        return apply_inplace(_division(name, self, other), (self, other))

    function.__name__ = function.__qualname__ = name
    inplace.__name__ = inplace.__qualname__ = name + "_"
    function.__doc__, inplace.__doc__ = doc, f"In-place version of `{name}`."
    return function, inplace


fmod, fmod_ = _divide("fmod", "The remainder with the dividend's sign. RuntimeError for integers where `other` is 0.")
public("torch.fmod", "torch.Tensor.fmod")(fmod)
public("torch.Tensor.fmod_")(fmod_)
remainder, remainder_ = _divide("remainder", "The remainder with the divisor's sign. RuntimeError for integers where `other` is 0.")
public("torch.remainder", "torch.Tensor.remainder")(remainder)
public("torch.Tensor.remainder_")(remainder_)
floor_divide, floor_divide_ = _divide("floor_divide", "input / other, rounded down. RuntimeError for integers where `other` is 0.")
public("torch.floor_divide", "torch.Tensor.floor_divide")(floor_divide)
public("torch.Tensor.floor_divide_")(floor_divide_)


# ---------------------------------------------------------------------- Python's protocols


def _dunder(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    """Leaves an operand that is no tensor and no number to the other side."""

    def dunder(self: Tensor, other: Any) -> Any:
        if not isinstance(other, (Tensor, *NUMBERS)):
            one = hasattr(other, "dtype") and hasattr(other, "item") and getattr(other, "ndim", 1) == 0
            if not one or is_tensor_of_pytorchs(type(other)):
                return NotImplemented
            other = other.item()
        return function(other, self) if reflected else function(self, other)

    return dunder


def _shift(name: str) -> Callable[..., Tensor]:
    bound = registry[name].bind(_BOTH)

    def shift(a: Any, b: Any) -> Tensor:
        return apply(bound, (a, b))

    return shift


_left, _right = _shift("bitwise_left_shift"), _shift("bitwise_right_shift")


@public("torch.Tensor.__ilshift__")
def _left_(self: Tensor, other: Any) -> Tensor:
    """The bits moved up in place."""
    return self.bitwise_left_shift_(other)


@public("torch.Tensor.__irshift__")
def _right_(self: Tensor, other: Any) -> Tensor:
    """The bits moved down in place."""
    return self.bitwise_right_shift_(other)


# ---------------------------------------------------------------------- tensors or numbers


def _by_kind(name: str, parameters: str, choose: Callable[..., str], doc: str) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """A function of several operands and its in-place twin; `choose` names the operator for them, the empty string where there is none."""
    names = parameters.split()

    def understood(given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        rest = {n: named[n] for n in names[len(given) :] if n in named}
        operands = tuple(x.item() if isinstance(x, np.generic) else x for x in (*given, *rest.values()))
        operator = "" if len(operands) != len(names) or len(rest) != len(named) or not all(isinstance(x, (Tensor, *NUMBERS)) for x in operands) else (
            choose(*operands)
        )  # fmt: skip
        if not operator:
            kinds = ", ".join([*(type(x).__name__ for x in given), *(f"{n}={type(x).__name__}" for n, x in named.items())])
            raise TypeError(f"{name}() received an invalid combination of arguments - got ({kinds})")
        return registry[operator].bind((ARRAY,) * len(operands)), operands

    def function(*given: Any, out: Any = None, **named: Any) -> Tensor:
        bound, operands = understood(given, named)
        made = apply(bound, operands)
        return made if out is None else write_out(name + ".Tensor" * bound.name.endswith("_tensor"), out, made, inputs=operands)

    def inplace(*given: Any, **named: Any) -> Tensor:
        return apply_inplace(*understood(given, named))

    function.__name__ = function.__qualname__ = name
    inplace.__name__ = inplace.__qualname__ = name + "_"
    function.__doc__, inplace.__doc__ = doc, f"In-place version of `{name}`."
    return function, inplace


def _of_two(name: str) -> Callable[[Any, Any], str]:
    def choose(a: Any, b: Any) -> str:
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            return ""
        return name + ("_self_number" if not isinstance(a, Tensor) else "_tensors" if isinstance(b, Tensor) else "_other_number")

    return choose


def _lerp(x: Any, end: Any, weight: Any) -> str:
    if not isinstance(x, Tensor) or not isinstance(end, Tensor):
        return ""
    if isinstance(weight, complex):
        promotion.fitting(weight, x._aval.dtype)
    return "lerp_tensor" if isinstance(weight, Tensor) else "lerp_number"


def _copysign(x: Any, y: Any) -> str:
    return "" if not isinstance(x, Tensor) else "copysign_tensor" if isinstance(y, Tensor) else "copysign_number"


lerp, lerp_ = _by_kind("lerp", "input end weight", _lerp, "input + weight * (end - input), `weight` a number or a tensor.")
public("torch.lerp", "torch.Tensor.lerp")(lerp)
public("torch.Tensor.lerp_")(lerp_)
copysign, copysign_ = _by_kind("copysign", "input other", _copysign, "The magnitude of input with the sign of other.")
public("torch.copysign", "torch.Tensor.copysign")(copysign)
public("torch.Tensor.copysign_")(copysign_)
xlogy, xlogy_ = _by_kind("xlogy", "input other", _of_two("xlogy"), "input * log(other), 0 where input is 0.")
public("torch.xlogy", "torch.Tensor.xlogy", "torch.special.xlogy")(xlogy)
public("torch.xlogy_", "torch.Tensor.xlogy_")(xlogy_)
xlog1py, _ = _by_kind("special.xlog1py", "input other", _of_two("special_xlog1py"), "input * log1p(other), 0 where input is 0.")
public("torch.special.xlog1py")(xlog1py)


@public("torch", "torch.special")
def polygamma(n: int, input: Tensor, *, out: Any = None) -> Tensor:
    """The `n`-th derivative of digamma."""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    made = apply(registry["polygamma_n"].bind((ARRAY, Static(int(n)))), (input,))
    return made if out is None else write_out("polygamma", out, made)


@public("torch.Tensor.polygamma")
def _polygamma_method(self: Tensor, n: int) -> Tensor:
    """The `n`-th derivative of digamma."""
    return polygamma(n, self)


@public("torch.Tensor.polygamma_")
def _polygamma_inplace(self: Tensor, n: int) -> Tensor:
    """In-place version of `polygamma`."""
    return apply_inplace(registry["polygamma_written"].bind((ARRAY, Static(int(n)))), (self,))


@public("torch.special")
def ndtr(input: Tensor, *, out: Any = None) -> Tensor:
    """The standard normal distribution function."""
    x = input if dtypes.is_float(input._aval.dtype) else cast(input, dtypes.get_default_dtype())
    made = with_number("mul", with_number("add", apply(registry["erf"].bind((ARRAY,)), (with_number("mul", x, math.sqrt(0.5)),)), 1), 0.5)
    return made if out is None else write_out("special_ndtr", out, made)


def _float_power(name: str, input: Any, exponent: Any) -> tuple[Any, Any, dtypes.dtype]:
    """The operands of `float_power` in double precision, and the dtype of its result."""
    if not isinstance(input, Tensor) and not isinstance(exponent, Tensor):
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({type(input).__name__}, {type(exponent).__name__})")
    target = dtypes.complex128 if any(promotion.result_type([_spec(x)]).kind == "c" for x in (input, exponent)) else dtypes.float64
    number: type = complex if target is dtypes.complex128 else float
    base, power_of = (cast(x, target) if isinstance(x, Tensor) else number(x) for x in (input, exponent))
    return base, power_of, target


@public("torch", "torch.Tensor")
def float_power(input: Any, exponent: Any, *, out: Any = None) -> Tensor:
    """input ** exponent in float64, or complex128 if one is complex."""
    base, power_of, target = _float_power("float_power", input, exponent)
    if out is not None and out.dtype is not target:
        raise RuntimeError(f"the output given to float_power has dtype {out.dtype.title} but the operation's result requires dtype {target.title}")
    made = power(base, power_of)
    return made if out is None else write_out("float_power", out, made)


@public("torch.Tensor")
def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """In-place version of `float_power`. RuntimeError for a tensor that is not float64 or complex128 as the result is."""
    _, power_of, target = _float_power("float_power_", self, exponent)
    if self.dtype is not target:
        raise RuntimeError(f"the base given to float_power_ has dtype {self.dtype.title} but the operation's result requires dtype {target.title}")
    return write_power(self, power_of)


_conjugated = function_of(registry["conj_physical"], "torch.conj_physical")


@public("torch", "torch.Tensor")
def conj_physical(input: Tensor, *, out: Any = None) -> Tensor:
    """The complex conjugate; a real tensor itself."""
    expect_tensor("conj_physical", input)
    return input if out is None and input._aval.dtype.kind != "c" else _conjugated(input, out=out)


@public("torch", "torch.Tensor", "torch.Tensor.__pos__")
def positive(input: Tensor) -> Tensor:
    """The tensor itself. RuntimeError for booleans."""
    expect_tensor("positive", input)
    if input._aval.dtype == np.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


# ---------------------------------------------------------------------- complex numbers


def clamp_parts(input: Any, low: float, high: float) -> Tensor:
    """The elements, or their real and imaginary parts, kept in [low, high]."""
    if input._aval.dtype.kind != "c":
        return input.clamp(low, high)
    return apply(registry["complex"].bind((ARRAY, ARRAY)), (views.real(input).clamp(low, high), views.imag(input).clamp(low, high)))


def _of_a_tensor(function: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    @wraps(function)
    def of_a_tensor(input: Tensor) -> Any:
        expect_tensor(function.__name__, input)
        return function(input)

    return of_a_tensor


def _part_setter(part: Any) -> Any:
    """Assignment to a part of complex numbers: a write to the view of it."""

    def write(self: Tensor, value: Any) -> None:
        copy_(part(self), value)

    return write


for _function in (views.real, views.imag):
    public("torch")(_of_a_tensor(_function))
    public(f"torch.Tensor.{_function.__name__}")(property(_function, _part_setter(_function)))
for _function in (views.conj, is_conj, is_neg, views.resolve_conj, views.resolve_neg):
    public("torch", "torch.Tensor")(_of_a_tensor(_function))
public("torch.Tensor.__floordiv__")(_dunder(lambda self, other: Tensor.floor_divide(self, other)))
public("torch.Tensor.__rfloordiv__")(_dunder(floor_divide, True))
for _name, _function in (("lshift", _left), ("rshift", _right)):
    public(f"torch.Tensor.__{_name}__")(_dunder(_function))
    public(f"torch.Tensor.__r{_name}__")(_dunder(_function, True))
public("torch.Tensor.__rmod__")(_dunder(remainder, True))

# ---------------------------------------------------------------------- torch.special

_RENAMED = {"gammaln": "lgamma", "psi": "digamma", "gammainc": "igamma", "gammaincc": "igammac", "multigammaln": "mvlgamma", "expit": "sigmoid"}
_HIDDEN = ("entr", "round", "erfcx", "i0e", "i1", "i1e", "ndtri", "log_ndtr", "zeta")
_SHARED = ("digamma", "i0", "logit", "sinc", "erf", "erfc", "erfinv", "exp2", "expm1", "log1p")
_WITHOUT_DERIVATIVE = [
    name.removeprefix("special_") for name, operator in registry.items() if name.startswith("special_") and not operator.differentiable
]
for _name in (*_HIDDEN, *_WITHOUT_DERIVATIVE):
    public(f"torch.special.{_name}")(function_of(registry["special_" + _name]))
for _name, _target in (*_RENAMED.items(), *zip(_SHARED, _SHARED, strict=True)):
    public(f"torch.special.{_name}")(function_of(registry[_target]))
