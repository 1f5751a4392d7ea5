"""Storage: the memory that a tensor shares with its views and its detached twins. Arrays are immutable, so a write puts a
new Value into the storage and counts its version up."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torchgrad_jax.runtime.recorder import Recorder, per_thread, record
from torchgrad_jax.runtime.value import Value


class VersionCounter:
    """How often a storage was written to. `writer`: the version and the name of the node that the content of the whole storage came from last,
    where autograd followed a write."""

    __slots__ = ("version", "writer")

    def __init__(self) -> None:
        self.version = 0
        self.writer: tuple[int, str] | None = None


class Superseded(VersionCounter):
    """Stands for the counter of a Value whose memory was written to under another counter (by way of `Tensor.data`): what was saved for
    backward is then, unnoticed, the new content."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.version = -1
        self.value = value


def present(value: Value) -> Value:
    """The Value that a saved one has become by writes which its version counter does not count."""
    while type(value.counter) is Superseded:
        value = value.counter.value
    return value


class Storage:
    """The current Value of the base tensor, and its version counter.

    writes: how often the content changed. siblings: the storages of the same memory under version counters of their own (`Tensor.data`),
    among them this one; None while there are no others.
    """

    __slots__ = ("value", "counter", "writes", "siblings", "__weakref__")
    value: Value
    counter: VersionCounter
    writes: int
    siblings: list[weakref.ref[Storage]] | None

    def __init__(self, value: Value) -> None:
        self.value = value
        self.counter = value.counter = VersionCounter()
        value.version = self.writes = 0
        self.siblings = None

    def write(self, value: Value) -> None:
        """Put a new content in."""
        if value.counter is not None:
            raise AssertionError("a Value belongs to one storage")
        counter = self.counter
        counter.version += 1
        self.writes += 1
        self.value = value
        value.counter = counter
        value.version = counter.version
        if self.siblings is not None:
            self._spread(value)

    def sibling(self) -> Storage:
        """The same memory under a version counter of its own."""
        made = Storage(per_thread.recorder.alias(self.value))
        living: list[Any] = [weakref.ref(self)] if self.siblings is None else [r for r in self.siblings if r() is not None]
        living.append(weakref.ref(made))
        for reference in living:
            storage: Any = reference()
            if storage is not None:
                storage.siblings = living
        return made

    def _spread(self, value: Value) -> None:
        for reference in self.siblings or ():
            storage = reference()
            if storage is not None and storage is not self:
                content = per_thread.recorder.alias(value)
                content.counter, content.version = storage.counter, storage.counter.version
                storage.value.counter = Superseded(content)
                storage.value = content
                storage.writes += 1


class Link:
    """One view operation: how to read the view from its parent, and how to write it back."""

    __slots__ = ("read", "write", "numbers")

    def __init__(self, read: Any, write: Any, numbers: tuple[Any, ...]) -> None:
        self.read, self.write, self.numbers = read, write, numbers


class View:
    """Which part of a storage a tensor is: `links` are the operations from the storage's content to it.

    base: the tensor whose gradient this one takes part in; None for a twin made by `detach` or `data`, which shares memory only.
    skip: how many of the links lead to the base. made_in: "default", "no_grad", "custom" for what a Function of the user's returned, or another
    word for a view among several of one node. seen: the storage's writes when the tensor's Value was read. node_seen: the version that its
    grad_fn belongs to. asked: whether the tensor itself was asked to require a gradient.
    """

    __slots__ = ("base", "links", "skip", "seen", "node_seen", "strides", "offset", "made_in", "asked")

    def __init__(self, base: Any, links: tuple[Link, ...], skip: int, storage: Storage, strides: tuple[int, ...], offset: int, made_in: str) -> None:
        self.base, self.links, self.skip, self.strides, self.offset, self.made_in = base, links, skip, strides, offset, made_in
        self.seen, self.node_seen = storage.writes, storage.counter.version
        self.asked = False

    @property
    def from_base(self) -> tuple[Link, ...]:
        """The operations from the base to the view."""
        return self.links[self.skip :] if self.skip else self.links


def with_numbers(links: tuple[Link, ...], numbers: Iterable[Any]) -> tuple[Link, ...]:
    """The same operations with other numbers, given in order."""
    given = iter(numbers)
    return tuple(Link(x.read, x.write, tuple(next(given) for _ in x.numbers)) for x in links)


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
