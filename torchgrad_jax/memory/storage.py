"""Storage: the memory that a tensor shares with its views and its detached twins. Arrays are immutable, so a write puts a
new Value into the storage and counts its version up."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable
from sys import getrefcount
from typing import Any

from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.memory.fields import CounterFields, LinkFields, StorageFields, ViewFields
from torchgrad_jax.memory.parts import writer_of_part
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.elsewhere import Elsewhere
from torchgrad_jax.runtime.keeping import Memo
from torchgrad_jax.runtime.recorder import LOOK, Recorder, per_thread, record
from torchgrad_jax.runtime.value import Value


class VersionCounter(CounterFields):
    """How often a storage was written to. `writer`: the version and the name of the node that the content of the whole storage came from last,
    where autograd followed a write. `tracked`: since which version a tensor has a gradient that such a write gave it; not there if none did.
    `relaid`: the shapes that the tensor itself was given, each with the version since which it has it; not there if it has one only.
    `cut`: the version at which the tensor itself was last cut off from its graph in place; not there if it never was.
    `moved`: the storage, weakly, that counts on by another counter, `following`, since a write that is not counted; not there while it counts by this
    one."""

    __slots__ = ("tracked", "relaid", "cut", "moved", "following")


class Superseded(VersionCounter):
    """Stands for the counter of a Value whose memory was written to under another counter (by way of `Tensor.data`): what was saved for
    backward is then, unnoticed, the new content."""

    __slots__ = ("value", "__weakref__")

    def __init__(self, value: Value) -> None:
        self.version, self.writer, self.value = -1, None, value

    def follower(self, edge: Any) -> Value:
        """What the Value has become, as something that was saved with this edge."""
        return self.value


class Detached(Superseded):
    """Stands for the counter of a Value whose tensor was cut off from its graph in place."""

    __slots__ = ()


class Replaced(Superseded):
    """Stands for the counter of a tensor's old content after `Tensor.data` was set: what was saved of that tensor (it is told by its edge) is,
    unnoticed, the new content. For others, and for the node that made it, it is what it was: `past`."""

    __slots__ = ("past", "node", "nr")

    def __init__(self, value: Value, past: Value, edge: Any) -> None:
        super().__init__(value)
        self.past, self.node, self.nr = past, weakref.ref(edge[0]), edge[1]

    def follower(self, edge: Any) -> Value:
        """See Superseded. It concerns the tensor whose data was set."""
        concerned = edge is not None and edge[0] is self.node() and edge[1] == self.nr
        return self.value if concerned else self.past


class OfMask(Superseded):
    """Stands for the counter of the places where a mask is true, which PyTorch finds anew in backward: they are outdated when the mask is."""

    __slots__ = ()

    def __init__(self, mask: Value) -> None:
        self.value, self.writer = mask, None

    @property
    def version(self) -> int:  # type: ignore[override] # what is asked for, not counted
        """0, as that of the places is, until the mask is written to."""
        return -1 if outdated(present(self.value)) else 0


def present(value: Value, edge: Any = None) -> Value:
    """The Value that a saved one has become by writes which its version counter does not count. edge: where the gradient of what was saved
    goes; None for a node's own result."""
    while isinstance(value.counter, Superseded):
        value = value.counter.follower(edge)
    return value


def cut_off(value: Value, edge: Any) -> bool:
    """Whether the tensor, no view, that was saved with this content has been cut off from its graph in place, and been given no other since."""
    found = False
    while isinstance(value.counter, Superseded):
        found = found or type(value.counter) is Detached
        value = value.counter.follower(edge)
    counter = value.counter
    if counter is None:
        return found
    since = getattr(counter, "cut", -1)
    return (found or value.version <= since) and (counter.writer is None or counter.writer[0] <= since)


def counted_on(value: Value, content: Value | None = None) -> Value:
    """A saved Value as one that its storage's present counter tells about. content: what it has become since by a write that was not counted, where
    that is known; else it stays what it was."""
    made, counter = per_thread.recorder.alias(value if content is None else content), value.counter
    while (following := getattr(counter, "following", None)) is not None:  # the storage may be gone
        counter = following
    made.counter, made.version = counter, value.version
    return made


def has_moved(value: Value) -> bool:
    """Whether the memory that `value` was the content of, or of a part of, was written to since without its counter counting that."""
    return getattr(value.counter, "moved", None) is not None


def outdated(value: Value) -> bool:
    """Whether the memory that `value` was the content of has been written to since."""
    return value.counter is not None and value.counter.version != value.version


class Sibling(weakref.ref["Storage"]):
    """A weak reference to a storage among its siblings. content: what it holds, which nodes may have saved, and is asked for when it is gone."""

    __slots__ = ("content",)
    content: Value

    @classmethod
    def of(cls, storage: Storage, content: Value) -> Sibling:
        """A storage that holds this now."""
        made = cls(storage)
        made.content = content
        return made


class Siblings(list[Sibling]):
    """The storages of one memory under version counters of their own. gone: what stands for the counters of those that are no more, weakly: it lives
    while one of their contents does, since a node has saved that."""

    __slots__ = ("gone",)

    def __init__(self, living: Iterable[Sibling], gone: Callable[[], Superseded | None]) -> None:
        super().__init__(living)
        self.gone = gone

    def part_from_gone(self, value: Value, written: bool) -> None:
        """Let what was saved of storages that are gone be what the memory holds now, and after each write. written: whether it was written to now."""
        parted, gone, held = [s for s in self if s() is None], self.gone(), ()
        if parted:
            self[:] = [s for s in self if s() is not None]
            held = [s.content for s in parted if _references(s) > _ALONE and not isinstance(s.content.counter, Superseded)]
        if gone is not None and written:
            former, gone.value = gone.value, per_thread.recorder.alias(value)
            former.counter = gone
        elif gone is None and held:
            gone = Superseded(per_thread.recorder.alias(value))
            self.gone = weakref.ref(gone)
        for content in held:
            content.counter = gone


def _references(sibling: Sibling) -> int:
    return getrefcount(sibling.content)


def _is_many(count: int) -> bool:
    """Whether it is looked which of so many are gone: seldom enough that each is looked at a few times at most, however many stay."""
    return count > 8 and count & (count - 1) == 0


_addresses = itertools.count(1)


class Storage(StorageFields):
    """The current Value of the base tensor, and its version counter.

    writes: how often the content changed. siblings: the storages of the same memory under version counters of their own (`Tensor.data`),
    among them this one; None while there are no others. twinned: that another tensor was made on it by `detach` or `data`; not there if none was.
    parts: the tensors, no bases in row-major order, whose `data` was asked for, weakly, by their ids; not there if none was. pending: see LaidOut.
    together: see CountedTogether; not there if it counts for itself. _address: see `address`; 0 before somebody asks.
    """

    __slots__ = ("twinned", "parts", "pending", "together", "__weakref__")
    counter: VersionCounter
    writes: int
    siblings: Siblings | None
    twinned: bool
    parts: dict[int, weakref.ref[Any]]
    pending: Any
    together: list[weakref.ref[Storage]]
    # Whether it was allocated in inference mode: then its tensors are inference tensors. Whether it counts versions.
    inference, counted = False, True

    def __init__(self, value: Value) -> None:
        self.value = value
        self.counter = value.counter = VersionCounter()
        value.version = self.writes = self._address = 0
        self.siblings = None

    @property
    def address(self) -> int:
        """Where this memory would lie if memories lay one behind the other: its own, shared by its siblings only."""
        if not self._address:
            self._address = next(_addresses) << 40
        return self._address

    def write(self, value: Value) -> None:
        """Put a new content in."""
        put_content(self, value)

    def restore(self, value: Value, version: int) -> None:
        """Put a former content back, as if it had never been written over."""
        value.version, value.counter = version, self.counter
        self.counter.version, self.writes, self.value = version, self.writes + 1, value

    def set_version(self, version: int, before: Value | None = None) -> None:
        """Count from `version` on. before: the content that had this version, where it is known: what was saved of it for backward becomes,
        unnoticed, the present content."""
        value = self.value
        self.counter.version = value.version = version
        if before is not None and value is not before:
            before.counter = Superseded(value)

    def peek(self) -> Value:
        """The present content, which is not read: nobody need be told."""
        return _VALUE.__get__(self)

    def sibling(self) -> Storage:
        """The same memory under a version counter of its own."""
        content, known = self.value, self.siblings
        if known is None:
            known = self.siblings = Siblings((Sibling.of(self, content),), _nobody)
        elif _is_many(len(known)):
            known.part_from_gone(content, written=False)
        twin = per_thread.recorder.alias(content)
        made = type(self)(twin)
        made._address, made.siblings = self.address, known
        known.append(Sibling.of(made, twin))
        return made

    def know(self, part: Any) -> None:
        """Let a tensor, which is no base in row-major order, be one of those whose saved content changes with the memory of a sibling."""
        parts = getattr(self, "parts", None)
        if parts is None:
            parts = self.parts = {}
        elif _is_many(len(parts)) and id(part) not in parts:
            for place in [place for place, r in parts.items() if r() is None]:
                del parts[place]
        parts[id(part)] = weakref.ref(part)

    def count_anew(self) -> None:
        """Count on by another counter, so that what was saved until now, of parts too, is told from what will be."""
        former, made = self.counter, VersionCounter()
        made.version, made.writer = former.version, former.writer
        for name in ("tracked", "relaid", "cut"):
            if (found := getattr(former, name, None)) is not None:
                setattr(made, name, found)
        here = weakref.ref(self)
        former.following, former.moved, former.version, self.counter = made, here, -2, made  # an interrupt finds all of it or nothing


def _spread(written: Storage, value: Value) -> None:
    """Let the siblings of a storage hold what was written to it."""
    known, rec = written.siblings, per_thread.recorder
    assert known is not None
    known.part_from_gone(value, written=True)
    for reference in known:
        storage = reference()
        if storage is written:
            reference.content = value
        elif storage is not None:
            own: Any = storage
            references = getattr(storage, "parts", None)
            parts = [part for r in references.values() if (part := r()) is not None and part._storage is storage] if references else ()
            former = [part._content() for part in parts]
            content = rec.alias(value)
            if type(storage) is Storage:
                storage.count_anew()
            content.counter, content.version = own.counter, own.counter.version
            before = storage.value
            before.counter = Superseded(content)
            reference.content = content
            storage.value = content
            storage.writes += 1
            for part, old in zip(parts, former, strict=True):
                old.counter = Superseded(part._content())


def _nobody() -> None:
    """What a weak reference to nothing gives."""


def _references_to_nobodys() -> int:
    value = Value()
    storage = Storage(value)
    sibling, storage.value = Sibling.of(storage, value), Value()
    del value
    return _references(sibling)


# How many references there are to what a Sibling alone holds.
_ALONE = _references_to_nobodys()


def put_content(storage: Storage, value: Value) -> None:
    """`Storage.write` of those whose class adds nothing to it."""
    if value.counter is not None:
        raise AssertionError("a Value belongs to one storage")
    counter = storage.counter
    version = counter.version + 1
    epoch = value.epoch if value.array is None else per_thread.recorder.epoch
    if epoch is not None and epoch.lines:
        epoch.note_write(storage, storage.peek(), version - 1)
    value.version, value.counter = version, counter
    # An interrupt finds all of it or nothing: it comes between two lines.
    if type(storage) is Storage:
        counter.version, storage.writes, storage.value = version, storage.writes + 1, value
    else:  # fields that are told of it, which typed code would not tell
        told: Any = storage
        counter.version, told.writes, told.value = version, told.writes + 1, value
    if storage.siblings is not None:
        written: Any = storage
        _spread(written, value)


class CountedTogether(Storage):
    """Memory that counts its versions with other memory, `together`: what a tensor had before its `data` was set, and what it took over. A write to
    one leaves the content of the others, but it is of the new version."""

    __slots__ = ()

    def write(self, value: Value) -> None:
        """Put a new content in."""
        super().write(value)
        for reference in getattr(self, "together", ()):
            storage = reference()
            if storage is not None and storage is not self:
                content = per_thread.recorder.alias(storage.value)
                content.counter, content.version = self.counter, self.counter.version
                storage.value = content
                storage.writes += 1  # its views are of the new version too


def count_together(former: Storage, taken: Storage) -> None:
    """Let `taken` count its versions on with `former`."""
    living = getattr(former, "together", None) or [weakref.ref(former)]
    if _is_many(len(living)):
        living[:] = [r for r in living if r() is not None]
    living.append(weakref.ref(taken))
    for storage in (former, taken):
        storage.__class__ = CountedTogether
        storage.together = living
    taken.counter = taken.value.counter = former.counter
    taken.value.version = former.counter.version


class InferenceStorage(Storage):
    """Memory that was allocated in inference mode. Reading it is noted in the reader's recorder, and the next operation there that extends a graph
    looks at what it saves: an ordinary operation need not ask its operands."""

    __slots__ = ("counted",)
    inference = True
    # Whether it counts versions and may be written to at any time nevertheless: the memory of a twin made outside inference mode does.
    counted: bool
    INPLACE = (
        "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get a normal tensor before doing inplace "
        "update.See https://github.com/pytorch/rfcs/pull/17 for more details."
    )

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.counted = False

    @property
    def value(self) -> Value:
        """See Storage."""
        per_thread.recorder.turned |= LOOK
        return _VALUE.__get__(self)

    @value.setter
    def value(self, value: Value) -> None:
        _VALUE.__set__(self, value)

    @property
    def writes(self) -> int:
        """See Storage. A view asks for it before its content is read."""
        per_thread.recorder.turned |= LOOK
        return _WRITES.__get__(self)

    @writes.setter
    def writes(self, count: int) -> None:
        _WRITES.__set__(self, count)

    def write(self, value: Value) -> None:
        """Put a new content in. RuntimeError outside inference mode, after the fact, as in PyTorch."""
        super().write(value)
        if not (self.counted or per_thread.recorder.inference):
            raise RuntimeError(self.INPLACE)

    def sibling(self) -> Storage:
        """See Storage."""
        made = super().sibling()
        assert isinstance(made, InferenceStorage)
        made.counted = not per_thread.recorder.inference
        return made


_VALUE: Any = Storage.value
_WRITES: Any = Storage.writes


def links_between(base: Any, view: View, storage: Storage | None) -> tuple[Link, ...]:
    """The operations from the content of a view's base to the view, a part of `storage`: as both lie in memory where the base has another layout than
    when the view was made, or is itself no more than a part of what the view may reach."""
    links = view.links[view.skip :] if view.skip else view.links
    laid: View | None = base._view
    if laid is None or len(laid.links) == view.skip:
        return links
    since = laid.links[view.skip :]
    if all([isinstance(link, Relayout) for link in since]):
        return (*[Link(*link.undo, ()) for link in reversed(since) if isinstance(link, Relayout)], *links)
    if storage is None or base._storage is not storage or base._aval.dtype != storage.value.aval.dtype:
        raise RuntimeError("torchgrad_jax: a view of a tensor that was given other memory since has no gradient")
    return (in_memory(base, storage), *view.links)


def in_memory(t: Any, storage: Storage) -> Link:
    """The operation from a tensor's content to memory that has nothing else in it: for gradients, and to write them back."""
    memory, dtype = storage.value.aval, t._aval.dtype
    shape = memory.shape if memory.dtype == dtype else (memory.nbytes // dtype.itemsize,)
    layout = (Static(shape), Static(t._strides()), Static(t._offset()))
    return Link(registry["in_memory"].bind((ARRAY, *layout)), registry["in_memory_scatter"].bind((ARRAY, ARRAY, *layout)), ())


class Link(LinkFields):
    """One view operation: how to read the view from its parent, and how to write it back; None for `write` where that is `writer(read)`."""

    __slots__ = ()

    def __init__(self, read: Any, write: Any, numbers: tuple[Any, ...]) -> None:
        self.read, self.write, self.numbers = read, write, numbers


class Relayout(Link):
    """A Link by which a tensor itself was given another layout (`transpose_`). undo: how to read and write the other way."""

    __slots__ = ("undo",)

    def __init__(self, read: Any, write: Any, undo: tuple[Any, Any]) -> None:
        super().__init__(read, write, ())
        self.undo = undo


class Asked(Link):
    """The last Link of a view that is done again as it was asked for, with the arguments that the user gave.

    again: makes it of another tensor, given a function that says what sizes and indices become, and by its method `tensor` what tensors do. count:
    how many Links it stands for, the last ones."""

    __slots__ = ("again", "count")

    def __init__(self, link: Link, again: Callable[[Any, Any], Any], count: int) -> None:
        super().__init__(link.read, link.write, link.numbers)
        self.again, self.count = again, count


class View(ViewFields):
    """Which part of a storage a tensor is: `links` are the operations from the storage's content to it.

    base: the tensor whose gradient this one takes part in; None for a twin made by `detach` or `data`, which shares memory only.
    skip: how many of the links lead to the base. made_in: "default", "no_grad", "inference", "custom" for what a Function of the user's returned,
    or another word for a view among several of one node. replay: whether its grad_fn is made anew from the operations, not in one.
    seen: the storage's writes when the tensor's Value was read, or `core/fields.UNREAD`. node_seen: the version that its grad_fn belongs to. asked:
    whether the tensor itself was asked to require a gradient. plain: see `order`; None before somebody asks. rows: whether it is known that what is
    computed of its elements, each for itself, lies in memory as if it were plain.
    """

    # Whether any thread has ever asked for `replay`: others need not ask.
    replayed_somewhere = False

    __slots__ = ()

    def __init__(self, base: Any, links: tuple[Link, ...], skip: int, storage: Storage, strides: tuple[int, ...], offset: int, made_in: str) -> None:
        begin_view(self, base, links, skip, storage, strides, offset, made_in)

    def regenerate(self, t: Any, storage: Storage) -> None:
        """Give the tensor, a view whose base was written to, a grad_fn that leads to the base's present one. See `core/tracked_view.py`."""
        raise NotImplementedError


def begin_view(
    view: View, base: Any, links: tuple[Link, ...], skip: int, storage: Storage, strides: tuple[int, ...], offset: int, made_in: str
) -> None:
    """Fill the fields of a new View."""
    told: Any = storage
    view.base, view.links, view.skip, view.strides, view.offset, view.made_in = base, links, skip, strides, offset, made_in
    view.seen, view.node_seen = told.writes, storage.counter.version
    view.asked = view.replay = view.rows = False
    view.plain = None


def with_numbers(links: tuple[Link, ...], numbers: Iterable[Any]) -> tuple[Link, ...]:
    """The same operations with other numbers, given in order."""
    given = iter(numbers)
    return tuple(Link(x.read, x.write, tuple(next(given) for _ in x.numbers)) for x in links)


_writers = Memo()


def writer(bound: Any) -> Any:
    """The BoundOperator that writes back what the view operation `bound` reads: its layout with one more array after `self`."""
    found = _writers.get(bound)
    if found is None:
        found = _writers.keep(bound, registry[bound.operator.name + "_scatter"].bind((ARRAY, *bound.layout)))
    return found


def read_through(rec: Recorder, links: tuple[Link, ...], value: Any, call: Any = None) -> Any:
    """The view's content, given the base's."""
    for link in links:
        operands = (value, *link.numbers)
        value = _recorded(rec, link.read, operands) if call is None else call(link.read, operands)
    return value


def _recorded(rec: Recorder, bound: Any, operands: tuple[Any, ...]) -> Any:
    try:
        return record(rec, bound, operands)
    except Elsewhere as place:
        return place.call(rec, bound, operands)[0]


def write_through(rec: Recorder, links: tuple[Link, ...], base: Any, new: Any, call: Any = None) -> Any:
    """The base's content after `new` was written to the view."""
    if not links:  # a tensor that was given other memory, all of which it is
        return new
    if call is None and len(links) > 1 and not rec.rare and rec.writes is None and base.aval.dtype is new.aval.dtype:
        found = written_at_once(links, base)
        if found is not None:
            write, numbers = found
            try:
                return record(rec, write, (base, new, *numbers))
            except Elsewhere:
                pass  # there views are written back one by one
    parents = [base]
    for link in links[:-1]:
        operands = (parents[-1], *link.numbers)
        parents.append(_recorded(rec, link.read, operands) if call is None else call(link.read, operands))
    while parents:
        link = links[len(parents) - 1]
        operands = (parents.pop(), new, *link.numbers)
        write = writer(link.read) if link.write is None else link.write
        new = _recorded(rec, write, operands) if call is None else call(write, operands)
    return new


def written_at_once(links: tuple[Link, ...], base: Value) -> tuple[Any, tuple[Any, ...]] | None:
    """The one operation that writes to `base` what lies behind these views, and the numbers that it is given; None where it takes several: of views
    of views those that slices and indices make are one part, and a tensor that was given other memory is all of it."""
    if not links:
        return None
    if len(links) == 1:
        link = links[0]
        return writer(link.read) if link.write is None else link.write, link.numbers
    kind = (*[link.read for link in links], base.aval.ndim, base.aval.dtype)
    found = _writers_of_parts.get(kind)
    if found is None:
        found = _writers_of_parts.keep(kind, writer_of_part(kind[:-2], base.aval))
    bound, terms = found
    if bound is None:
        return None
    begins = []
    for each in terms:
        begin = 0
        for place, step in each:
            number = links[place].numbers[0]
            if type(number) is not int:
                return None
            begin += number * step
        begins.append(begin)
    return bound, tuple(begins)


_writers_of_parts = Memo()
