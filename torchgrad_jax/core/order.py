"""In which order the elements of results lie in memory: an element-wise operation keeps that of its operands, as PyTorch's does.

A tensor that is not in row-major order is a view of a row-major array with its dimensions permuted. That array is made when somebody asks for it:
most results are read as they are and never written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.memory_order import Laid, Order, result_layout, strides_in
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.declaration.strides import contiguous_strides, is_standard
from torchgrad_jax.memory.formats import memory_format, preserve_format
from torchgrad_jax.memory.storage import InferenceStorage, Link, Relayout, Storage, VersionCounter, View, read_through
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.keeping import Memo
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Value

Ints = tuple[int, ...]


class LaidOut(Storage):
    """The memory of a result in another order that nobody has asked for. Its content is the result permuted; with that it becomes a Storage."""

    __slots__ = ()

    def __init__(self, result: Value, into: tuple[Link, ...]) -> None:
        self.pending = result, into
        self.counter = result.counter = VersionCounter()
        result.version = self.writes = self._address = 0
        self.siblings = None

    @property
    def value(self) -> Value:
        """See Storage."""
        pending = self.pending
        if pending is None:  # another thread was quicker
            return _VALUE.__get__(self)
        result, into = pending
        content = read_through(per_thread.recorder, into, result)
        content.counter, content.version = self.counter, self.counter.version
        self.value = content
        return content

    @value.setter
    def value(self, value: Value) -> None:
        _VALUE.__set__(self, value)
        self.pending = None
        self.__class__ = Storage  # type: ignore[assignment]

    def peek(self) -> Value:
        """See Storage."""
        return self.value


_VALUE: Any = Storage.value


@lru_cache(maxsize=4096)
def _arrangement(shape: Ints, order: Ints) -> tuple[tuple[Link, ...], tuple[Link, ...], Ints]:
    """The operations to and from memory in this order, and the strides there."""
    back = tuple([order.index(d) for d in range(len(order))])
    read, into = (registry["permute"].bind((ARRAY, Static(dims))) for dims in (back, order))
    write, write_back = (registry["permute_scatter"].bind((ARRAY, *bound.layout)) for bound in (read, into))
    return (Relayout(read, write, (into, write_back)),), (Link(into, write_back, ()),), strides_in(shape, order)


def arrange(t: Tensor, order: Ints, strides: Ints | None = None) -> Tensor:
    """Give a new tensor, whose memory nobody has asked for, the strides of `order`, or those given, which may have any in dimensions of size 1.
    Returns it."""
    links, into, dense = _arrangement(t._aval.shape, order)
    value, storage = t._value, t._storage
    if storage is not None:  # an inference tensor's
        storage = InferenceStorage(read_through(per_thread.recorder, into, value))
        value.counter, value.version = storage.counter, 0
    else:
        if value.counter is not None:  # a Value belongs to one storage
            value = t._value = per_thread.recorder.alias(value)
        storage = LaidOut(value, into)
    t._storage = storage
    t._view = View(None, links, 0, storage, dense if strides is None else strides, 0, "default")
    return t


def in_rows(t: Tensor) -> Tensor:
    """Give a new tensor, whose memory nobody has asked for, row-major order. Returns it."""
    storage = t._storage
    if type(storage) is LaidOut:
        t._value.counter = t._storage = t._view = None
    elif storage is not None and storage.inference and t._view is not None:
        t._storage, t._view = InferenceStorage(t._value), None
    return t


def _unplaced(t: Tensor) -> bool:
    """Whether nothing was said yet of where a new tensor lies."""
    return t._storage is None or (t._storage.inference and t._view is None)


def plain(t: Tensor) -> bool:
    """Whether the tensor is in row-major order, with the strides of a new tensor."""
    view = t._view
    if view is None:
        return True
    found = view.plain
    if found is None:
        found = view.plain = is_standard(t._aval.shape, view.strides)
    return found


def keep_order(made: Any, operands: Sequence[Any], bound: Any = None) -> None:
    """Lay new results of an operation out as their operands are; without `bound`, a copy as what it is a copy of."""
    several = made if isinstance(made, tuple) else (made,)
    known = Memo() if bound is None else bound.laid_out
    seen: list[Any] = []
    for o in operands:
        if isinstance(o, Tensor):
            t: Tensor = o
            view = t._view
            seen += t._aval, None if view is None else view.strides
        else:
            seen.append(type(o))
    key = tuple(seen)
    layouts = known.get(key)
    if layouts is None:  # to work it out takes 20 calls of Python's
        exactly = bound is None or bound.keeps_order == "exactly"
        laid = tuple([(o._aval.shape, o._strides()) for o in operands if isinstance(o, Tensor)] if exactly else _laid(bound, operands))
        layouts = known.keep(key, [result_layout(t._aval.shape, laid, exactly) for t in several])
    for t, layout in zip(several, layouts, strict=True):
        if layout is not None and _unplaced(t):
            arrange(t, *layout)


def _laid(bound: Any, operands: Sequence[Any]) -> list[Laid]:
    """The shapes and strides that an element-wise operation goes by: a number that stands for a tensor is one, and what has to be converted is copied
    first."""
    converts = bound.operator.promote in ("common", "float")
    common = bound.common_dtype([o._aval if isinstance(o, Tensor) else type(o) for o in operands]) if converts else None
    found: list[Laid] = []
    for o, is_tensor in zip(operands, bound.number_roles(), strict=True):
        if not isinstance(o, Tensor):
            found += [((), ())] if is_tensor else []
            continue
        shape, strides = o._aval.shape, o._strides()
        if common is not None and o._aval.dtype != common:
            copy = result_layout(shape, ((shape, strides),), True)
            strides = contiguous_strides(shape) if copy is None else copy[1]
        found.append((shape, strides))
    return found


def kinds_of(results: Sequence[Tensor], operands: Sequence[Any]) -> tuple[Any, ...]:
    """What tells how `order_by_rule` lays out results of such operands."""
    seen: list[Any] = [t._aval for t in results]
    for o in operands:
        if isinstance(o, Tensor):
            t: Tensor = o
            view = t._view
            seen += t._aval, None if view is None else view.strides
    return tuple(seen)


def order_by_rule(bound: Any, order: Order, made: Any, operands: Sequence[Any]) -> None:
    """Lay new results out by the rules of their operator."""
    several = made if isinstance(made, tuple) else (made,)
    key = kinds_of(several, operands)
    found = bound.laid_out.get(key)
    if found is None:
        laid = tuple([(o._aval.shape, o._strides()) for o in operands if isinstance(o, Tensor)])
        found = bound.laid_out.keep(key, [_by_rule(rule, t._aval.shape, laid, bound) for t, rule in zip(several, order.rules, strict=False)])
    for t, layout in zip(several, found, strict=False):
        if layout is not None and _unplaced(t):
            arrange(t, layout)


def _by_rule(rule: Any, shape: Ints, laid: tuple[Laid, ...], bound: Any) -> Ints | None:
    found = None if rule is None else rule(shape, laid, bound.statics)
    return None if found == tuple(range(len(shape))) else found


def lay_out(t: Tensor, order: tuple[int, ...]) -> Tensor:
    """Give a new tensor, which nobody shares memory with, the strides of `order`. Returns it."""
    own = in_rows(t)._storage
    if (own is not None and not own.inference) or order == tuple(range(len(order))):
        return t
    return arrange(t, order)


def lay_out_as(t: Tensor, format: Any) -> Tensor:
    """Give a new tensor the order of a format; None and `preserve_format` leave it. TypeError for what is no format."""
    if format is None or format is preserve_format:
        return t
    if not isinstance(format, memory_format):
        raise TypeError(f"argument 'memory_format' must be torch.memory_format, not {type(format).__name__}")
    return lay_out(t, format.order(t._aval.ndim))
