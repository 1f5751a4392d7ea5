"""Elements of tensors that lie on the host: written to, computed with and compared at once, if nobody follows them. See `memory/at_hand.py`.

Compiled where there is a compiler (`torchgrad_jax/_typed`).
"""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.fields import aval_of, needs_grad
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.memory.at_hand import OF_TWO, array_of, computed, number_for, rewritten, rounded
from torchgrad_jax.memory.storage import Storage, put_content
from torchgrad_jax.operators.filling import PUT_KINDS
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.value import Value


def put_at_hand(t: Tensor, keys: tuple[Any, ...], value: Any) -> bool:
    """``t[keys] = value`` where ints choose an element, no graph follows it, and what `t` lies in is on the host, as the value is: written there at
    once. False where nothing was done."""
    rec: Recorder = per_thread.recorder
    if memory_of_element(rec, t) is None:
        return False
    aval = aval_of(t)
    place = _place_of(t, keys, aval.shape)
    if place < 0:
        return False
    content = number_of(rec, value, aval.dtype) if type(value) is Tensor else number_for(value, aval.dtype.char)
    if content is None:
        return False
    _put_number(t, place, content)
    return True


def change_at_hand(name: str, t: Tensor, other: Any) -> bool:
    """The operation `name` of an element and a number, or another element, in place: as `put_at_hand`."""
    rec: Recorder = per_thread.recorder
    memory, aval = memory_of_element(rec, t), aval_of(t)
    if memory is None or aval.shape or name not in OF_TWO:
        return False
    place = 0 if t._view is None else t._view.offset
    a, memory = memory.item(place), None  # which is written to where nobody holds it
    b = number_of(rec, other, aval.dtype) if type(other) is Tensor else rounded(other, aval.dtype.char)
    if b is None:
        return False
    made = computed(name, a, b, aval)
    if made is None:
        return False
    _put_number(t, place, made.array)
    return True


def memory_of_element(rec: Recorder, t: Tensor) -> Any:
    """The array in which `t` lies, where that is on the host, of the dtype of `t`, and what is written to it is nothing that autograd follows."""
    if rec.rare or rec.inference or rec.writes is not None or (rec.grad_enabled and needs_grad(t)):
        return None
    storage = t._storage
    if storage is None:
        if t._value.array is None:
            return None
        storage = t._shared()
    if type(storage) is not Storage or storage.siblings is not None:
        return None
    whole: Value = storage.value
    aval = aval_of(t)
    return array_of(rec, whole) if aval.dtype is whole.aval.dtype and aval.dtype.char in PUT_KINDS else None


def _put_number(t: Tensor, place: int, content: Any) -> None:
    """Write to the element at `place` of the memory of `t`, which is at hand."""
    storage: Any = t._storage
    whole: Value = storage.value
    view: Any = t._view
    base: Any = t if view is None else view.base
    held = base is not None and base._value is whole
    made = rewritten(whole, 1 + held, place, content)
    put_content(storage, made)
    if held and base is not None:
        base._value = made  # the first content is not held


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
    aval = aval_of(t)
    if aval.shape or aval.dtype is not dtype or (rec.grad_enabled and needs_grad(t)):
        return None
    view, storage = t._view, t._storage
    if storage is None:
        memory = array_of(rec, t._value)
        return None if memory is None else memory.item()
    if type(storage) is not Storage or storage.value.aval.dtype is not dtype:
        return None
    memory = array_of(rec, storage.value)
    return None if memory is None else memory.item() if view is None else memory.item(view.offset)


def computed_at_hand(name: str, x: Tensor, other: Any) -> Tensor | None:
    """The operation `name` of a number on the host and another, or Python's, or (`other` is None) of one alone, if nobody follows it: at once. Else
    None."""
    rec: Recorder = per_thread.recorder
    aval = aval_of(x)
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
