"""What a call came to, read off the program that is pending: see `recalled.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.calling.entries import MANY, PATIENCE, Calls, Entry, Like, Several, mark, told_of
from torchgrad_jax.calling.return_types import ReturnType
from torchgrad_jax.calling.several import called_of, parts_of, slots_of
from torchgrad_jax.core.fields import needs_grad
from torchgrad_jax.core.order import LaidOut, kinds_of, plain
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.core.viewing import latest
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.memory_order import dense_order
from torchgrad_jax.memory.formats import memory_format
from torchgrad_jax.memory.storage import Storage
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.recording.epoch import Epoch
from torchgrad_jax.runtime.recording.step import Step
from torchgrad_jax.runtime.value import Value

# How many kinds of calls are known of one function, and how many whose first tensors are alike: among these the right one is looked for.
MOST, MOST_ALIKE = 512, 32
# Arguments that are the same next time if they are equal and of one class.
_PLAIN = frozenset((int, bool, float, str, type(None), dtypes.dtype, device, memory_format, type, type(Ellipsis)))
_SEQUENCES = frozenset((tuple, list, Size))
# Operators that make several views.
_TOGETHER = frozenset(("split", "split_with_sizes", "unbind"))
# How often one looks again at calls with a mark of which it was not told what they came to.
_TRIES = 4
# Of what is made of no tensor, contents of so many bytes are kept.
_SMALL = 1 << 12


class _Unlike(Exception):
    """An argument is of a kind of which there may be others that look the same."""


def _item(value: Any, tensors: list[Any], bounds: bool) -> Any:
    """What stands for an argument in an Entry."""
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        tensors.append(value)
        view, storage = value._view, value._storage
        if storage is not None and type(storage) is not Storage and type(storage) is not LaidOut:
            raise _Unlike
        like = Like(value._aval, None if view is None or view.plain else view.strides, needs_grad(value))
        if bounds and value._aval.dtype.kind in "iu" and value._aval.size:
            _note_bounds(like, told_of(value))
        return like
    if kind in _SEQUENCES:
        return Several(kind, tuple([_item(v, tensors, bounds) for v in value]))
    if kind is slice:
        parts = (value.start, value.stop, value.step)
        if all([n is None or type(n) is int for n in parts]):
            return Several(slice, parts)
    if kind not in _PLAIN or value != value:
        raise _Unlike
    return value


def _note_bounds(like: Like, content: Value) -> None:
    found = None if content.array is None else content.known_bounds()
    like.known = found is not None
    if found is not None:
        if found[0] < 0:  # it may stand for something else, as for what is to be ignored
            raise _Unlike
        like.low, like.high = 0, found[1]


def learn(calls: Calls, epoch: Epoch, before: Step, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any) -> None:
    """Take note of what a call came to since the Step `before`, and that it may not be done again where it was not one operation."""
    tensors: list[Any] = []
    try:
        items = tuple([_item(a, tensors, calls.bounds) for a in args])
        named = tuple([_item(a, tensors, calls.bounds) for a in kwargs.values()])
    except _Unlike:
        return
    entry = Entry(items, tuple(kwargs), named, epoch.recorder.grad_enabled)
    entry.twins = _twins(tensors)
    if (calls.joins and len(tensors) >= MANY) or (calls.divides and _is_asked(args[1] if len(args) > 1 else kwargs.get("other"))):
        entry.bound = None
    elif not _read_off(entry, epoch, before, tensors, made, calls):
        entry.bound = None
        if entry.array is None and entry.parts is None and _may_be_clearer(calls, args):
            return
    _keep(calls, entry, args)


def _may_be_clearer(calls: Calls, args: tuple[Any, ...]) -> bool:
    """Whether the next call may tell more: of other tensors, or of views that are up to date. It is counted how often that was said of a mark."""
    if calls.left <= PATIENCE // 2:
        return False
    marked = mark(args)
    tried = calls.unclear.get(marked, 0)
    if len(calls.unclear) >= MOST:
        calls.unclear.clear()
    calls.unclear[marked] = tried + 1
    return tried < _TRIES


def _is_asked(divisor: Any) -> bool:
    """Whether a divisor's elements are asked for."""
    return isinstance(divisor, Tensor) and divisor._aval.dtype.kind in "iub"


def _twins(tensors: list[Any]) -> Any:
    """The pairs of places, the first one and another, where the same tensor is; None where there are none."""
    at: dict[int, int] = {}
    pairs = [(at[id(t)], i) for i, t in enumerate(tensors) if at.setdefault(id(t), i) != i]
    return tuple(pairs) or None


def _singly(entry: Entry, tensors: list[Any]) -> set[int]:
    """The places of tensors, each tensor's first."""
    return set(range(len(tensors))).difference([again for _, again in entry.twins or ()])


def _keep(calls: Calls, entry: Entry, args: tuple[Any, ...]) -> None:
    if calls.count >= MOST:
        for kept in calls.entries.values():
            del kept[: len(kept) // 2 + 1]
        calls.entries = {which: kept for which, kept in calls.entries.items() if kept}
        calls.count = len(calls.kinds())
    alike = calls.entries.setdefault(mark(args), [])
    if len(alike) >= MOST_ALIKE:
        del alike[0]
        calls.count -= 1
    alike.append(entry)
    calls.count += 1
    if calls.last is not None:
        calls.last.after = entry
    calls.last = entry


def begin_write(calls: Calls, follows: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An Entry for a call of what writes, and its tensors, as they are before; None where there may be others that look the same."""
    tensors: list[Any] = []
    try:
        items = tuple([_item(a, tensors, calls.bounds) for a in args])
        named = tuple([_item(a, tensors, calls.bounds) for a in kwargs.values()])
    except _Unlike:
        return None
    if not tensors or tensors[0] is not args[0] or any([t is tensors[0] for t in tensors[1:]]):
        return None
    entry = Entry(items, tuple(kwargs), named, follows)
    entry.twins = _twins(tensors)
    return entry, tensors


def learn_write(calls: Calls, begun: Any, writes: list[Any], made: Any, args: tuple[Any, ...]) -> None:
    """Take note of what a call came to that has made these writes: whether it was one, of its own tensors and of numbers."""
    entry, tensors = begun
    if len(writes) != 1 or (made is not None and made is not tensors[0]):
        return
    (bound, operands), places, numbers = writes[0], [], []
    for o in operands:
        place = next((i for i, t in enumerate(tensors) if t is o), -1)
        places.append(place)
        if place < 0:
            if isinstance(o, Tensor) and not _is_number(o):
                return
            numbers.append(o)
    if places[0] != 0 or not set(places).issuperset(_singly(entry, tensors)):
        return
    entry.bound, entry.places, entry.numbers, entry.silent = bound, tuple(places), tuple(numbers), made is None
    _keep(calls, entry, args)


def _is_number(t: Any) -> bool:
    """Whether this is a number among the arguments, as a tensor. (What is made of a tensor's elements has dimensions.)"""
    return type(t) is Tensor and t._storage is None and not t._aval.ndim and type(t._value.array) is np.ndarray


def _read_off(entry: Entry, epoch: Epoch, before: Step, tensors: list[Any], made: Any, calls: Calls) -> bool:
    """Complete an Entry by the operation that was recorded. False where it was not one, of these tensors, whose results were returned."""
    step, makes, numbers = epoch.step, calls.makes, epoch.numbers
    if epoch.recorder.epoch is not epoch:  # a signal handler has looked at something, and an epoch that is over has no numbers
        return False
    if makes and len(tensors) > calls.alike:  # those are asked for numbers
        return False
    if step is before:
        return _is_content(entry, made)
    sig = step.signature
    above: Any = step.parent
    while above is not before:
        if above is None or above.signature is not None:
            entry.parts = None if makes or above is None else parts_of(epoch, before, tensors, _singly(entry, tensors), made)
            return False
        above = above.parent
    if sig is None or not _is_returned(entry, epoch, step, made):
        return False
    singly = _singly(entry, tensors)
    slots = slots_of(epoch, tensors, singly)
    places = [slots.get(arg, -1) if type(arg) is int else -2 for arg in step.args]
    if -1 in places or not (makes or (places and set(places).issuperset(singly))):  # a tensor may be asked for a number
        return False
    entry.bound, entry.places = step.bop, tuple([max(place, -1) for place in places])
    entry.numbers = tuple([numbers[place] for place in step.numbers])
    operands = [tensors[place] for place in places if place >= 0]
    arranged = _is_arranged(step, operands, made) or _is_laid_out(entry, step, operands, made)
    if type(made) is Tensor and made._view is not None and not arranged:
        return sig.single and bool(places) and not makes and _is_view(entry, step, tensors, made)
    if type(made) is not Tensor and made[0]._view is not None and not arranged:
        return _are_views(entry, step, tensors, made)
    if not arranged and not all([plain(t) for t in tensors]):  # the order of the result's elements in memory may be the function's to say
        entry.parts = None if makes else parts_of(epoch, before, tensors, singly, made)
        return False
    laid = step.bop.order is not None or entry.order is not None
    if not laid and entry.wrap is None and sig.single:
        entry.called = called_of(step.bop, entry.places, entry.numbers)
    return True


def _is_arranged(step: Step, operands: list[Any], made: Any) -> bool:
    """Whether the results lie in memory as the operator's own rule has it, by which they are laid out wherever it is applied."""
    if step.bop.order is None:
        return False
    results = [made] if type(made) is Tensor else made
    layouts = step.bop.laid_out.get(kinds_of(results, operands))
    if layouts is None:
        return all([t._storage is None for t in results]) and not step.bop.order.always and all(map(plain, operands))
    return all([(t._storage is None) if layout is None else (type(t._storage) is LaidOut) for t, layout in zip(results, layouts, strict=False)])


def _is_laid_out(entry: Entry, step: Step, operands: list[Any], made: Any) -> bool:
    """Complete an Entry by the order that the function has laid its only result out in. False where it has not, or the operator has a rule of its
    own, and for a view of what was laid out before."""
    if type(made) is not Tensor or type(made._storage) is not LaidOut or step.bop.order is not None or step.bop.keeps_order:
        return False
    if any([made._storage is o._storage for o in operands]):
        return False
    entry.order = dense_order(made._aval.shape, made._strides())
    return entry.order is not None


def _is_content(entry: Entry, made: Any) -> bool:
    """Complete an Entry by an array that was made on the host, of no tensor. False where there is none."""
    if type(made) is not Tensor or made._storage is not None or made._extra is not None or made._rg:
        return False
    content = made._value
    if content.epoch is None and type(content.array) is np.ndarray and content.aval.nbytes <= _SMALL:
        entry.array = content
    return False


def _is_returned(entry: Entry, epoch: Epoch, step: Step, made: Any) -> bool:
    """Whether what was returned is what the operation gave, and nothing was done to it."""
    single = step.signature.single
    results, first = made, 0
    if type(made) is Tensor:
        results, first = [made], made._value.slot - step.slot
        entry.pick = -1 if single else first
    elif single or not isinstance(made, (tuple, list)):
        return False
    if not 0 <= first < len(step.signature.avals) or (type(made) is not Tensor and len(results) != len(step.signature.avals)):
        return False
    for i, t in enumerate(results, first):
        if type(t) is not Tensor or t._extra is not None or t._value.epoch is not epoch or t._value.slot != step.slot + i:
            return False
        if t._storage is not None and t._view is None:
            return False
        if t._rg and (t._nr != i or getattr(t._node, "plan", None) is None):
            return False
    if type(made) is not Tensor and type(made) is not tuple:
        entry.wrap = type(made)
        entry.named = isinstance(made, ReturnType)
    return True


def _is_view(entry: Entry, step: Step, tensors: list[Any], made: Any) -> bool:
    """Whether a view is the one that was made last, of the first operand."""
    known, view = latest.known, made._view
    if not step.bop.operator.by_strides:  # where it begins, whether it is conjugated and has a history are asked too
        return False
    if entry.places[0] < 0 or known is None or known.bound is not step.bop or latest.link is not view.links[-1]:
        return False
    parent = tensors[entry.places[0]]._view
    if len(view.links) != 1 + (0 if parent is None else len(parent.links)):
        return False
    entry.known, entry.begin = known, view.links[-1].numbers[0] if view.links[-1].numbers else None
    return True


def _are_views(entry: Entry, step: Step, tensors: list[Any], made: Any) -> bool:
    """Whether several views are those that were made last, of the only operand."""
    if len(tensors) != 1 or latest.together is None or step.bop.operator.name not in _TOGETHER:
        return False
    links, entry.together = latest.together
    return len(links) == len(made) and all([t._view is not None and t._view.links[-1] is link for t, link in zip(made, links, strict=True)])
