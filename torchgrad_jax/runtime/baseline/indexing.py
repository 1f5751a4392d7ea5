"""Gather, scatter and slices that begin where an operand says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline import blocks
from torchgrad_jax.runtime.baseline.cost import AT, CHEAP, INDEXED, weight
from torchgrad_jax.runtime.baseline.rules import Unknown, Writing, rule

# From this length on the rows of a scatter are added one by one.
_LONG_ROW = 128


# ---------------------------------------------------------------------- windows


class _Windows:
    """Windows of an array, one for each index vector, as places in the array seen as a list of rows.

    A row is what the last dimensions hold that all windows cover whole; the windows' other dimensions are listed place by place. Arrays of places
    have the dimensions of the index array (without its last), then those of the window that are not of the row.
    """

    def __init__(
        self, shape: Sequence[int], window: Sequence[int], mapped: Sequence[int], dropped: Sequence[int], batching: Sequence[tuple[int, int]]
    ) -> None:
        absent = {*dropped, *[d for d, _ in batching]}  # of a window in a result
        taken = {*mapped, *absent}
        first = len(shape)
        while first and window[first - 1] == shape[first - 1] and first - 1 not in taken:
            first -= 1
        self.rows, self.row = math.prod(shape[:first]), math.prod(shape[first:])
        self.inner = [window[d] for d in range(len(shape)) if d not in absent]
        steps = [math.prod(shape[d + 1 : first]) for d in range(first)]
        self.mapped = [(k, steps[d], shape[d] - window[d]) for k, d in enumerate(mapped)]
        self.batching = [(i, steps[d]) for d, i in batching]
        offsets = np.zeros((), np.int64)
        for d in range(first):
            if d not in absent:
                offsets = np.add.outer(offsets, steps[d] * np.arange(window[d]))
        self.offsets = offsets
        self.are_rows = not batching and not offsets.ndim and [step for _, step, _ in self.mapped] == [1]  # and an index vector is the place of one

    def places(self, starts: Any, promised: bool = False) -> tuple[Any, Any]:
        """The places, with windows moved inside; and for each window whether it was, or None if all were. promised: that they are."""
        outside, found = None, np.zeros((), np.int64)
        for k, step, most in self.mapped:
            start = starts[..., k]
            if promised and start.dtype == np.int64:
                start = start if step == 1 else start * step
                found = start if k == 0 else found + start
                continue
            if start.dtype.kind == "u" and start.dtype.itemsize == 8:
                start = np.minimum(start, np.uint64(np.iinfo(np.int64).max))
            start = start.astype(np.int64, copy=False)
            bad = start.view(np.uint64) > most  # negative ones are large then
            if np.count_nonzero(bad):
                outside = bad if outside is None else outside | bad
                start = np.minimum(np.maximum(start, 0), most)
            found = start if k == 0 and step == 1 else found + start * step
        for i, step in self.batching:
            line = [1] * (starts.ndim - 1)
            line[i] = starts.shape[i]
            found = found + step * np.arange(starts.shape[i]).reshape(line)
        if found.shape != starts.shape[:-1]:
            found = np.broadcast_to(found, starts.shape[:-1])
        if self.offsets.ndim:
            found = found[(..., *(None,) * self.offsets.ndim)] + self.offsets
        return found, None if outside is None else ~outside


# ---------------------------------------------------------------------- gather


def is_one_window(eqn: Any) -> bool:
    """Whether an equation takes or changes one window of an array only: that is a slice, which XLA fuses."""
    name = eqn.primitive.name
    return name.startswith("dynamic_") or (name.startswith(("gather", "scatter")) and math.prod(eqn.invars[1].aval.shape[:-1]) == 1)


def _gather_cost(eqn: Any) -> float:
    windows = math.prod(eqn.invars[1].aval.shape[:-1])
    if eqn.invars[1].aval.ndim == 1:
        return 1000.0
    rows = eqn.params["mode"].name == "PROMISE_IN_BOUNDS" and eqn.invars[1].aval.shape[-1] == 1
    return (500.0 if rows else 4000.0) + INDEXED * windows + CHEAP * eqn.outvars[0].aval.size * weight(eqn.outvars[0].aval.dtype)


@rule("gather", cost=_gather_cost)
def _gather(eqn: Any) -> Any:
    p = eqn.params
    numbers, mode, found = p["dimension_numbers"], p["mode"].name, eqn.outvars[0].aval
    if mode not in ("CLIP", "FILL_OR_DROP", "PROMISE_IN_BOUNDS"):
        raise Unknown(mode)
    shape, dtype, indices = eqn.invars[0].aval.shape, found.dtype, eqn.invars[1].aval.shape[:-1]
    if not found.size or not math.prod(shape):
        return _gather_of_nothing(eqn)
    batching = list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    windows = _Windows(shape, p["slice_sizes"], numbers.start_index_map, numbers.collapsed_slice_dims, batching)
    as_rows, as_windows = (windows.rows, windows.row), (*indices, *windows.inner)
    order = _order(numbers.offset_dims, found.ndim)
    fill = _fill_value(p["fill_value"], dtype) if mode == "FILL_OR_DROP" else None
    promised = mode == "PROMISE_IN_BOUNDS"
    if not indices and not batching:
        return _window(shape, p["slice_sizes"], numbers, found, fill)
    if promised and order is None and windows.are_rows and eqn.invars[1].aval.dtype.kind == "i":
        return _picked(windows, indices, as_windows)

    def gather(x: Any, starts: Any) -> Any:
        places, inside = windows.places(starts, promised)
        rows = x.reshape(as_rows)
        out = (rows[:, 0].take(places, mode="clip") if as_rows[1] == 1 else rows.take(places, 0, mode="clip")).reshape(as_windows)
        if fill is not None and inside is not None:
            out[~inside] = fill
        return out if order is None else out.transpose(order)

    return gather


def _window(shape: tuple[int, ...], sizes: tuple[int, ...], numbers: Any, found: Any, fill: Any) -> Any:
    """The one window that begins at an index vector, as a slice in a `vmap` does: a function."""
    place = _place(shape, sizes, numbers.start_index_map, numbers.collapsed_slice_dims, fill is not None)

    def window(x: Any, starts: Any) -> Any:
        key = place(starts)
        return np.full(found.shape, fill, found.dtype) if key is None else x[key]

    return window


def _place(shape: Sequence[int], sizes: Sequence[int], mapped: Sequence[int], collapsed: Sequence[int], drops: bool) -> Any:
    """A function of an index vector: the key of the one window that begins there, without the dimensions that are collapsed. One that is not wholly
    inside is moved there or, if it `drops` them, None."""
    begins = [(k, d, shape[d] - sizes[d], d in collapsed) for k, d in enumerate(mapped)]
    whole = [0 if d in collapsed else slice(n) for d, n in enumerate(sizes)]

    def place(starts: Any) -> tuple[Any, ...] | None:
        key: list[Any] = [*whole, ...]
        for k, d, most, dropped in begins:
            start = int(starts[k])
            if not 0 <= start <= most:
                if drops:
                    return None
                start = min(max(start, 0), most)
            key[d] = start if dropped else slice(start, start + sizes[d])
        return tuple(key)

    return place


def _picked(windows: _Windows, indices: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """The rows of an array at these places, which are in range: a function."""
    rows, row = windows.rows, windows.row
    if row > 1:
        return lambda x, starts: x.reshape(rows, row).take(starts.reshape(indices), 0, mode="clip").reshape(shape)
    if shape != indices:
        return lambda x, starts: x.reshape(rows).take(starts.reshape(indices), mode="clip").reshape(shape)
    return lambda x, starts: x.reshape(rows).take(starts.reshape(indices), mode="clip")


def _order(window_dims: Sequence[int], rank: int) -> tuple[int, ...] | None:
    """The permutation from (index dimensions, window dimensions) to where a result has them; None if they are there."""
    others = [d for d in range(rank) if d not in window_dims]
    order = tuple(np.argsort([*others, *window_dims]).tolist())
    return None if order == tuple(range(rank)) else order


def _gather_of_nothing(eqn: Any) -> Any:
    shape, dtype = eqn.outvars[0].aval.shape, eqn.outvars[0].aval.dtype
    if math.prod(shape) and eqn.params["mode"].name != "FILL_OR_DROP":
        raise Unknown("an element of nothing")
    fill = _fill_value(eqn.params["fill_value"], dtype)
    return lambda x, starts: np.full(shape, fill, dtype)


def _fill_value(value: Any, dtype: np.dtype) -> Any:
    if value is None:
        value = {"b": True, "u": None, "i": None}.get(dtype.kind, np.nan)
        if value is None:
            value = np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max
    return np.asarray(value).astype(dtype)


# ---------------------------------------------------------------------- scatter

_COMBINED = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _scatter_cost(eqn: Any) -> float:
    aval, combined = eqn.outvars[0].aval, eqn.invars[2].aval.size
    if eqn.invars[1].aval.ndim == 1:
        return 1_500.0 + CHEAP * (aval.size + 2 * combined) * weight(aval.dtype)
    base, each = (3_000.0, 2 * CHEAP) if _by_loops(_COMBINED.get(eqn.primitive.name[8:]), aval.dtype) else (10_000.0, AT)
    return base + (CHEAP * aval.size + each * combined) * weight(aval.dtype)


@rule("scatter", *[f"scatter{sign}{name}" for name in _COMBINED for sign in "-_"], cost=_scatter_cost)
def _scatter(eqn: Any) -> Any:
    """Windows that are not wholly inside are dropped, or moved inside. Of several elements for one place the last one counts."""
    p = eqn.params
    numbers, mode, combined = p["dimension_numbers"], p["mode"].name, _COMBINED.get(eqn.primitive.name[8:])
    if mode not in ("CLIP", "FILL_OR_DROP", "PROMISE_IN_BOUNDS") or (combined is None and not _takes_the_update(p["update_jaxpr"])):
        raise Unknown("scatter")
    operand, update = eqn.invars[0].aval, eqn.invars[2].aval
    if combined in (np.minimum, np.maximum) and operand.dtype.kind == "c":
        raise Unknown("order of complex numbers")
    if not update.size or not operand.size:
        return lambda x, starts, updates: x
    batching = list(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    kept = [d for d in range(operand.ndim) if d not in numbers.inserted_window_dims and d not in numbers.operand_batching_dims]
    window = [1] * operand.ndim
    for d, at in zip(kept, numbers.update_window_dims, strict=True):
        window[d] = update.shape[at]
    if eqn.invars[1].aval.ndim == 1 and not batching:
        place = _place(operand.shape, window, numbers.scatter_dims_to_operand_dims, numbers.inserted_window_dims, mode != "CLIP")
        return _into_window(place, combined)
    windows = _Windows(operand.shape, window, numbers.scatter_dims_to_operand_dims, numbers.inserted_window_dims, batching)
    order = (*[d for d in range(update.ndim) if d not in numbers.update_window_dims], *numbers.update_window_dims)
    combine, drops = _combiner(combined, windows.row, p["unique_indices"], operand.dtype), mode != "CLIP"
    in_order = order == tuple(range(update.ndim))
    straight = drops and in_order and windows.are_rows and _by_loops(combined, operand.dtype) and eqn.invars[1].aval.dtype.kind == "i"

    def scatter(x: Any, starts: Any, updates: Any) -> Any:
        return into(np.array(x, order="C"), starts, updates)

    def rows_into(x: Any, starts: Any, updates: Any) -> Any:
        out = np.ascontiguousarray(x)
        combine(out.reshape(windows.rows, windows.row), starts.reshape(-1), updates.reshape(-1, windows.row))
        return out

    def scatter_into(x: Any, starts: Any, updates: Any) -> Any:
        places, inside = windows.places(starts)
        out = np.ascontiguousarray(x)  # as rows it has to be the same memory
        updates = updates.transpose(order).reshape(*places.shape, windows.row)
        if drops and inside is not None:
            places, updates = places[inside], updates[inside]
        combine(out.reshape(windows.rows, windows.row), places.reshape(-1), updates.reshape(-1, windows.row))
        return out

    into = rows_into if straight else scatter_into
    return Writing(scatter, into)


def _into_window(place: Any, ufunc: Any) -> Any:
    """What combines one window of an array with an update, as the derivative of a slice does in a `vmap`, or puts it there."""

    def into(x: Any, starts: Any, update: Any) -> Any:
        key = place(starts)
        if key is not None:
            part = x[key]
            if ufunc is None:
                part[...] = update
            else:
                ufunc(part, update, out=part)
        return x

    return Writing(lambda x, starts, update: into(np.array(x, order="C"), starts, update), into)


def _takes_the_update(jaxpr: Any) -> bool:
    if jaxpr is None:
        return True
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return not jaxpr.eqns and jaxpr.outvars[0] is jaxpr.invars[1]


def _by_loops(ufunc: Any, dtype: np.dtype) -> bool:
    """Whether what is combined is so by the typed core's loops."""
    return ufunc is np.add and dtype.char in "fd" and blocks.by_numbers


def _combiner(ufunc: Any, length: int, unique: bool, dtype: np.dtype) -> Any:
    """What puts rows of this length to their places in another array, one after the other."""
    if ufunc is None:

        def put(rows: Any, places: Any, updates: Any) -> None:
            if length == 1:
                rows[:, 0][places] = updates[:, 0]
            else:
                rows[places] = updates

        return put
    if _by_loops(ufunc, dtype):
        return lambda rows, places, updates: blocks.add_rows(rows, np.ascontiguousarray(places, np.int64), np.ascontiguousarray(updates))
    if unique:

        def combine(rows: Any, places: Any, updates: Any) -> None:
            rows[places] = ufunc(rows[places], updates)

        return combine
    if length >= _LONG_ROW:

        def combine_rows(rows: Any, places: Any, updates: Any) -> None:
            for place, update in zip(places.tolist(), updates, strict=True):
                row = rows[place]
                ufunc(row, update, out=row)

        return combine_rows
    within = np.arange(length)

    def combine_elements(rows: Any, places: Any, updates: Any) -> None:
        if length > 1:
            places = (places[:, None] * length + within).reshape(-1)
        ufunc.at(rows.reshape(-1), places, updates.reshape(-1))

    return combine_elements


def add_rows(rows: Any, places: Any, updates: Any) -> None:
    """Add each of the updates (n, length) to the row at its place, in range, one after the other."""
    _combiner(np.add, rows.shape[1], False, rows.dtype)(rows, places, updates)


# ---------------------------------------------------------------------- slices


@rule("dynamic_slice", cost=lambda eqn: 300.0 * len(eqn.invars))
def _dynamic_slice(eqn: Any) -> Any:
    sizes = eqn.params["slice_sizes"]
    if len(eqn.invars) != 1 + len(sizes):
        raise Unknown("a shape that is an operand")
    place = _slices(eqn.invars[0].aval.shape, sizes)
    return lambda x, *starts: x[place(starts)]


@rule("dynamic_update_slice", cost=lambda eqn: 300.0 * len(eqn.invars) + CHEAP * eqn.outvars[0].aval.size)
def _dynamic_update_slice(eqn: Any) -> Any:
    place = _slices(eqn.invars[0].aval.shape, eqn.invars[1].aval.shape)

    def put(x: Any, update: Any, *starts: Any) -> Any:
        return put_into(np.array(x), update, *starts)

    def put_into(x: Any, update: Any, *starts: Any) -> Any:
        x[place(starts)] = update
        return x

    return Writing(put, put_into)


def _slices(shape: Sequence[int], sizes: Sequence[int]) -> Any:
    """What makes an index of start numbers: slices of these sizes, moved inside."""
    rooms = [(size, n - size) for n, size in zip(shape, sizes, strict=True)]

    def place(starts: Sequence[Any]) -> tuple[slice, ...]:
        firsts = [min(max(int(start), 0), room) for start, (_, room) in zip(starts, rooms, strict=True)]
        return tuple([slice(first, first + size) for first, (size, _) in zip(firsts, rooms, strict=True)])

    return place
