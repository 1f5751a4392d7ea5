"""What is known of calls that were made: see `recalled.py`. Compiled where there is a compiler (`torchgrad_jax/_typed`)."""

from __future__ import annotations

import weakref
from typing import Any

from torchgrad_jax.core.fields import TensorFields, content_of
from torchgrad_jax.declaration import dtypes

# How often in vain what a call came to is looked for, before that is given up.
PATIENCE = 128
# From so many tensors on it is not told by their shapes how they are joined.
MANY = 8


class Like:
    """Any tensor of an aval and of strides, None for those of rows, in ordinary memory. needs: whether it requires a gradient. known: None where it
    does not matter what it holds, else whether its smallest and largest element were; they were not below `low` and above `high`."""

    __slots__ = ("aval", "strides", "needs", "known", "low", "high")

    def __init__(self, aval: Any, strides: Any, needs: bool) -> None:
        self.aval, self.strides, self.needs = aval, strides, needs
        self.known: Any = None
        self.low: Any = 0
        self.high: Any = -1


class Several:
    """A sequence of such arguments."""

    __slots__ = ("kind", "items")

    def __init__(self, kind: type, items: tuple[Any, ...]) -> None:
        self.kind, self.items = kind, items


class Part:
    """One of several operations that calls come to. bound, places, numbers, called, known, begin: see Entry; places count the results of the parts
    before it after the tensors. viewing: whether it is a view, of which `known` is found when it is first made. in_rows: whether the function has
    the result in row-major order, whatever the operator's rule is."""

    __slots__ = ("bound", "places", "numbers", "called", "viewing", "in_rows", "known", "begin")

    def __init__(self, bound: Any, places: tuple[int, ...], numbers: tuple[Any, ...], called: Any, viewing: bool, in_rows: bool) -> None:
        self.bound, self.places, self.numbers, self.called, self.viewing, self.in_rows = bound, places, numbers, called, viewing, in_rows
        self.known: Any = None
        self.begin: Any = numbers[0] if viewing and numbers else None


class Entry:
    """Calls of one kind. args, names, values: the arguments, tensors as Like, and those by name. follows: whether graphs are recorded. after: what
    kind came after it last.

    bound: the operation that they come to; None where it is not one. places: for each operand which of the tensors it is, or -1 for one of the
    `numbers`. called: where it is one of one or two operands; known, begin: where it is a view; together: where it is several, see `Latest`.
    wrap: what makes the result of the operation's; named: whether it is a class of `return_types`. pick: which of several results it is. array: the
    content of what is made of no tensor, and of no operation. silent: whether what writes returns nothing. order: in which order the result is
    laid out then, where the function does that. parts: what it comes to where that is several operations. twins: pairs of places where the same
    tensor was given, None where all were others.
    """

    __slots__ = (
        "args", "names", "values", "follows", "after", "bound", "places", "numbers", "called", "known", "begin", "together", "wrap", "named", "pick",
        "array", "silent", "order", "parts", "twins",
    )  # fmt: skip

    def __init__(self, args: tuple[Any, ...], names: tuple[str, ...], values: tuple[Any, ...], follows: bool) -> None:
        self.args, self.names, self.values, self.follows = args, names, values, follows
        self.after: Any = None
        self.bound: Any = None
        self.places: tuple[int, ...] = ()
        self.numbers: tuple[Any, ...] = ()
        self.called: Any = None
        self.known: Any = None
        self.begin: Any = None
        self.together: Any = None
        self.wrap: Any = None
        self.named = False
        self.pick = -1
        self.array: Any = None
        self.silent = False
        self.order: Any = None
        self.parts: Any = None
        self.twins: Any = None


class Calls:
    """The kinds of calls of one function.

    entries: these, by what `mark` says of their arguments; count: how many. last: the kind of the last one. left: how often what a call came to is
    still looked for in vain. bounds: whether it matters between which numbers its tensors of integers are. makes: whether it makes tensors of no
    other's content; alike: like a first one, of which it asks no number as it does of other tensors. writes: whether it writes to its first argument.
    joins: whether it does MANY tensors otherwise where they are there already. divides: whether it asks its second argument for its elements, if it
    has integers. unclear: how often it was not told what calls with a mark came to.
    """

    __slots__ = ("entries", "count", "last", "left", "unclear", "bounds", "makes", "alike", "writes", "joins", "divides", "__weakref__")

    def __init__(
        self, bounds: bool = False, makes: bool = False, alike: bool = False, writes: bool = False, joins: bool = False, divides: bool = False
    ) -> None:
        self.bounds, self.makes, self.alike, self.writes, self.joins, self.divides = bounds, makes, alike, writes, joins, divides
        self.entries: dict[Any, list[Entry]] = {}
        self.count = 0
        self.last: Any = None
        self.left = PATIENCE
        self.unclear: dict[Any, int] = {}
        _all.append(weakref.ref(self))

    def kinds(self) -> list[Entry]:
        """All entries."""
        return [entry for alike in self.entries.values() for entry in alike]

    def forget(self) -> None:
        """What calls come to may be otherwise from now on."""
        self.entries, self.count, self.last, self.left, self.unclear = {}, 0, None, PATIENCE, {}


_all: list[weakref.ref[Calls]] = []


def forget_all() -> None:
    """Forget what is known of all functions: something has changed that is no argument."""
    for reference in _all:
        calls = reference()
        if calls is not None:
            calls.forget()


dtypes.after_default_changed.append(forget_all)


def mark(args: tuple[Any, ...]) -> Any:
    """What the arguments of calls of one kind have in common: the avals of the first two, or of the first one's first."""
    first = args[0] if args else None
    if (type(first) is tuple or type(first) is list) and first:
        first = first[0]
    aval = _aval(first)
    return aval if len(args) < 2 or not isinstance(args[1], TensorFields) else (aval, _aval(args[1]))


def _aval(argument: Any) -> Any:
    if not isinstance(argument, TensorFields):
        return None
    t: Any = argument
    return None if t._value is None else t._value.aval


def told_of(t: Any) -> Any:
    """The content that tells between which numbers a tensor of integers is: for a view that is not computed yet that of the memory of which it is."""
    content = content_of(t)
    if content.array is None and t._view is not None:
        whole = t._storage.value
        if whole.aval.dtype is content.aval.dtype:
            return whole
    return content
