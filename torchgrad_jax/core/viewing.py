"""How views are made: strides worked out, the view linked to its base. Each kind of view is worked out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.core import blank
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.elements import bounds, fits, is_whole, number_of
from torchgrad_jax.core.fields import UNREAD, aval_of_tensor, needs_grad
from torchgrad_jax.core.hot import Called, of_one, of_two
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import make_view, view_of
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.declaration.strides import is_by_rows, is_standard
from torchgrad_jax.memory.storage import Asked, Link, Storage, View
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.views import stride_rules
from torchgrad_jax.runtime.keeping import Memo
from torchgrad_jax.runtime.observing import observer
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Value, aval_of

_known = Memo()
_observed = vars(observer)


def begins_somewhere(name: str) -> bool:
    """Whether the second argument of a view operator is a number at run time: where the part begins."""
    return any(p.type == "Index" for p in registry[name].schema.parameters)


class Latest:
    """The view that was made last: of which kind, and by which link. together: the links of those that one operation made last, and as what: the
    arguments of `made_together` from `dim` on."""

    __slots__ = ("known", "link", "together")

    def __init__(self) -> None:
        self.known: Any = None
        self.link: Any = None
        self.together: Any = None


latest = Latest()
_latest = latest  # typed, where this is compiled


class _Known:
    """A view operation on tensors of one aval and stride, with all its arguments but the run-time number: worked out once."""

    __slots__ = ("called", "bound", "link", "strides", "offset", "step", "plain", "rows", "begins")

    def __init__(self, name: str, t: Tensor, arguments: tuple[Any, ...]) -> None:
        rule = stride_rules[name]
        shape, strides = t._aval.shape, t._strides()
        layout: list[Any] = [Static(a) for a in arguments]
        self.begins = begins = begins_somewhere(name)
        if begins:
            dim, rest = arguments[0], arguments[1:]
            self.strides, self.offset = rule(shape, strides, 0, dim, 0, *rest)
            self.step = strides[dim]
            layout.insert(1, ARRAY)
        else:
            self.strides, self.offset = rule(shape, strides, 0, *arguments)
            self.step = 0
        self.plain: bool | None = None
        self.rows = False
        self.bound = registry[name].bind((ARRAY, *layout))
        self.link = Link(self.bound, None, ())
        self.called = Called(self.bound, name, None, begins)


def mode_without_history() -> str:
    """`View.made_in` of a view made while no graph is recorded."""
    return "inference" if per_thread.recorder.inference else "no_grad"


def viewed(name: str, t: Tensor, *arguments: Any) -> Tensor:
    """The view `name` of `t` with canonical arguments in the schema's order."""
    return viewed_as(name, t, arguments)


def viewed_as(name: str, t: Tensor, arguments: tuple[Any, ...]) -> Tensor:
    """`viewed`, by a tuple of the arguments."""
    return made_again(_known_view(name, t, arguments), t, None)


def part_of(name: str, t: Tensor, begin: int, arguments: tuple[Any, ...]) -> Tensor:
    """The view `name`, select or slice, of what begins at `begin`. arguments: the others, canonical and in the schema's order."""
    return made_again(_known_view(name, t, arguments), t, begin)


def made_again(known: _Known, t: Tensor, begin: int | None) -> Tensor:
    """A view of a kind that is known, of what begins at `begin`; None for a kind that does not begin anywhere."""
    plainly = type(t) is Tensor or type(t) is Parameter
    if begin is None:
        out = of_one(known.called, t) if plainly else apply(known.bound, (t,))
        return _made(t, known, out, (known.link,), known.offset)
    out = of_two(known.called, t, begin) if plainly else apply(known.bound, (t, begin))
    link: Link = blank.link(Link)
    link.read, link.write, link.numbers = known.bound, None, (begin,)
    return _made(t, known, out, (link,), known.offset + begin * known.step)


def indexed(t: Tensor, keys: tuple[Any, ...]) -> Tensor | None:
    """The view of `t` that ints, slices of ints, None and ... make. None where that is for the general way to say: other keys, errors, all of `t`."""
    shape = aval_of_tensor(t).shape
    used = count = 0
    for k in keys:
        kind = type(k)
        if kind is Tensor:
            keys = tuple([_place(k) if type(k) is Tensor else k for k in keys])
            return None if Tensor in map(type, keys) else indexed(t, keys)
        if kind is int or kind is slice:
            used += 1
        elif k is Ellipsis:
            count += 1
        elif k is not None:
            return None
    if used > len(shape) or count > 1 or View.replayed_somewhere:
        return None
    return _chosen_by(t, keys, len(shape) - used)


def _one_by_one(t: Tensor, keys: tuple[Any, ...]) -> Tensor | None:
    """The view that keys make which fit the tensor, each a view of the one before; None for all of it."""
    out = t
    begins: list[Any] = []
    for name, arguments in _operations(keys, t._aval.shape, begins):
        out = viewed_as(name, out, arguments) if name == "unsqueeze" else part_of(name, out, begins.pop(0), arguments)
    return None if out is t else out


def _operations(keys: tuple[Any, ...], shape: tuple[int, ...], begins: list[Any]) -> list[tuple[str, tuple[Any, ...]]]:
    """The views, one of another, that keys which fit a shape make, without the numbers where they begin, which `begins` gets."""
    found: list[tuple[str, tuple[Any, ...]]] = []
    dim = own = 0
    for k in keys:
        if type(k) is int:
            begins.append(k + shape[own] if k < 0 else k)
            found.append(("select", (dim,)))
            own += 1
        elif k is None:
            found.append(("unsqueeze", (dim,)))
            dim += 1
        elif k is Ellipsis:
            several = len(shape) - sum([k is not None for k in keys]) + 1
            dim += several
            own += several
        else:
            first, length, step = bounds(k, shape[own])
            if not is_whole(k, shape[own]):
                begins.append(first)
                found.append(("slice", (dim, length, step)))
            dim += 1
            own += 1
    return found


class _Chosen:
    """How ints, slices, None and ... choose a part of tensors of one aval and stride: by these views, one of another, and a Value of the part's aval,
    which is nobody's content."""

    __slots__ = ("knowns", "value")

    def __init__(self, t: Tensor, keys: tuple[Any, ...]) -> None:
        self.knowns: list[Any] = []
        aval = t._value.aval
        for name, arguments in _operations(keys, aval.shape, []):
            known = _known_view(name, t, arguments)
            dim, before = arguments[0], aval.shape
            own = () if name == "select" else (1,) if name == "unsqueeze" else (arguments[1],)
            aval = aval_of((*before[:dim], *own, *before[dim + (name != "unsqueeze") :]), aval.dtype, aval.device)
            _note_order(known, aval.shape)
            self.knowns.append(known)
            t = wrap(_of_aval(aval))
            view: Any = blank.view(View)
            t._view, view.strides = view, known.strides
        self.value = t._value


def _of_aval(aval: Any) -> Value:
    value = Value()
    value.aval = aval
    return value


_chosen = Memo()
# What stands for a key that is no slice.
_OF_INT, _OF_NONE, _OF_SEVERAL, _OF_WHOLE = -1, -2, -3, -4


def _chosen_by(t: Tensor, keys: tuple[Any, ...], several: int) -> Tensor | None:
    """The view of `t` that ints, slices, None and ..., which stands for `several` dimensions, make; None where that is all of it, or they do not fit.
    Where no graph follows it is recorded when somebody reads it: most elements, and many parts, are written to, or looked at where they lie."""
    parent, rec = t._view, per_thread.recorder
    begins: list[Any] = []
    layout = _layout(keys, aval_of_tensor(t).shape, several, begins)
    if layout is None:
        return None
    if rec.rare or rec.inference or _observed["active"] or type(t._shared() if t._storage is None else t._storage) is not Storage:
        return _one_by_one(t, keys)
    key = (layout, t._value.aval, None if parent is None else parent.strides)
    found = _chosen.get(key)
    kind: _Chosen = _chosen.keep(key, _Chosen(t, keys)) if found is None else found
    if not kind.knowns:
        return None
    follows = rec.grad_enabled and (t._rg if parent is None else needs_grad(t))
    return _followed(t, kind.knowns, begins) if follows else _unread(rec, t, kind, begins)


def _followed(t: Tensor, knowns: list[Any], begins: list[Any]) -> Tensor:
    out, place = t, 0
    for known in knowns:
        out = made_again(known, out, begins[place] if known.begins else None)
        place += known.begins
    return out


def _unread(rec: Any, t: Tensor, kind: _Chosen, begins: list[Any]) -> Tensor:
    parent, links, place = t._view, [], 0
    offset = 0 if parent is None else parent.offset
    known: Any = None
    for known in kind.knowns:
        offset += known.offset
        if known.begins:
            begin = begins[place]
            link: Link = blank.link(Link)
            link.read, link.write, link.numbers = known.bound, None, (begin,)
            links.append(link)
            offset += begin * known.step
            place += 1
        else:
            links.append(known.link)
    out = wrap(kind.value)
    view = view_of(t, tuple(links), known.strides, offset, "default" if rec.grad_enabled else "no_grad")
    view.seen, view.plain, view.rows = UNREAD, known.plain, known.rows
    out._view, out._storage = view, t._storage
    return out


def _layout(keys: tuple[Any, ...], shape: tuple[int, ...], several: int, begins: list[Any]) -> Any:
    """What keys are, but for the numbers where they begin, which `begins` gets: how many there are where all are ints. None where they do not fit."""
    found: list[Any] = []
    own = numbers = 0
    try:
        for k in keys:
            if k is None:
                found.append(_OF_NONE)
            elif k is Ellipsis:
                found.append(_OF_SEVERAL)
                own += several
            elif type(k) is int:
                n, begin = shape[own], k
                if begin < 0:
                    begin += n
                if not 0 <= begin < n:
                    return None
                begins.append(begin)
                found.append(_OF_INT)
                own += 1
                numbers += 1
            elif not fits(k, n := shape[own]):
                return None
            else:
                if is_whole(k, n):
                    found.append(_OF_WHOLE)
                else:
                    first, length, step = bounds(k, n)
                    begins.append(first)
                    found += (length, step)
                own += 1
    except OverflowError:  # C's numbers are shorter than Python's
        return None
    return numbers if numbers == len(keys) else tuple(found)


class Beside:
    """What picks from a part of a tensor along a dimension, which `functions/indexing.py` puts here: see `part_beside`."""

    __slots__ = ("along",)
    along: Any

    def __init__(self) -> None:
        self.along = None


beside = Beside()
_beside = beside  # typed, where this is compiled


def picked_beside(t: Tensor, keys: tuple[Any, ...]) -> Tensor | None:
    """``t[keys]`` where one of the keys is a tensor of integers: see `part_beside`."""
    found = part_beside(t, keys)
    return None if found is None else _beside.along(*found)


def part_beside(t: Tensor, keys: tuple[Any, ...]) -> tuple[Tensor, Tensor, int] | None:
    """Of keys among which there is one tensor, of integers: the part of `t` that the others make, which are ints, slices of ints, None and ..., that
    tensor, and the dimension of the part that it picks of. None where that is for the general way to say: other keys, errors, all of `t`."""
    index: Any = None
    at = i = used = dim = several = 0
    for k in keys:
        if type(k) is Tensor:
            if index is not None:
                return None
            index, at = k, i
        if k is not None and k is not Ellipsis:
            used += 1
        i += 1  # noqa: SIM113 - a number of C's
    if index is None or index._aval.dtype != _INT64 or not index._aval.ndim:
        return None
    for k in keys[:at]:
        if k is Ellipsis:
            several = len(t._aval.shape) - used
        elif type(k) is not int:
            dim += 1
    part = indexed(t, (*keys[:at], _ALL, *keys[at + 1 :]))
    return None if part is None else (part, index, dim + several)


_ALL, _INT64 = slice(None), np.dtype(np.int64)


def _place(k: Tensor) -> Any:
    """The int that a 0-dim tensor of integers is, if that is known; else itself."""
    aval = k._aval
    if aval.ndim or aval.dtype.kind not in "iu" or aval.dtype == np.uint8:
        return k
    found = number_of(per_thread.recorder, k, aval.dtype)
    return found if found is not None else k.__index__() if k._content().readable else k


def made_together(t: Tensor, outs: tuple[Tensor, ...], dim: int, parts: list[tuple[int, int]], drop: bool, node: str) -> tuple[Tensor, ...]:
    """`outs`, which one operation has made, as views of the ``(begin, length)`` of a dimension. drop: without that dimension, of length 1 each. node:
    the operation's name in graphs."""
    made: list[Any] = []
    links: list[Any] = []
    known, last = None, 0
    for out, (begin, length) in zip(outs, parts, strict=True):
        if known is None or length != last:
            known = _known_view("select", t, (dim,)) if drop else _known_view("slice", t, (dim, length, 1))
            last = length
        link: Link = blank.link(Link)
        link.read, link.write, link.numbers = known.bound, None, (begin,)
        made.append(_made(t, known, out, (link,), known.offset + begin * known.step, node))
        links.append(link)
    _latest.together = links, (dim, parts, drop, node)
    return tuple(made)


def view_by_name(name: str, t: Tensor, *arguments: Any) -> Tensor:
    """Any view of `t` with canonical arguments in the schema's order."""
    if not begins_somewhere(name):
        return viewed(name, t, *arguments)
    dim, begin, *rest = arguments
    return part_of(name, t, begin, (dim, *rest))


def _known_view(name: str, t: Tensor, arguments: tuple[Any, ...]) -> _Known:
    parent = t._view
    key = (name, arguments, t._value.aval, None if parent is None else parent.strides)
    known = _known.get(key)
    if known is None:
        if parent is not None:
            t._read()  # a view that autograd cannot follow any more says so before anything else
        known = _known.keep(key, _Known(name, t, arguments))
    return known


def known_as(bound: Any, t: Tensor) -> Any:
    """The kind of view that an operation, bound, is of a tensor."""
    name = bound.operator.name
    return _known_view(name, t, tuple(bound.statics.values()))


def _made(t: Tensor, known: _Known, out: Tensor, links: tuple[Link, ...], offset: int, node: str = "default") -> Tensor:
    parent, rec = t._view, per_thread.recorder
    if parent is not None:
        offset += parent.offset
    made_in = node if rec.grad_enabled else "inference" if rec.inference else "no_grad"
    make_view(rec, t, out, links, known.strides, offset, made_in)
    view: Any = out._view
    if known.plain is None:
        _note_order(known, out._aval.shape)
    view.plain, view.rows = known.plain, known.rows
    _latest.known, _latest.link = known, links[-1]
    return out


def _note_order(known: _Known, shape: tuple[int, ...]) -> None:
    known.plain = is_standard(shape, known.strides)
    known.rows = known.plain or is_by_rows(known.strides)


def asked_for(made: Tensor, of: Tensor, again: Callable[[Tensor, Any], Tensor]) -> None:
    """Let `made`, a view of `of` whose operations are done again where it is needed of another base, be asked for as it was; see Asked."""
    view, parent = made._view, of._view
    if view is None or not view.replay or not view.links:
        return
    last = view.links[-1]
    if isinstance(last, Asked):
        count = last.count
    elif view.base is of:
        count = len(view.links) - view.skip
    else:
        count = len(view.links) - (0 if parent is None else len(parent.links))
    if count > 0:
        view.links = (*view.links[:-1], Asked(last, again, count))


def refuse_lost(t: Tensor) -> None:
    """RuntimeError for a view that autograd cannot follow any more: it says so before anything else is said of it."""
    if per_thread.recorder.grad_enabled and t.requires_grad:
        t._present_node()


def _turns(input: Tensor) -> list[str]:
    """What the tensor's view operations do to the sign of an imaginary part: its operations that conjugate, or take one part of two."""
    links = () if input._view is None else input._view.links
    return [x.read.name if x.read.name != "select" else str(x.numbers[0]) for x in links if x.read.name in ("_conj", "view_as_real", "select")]


def is_conj(input: Tensor) -> bool:
    """Whether this is a view that shows the conjugate of what is in memory."""
    return input._aval.dtype.kind == "c" and _turns(input).count("_conj") % 2 == 1


def is_neg(input: Tensor) -> bool:
    """Whether this is a view that shows the negative of what is in memory: the imaginary part of a conjugated view."""
    turns = _turns(input)
    if input._aval.dtype.kind != "f" or "view_as_real" not in turns:
        return False
    at = turns.index("view_as_real")
    return turns[:at].count("_conj") % 2 == 1 and turns[at + 1 : at + 2] == ["1"]
