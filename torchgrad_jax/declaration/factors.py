"""Derivatives that are of one form with what they are derivatives of, however often one differentiates: of matrix products, and of functions of one
number.

What JAX would find by its rules for any function is known here beforehand, so that it need not be traced for it, or not twice: that takes half of the
first step of derivatives of derivatives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from jax import lax

from torchgrad_jax.declaration import numpy_products
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import ArgSpec, Signature
from torchgrad_jax.runtime.value import Aval


class Factors(Protocol):
    """What an operation makes of its operands, as one product of some of them or of what is made of one."""

    def needs(self, operand: int) -> set[int] | None:
        """The operands that the gradient of one of them is made of, besides the result's; None if that is not a product of this kind."""

    def gradient(self, operand: int, places: dict[int, int]) -> Any:
        """The gradient of an operand, as one of the result's gradient, which is at place 0, and of other operands, now at these `places`."""

    def __call__(self, *operands: Any) -> Any: ...


class OfMatrices(NamedTuple):
    """The product of two matrices, or batches of them: the places of the `first` and the `second` one, and whether that one is transposed: `left`,
    `right`."""

    first: int
    second: int
    left: bool = False
    right: bool = False

    def needs(self, operand: int) -> set[int] | None:
        """See Factors."""
        if operand not in (self.first, self.second):
            return None
        return {self.second if operand == self.first else self.first}

    def gradient(self, operand: int, places: dict[int, int]) -> OfMatrices:
        """See Factors."""
        if operand == self.first:
            other = places[self.second]
            return OfMatrices(other, 0, self.right, True) if self.left else OfMatrices(0, other, False, not self.right)
        other = places[self.first]
        return OfMatrices(0, other, True, self.left) if self.right else OfMatrices(other, 0, not self.left, False)

    def __call__(self, *operands: Any) -> Any:
        x, y = operands[self.first], operands[self.second]
        batch, last = tuple(range(x.ndim - 2)), x.ndim - 1
        inner = (last - 1,) if self.left else (last,), (last,) if self.right else (last - 1,)
        return lax.dot_general(x, y, (inner, (batch, batch)), precision=lax.Precision.HIGHEST, preferred_element_type=x.dtype)

    def moved(self, operand: int, tangent: int, places: dict[int, int]) -> OfMatrices:
        """The same product where the place `tangent` stands for one operand, and one of these `places` for the other."""
        if operand == self.first:
            return OfMatrices(tangent, places[self.second], self.left, self.right)
        return OfMatrices(places[self.first], tangent, self.left, self.right)


class Sum(NamedTuple):
    """Several products of matrices, added up: what moves where both matrices of one do."""

    terms: tuple[OfMatrices, ...]

    def needs(self, operand: int) -> set[int] | None:
        """See Factors."""
        found = [needed for needed in [term.needs(operand) for term in self.terms] if needed is not None]
        return set().union(*found) if found else None

    def gradient(self, operand: int, places: dict[int, int]) -> OfMatrices | Sum:
        """See Factors."""
        return sum_of([term.gradient(operand, places) for term in self.terms if term.needs(operand) is not None])

    def __call__(self, *operands: Any) -> Any:
        return functools.reduce(lax.add, [term(*operands) for term in self.terms])


def sum_of(terms: Sequence[OfMatrices]) -> OfMatrices | Sum:
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))


class OfNumbers(NamedTuple):
    """Element by element, the product of the `linear` operands and of a function of the one at place `at`: the first of `slopes`, each of which is
    the derivative of the one before it, and a number if that is all that it is."""

    linear: tuple[int, ...]
    at: int
    slopes: tuple[Callable[[Any], Any] | float, ...]

    def needs(self, operand: int) -> set[int] | None:
        """See Factors."""
        if operand in self.linear:
            return ({*self.linear} - {operand}) | ({self.at} if callable(self.slopes[0]) else set())
        if operand != self.at or len(self.slopes) == 1:
            return None
        return {*self.linear} | ({self.at} if callable(self.slopes[1]) else set())

    def gradient(self, operand: int, places: dict[int, int]) -> OfNumbers:
        """See Factors."""
        linear = (0, *[places[i] for i in self.linear if i != operand])
        return OfNumbers(linear, places.get(self.at, -1), self.slopes[1:] if operand == self.at else self.slopes)

    def __call__(self, *operands: Any) -> Any:
        found = operands[self.linear[0]]
        for i in self.linear[1:]:
            found = found * operands[i]
        slope = self.slopes[0]
        if callable(slope):
            return found * slope(operands[self.at])
        return found if slope == 1 else found * slope


# What the gradients of some operators are multiplied with, by the operators' names: a function of the one thing that is saved, and its derivatives,
# one after the other. The modules of the operators enter them.
SLOPES: dict[str, tuple[Callable[[Any], Any] | float, ...]] = {}


def of_backward(sig: Signature, inputs: Sequence[int], saves: Sequence[int]) -> Factors | None:
    """What an operator's backward operation makes of the gradient and of what is saved, if that is of such a form: of real numbers, and matrices
    on the host, since on accelerators the precision of products counts that is asked for when they are called."""
    bound: Any = sig.bop
    operator = getattr(bound, "operator", None)
    if operator is None or len(inputs) != 1 or len(saves) != 1 or sig.avals[0].dtype.char not in "fd":
        return None
    product = of_operator(sig)
    if product is not None:
        return product.gradient(inputs[0], {saves[0]: 1}) if product.needs(inputs[0]) == {*saves} else None
    slopes = SLOPES.get(operator.name)
    return OfNumbers((0,), 1, slopes) if slopes is not None and sig.specs[0] is sig.avals[0] else None


def of_operator(sig: Signature) -> OfMatrices | None:
    """The product of matrices that an operator makes, to which it may add what is left."""
    bound: Any = sig.bop
    names = getattr(getattr(getattr(bound, "operator", None), "numpy_grads", None), "factors", None)
    if names is None:
        return None
    dtype, places = sig.avals[0].dtype, [bound.names.index(name) for name in names]
    alike = all([isinstance(s, Aval) and s.dtype == dtype and s.device is CPU for s in [sig.specs[i] for i in places]])
    return OfMatrices(*places) if alike and dtype.char in "fd" else None


def pushed(sig: Signature, inputs: Sequence[int], saves: Sequence[int]) -> OfMatrices | Sum | None:
    """What an operation's result moves by where `inputs` do, of what is saved and then the tangents; None where these are no products of matrices."""
    own = getattr(sig.bop, "factors", None) or of_operator(sig)
    terms: list[OfMatrices] = [own] if type(own) is OfMatrices else list(own.terms) if type(own) is Sum else []
    places, found = {operand: place for place, operand in enumerate(saves)}, []
    for tangent, operand in enumerate(inputs, len(saves)):
        there = [term for term in terms if operand in (term.first, term.second)]
        if not there or not all([(term.needs(operand) or set()) <= {*saves} for term in there]):
            return None
        found += [term.moved(operand, tangent, places) for term in there]
    return sum_of(found) if found else None


def gradients(factors: Factors, inputs: Sequence[int]) -> tuple[tuple[int, ...], list[Any]] | None:
    """The operands that the gradients of `inputs` are made of, and these gradients, of operands that are the result's gradient and then those. None
    where one is of another form."""
    needed = [factors.needs(i) for i in inputs]
    if None in needed:
        return None
    saves = tuple(sorted(set().union(*needed)))  # type: ignore[arg-type] # None is not among them
    places = {operand: 1 + i for i, operand in enumerate(saves)}
    return saves, [factors.gradient(i, places) for i in inputs]


def backward(wanted: Sequence[Factors]) -> Callable[[Sequence[ArgSpec]], Callable[..., Any]]:
    """These as one function of JAX's arrays, whatever they are like."""
    return lambda specs: lambda *operands: wanted[0](*operands) if len(wanted) == 1 else tuple([f(*operands) for f in wanted])


def forms(wanted: Sequence[Any]) -> Callable[[Sequence[ArgSpec]], Forms] | None:
    """The same of NumPy's, if it multiplies matrices: others are traced, so that they can be parts of chains."""
    if OfNumbers in map(type, wanted):
        return None
    found = numpy_products.of_factors([list(f.terms) if type(f) is Sum else [f] for f in wanted])
    return lambda specs: found
