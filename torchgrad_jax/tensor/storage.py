"""Storage: the memory that a tensor shares with its views and its detached twins. Arrays are immutable, so a write puts a
new Value into the storage and counts its version up."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime.recorder import Recorder, record
from torchgrad_jax.runtime.value import Value


class VersionCounter:
    """How often a storage was written to."""

    __slots__ = ("version",)

    def __init__(self) -> None:
        self.version = 0


class Storage:
    """The current Value of the base tensor, and its version counter."""

    __slots__ = ("value", "counter")
    value: Value
    counter: VersionCounter

    def __init__(self, value: Value) -> None:
        self.value = value
        self.counter = value.counter = VersionCounter()
        value.version = 0

    def write(self, value: Value) -> None:
        """Put a new content in."""
        if value.counter is not None:
            raise AssertionError("a Value belongs to one storage")
        counter = self.counter
        counter.version += 1
        self.value = value
        value.counter = counter
        value.version = counter.version


class Link:
    """One view operation: how to read the view from its parent, and how to write it back."""

    __slots__ = ("read", "write", "numbers")

    def __init__(self, read: Any, write: Any, numbers: tuple[Any, ...]) -> None:
        self.read, self.write, self.numbers = read, write, numbers


class View:
    """How a tensor is a view of `base`: the operations from the base to it.

    seen: the storage version that the tensor's Value was read at. node_seen: the version its grad_fn belongs to.
    """

    __slots__ = ("base", "links", "seen", "node_seen", "strides", "offset", "made_in", "differentiable")

    def __init__(self, base: Any, links: tuple[Link, ...], strides: tuple[int, ...], offset: int, made_in: str) -> None:
        self.base, self.links, self.strides, self.offset, self.made_in = base, links, strides, offset, made_in
        self.seen = self.node_seen = 0
        self.differentiable = True


def read_through(rec: Recorder, links: tuple[Link, ...], value: Any, call: Any = None) -> Any:
    """The view's content, given the base's."""
    for link in links:
        operands = (value, *link.numbers)
        value = record(rec, link.read, operands) if call is None else call(link.read, operands)
    return value


def write_through(rec: Recorder, links: tuple[Link, ...], base: Any, new: Any, call: Any = None) -> Any:
    """The base's content after `new` was written to the view."""
    call = call or (lambda bound, operands: record(rec, bound, operands))
    parents = [base]
    for link in links[:-1]:
        parents.append(call(link.read, (parents[-1], *link.numbers)))
    for link, parent in zip(reversed(links), reversed(parents), strict=True):
        new = call(link.write, (parent, new, *link.numbers))
    return new
