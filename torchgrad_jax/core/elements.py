"""Elements and parts of tensors that lie on the host: written to, computed with and compared at once, if nobody follows. See `memory/at_hand.py`.
Parts that do not are written to by one operation, without a view.

Compiled where there is a compiler (`torchgrad_jax/_typed`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.core.fields import aval_of_tensor, content_of, needs_grad, offset_of, strides_of
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.declaration.promotion import fitting
from torchgrad_jax.declaration.strides import contiguous_strides
from torchgrad_jax.memory.at_hand import CHANGES, MOST_CHANGED, array_of, change, computed, number_for, part_of, put, rounded, writable
from torchgrad_jax.memory.storage import Storage, put_content
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.filling import MOST_PARTS, PUT_KINDS
from torchgrad_jax.runtime.baseline import quiet_context
from torchgrad_jax.runtime.elsewhere import Elsewhere
from torchgrad_jax.runtime.keeping import Memo
from torchgrad_jax.runtime.native import arrays as of_c
from torchgrad_jax.runtime.recorder import LEAST_INT, MOST_INT, Recorder, per_thread, record
from torchgrad_jax.runtime.value import Value, constant


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


def put_part_at_hand(rec: Recorder, t: Tensor, place: tuple[Any, ...], value: Any) -> bool:
    """`put_at_hand` of a part of `t`, which is no view: its shape, strides and offset. A tensor is of this shape, or of no dimensions, and does not
    overlap the part."""
    memory = memory_of(rec, t)
    if memory is None or not of_c.is_contiguous(memory):
        return False
    dtype = aval_of_tensor(t).dtype
    if type(value) is Tensor:
        given = array_at_hand(rec, value, dtype)
        if given is not None and value._storage is t._storage:
            given = given.copy()  # nobody is to hold the memory that is written to
    else:
        given = number_for(value, dtype.char)
    if given is None:
        return False
    memory = None  # as above
    _write(t, put, place, given)
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
        _write(t, _put_picked, tuple(picking), given)
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
    given = None if memory is None or not of_c.is_contiguous(memory) else number_for(number, aval.dtype.char)
    if view is None or given is None:
        return False
    memory = None  # which is written to where nobody holds it
    _write(t, put, (aval.shape, view.strides, view.offset), given)
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
    if not of_c.is_contiguous(memory_of(rec, t)):
        return False
    rec.context = None  # which nobody else may enter meanwhile
    try:
        _write(t, _change, (name, context, (aval.shape, view.strides, view.offset)), b)
    finally:
        rec.context = context
    return True


def end_of(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> int:
    """The first place in memory behind all elements of what lies by strides from an offset on."""
    if 0 in shape:
        return offset
    end = offset + 1
    for i, stride in enumerate(strides):
        end += (shape[i] - 1) * stride
    return end


def overlap_in_part(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one storage are neither apart nor alike, as far as their strides tell (gaps make them not tell)."""
    return place_overlaps((aval_of_tensor(a).shape, strides_of(a), offset_of(a)), b)


def place_overlaps(place: tuple[Any, ...], t: Tensor) -> bool:
    """`overlap_in_part` of a shape, strides and an offset in the storage of `t`, and `t`."""
    begin, other = place[2], offset_of(t)
    alike, like = strides_of(t), aval_of_tensor(t).shape
    if end_of(place[0], place[1], begin) <= other or end_of(like, alike, other) <= begin:
        return False
    runs = []
    for shape, strides, offset in (place, (like, alike, other)):
        step = size = 1
        for stride, n in sorted([(s, n) for s, n in zip(strides, shape, strict=True) if n > 1]):
            if stride != step:
                return False
            step *= n
        for n in shape:
            size *= n
        if not size:
            return False
        runs.append((offset, offset + size))
    if runs[0] == runs[1]:
        return place[1] != alike
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
    made = constant(array, whole.aval)
    counter: Any = storage.counter
    version = counter.version + 1
    made.version, made.counter = version, counter
    # An interrupt comes between two lines: it finds all of it or nothing. What is written is written first.
    try:
        if held and base is not None:  # the first content is not held
            _, counter.version, storage.writes, storage.value, base._value = write(array, where, what), version, storage.writes + 1, made, made
        else:
            _, counter.version, storage.writes, storage.value = write(array, where, what), version, storage.writes + 1, made
    finally:
        of_c.set_writable(array, False)


def _put_number(array: Any, place: Any, number: Any) -> None:
    array.flat[place] = number


def _put_picked(array: Any, keys: Any, given: Any) -> None:
    array[keys] = given


def _change(array: Any, how: Any, given: Any) -> None:
    name, context, place = how
    change(array, name, place, given, context)


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
    return part_of(memory, aval_of_tensor(t).shape, view.strides, view.offset) if of_c.is_contiguous(memory) else None


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


# ---------------------------------------------------------------------- parts, written to at once or by one operation


def put_quickly(t: Any, keys: tuple[Any, ...], value: Any) -> bool:
    """`put_part` of a tensor, or of a number that is not known to fit. RuntimeError for one that does not."""
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        return put_part(t, keys, value)
    number = kind is float or (kind is int and LEAST_INT <= value <= MOST_INT)
    return number and put_part(t, keys, fitting(value, aval_of_tensor(t).dtype))


def put_part(t: Any, keys: tuple[Any, ...], value: Any) -> bool:
    """The short way of ``t[keys] = value`` where no graph follows it: of ints, slices of ints, None and ..., and a number that fits or a tensor of
    the part's shape, or of no dimensions, and of the dtype of `t`. False where nothing was done."""
    rec = per_thread.recorder
    if rec.rare or rec.writes is not None or t._view is not None or (t._rg and rec.grad_enabled):
        return False
    if type(t) is not Tensor and type(t) is not Parameter:
        return False
    storage: Any = t._storage
    if storage is not None and (type(storage) is not Storage or storage.siblings is not None):
        return False
    whole: Value = t._value if storage is None else storage.value
    aval = whole.aval
    begins: list[Any] = []
    if type(value) is Tensor and storage is not None and value._storage is storage and _is_its_row(value, aval, keys):
        _again(rec, t, storage, whole)
        return True
    found = _part(keys, aval.shape, begins)
    if found is None or aval.dtype.char not in PUT_KINDS:
        return False
    kind, shape = found
    src = value
    place = _place_of_part(kind, aval.shape, shape, begins)
    if type(value) is Tensor or type(value) is Parameter:
        given = aval_of_tensor(value)
        if given.dtype is not aval.dtype or given.device is not aval.device or (given.shape and (given.shape != shape or None in keys)):
            return False
        if storage is not None and value._storage is storage and given.shape:
            if _is_itself(value, place):
                _again(rec, t, storage, whole)
                return True
            if place_overlaps(place, value):
                return False
        if put_part_at_hand(rec, t, place, value):
            return True
        src = _source(rec, value)
        if src is None:
            return False
    elif type(whole.array) is np.ndarray and put_part_at_hand(rec, t, place, value):
        return True
    bound = _puts.get(kind)
    if bound is None:
        statics = [Static(k) for k in kind]
        bound = _puts.keep(kind, registry[f"put_part{len(begins)}"].bind((*(ARRAY,) * (2 + len(begins)), *statics)))
    try:
        made: Value = record(rec, bound, (whole, src, *begins))
    except Elsewhere:
        return False
    if storage is None:
        storage = t._shared()
    put_content(storage, made)
    t._value = made  # the first content is not held
    return True


_puts = Memo()


def _part(keys: tuple[Any, ...], whole: tuple[int, ...], begins: list[Any]) -> Any:
    """The part of a shape that ints, slices of ints, None and ... choose: in which dimensions, of which lengths and by which steps, as `put_part` has
    them, and its shape. begins: gets where it begins in these. None where that is for the general way: other keys, errors, all or nothing of it."""
    dim, rest, several = 0, len(whole) - len(keys), -1
    for k in keys:
        if k is None:
            rest += 1
        elif k is Ellipsis:
            rest += 1
            several += 1
    if rest < 0 or several > 0:
        return None
    dims, lengths, steps, shape = [], [], [], []
    for k in keys:
        if k is Ellipsis:
            shape += whole[dim : dim + rest]
            dim += rest
        elif k is not None:
            n = whole[dim]
            if type(k) is int:
                first, length, step = k + n if k < 0 else k, -1, 1
            elif type(k) is slice and fits(k, n):
                first, length, step = bounds(k, n)
            else:
                return None
            if length < 0 and not 0 <= first < n:
                return None
            if length >= 0:
                shape.append(length)
            if length != n:
                dims.append(dim)
                lengths.append(length)
                steps.append(step)
                begins.append(first)
            dim += 1
    shape += whole[dim:]
    if not dims or len(dims) > MOST_PARTS or 0 in shape:
        return None
    return (tuple(dims), tuple(lengths), tuple(steps)), tuple(shape)


def _place_of_part(kind: Any, whole: tuple[int, ...], shape: tuple[int, ...], begins: list[Any]) -> tuple[Any, ...]:
    """The shape, the strides and the offset of a part, as `_part` has it, of a tensor of the shape `whole`."""
    dims, lengths, steps = kind
    strides, offset, i = list(contiguous_strides(whole)), 0, len(dims) - 1
    while i >= 0:
        dim = dims[i]
        stride = strides[dim]
        offset += begins[i] * stride
        if lengths[i] < 0:
            del strides[dim]
        else:
            strides[dim] = stride * steps[i]
        i -= 1
    return shape, tuple(strides), offset


def _is_itself(value: Any, place: tuple[Any, ...]) -> bool:
    """Whether a tensor is the very place in its memory: a shape, strides and an offset."""
    view, aval = value._view, aval_of_tensor(value)
    if view is None or value._rg or aval.dtype.kind == "c" or aval.shape != place[0]:
        return False
    return view.offset == place[2] and view.strides == place[1]


def _is_its_row(value: Any, whole: Any, keys: tuple[Any, ...]) -> bool:
    """`_is_itself` of one int as the key, as loops over rows have it."""
    view, key = value._view, keys[0]
    if len(keys) != 1 or type(key) is not int or key < 0 or not whole.shape or view is None or value._rg:
        return False
    aval, strides = aval_of_tensor(value), contiguous_strides(whole.shape)
    if aval.dtype is not whole.dtype or aval.dtype.kind == "c" or aval.shape != whole.shape[1:]:
        return False
    return view.offset == key * strides[0] and view.strides == strides[1:]


def _again(rec: Any, t: Tensor, storage: Any, whole: Value) -> None:
    """A new version of the same content: what `t[keys] += ...` ends with."""
    made = rec.alias(whole)
    put_content(storage, made)
    t._value = made


def _source(rec: Any, value: Any) -> Any:
    """The content of what is written to a part of memory; None where that is for the general way."""
    if value._rg and rec.grad_enabled:
        return None
    own = value._storage
    if own is None:
        return value._value
    if own.siblings is not None or (value._view is not None and rec.grad_enabled and needs_grad(value)):
        return None
    return content_of(value)


def fits(k: Any, n: int) -> bool:
    """Whether an int is within a dimension of n elements; whether a slice is one of ints that goes forward."""
    if type(k) is int:
        return -n <= k < n
    begin, end, step = k.start, k.stop, k.step
    return (begin is None or type(begin) is int) and (end is None or type(end) is int) and (step is None or (type(step) is int and step > 0))


def is_whole(k: slice, n: int) -> bool:
    """Whether a slice leaves nothing out, as PyTorch looks at it: counted from the end it is one, whatever it begins with."""
    return (k.start is None or k.start == 0) and (k.stop is None or k.stop >= n) and (k.step is None or k.step == 1)


def bounds(k: slice, n: int) -> tuple[int, int, int]:
    """Where a slice of n elements begins, how many it has, and how far they are from one another."""
    try:
        first = 0 if k.start is None else k.start
        last = n if k.stop is None else k.stop
        step = 1 if k.step is None else k.step
    except OverflowError:  # C's numbers are shorter than Python's
        first, last, step = k.indices(n)
    first = min(n, first) if first >= 0 else max(0, first + n)
    last = min(n, last) if last >= 0 else max(0, last + n)
    return first, 1 + (last - first - 1) // step if first < last else 0, step
