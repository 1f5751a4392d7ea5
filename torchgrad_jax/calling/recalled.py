"""Calls like one that was made before: what that came to is recorded again, without working out anew what the arguments mean.

Many public functions choose, check and convert, and come to one operation in the end: which one is told by the shapes, dtypes and strides of their
tensors and by their other arguments, whatever the tensors hold. Working that out in Python takes several times as long as recording the operation. So
a guard (`guards.py`) looks here first; what a call came to is read off the program that is pending, without the help of the function: one operation
was recorded, of these arguments, and its results were returned. What a function that writes came to is told by the place where all writes go
(`Recorder.writes`). Compiled where there is a compiler (`torchgrad_jax/_typed`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import copysign
from typing import Any

from torchgrad_jax.calling.entries import PATIENCE, Calls, Entry, Like, Part, Several, mark, told_of
from torchgrad_jax.calling.learning import begin_write, learn, learn_write
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.fields import content_of, needs_grad
from torchgrad_jax.core.hot import Called, of_one, of_two, write_plainly
from torchgrad_jax.core.made import created
from torchgrad_jax.core.order import LaidOut, in_rows, lay_out
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import known_as, made_again, made_together
from torchgrad_jax.memory.storage import Storage, View
from torchgrad_jax.runtime import device as devices
from torchgrad_jax.runtime import user_code
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.value import Value, constant

# For how many calls it is not looked for any more what they come to, once that was given up.
PAUSE = 4_000
_warnings, _devices = vars(user_code), vars(devices)


def recalling(function: Callable[..., Any], bounds: bool = False, writes: bool = False) -> Callable[..., Any]:
    """A function of the library's own as calls of public ones are: recalled. bounds, writes: see Calls."""
    calls = Calls(bounds, writes=writes)

    def call(*args: Any, **kwargs: Any) -> Any:
        return recall(calls, function, args, kwargs)

    return call


def recall(calls: Calls, otherwise: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of the function `otherwise`."""
    rec: Recorder = per_thread.recorder
    # In a rehearsal numbers are told apart by being different objects, which those of what is remembered are not.
    if rec.rare or rec.inference or type(rec) is not Recorder or (calls.makes and (rec.device is not CPU or _devices["_default"] is not CPU)):
        return otherwise(*args, **kwargs)
    if calls.left <= 0:
        calls.left -= 1
        if calls.left < -PAUSE:
            calls.left = PATIENCE
        return otherwise(*args, **kwargs)
    got: list[Any] = []
    found = _found(calls, rec.grad_enabled, args, kwargs, got)
    if calls.writes:
        return _written(calls, rec, found, got, otherwise, args, kwargs)
    if found is not None:
        if found.bound is None:
            if found.parts is not None and not View.replayed_somewhere:
                made = _in_parts(found, got)
                if made is not None:
                    return made
            return otherwise(*args, **kwargs) if found.array is None else _with_content(found.array)
        if found.known is None and found.together is None:
            return _again(found, got)
        if not View.replayed_somewhere:
            of = got[found.places[0]]
            if found.known is not None:
                return made_again(found.known, of, found.begin)
            made = made_together(of, apply(found.bound, (of,)), *found.together)
            return made if found.wrap is None else found.wrap(made)
        return otherwise(*args, **kwargs)
    epoch, said = rec.epoch, _warnings["said"]
    for a in (*args, *kwargs.values()):  # what is recorded when they are read is no part of the call
        for each in a if type(a) is list or type(a) is tuple else (a,):
            if type(each) is Tensor:
                content_of(each)
    before, outer = epoch.step, rec.writes
    rec.writes = writes = []  # what is written to an argument, as rows of an embedding's weight are, is no part of what is learned
    try:
        made = otherwise(*args, **kwargs)
    finally:
        rec.writes = outer
    if outer is not None:
        outer.extend(writes)
    calls.left -= 1
    if rec.epoch is epoch and (epoch.step is not before or calls.makes) and not (rec.rare or writes) and _warnings["said"] == said:
        learn(calls, epoch, before, args, kwargs, made)
    return made


def _written(
    calls: Calls, rec: Recorder, found: Any, got: list[Any], otherwise: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`recall` of what writes to its first argument. found, got: see `_found`."""
    if found is not None:
        known: Entry = found
        made = write_plainly(known.bound, tuple(_operands(known, got)))
        return None if known.silent else made
    if rec.writes is not None:  # somebody else asks
        return otherwise(*args, **kwargs)
    calls.left -= 1
    begun = begin_write(calls, rec.grad_enabled, args, kwargs)
    if begun is None:
        return otherwise(*args, **kwargs)
    said = _warnings["said"]
    rec.writes = writes = []
    try:
        made = otherwise(*args, **kwargs)
    finally:
        rec.writes = None
    if not rec.rare and _warnings["said"] == said:
        learn_write(calls, begun, writes, made, args)
    return made


# ---------------------------------------------------------------------- what is known


def _found(calls: Calls, follows: bool, args: tuple[Any, ...], kwargs: dict[str, Any], got: list[Any]) -> Any:
    """The Entry of a call, None where there is none. got: where its tensors go, in order."""
    last: Entry = calls.last
    if last is None:
        return None
    entry: Entry = last.after
    if entry is not None and entry.follows == follows and _fits(entry, args, kwargs, got):
        calls.last = entry
        return entry
    alike: list[Entry] | None = calls.entries.get(mark(args))
    if alike is None:
        return None
    for entry in alike:
        got.clear()
        if entry.follows == follows and _fits(entry, args, kwargs, got):
            if calls.left < PATIENCE:
                calls.left += 1
            last.after = calls.last = entry
            return entry
    return None


def _fits(entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], got: list[Any]) -> bool:
    known = entry.args
    if len(known) != len(args) or len(entry.names) != len(kwargs):
        return False
    if not _are_alike(known, args, got):
        return False
    if kwargs and (tuple(kwargs) != entry.names or not _are_alike(entry.values, kwargs.values(), got)):
        return False
    return entry.twins is None or _are_twins(entry.twins, got)


def _are_twins(twins: tuple[Any, ...], got: list[Any]) -> bool:
    for first, again in twins:  # noqa: SIM110 - a loop of C's
        if got[first] is not got[again]:
            return False
    return True


def _are_alike(items: tuple[Any, ...], values: Any, got: list[Any]) -> bool:
    i = 0
    for value in values:
        if not _alike(items[i], value, got):
            return False
        i += 1  # noqa: SIM113 - a number of C's
    return True


def _alike(item: Any, value: Any, got: list[Any]) -> bool:
    """Whether an argument is as one was before."""
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        if type(item) is not Like:
            return False
        like: Like = item
        t: Tensor = value
        view, storage = t._view, t._storage
        if storage is not None and type(storage) is not Storage and type(storage) is not LaidOut:
            return False
        if view is None:
            aval = t._value.aval if storage is None else storage.value.aval
            if like.strides is not None:
                return False
        else:
            aval = t._value.aval
            strides = None if view.plain else view.strides
            if like.strides is not strides and like.strides != strides:
                return False
        if aval is not like.aval or (t._rg if view is None else needs_grad(t)) != like.needs:
            return False
        if like.known is not None and not _is_within(like, told_of(value)):
            return False
        got.append(value)
        return True
    if item is value:
        return True
    if kind is int or kind is bool:
        return type(item) is kind and item == value
    if type(item) is Several:
        several: Several = item
        if kind is slice and several.kind is slice:
            return _are_alike(several.items, (value.start, value.stop, value.step), got)
        if several.kind is not kind or len(several.items) != len(value):
            return False
        return _are_alike(several.items, value, got)
    if type(item) is not kind or item != value:
        return False
    return kind is not float or value != 0.0 or copysign(1.0, item) == copysign(1.0, value)


def _is_within(like: Like, content: Value) -> bool:
    """Whether as much is known of what a tensor of integers holds, and that is no more."""
    if content.array is None:
        return not like.known
    found = content.known_bounds()
    return like.known is (found is not None) and (found is None or (like.low <= found[0] and found[1] <= like.high))


def _with_content(content: Value) -> Any:
    made: Any = constant(content.array, content.aval)
    made.bounds = getattr(content, "bounds", None)
    return created(made)


def _again(entry: Entry, got: list[Any]) -> Any:
    """Record the operation of an Entry of these tensors."""
    called: Called = entry.called
    if called is not None:
        if len(entry.places) == 1:
            return of_one(called, got[entry.places[0]])
        second = entry.places[1]
        return of_two(called, got[entry.places[0]], got[second] if second >= 0 else entry.numbers[0])
    made = apply(entry.bound, _operands(entry, got))
    if entry.pick >= 0:
        made = made[entry.pick]
    if entry.order is not None:
        return lay_out(made, entry.order)
    return made if entry.wrap is None else tuple.__new__(entry.wrap, made) if entry.named else entry.wrap(made)


def _in_parts(entry: Entry, got: list[Any]) -> Any:
    """Record the operations of an Entry, one after the other, of these tensors, to which it adds the results. None where a part is no view by
    itself: its function looks at contents, however they lie."""
    for p in entry.parts:
        part: Part = p
        called: Called = part.called
        first = got[part.places[0]]
        if part.viewing:
            if part.known is None:
                try:
                    part.known = known_as(part.bound, first)
                except RuntimeError:
                    entry.parts = None
                    return None
            made = made_again(part.known, first, part.begin)
        elif called is None:
            made = apply(part.bound, _of(part.places, part.numbers, got))
        elif len(part.places) == 1:
            made = of_one(called, first)
        else:
            second = part.places[1]
            made = of_two(called, first, got[second] if second >= 0 else part.numbers[0])
        got.append(in_rows(made) if part.in_rows else made)
    return got[-1]


def _operands(entry: Entry, got: list[Any]) -> list[Any]:
    return _of(entry.places, entry.numbers, got)


def _of(places: tuple[int, ...], numbers: tuple[Any, ...], got: list[Any]) -> list[Any]:
    operands: list[Any] = []
    i = 0
    for place in places:
        if place >= 0:
            operands.append(got[place])
        else:
            operands.append(numbers[i])
            i += 1
    return operands
