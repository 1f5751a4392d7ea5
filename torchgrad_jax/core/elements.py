"""Elements and parts of tensors that lie on the host: written to, computed with and compared at once, if nobody follows. See `memory/at_hand.py`.

Compiled where there is a compiler (`torchgrad_jax/_typed`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.core.fields import aval_of_tensor, needs_grad
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.memory.at_hand import CHANGES, MOST_CHANGED, array_of, computed, content, number_for, part_of, rounded, writable
from torchgrad_jax.memory.storage import Storage, put_content
from torchgrad_jax.operators.filling import PUT_KINDS
from torchgrad_jax.runtime.baseline import quiet_context
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.value import Value


def put_at_hand(t: Tensor, keys: tuple[Any, ...], value: Any) -> bool:
    """``t[keys] = value`` where ints choose an element, no graph follows it, and what `t` lies in is on the host, as the value is: written there at
    once. False where nothing was done."""
    rec: Recorder = per_thread.recorder
    if memory_of(rec, t) is None:
        return False
    aval = aval_of_tensor(t)
    place = _place_of(t, keys, aval.shape)
    if place < 0:
        return False
    given = number_of(rec, value, aval.dtype) if type(value) is Tensor else number_for(value, aval.dtype.char)
    if given is None:
        return False
    _write(t, _put_number, place, given)
    return True


def put_part_at_hand(rec: Recorder, t: Tensor, keys: tuple[Any, ...], shape: tuple[int, ...], value: Any) -> bool:
    """`put_at_hand` for ints, slices, None and ... that choose a part of this shape of `t`, which is no view."""
    if memory_of(rec, t) is None:
        return False
    dtype = aval_of_tensor(t).dtype
    if type(value) is Tensor:
        given = None if value._storage is t._storage and value._aval.shape else array_at_hand(rec, value, dtype)  # which may overlap
        if given is None or (given.ndim and (given.shape != shape or None in keys)):
            return False
    else:
        given = number_for(value, dtype.char)
        if given is None:
            return False
    _write(t, _put_part, keys, given)
    return True


def put_picked_at_hand(t: Tensor, keys: tuple[Any, ...], value: Any) -> bool:
    """`put_at_hand` for keys among which are tensors, or lists, of integers or booleans. False, too, where they do not fit, which is for others to
    tell."""
    rec: Recorder = per_thread.recorder
    if t._view is not None or memory_of(rec, t) is None:
        return False
    picking: list[Any] = []
    arrays = others = 0
    for k in keys:
        kind = type(k)
        if kind is Tensor:
            k = _index_at_hand(rec, k)
            others += type(k) is int
        elif kind is list:
            k = np.array(k, np.int64) if k and all([type(i) is int for i in k]) else None
        elif kind is int:
            others += 1
        elif kind is slice:
            others += arrays > 0
        else:
            k = None
        if k is None:
            return False
        arrays += type(k) is np.ndarray
        picking.append(k)
    dtype = aval_of_tensor(t).dtype
    if type(value) is not Tensor:
        given = number_for(value, dtype.char)
    else:
        given = None if value._storage is t._storage else array_at_hand(rec, value, dtype)
        if given is not None and given.ndim and others and arrays + others > 1:  # NumPy may put the dimensions in another order
            given = None
    if given is None:
        return False
    try:
        _write(t, _put_part, tuple(picking), given)
    except (IndexError, ValueError):
        return False
    return True


def _index_at_hand(rec: Recorder, index: Tensor) -> Any:
    """The array of integers or booleans, or the integer, that an index is; None for others."""
    aval = aval_of_tensor(index)
    if not aval.shape:
        return number_of(rec, index, _INT64)
    return array_at_hand(rec, index, aval.dtype) if aval.dtype is _INT64 or aval.dtype is _BOOL else None


_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


def change_at_hand(name: str, t: Tensor, other: Any) -> bool:
    """The operation `name` of an element or a small part of memory and a number, or another tensor, in place: as `put_at_hand`."""
    rec: Recorder = per_thread.recorder
    aval = aval_of_tensor(t)
    if name not in CHANGES or aval.size > MOST_CHANGED or memory_of(rec, t) is None:
        return False
    return _change_part(rec, name, t, aval, other) if aval.shape else _change_element(rec, name, t, aval, other)


def fill_at_hand(t: Tensor, number: Any) -> bool:
    """``t.fill_(number)`` of a view: as `put_at_hand`."""
    rec: Recorder = per_thread.recorder
    view, aval = t._view, aval_of_tensor(t)
    memory = None if view is None or 0 in view.strides else memory_of(rec, t)
    given = None if memory is None or not memory.flags.c_contiguous else number_for(number, aval.dtype.char)
    if view is None or given is None:
        return False
    memory = None  # which is written to where nobody holds it
    _write(t, _fill, (aval.shape, view.strides, view.offset), given)
    return True


def _change_element(rec: Recorder, name: str, t: Tensor, aval: Any, other: Any) -> bool:
    place = 0 if t._view is None else t._view.offset
    a = memory_of(rec, t).item(place)
    b = number_of(rec, other, aval.dtype) if type(other) is Tensor else rounded(other, aval.dtype.char)
    if b is None:
        return False
    made = computed(name, a, b, aval)
    if made is None:
        return False
    _write(t, _put_number, place, made.array)
    return True


def _change_part(rec: Recorder, name: str, t: Tensor, aval: Any, other: Any) -> bool:
    view, kind, context = t._view, aval.dtype.char, rec.context or quiet_context()
    if view is None or not aval.size or 0 in view.strides or not (kind in "fd" or (kind in "il" and name != "div")):
        return False
    if type(other) is Tensor:
        b = array_at_hand(rec, other, aval.dtype)
        if b is None or (b.ndim and b.shape != aval.shape):
            return False
        if other._storage is t._storage:
            if overlap_in_part(t, other):
                return False
            b = b.copy()  # nobody is to hold the memory that is written to
    else:
        b = number_for(other, kind)
        if b is None:
            return False
    if not memory_of(rec, t).flags.c_contiguous:
        return False
    rec.context = None  # which nobody else may enter meanwhile
    try:
        _write(t, _change, (name, context, aval.shape, view.strides, view.offset), b)
    finally:
        rec.context = context
    return True


def end_of(view: Any, aval: Any) -> int:
    """The place in memory behind the last element of a view."""
    end, shape = view.offset + 1, aval.shape
    for i, stride in enumerate(view.strides):
        end += (shape[i] - 1) * stride
    return end


def overlap_in_part(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one storage are neither apart nor alike, as far as their strides tell (gaps make them not tell)."""
    one, other = a._view, b._view
    if one is not None and other is not None and (end_of(one, aval_of_tensor(a)) <= other.offset or end_of(other, aval_of_tensor(b)) <= one.offset):
        return False
    runs = []
    for t in (a, b):
        size = t._aval.size
        step = 1
        for stride, n in sorted([(s, n) for s, n in zip(t._strides(), t._aval.shape, strict=True) if n > 1]):
            if stride != step:
                return False
            step *= n
        if not size:
            return False
        runs.append((t._offset(), t._offset() + size))
    if runs[0] == runs[1]:
        return a._strides() != b._strides()
    return runs[0][0] < runs[1][1] and runs[1][0] < runs[0][1]


def memory_of(rec: Recorder, t: Tensor) -> Any:
    """The array in which `t` lies, where that is on the host, of the dtype of `t`, and what is written to it is nothing that autograd follows."""
    if rec.rare or rec.inference or rec.writes is not None or (rec.grad_enabled and needs_grad(t)):
        return None
    storage = t._storage
    if storage is None:
        if t._value.array is None:
            return None
        storage = t._shared()
    if type(storage) is not Storage:
        return None
    plain: Any = storage  # typed, where this is compiled
    if plain.siblings is not None:
        return None
    whole: Value = plain.value
    aval = aval_of_tensor(t)
    return array_of(rec, whole) if aval.dtype is whole.aval.dtype and aval.dtype.char in PUT_KINDS else None


def _write(t: Tensor, write: Callable[[Any, Any, Any], object], where: Any, what: Any) -> None:
    """Write to the memory of `t`, which is at hand."""
    storage: Any = t._storage
    whole: Value = storage.value
    view: Any = t._view
    base: Any = t if view is None else view.base
    held = base is not None and base._value is whole
    array = writable(whole, 1 + held)
    try:
        write(array, where, what)
    finally:
        made = content(array, whole.aval)
    put_content(storage, made)
    if held and base is not None:
        base._value = made  # the first content is not held


def _put_number(array: Any, place: Any, number: Any) -> None:
    array.flat[place] = number


def _put_part(array: Any, keys: Any, given: Any) -> None:
    array[keys] = given


def _fill(array: Any, part: Any, number: Any) -> None:
    part_of(array, *part)[...] = number


def _change(array: Any, how: Any, given: Any) -> None:
    name, context, shape, strides, offset = how
    part = part_of(array, shape, strides, offset)
    context.run(CHANGES[name], part, given, part)


def _place_of(t: Tensor, keys: tuple[Any, ...], shape: tuple[int, ...]) -> int:
    """Where in its memory the element lies that ints choose of a tensor; -1 where they choose none or something else."""
    if len(keys) != len(shape):
        return -1
    view = t._view
    place, offset, dim = 0, 0, 0
    for k in keys:
        if type(k) is not int:
            return -1
        n = shape[dim]
        begin = k + n if k < 0 else k
        if not 0 <= begin < n:
            return -1
        place = place * n + begin
        if view is not None:
            offset += begin * view.strides[dim]
        dim += 1  # noqa: SIM113 - a number of C's
    return place if view is None else view.offset + offset


def number_of(rec: Recorder, t: Tensor, dtype: Any) -> Any:
    """The number that a tensor of this dtype and no dimensions is, if it is at hand and autograd does not follow it; else None."""
    memory = None if aval_of_tensor(t).shape else _readable(rec, t, dtype)
    return None if memory is None else memory.item() if t._view is None else memory.item(t._view.offset)


def array_at_hand(rec: Recorder, t: Tensor, dtype: Any) -> Any:
    """The content of a tensor of this dtype as an array that is not to be kept, if it is at hand and autograd does not follow it; else None."""
    memory, view = _readable(rec, t, dtype), t._view
    storage: Any = t._storage
    if memory is None or view is None:
        return memory
    if view.seen == storage.writes and t._value.array is not None:
        return array_of(rec, t._value)
    return part_of(memory, aval_of_tensor(t).shape, view.strides, view.offset) if memory.flags.c_contiguous else None


def _readable(rec: Recorder, t: Tensor, dtype: Any) -> Any:
    """The array in which a tensor of this dtype lies, all of it, if that is at hand and autograd does not follow the tensor; else None."""
    if aval_of_tensor(t).dtype is not dtype or (rec.grad_enabled and needs_grad(t)):
        return None
    storage = t._storage
    if storage is None:
        return array_of(rec, t._value)
    if type(storage) is not Storage:
        return None
    plain: Any = storage  # typed, where this is compiled
    whole: Value = plain.value
    return array_of(rec, whole) if whole.aval.dtype is dtype else None


def computed_at_hand(name: str, x: Tensor, other: Any) -> Tensor | None:
    """The operation `name` of a number on the host and another, or Python's, or (`other` is None) of one alone, if nobody follows it: at once. Else
    None."""
    rec: Recorder = per_thread.recorder
    aval = aval_of_tensor(x)
    kind = aval.dtype.char
    if rec.inference or kind not in PUT_KINDS:
        return None
    a = number_of(rec, x, aval.dtype)
    if a is None:
        return None
    b = number_of(rec, other, aval.dtype) if type(other) is Tensor else rounded(other, kind)
    if b is None and other is not None:
        return None
    made = computed(name, a, b, aval)
    return None if made is None else wrap(made)
