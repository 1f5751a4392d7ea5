"""The table of rules: for each primitive, what makes the function of arrays that carries it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.runtime.baseline.cost import CHEAP, per_element, per_result

# Called with the equation. Shapes and dtypes of operands are those of its avals; but operands of an element-wise primitive may be smaller where
# NumPy's broadcasting gives the same result, and 0-dim ones may be NumPy scalars. No function may write to its operands.
Maker = Callable[[Any], Any]


class Unknown(Exception):
    """A primitive, or a form of one, that has no rule."""


class Same(NamedTuple):
    """In place of a function: each result is an operand as it is."""

    operands: tuple[int, ...] = (0,)


class Constant(NamedTuple):
    """In place of a function: the result is known."""

    value: np.ndarray


class Broadcast(NamedTuple):
    """In place of a function: the operand's dimensions are these of the result, along whose others it is repeated."""

    dimensions: tuple[int, ...]


class Costed(NamedTuple):
    """A function together with its cost, where only the maker knows it."""

    function: Callable[..., Any]
    cost: float


class AnySizes(NamedTuple):
    """A function that does its work for operands of any sizes, if their ranks are the same and a dimension is of size 0 or 1 where it was."""

    function: Callable[..., Any]


class OfElements(NamedTuple):
    """A function that is element-wise, of a primitive that is not always."""

    function: Callable[..., Any]


class Writing(NamedTuple):
    """A function whose result is its first operand, changed in places, and the one that changes that operand itself and returns it."""

    function: Callable[..., Any]
    overwriting: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """make: see `Maker`. cost: estimated nanoseconds beyond those of any step. elementwise: see `Maker`. fresh: results are always new memory."""

    make: Maker
    cost: Callable[[Any], float]
    elementwise: bool
    fresh: bool


_rules: dict[str, Rule] = {}


def rule(
    *names: str, each: float = CHEAP, cost: Callable[[Any], float] | None = None, elementwise: bool = False, fresh: bool = False
) -> Callable[[Maker], Maker]:
    """Enter a maker for the primitives of these names. Its cost is told by `each` element or as a function of the equation."""

    def enter(maker: Maker) -> Maker:
        told = per_result if elementwise else per_element
        entered = Rule(maker, cost or (lambda eqn: told(each, eqn)), elementwise, fresh)
        for name in names:
            _rules[name] = entered
        return maker

    return enter


def find(name: str) -> Rule:
    """The rule of a primitive. Unknown if it has none."""
    found = _rules.get(name)
    if found is None:
        raise Unknown(name)
    return found


def is_half(dtype: np.dtype) -> bool:
    """Whether it is float16 or bfloat16."""
    return dtype.itemsize == 2 and dtype.kind in "fV"


def is_floating(dtype: np.dtype) -> bool:
    """Whether it is a real floating-point dtype; bfloat16 is of NumPy's kind V."""
    return dtype.kind in "fV"
