"""From its third call on a transformed function need not run its Python again: what it records is recorded as one operation.

That is done where it makes no difference, and where it is known that it makes none: the function is pure (see `purity`), nothing in it has looked at
a value or drawn random numbers, nothing outside follows what it does (a level, a mode), and all that it is given and captures is as it was, but for
the contents of tensors. Where a graph follows it, or where something in it checks values, its operations are recorded one by one (see `replayed`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.autograd.undisturbed import ThreadState, repeating
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.order import lay_out
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.memory_order import dense_order
from torchgrad_jax.functions.random import set_state_of_random, state_of_random
from torchgrad_jax.lifting.compiled import be_part
from torchgrad_jax.lifting.purity import Reached, is_plain, reached
from torchgrad_jax.lifting.replaced import state
from torchgrad_jax.lifting.replayed import NotingNodes, Replay
from torchgrad_jax.lifting.trees import TreeSpec, tree_flatten
from torchgrad_jax.runtime import device, modes, user_code
from torchgrad_jax.runtime.composite import Composite, Looked, Rehearsal, composed
from torchgrad_jax.runtime.elsewhere import Elsewhere
from torchgrad_jax.runtime.recorder import Recorder, per_thread, record
from torchgrad_jax.runtime.recording.epoch import Epoch
from torchgrad_jax.runtime.recording.interrupts import from_outside
from torchgrad_jax.runtime.value import Value, is_tracer

MOST_KEPT = 256
# Of a call that was seen once, and of one that must be done anew each time.
ONCE, NEVER = object(), object()
_known: dict[Any, Any] = {}


def transform(name: str, func: Callable[..., Any], options: Any, body: Callable[..., Any]) -> Callable[..., Any]:
    """The function that `body` computes of `func`, under its name. options: what tells it from the same transform otherwise, with a `repr`."""

    parts = (name, repr(options), func)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        before = ThreadState()
        rec = before.recorder
        try:
            if rec.rare or modes.execution == "eager":
                return body(*args, **kwargs)
            return _call(rec, parts, body, args, kwargs)
        except BaseException:
            before.put_back()
            raise

    wrapper.transform_of = parts  # type: ignore[attr-defined]
    return wrapper


def _call(rec: Recorder, parts: tuple[Any, ...], body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = reached(parts)
    values = None if found is None else found.contents(args, kwargs, rec.grad_enabled)
    if found is None or values is None:
        return body(*args, **kwargs)
    settings = (rec.grad_enabled, dtypes.get_default_dtype(), device.default(), modes.matmul_precision, state())
    key = found.as_key(values, settings)
    known = _known.get(key)
    if known is None:
        return _first(rec, key, found, parts, body, args, kwargs)
    return recorded_again(_known, key, rec, body, args, kwargs, found, values)


def recorded_again(
    known: dict[Any, Any], key: Any, rec: Recorder, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], reached: Any,
    values: Sequence[Value],
) -> Any:  # fmt: skip
    """A call of a kind that was seen before: rehearsed, if that was once, and recorded again; or done in full. known: by kinds what is known of them.
    reached: has the `tensors` that the call reads, of which `values` are the contents, and the lists and dicts, `containers`."""
    found = known.get(key, NEVER)  # another thread may have let go of all
    if found is ONCE:
        found = known[key] = _rehearsed(rec, body, args, kwargs, reached, values) or NEVER
    try:
        made = found.again(rec, values, reached.tensors) if type(found) is Remembered else None
    except Elsewhere:  # what is pending is on another device
        made = None
    return body(*args, **kwargs) if made is None else made[0]


def _first(
    rec: Recorder, key: Any, found: Reached, parts: tuple[Any, ...], body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The first call of its kind. One that warns, or that changes what it reaches or is given, must be done anew each time, and is not rehearsed."""
    before, said = list(map(_memory, found.tensors)), user_code.said
    result = body(*args, **kwargs)
    after = reached(parts)
    same = (
        user_code.said == said and after is not None and after.contents(args, kwargs, rec.grad_enabled) is not None and after.key == found.key
        and all(map(is_, after.tensors, found.tensors)) and all(map(_is_unwritten, found.tensors, before))
    )  # fmt: skip
    if len(_known) >= MOST_KEPT:
        _known.clear()
    _known[key] = ONCE if same else NEVER
    return result


# ---------------------------------------------------------------------- a rehearsal


class _Unknown(Epoch):
    """Where a Value stands that has no content."""

    def force(self, value: Any) -> None:
        """See Epoch."""
        raise Looked


def _unknown(like: Value) -> Value:
    value = Value()
    value.aval, value.array, value.slot, value.epoch, value.counter, value.version = like.aval, None, 0, _Unknown(None), None, 0
    return value


class _Before:
    """What tensors, lists and dicts were, and the generator's state, before a rehearsal."""

    __slots__ = ("contents", "drawn", "containers")

    def __init__(self, tensors: Sequence[Tensor], containers: Sequence[Any]) -> None:
        self.containers = [(c, c.copy()) for c in containers]
        self.contents = [
            (t, t._value, t._storage, None if t._storage is None else (t._storage.value, t._storage.counter.version)) for t in tensors
        ]  # fmt: skip
        self.drawn = state_of_random()

    def put_back(self) -> None:
        """Let them be that again."""
        for t, value, storage, content in self.contents:
            t._value, t._storage = value, storage
            if storage is not None and content is not None:
                storage.value, storage.counter.version = content
        if not np.array_equal(state_of_random(), self.drawn):
            set_state_of_random(self.drawn)
        for container, content in self.containers:  # a look may have ended what would have put them back
            if not _are_same(container, content):
                container.clear()
                (container.extend if type(container) is list else container.update)(content)


def _are_same(a: Any, b: Any) -> bool:
    """Whether two lists or dicts have the same objects in the same order."""
    if type(a) is list:
        return len(a) == len(b) and all(map(is_, a, b))
    return list(a) == list(b) and all(map(is_, a.values(), b.values()))


def _take_content(tensors: Sequence[Tensor], values: Sequence[Value], unknown: dict[int, Value]) -> None:
    """Let the tensors hold, in place of `values`, those that stand for them in `unknown`."""
    for t, value in zip(tensors, values, strict=True):
        stand_in = unknown[id(value)]
        if t._storage is None:
            t._value = stand_in
        else:
            stand_in.counter, stand_in.version = value.counter, value.version
            t._storage.value = stand_in


def _rehearsed(
    rec: Recorder, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], reached: Any, values: Sequence[Value]
) -> Remembered | None:
    """The call as one operation, found without computing anything; None where it must be done anew each time. A view among the arguments is given
    as a tensor on a memory of its own, from which it differs in nothing that the function may see."""
    tensors: list[Any] = reached.tensors
    plain = {id(t): wrap(v) for t, v in zip(tensors, values, strict=True) if t._view is not None}
    if plain:
        tensors = [plain.get(id(t), t) for t in tensors]
        leaves, spec = tree_flatten((args, kwargs))
        args, kwargs = spec.unflatten([plain.get(id(leaf), leaf) for leaf in leaves])
    unknown = {id(v): _unknown(v) for v in values}
    scratch, before, noted = Rehearsal(rec), _Before(tensors, reached.containers), NotingNodes()
    scratch.level, scratch.rare = noted, 1
    found = None
    # No `return` in here: an interrupt at one would go past what puts all back.
    try:
        try:
            per_thread.recorder = scratch
            _take_content(tensors, values, unknown)
            result = _called(lambda: body(*args, **kwargs), tensors, before, noted)
        finally:
            before.put_back()
        if result is not None:
            found = _remembered(scratch, noted, *result, tensors, [unknown[id(v)] for v in values])
    except (Exception, Looked) as error:
        if from_outside(error):
            raise
    finally:
        before.put_back()  # an interrupt may have come while that was done
        per_thread.recorder = rec
        scratch.close()
    return found


def _called(body: Callable[[], Any], tensors: Sequence[Tensor], before: _Before, noted: NotingNodes) -> tuple[list[Any], TreeSpec] | None:
    """The leaves of what `body` returns, and their structure; None where it writes, draws random numbers, or returns what cannot be made anew."""
    memories = list(map(_memory, tensors))
    result = body()
    if not all(map(_is_unwritten, tensors, memories)) or not np.array_equal(state_of_random(), before.drawn):
        return None
    leaves, spec = tree_flatten(result)
    results = [t for t in leaves if isinstance(t, Tensor)]
    if not (results and is_plain(spec) and all([_is_new(t, noted) for t in results])) or _share(results, tensors):
        return None
    return leaves, spec


def _memory(t: Tensor) -> tuple[Any, Any, int, Value]:
    storage = t._storage
    return storage, None if storage is None else storage.counter, t._version, t._content()


def _is_unwritten(t: Tensor, before: tuple[Any, Any, int, Value]) -> bool:
    """Whether nothing was written into a tensor since then: not running statistics, whose writes only change the counter. It may have a storage now,
    which is made when one is first asked for."""
    storage, counter, version, value = before
    if t._version != version:
        return False
    if storage is not None:
        return t._storage is storage and storage.counter is counter
    now = t._content()
    return now is value or (now.array is value.array and (now.array is not None or (now.epoch is value.epoch and now.slot == value.slot)))


def _is_new(t: Tensor, noted: NotingNodes) -> bool:
    """Whether a result may be made anew of its content, its order in memory, and its node."""
    return type(t) is Tensor and t._extra is None and not t.is_inference() and (not t._rg or t._node in noted.slots)


def _share(results: Sequence[Tensor], tensors: Sequence[Tensor]) -> bool:
    """Whether one of the results lies in the memory of another, or of a tensor that was given."""
    own = [t._storage for t in results if t._storage is not None]
    return len(set(map(id, own))) < len(own) or not {id(s) for s in own}.isdisjoint([id(t._storage) for t in tensors])


def _remembered(
    scratch: Rehearsal, noted: NotingNodes, leaves: list[Any], spec: TreeSpec, tensors: Sequence[Tensor], given: list[Value]
) -> Remembered | None:
    results = []
    for t in leaves:
        if isinstance(t, Tensor):
            results += [t] if (memory := _memory_of(t)) is None else [t, wrap(memory)]
    outs = [t._read() for t in results]
    if any([v.array is not None and is_tracer(v.array) for v in outs]):
        return None
    orders = [_Place.of(t) if isinstance(t, Tensor) else t for t in leaves]
    if any([t._rg for t in results]) or any([s.signature.check is not None for s in scratch.steps]):
        return Remembered(Replay(scratch, noted, results, tensors, given), orders, spec)
    found = composed("transform", scratch, outs, list({id(v): v for v in given}.values()))
    if found is None:
        return None
    kept = [index for index, v in enumerate(given) if v not in given[:index]]
    return Remembered(_AsOne(found.whole, kept, (*found.constants, *found.numbers)), orders, spec)


def _memory_of(t: Tensor) -> Value | None:
    """The content of a result's memory where it is not all of it, one element after the other: as that of what is expanded."""
    return None if t._storage is None or dense_order(t._aval.shape, t._strides()) is not None else t._storage.peek()


class _Place(NamedTuple):
    """In place of a tensor among results: the order of its dimensions in memory, () for row-major order; view: how it lies in memory otherwise, which
    is a result of its own."""

    order: tuple[int, ...]
    view: Any

    @classmethod
    def of(cls, t: Tensor) -> _Place:
        """The place of a result."""
        if _memory_of(t) is not None:
            return cls((), t._view)
        return cls(() if t.is_contiguous() else dense_order(t._aval.shape, t._strides()) or (), None)

    def taken(self, made: Iterator[Tensor]) -> Tensor:
        """The next result, in its place."""
        t = next(made)
        if self.view is not None:
            be_part(t, next(made)._value, self.view)
        return lay_out(t, self.order) if self.order else t


class _AsOne:
    """A call as one operation. kept: which of the Values that it is given are its operands. more: its further operands, constants and numbers."""

    __slots__ = ("whole", "kept", "more")

    def __init__(self, whole: Composite, kept: list[int], more: tuple[Any, ...]) -> None:
        self.whole, self.kept, self.more = whole, kept, more

    def again(self, rec: Recorder, values: Sequence[Value], tensors: Sequence[Tensor]) -> Iterator[Tensor]:
        """The results for tensors of these contents."""
        outs: Any = record(rec, self.whole, (*[values[i] for i in self.kept], *self.more))
        return map(wrap, outs if type(outs) is tuple else (outs,))


class Remembered:
    """What a call has recorded. leaves: of its results, the place of each that is a tensor; spec: their structure."""

    __slots__ = ("recorded", "leaves", "spec")

    def __init__(self, recorded: _AsOne | Replay, leaves: list[Any], spec: TreeSpec) -> None:
        self.recorded, self.leaves, self.spec = recorded, leaves, spec

    def again(self, rec: Recorder, values: Sequence[Value], tensors: Sequence[Tensor]) -> tuple[Any] | None:
        """The only result, for tensors of these contents. None where it is to be done in full."""
        made = self.recorded.again(rec, values, tensors)
        if made is None:
            return None
        return (self.spec.unflatten([leaf.taken(made) if type(leaf) is _Place else leaf for leaf in self.leaves]),)


repeating.call = _call
