"""In which order the elements of results lie in memory: an element-wise operation keeps that of its operands, as PyTorch's does.

A tensor that is not in row-major order is a view of a row-major array with its dimensions permuted. That array is made when somebody asks for it:
most results are read as they are and never written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from torchgrad_jax.ops.declare import ARRAY, Static, registry
from torchgrad_jax.ops.memory_order import Order
from torchgrad_jax.ops.strides import is_contiguous
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Value
from torchgrad_jax.tensor.storage import Link, Storage, VersionCounter, View, read_through
from torchgrad_jax.tensor.tensor import Tensor

Ints = tuple[int, ...]


class LaidOut(Storage):
    """The memory of a result in another order: its content is the result permuted, when it is first asked for."""

    __slots__ = ("result", "into")

    def __init__(self, result: Value, into: tuple[Link, ...]) -> None:
        self.result: Value | None = result
        self.into = into
        self.counter = result.counter = VersionCounter()
        result.version = self.writes = self._address = 0
        self.siblings = None

    @property
    def value(self) -> Value:
        """See Storage."""
        result = self.result
        if result is not None:
            content = read_through(per_thread.recorder, self.into, result)
            content.counter, content.version = self.counter, self.counter.version
            _VALUE.__set__(self, content)
            self.result = None
        return _VALUE.__get__(self)

    @value.setter
    def value(self, value: Value) -> None:
        _VALUE.__set__(self, value)
        self.result = None

    def peek(self) -> Value:
        """See Storage."""
        return self.value


_VALUE: Any = Storage.value


@lru_cache(maxsize=4096)
def _arrangement(shape: Ints, order: Ints) -> tuple[tuple[Link, ...], tuple[Link, ...], Ints]:
    """The operations to and from memory in this order, and the strides there."""
    back = tuple([order.index(d) for d in range(len(order))])
    read, into = (registry["permute"].bind((ARRAY, Static(dims))) for dims in (back, order))
    write = registry["permute_scatter"].bind((ARRAY, *read.layout))
    return (Link(read, write, ()),), (Link(into, write, ()),), strides_in(shape, order)


def arrange(t: Tensor, order: Ints) -> Tensor:
    """Give a new tensor, whose memory nobody has asked for, the strides of `order`. Returns it."""
    if per_thread.recorder.inference:  # its memory counts no versions; it stays row-major
        return t
    links, into, strides = _arrangement(t._aval.shape, order)
    value = t._value
    if value.counter is not None:  # a Value belongs to one storage
        value = t._value = per_thread.recorder.alias(value)
    storage = t._storage = LaidOut(value, into)
    t._view = View(None, links, 0, storage, strides, 0, "default")
    return t


def in_rows(t: Tensor) -> Tensor:
    """Give a new tensor, whose memory nobody has asked for, row-major order. Returns it."""
    if type(t._storage) is LaidOut:
        t._value.counter = t._storage = t._view = None
    return t


def plain(t: Tensor) -> bool:
    """Whether the tensor is in row-major order."""
    view = t._view
    if view is None:
        return True
    found = view.plain
    if found is None:
        found = view.plain = is_contiguous(t._aval.shape, view.strides)
    return found


def keep_order(made: Any, operands: Sequence[Any]) -> None:
    """Lay new results out as their operands are."""
    for t in made if isinstance(made, tuple) else (made,):
        if t._storage is None:
            shape = t._aval.shape
            order = result_order(shape, tuple([(o._aval.shape, o._strides()) for o in operands if isinstance(o, Tensor)]))
            if order is not None:
                arrange(t, order)


def order_by_rule(bound: Any, order: Order, made: Any, operands: Sequence[Any]) -> None:
    """Lay new results out by the rules of their operator."""
    laid = [(o._aval.shape, o._strides()) for o in operands if isinstance(o, Tensor)]
    for t, rule in zip(made if isinstance(made, tuple) else (made,), order.rules, strict=False):
        if rule is not None and t._storage is None:
            shape = t._aval.shape
            found = rule(shape, laid, bound.statics)
            if found is not None and found != tuple(range(len(shape))):
                arrange(t, found)


@lru_cache(maxsize=4096)
def result_order(shape: Ints, operands: tuple[tuple[Ints, Ints], ...]) -> Ints | None:
    """The order of a result's dimensions, slowest first, by PyTorch's rule: that of the operands' strides, the first that tells; None for
    row-major. operands: their shapes and strides."""
    ndim = len(shape)
    if ndim < 2 or 0 in shape or all(is_contiguous(s, strides) for s, strides in operands):
        return None
    known = []
    for own, strides in operands:
        missing = ndim - len(own)
        known.append([0] * missing + [0 if n == 1 != shape[missing + d] else s for d, (n, s) in enumerate(zip(own, strides, strict=True))])

    def faster(a: int, b: int) -> int:
        """Whether dimension `a` is faster in memory than `b` (-1), slower (1), or that cannot be told (0)."""
        for strides in known:
            one, other = strides[a], strides[b]
            if one and other:
                if one != other:
                    return -1 if one < other else 1
                if shape[a] > shape[b]:
                    return 1
        return 0

    order = list(range(ndim - 1, -1, -1))  # fastest first
    for i in range(1, ndim):
        at = i
        for j in range(i - 1, -1, -1):
            told = faster(order[j], order[at])
            if told > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif told < 0:
                break
    found = tuple(reversed(order))
    return None if is_contiguous(shape, strides_in(shape, found)) else found


def strides_in(shape: Ints, order: Ints) -> Ints:
    """The strides, in elements, of dimensions that lie in memory from slowest to fastest as `order` says."""
    found, step = [1] * len(shape), 1
    for d in reversed(order):
        found[d] = step
        step *= max(shape[d], 1)
    return tuple(found)
