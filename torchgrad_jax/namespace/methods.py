"""The Tensor's methods: those generated from the operators, those written by hand, and Python's own protocols."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from torchgrad_jax.calling.generate import function_of, inplace_of, writings
from torchgrad_jax.calling.overrides import announce, is_declined, is_tensor_of_pytorchs, overrides, publics
from torchgrad_jax.calling.public import public, published
from torchgrad_jax.core.called import of_function
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.hot import operator_of, product_operator, writing_operator
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import viewed
from torchgrad_jax.core.writing import apply_inplace, fill_
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import ARRAY, NUMBERS
from torchgrad_jax.functions import conversion, legacy, overloads, views
from torchgrad_jax.functions.arrays import as_tensor
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.user_code import warn_once
from torchgrad_jax.runtime.value import is_tracer

# torch.X for every declared operator that is public, by name.
namespace: dict[str, Any] = {}

# What PyTorch has a function of that writes into its first argument; the others it has as methods alone.
_WRITING_FUNCTIONS = (
    "abs", "acos", "acosh", "addmv", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "asin", "asinh", "atan", "atanh", "ceil",
    "conj_physical", "cos", "cosh", "deg2rad", "erf", "erfc", "exp", "exp2", "expm1", "fix", "floor", "frac", "gcd", "i0", "lcm", "ldexp", "log",
    "log10", "log1p", "log2", "logit", "nan_to_num", "neg", "negative", "rad2deg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sin",
    "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
)  # fmt: skip


def install() -> None:
    """Give Tensor its methods and fill `namespace`."""
    for operator in registry.values():
        names = [operator.name] if operator.toplevel else []
        if names or operator.aliases:
            function = function_of(operator, f"torch.{operator.name}")
            names += [name for name in operator.aliases if not name.startswith("special_")]
            namespace.update(dict.fromkeys(names, function))
        names = [operator.name] if operator.method else []
        names += [name for name in operator.aliases if not name.startswith("special_")]
        if names:
            method = function_of(operator, f"torch.Tensor.{operator.name}")
            for name in names:
                setattr(Tensor, name, method)
        if operator.inplace:
            written = operator if operator.inplace is True else registry[operator.inplace]
            write = inplace_of(written, f"torch.Tensor.{operator.name}_")
            for name in (operator.name, *operator.aliases) if operator.method or operator.toplevel else ():
                if not name.startswith("special_"):
                    setattr(Tensor, name + "_", write)
                if name in _WRITING_FUNCTIONS:
                    namespace.setdefault(name + "_", write)
    namespace.update(published["torch"])
    for name, function in published["torch.Tensor"].items():
        setattr(Tensor, name, function)
    _install_aliases()
    _install_dunders()


def _install_aliases() -> None:
    for name in ("view_as", "reshape_as", "expand_as"):
        setattr(Tensor, name, _as(getattr(Tensor, name.removesuffix("_as")), name))
    for name, target in {**dtypes.ALIASES, "bool": dtypes.bool_, "byte": dtypes.uint8, "char": dtypes.int8, "bfloat16": dtypes.bfloat16}.items():
        setattr(Tensor, name, _caster(target))


def _as(function: Any, name: str) -> Any:
    def like(self: Tensor, other: Tensor) -> Tensor:
        return function(self, other._aval.shape)

    like.__doc__ = f"`{name.removesuffix('_as')}` to the sizes of `other`."
    return like


def _caster(target: Any) -> Any:
    def convert(self: Tensor, memory_format: Any = None) -> Tensor:
        return conversion.cast(self, target) if memory_format is None else conversion.to(self, target, memory_format=memory_format)

    convert.__doc__ = f"The tensor as {target!r}."
    return convert


# ---------------------------------------------------------------------- Python's protocols


def _install_dunders() -> None:
    # Handlers of `x + y` are given Tensor.add, as in PyTorch; those of `x & y` and a few others the operator itself.
    for name, function in {
        "add": Tensor.add, "sub": Tensor.sub, "mul": Tensor.mul, "truediv": Tensor.div, "matmul": overloads.matmul_of_two,
        "ne": Tensor.ne, "lt": Tensor.lt, "le": Tensor.le, "gt": Tensor.gt, "ge": Tensor.ge,
    }.items():  # fmt: skip
        _set_dunder(f"__{name}__", _quick_operator(function, name != "matmul"))
    _set_dunder("__mod__", _operator(lambda self, other: Tensor.remainder(self, other)))
    for name, target in {"eq": "eq", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}.items():
        _install_operator(f"__{name}__", function_of(registry[target], f"torch.Tensor.__{name}__"))
    _install_operator("__pow__", overloads._pow("torch.Tensor", "__pow__"))
    _install_invert()
    for name, function in {"neg": Tensor.neg, "abs": Tensor.abs}.items():
        setattr(Tensor, f"__{name}__", function)
    for name, function in {"add": Tensor.add, "mul": Tensor.mul, "and": Tensor.bitwise_and, "or": Tensor.bitwise_or,
                           "xor": Tensor.bitwise_xor}.items():  # fmt: skip
        _set_dunder(f"__r{name}__", _quick_operator(function))
    _set_dunder("__rsub__", _operator(function_of(registry["rsub"])))
    for name in ("and", "or", "xor"):
        setattr(Tensor, f"__i{name}__", _as_operator(f"bitwise_{name}_"))


def _set_dunder(name: str, function: Any) -> None:
    """Give Tensor an operator, which tells its own name."""
    function.__name__, function.__qualname__ = name, f"Tensor.{name}"
    setattr(Tensor, name, function)


def _as_operator(name: str) -> Any:
    """An operator that is a function by itself to handlers, and does what the method `name` does."""

    def write(self: Tensor, other: Any) -> Any:
        return getattr(Tensor, name)(self, other)

    write.__doc__ = getattr(Tensor, name).__doc__
    return write


def install_inplace_operators() -> None:
    """Give Tensor `+=` and the like, once its methods have their guards: handlers of `x += y` are given Tensor.add_, those of `x &= y` itself."""
    for name, method in {
        "add": "add_", "sub": "sub_", "mul": "mul_", "truediv": "div_", "floordiv": "floor_divide_", "mod": "remainder_",
        **{name: f"__i{name}__" for name in ("pow", "and", "or", "xor", "lshift", "rshift")},
    }.items():  # fmt: skip
        _set_inplace_operator(f"__i{name}__", getattr(Tensor, method))


def _set_inplace_operator(name: str, function: Any) -> None:
    """Give Tensor an in-place operator, which leaves what is neither tensor nor number to the other side."""

    def dunder(self: Tensor, other: Any) -> Any:
        try:
            return function(self, other)
        except TypeError:
            if isinstance(other, (Tensor, *NUMBERS, np.generic)) or overrides(type(other)):
                raise
            return NotImplemented

    writing = writings.get(function)
    operator: Any = dunder if writing is None else writing_operator(writing, dunder)
    functools.update_wrapper(operator, function)
    public = publics.get(function)
    if public is not None and "__" in public.name:
        announce(operator, public)
        setattr(Tensor, name, operator)
    else:
        _set_dunder(name, operator)


def _install_operator(name: str, function: Any) -> None:
    """A dunder that handlers are given itself."""
    public = publics[function]
    dunder = _operator(function, arrays=name == "__eq__")
    dunder.__name__ = dunder.__qualname__ = name
    announce(dunder, public)
    setattr(Tensor, name, dunder)


def _install_invert() -> None:
    inverted = function_of(registry["bitwise_not"], "torch.Tensor.__invert__")
    public = publics[inverted]

    def __invert__(self: Tensor, *args: Any) -> Tensor:
        if not overrides(type(self)) and self._aval.dtype.kind not in "biu":
            raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
        return inverted(self, *args)

    announce(__invert__, public)
    setattr(Tensor, "__invert__", __invert__)  # noqa: B010 - Tensor's own attributes are declared in its class


def _quick_operator(function: Any, numbers: bool = True) -> Any:
    """`_operator`, with a short way for a tensor and another one or a number. No handler is given it."""
    general = _operator(function, numbers)
    if function is overloads.matmul_of_two:
        return product_operator(overloads.products, general, is_declined)
    called = of_function.get(function)
    return general if called is None else operator_of(called, numbers, general, is_declined)


def _operator(function: Any, numbers: bool = True, arrays: bool = False) -> Any:
    """A dunder: an operand that is no tensor (and no number or array, where one would do) is left to the other side, and so is one whose class
    declines."""
    operands = (Tensor, *NUMBERS) if numbers else Tensor

    def dunder(self: Tensor, other: Any) -> Any:
        kind = type(other)
        try:
            if kind is Tensor or ((kind is float or kind is int) and numbers) or isinstance(other, operands) or overrides(kind):
                return function(self, other)
        except TypeError as error:
            if is_declined(error):
                return NotImplemented
            raise
        if numbers and hasattr(other, "dtype") and hasattr(other, "item") and getattr(other, "ndim", 1) == 0 and not is_tensor_of_pytorchs(kind):
            return NotImplemented if is_tracer(other) else function(self, other.item())
        return function(self, as_tensor(other)) if arrays and isinstance(other, np.ndarray) else NotImplemented

    return dunder


_divided = _operator(lambda self, other: Tensor.reciprocal(self) * other)
_raised = _operator(lambda self, other: apply(registry["pow_tensor"].bind((ARRAY, ARRAY)), (other, self)))


@public("torch.Tensor.__rtruediv__", "torch.Tensor.__rdiv__")
def _rtruediv(self: Tensor, other: Any) -> Tensor:
    return Tensor.reciprocal(self) * other if isinstance(other, np.ndarray) else _divided(self, other)


@public("torch.Tensor.__rpow__")
def _rpow(self: Tensor, other: Any) -> Tensor:
    return _raised(self, other)


@public("torch.Tensor.__iter__")
def _iter(self: Tensor) -> Iterator[Tensor]:
    if not self._aval.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(Tensor.unbind(self, 0))


@public("torch.Tensor.__contains__")
def _contains(self: Tensor, element: Any) -> bool:
    if isinstance(element, (Tensor, *NUMBERS)):
        return bool((self == element).any().item())
    raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")


@public("torch.Tensor.__reversed__")
def _reversed(self: Tensor) -> Tensor:
    return self if not self._aval.ndim else self.flip(0)


@public("torch.Tensor.new")
def _new(self: Tensor, *args: Any, device: Any = None) -> Tensor:
    """A tensor of this one's dtype, on its device: of the given sizes, of a sequence's elements, or on a tensor's memory. RuntimeError for a `device`
    of another kind."""
    return legacy.new_legacy(self.dtype, args, self.device, device)


def _transposed_property(self: Tensor) -> Tensor:
    ndim = self._aval.ndim
    if ndim == 0:
        warn_once("Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases.")
    elif ndim != 2:
        warn_once(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw an error in a future "
            "release. Consider `x.mT` to transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the "
            "dimensions of a tensor."
        )
    return views.permute(self, tuple(reversed(range(ndim)))) if ndim != 2 else viewed("permute", self, (1, 0))


def _mT(self: Tensor) -> Tensor:
    ndim = self._aval.ndim
    if not ndim:
        warn_once("Tensor.mT is deprecated on 0-D tensors. This function is the identity in these cases.")
        return self
    if ndim < 2:
        raise RuntimeError(f"tensor.mT is only supported on matrices or batches of matrices. Got {ndim}-D tensor.")
    return viewed("transpose", self, ndim - 2, ndim - 1)


@public("torch.fill_", "torch.Tensor.fill_")
def _fill_(self: Tensor, value: Any) -> Tensor:
    """Write `value` everywhere."""
    return fill_(self, value)


@public("torch.zero_", "torch.Tensor.zero_")
def _zero_(self: Tensor) -> Tensor:
    """Write zeros everywhere."""
    return apply_inplace(registry["zero"].bind((ARRAY,)), (self,))


public("torch.Tensor.T")(property(_transposed_property, doc="The dimensions in reverse order."))
public("torch.Tensor.mT")(property(_mT, doc="The last two dimensions exchanged."))
