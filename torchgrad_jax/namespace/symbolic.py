"""Numbers that are not known yet: there are none here. Programs ask `isinstance` about them, and compute with `sym_max` and its like, where numbers
are Python's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from torchgrad_jax.calling.for_users import asking
from torchgrad_jax.runtime.passing_through import never_made

_INSTEAD = "shapes and numbers are known when a program is recorded; one of another size is compiled anew"
SymInt, SymFloat, SymBool = (never_made(f"torch.{name}", _INSTEAD) for name in ("SymInt", "SymFloat", "SymBool"))
_NUMBERS = (np.integer, np.floating, int, float)


@asking
def sym_int(a: Any) -> int:
    """The number without its fraction."""
    return int(a)


@asking
def sym_float(a: Any) -> float:
    """The number as a float."""
    return float(a)


@asking
def sym_not(a: Any) -> bool:
    """Whether the number is false."""
    return not a


@asking
def sym_sqrt(a: Any) -> float:
    """The square root."""
    return math.sqrt(a)


def _either(choose: Any, a: Any, b: Any) -> Any:
    for number in (a, b):
        assert isinstance(number, _NUMBERS), f"expected {_NUMBERS}, got {type(number)}"
    chosen = choose(a, b)
    return float(chosen) if isinstance(a, float) or isinstance(b, float) else chosen


@asking
def sym_max(a: Any, b: Any) -> Any:
    """The larger of two numbers; a float where one of them is. AssertionError for what is no number."""
    return _either(max, a, b)


@asking
def sym_min(a: Any, b: Any) -> Any:
    """The smaller of two numbers; a float where one of them is. AssertionError for what is no number."""
    return _either(min, a, b)


@asking
def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t` if `b`, else `f`. AssertionError where `b` is no bool, or the others are of two types."""
    assert isinstance(b, bool), f"expected SymBool or bool, got {type(b)}"
    assert type(t) is type(f), f"type mismatch: {type(t)} vs {type(f)}"
    return t if b else f


@asking
def sym_sum(*args: Any) -> Any:
    """The sum of numbers, or of one sequence of them."""
    return sum(args[0] if len(args) == 1 and isinstance(args[0], Iterable) else args)


ALL: dict[str, Any] = {
    "SymInt": SymInt, "SymFloat": SymFloat, "SymBool": SymBool, "sym_int": sym_int, "sym_float": sym_float, "sym_not": sym_not,
    "sym_sqrt": sym_sqrt, "sym_max": sym_max, "sym_min": sym_min, "sym_ite": sym_ite, "sym_sum": sym_sum,
}  # fmt: skip
