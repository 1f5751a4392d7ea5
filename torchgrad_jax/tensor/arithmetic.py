"""Element-wise functions that choose among operators: remainders, floor division, shifts, parts of complex numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from torchgrad_jax.ops import dtypes, promotion, special  # noqa: F401 - declares operators
from torchgrad_jax.ops.declare import ARRAY, NUMBERS, Static, plain_number, registry
from torchgrad_jax.tensor import views
from torchgrad_jax.tensor.conversion import cast
from torchgrad_jax.tensor.dispatch import apply
from torchgrad_jax.tensor.functions import may_divide_by_zero, with_number
from torchgrad_jax.tensor.functions import pow as power
from torchgrad_jax.tensor.functions import pow_ as write_power
from torchgrad_jax.tensor.generate import function_of
from torchgrad_jax.tensor.indexing import copy_
from torchgrad_jax.tensor.inplace import apply_inplace
from torchgrad_jax.tensor.out import write_out
from torchgrad_jax.tensor.overrides import is_tensor_of_pytorchs
from torchgrad_jax.tensor.tensor import Tensor

_BOTH = (ARRAY, ARRAY)


def _operand(name: str, x: Any) -> Any:
    if isinstance(x, Tensor) or type(x) in NUMBERS:
        return x
    if isinstance(x, (*NUMBERS, np.number, np.bool_)):
        return plain_number(x)
    raise TypeError(f"{name}(): argument 'other' (position 2) must be Tensor, not {type(x).__name__}")


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
            _only_tensors(name, input)
        made = apply(_division(name, input, other), (input, other))
        return made if out is None else write_out(name, out, made)

    def inplace(self: Tensor, other: Any) -> Tensor:
        other = _operand(name, other)
        return apply_inplace(_division(name, self, other), (self, other))

    function.__name__ = function.__qualname__ = name
    inplace.__name__ = inplace.__qualname__ = name + "_"
    function.__doc__, inplace.__doc__ = doc, f"In-place version of `{name}`."
    return function, inplace


fmod, fmod_ = _divide("fmod", "The remainder with the dividend's sign. RuntimeError for integers where `other` is 0.")
remainder, remainder_ = _divide("remainder", "The remainder with the divisor's sign. RuntimeError for integers where `other` is 0.")
floor_divide, floor_divide_ = _divide("floor_divide", "input / other, rounded down. RuntimeError for integers where `other` is 0.")


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


def _left_(self: Tensor, other: Any) -> Tensor:
    """The bits moved up in place."""
    return self.bitwise_left_shift_(other)


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
        return made if out is None else write_out(name + ".Tensor" * bound.name.endswith("_tensor"), out, made)

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
copysign, copysign_ = _by_kind("copysign", "input other", _copysign, "The magnitude of input with the sign of other.")
xlogy, xlogy_ = _by_kind("xlogy", "input other", _of_two("xlogy"), "input * log(other), 0 where input is 0.")
xlog1py, _ = _by_kind("special.xlog1py", "input other", _of_two("special_xlog1py"), "input * log1p(other), 0 where input is 0.")


def polygamma(n: int, input: Tensor, *, out: Any = None) -> Tensor:
    """The `n`-th derivative of digamma."""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    made = apply(registry["polygamma_n"].bind((ARRAY, Static(int(n)))), (input,))
    return made if out is None else write_out("polygamma", out, made)


def _polygamma_method(self: Tensor, n: int) -> Tensor:
    """The `n`-th derivative of digamma."""
    return polygamma(n, self)


def _polygamma_inplace(self: Tensor, n: int) -> Tensor:
    """In-place version of `polygamma`."""
    return apply_inplace(registry["polygamma_written"].bind((ARRAY, Static(int(n)))), (self,))


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
    base, power_of = (cast(x, target) if isinstance(x, Tensor) else x for x in (input, exponent))
    return base, power_of if isinstance(power_of, (Tensor, complex)) else float(power_of), target


def float_power(input: Any, exponent: Any, *, out: Any = None) -> Tensor:
    """input ** exponent in float64, or complex128 if one is complex."""
    base, power_of, target = _float_power("float_power", input, exponent)
    if out is not None and out.dtype is not target:
        raise RuntimeError(f"the output given to float_power has dtype {out.dtype.title} but the operation's result requires dtype {target.title}")
    made = power(base, power_of)
    return made if out is None else write_out("float_power", out, made)


def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """In-place version of `float_power`. RuntimeError for a tensor that is not float64 or complex128 as the result is."""
    _, power_of, target = _float_power("float_power_", self, exponent)
    if self.dtype is not target:
        raise RuntimeError(f"the base given to float_power_ has dtype {self.dtype.title} but the operation's result requires dtype {target.title}")
    return write_power(self, power_of)


def _only_tensors(name: str, input: Any) -> None:
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")


def positive(input: Tensor) -> Tensor:
    """The tensor itself. RuntimeError for booleans."""
    _only_tensors("positive", input)
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
        _only_tensors(function.__name__, input)
        return function(input)

    return of_a_tensor


def _part_setter(part: Any) -> Any:
    """Assignment to a part of complex numbers: a write to the view of it."""

    def write(self: Tensor, value: Any) -> None:
        copy_(part(self), value)

    return write


_COMPLEX = (views.real, views.imag, views.conj, views.is_conj, views.is_neg, views.resolve_conj, views.resolve_neg)


def _adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged, conjugated."""
    return views.conj(input.transpose(-2, -1))


_RENAMED = {"gammaln": "lgamma", "psi": "digamma", "gammainc": "igamma", "gammaincc": "igammac", "multigammaln": "mvlgamma", "expit": "sigmoid"}
_HIDDEN = ("entr", "round", "erfcx", "i0e", "i1", "i1e", "ndtri", "log_ndtr", "zeta", "bessel_j0", "bessel_j1")
_SHARED = ("digamma", "i0", "logit", "sinc", "erf", "erfc", "erfinv", "exp2", "expm1", "log1p")

TOPLEVEL: dict[str, Any] = {
    "fmod": fmod, "remainder": remainder, "floor_divide": floor_divide, "lerp": lerp, "copysign": copysign, "xlogy": xlogy, "xlogy_": xlogy_,
    "polygamma": polygamma, "float_power": float_power, "positive": positive, "adjoint": _adjoint, **{f.__name__: _of_a_tensor(f) for f in _COMPLEX},
}  # fmt: skip
METHODS: dict[str, Any] = {
    **{n: f for n, f in TOPLEVEL.items() if n not in ("polygamma", "real", "imag")},
    "fmod_": fmod_, "remainder_": remainder_, "floor_divide_": floor_divide_, "float_power_": float_power_,
    "lerp_": lerp_, "copysign_": copysign_, "xlogy_": xlogy_,
    "polygamma": _polygamma_method, "polygamma_": _polygamma_inplace, "real": property(views.real, _part_setter(views.real)),
    "imag": property(views.imag, _part_setter(views.imag)),
    "mH": property(_adjoint),
    "__mod__": _dunder(remainder), "__rmod__": _dunder(remainder, True),
    "__floordiv__": _dunder(floor_divide), "__rfloordiv__": _dunder(floor_divide, True),
    "__lshift__": _dunder(_left), "__rlshift__": _dunder(_left, True), "__rshift__": _dunder(_right), "__rrshift__": _dunder(_right, True),
    "__pos__": positive, "__ilshift__": _left_, "__irshift__": _right_,
}  # fmt: skip
SPECIAL: dict[str, Any] = {
    **{n: function_of(registry["special_" + n]) for n in _HIDDEN},
    **{n: function_of(registry[target]) for n, target in _RENAMED.items()},
    **{n: function_of(registry[n]) for n in _SHARED},
    "xlogy": xlogy, "xlog1py": xlog1py, "polygamma": polygamma, "ndtr": ndtr,
}  # fmt: skip
