"""``x[...]`` and ``x[...] = y``: ints and slices make views, tensors gather and scatter."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from torchgrad_jax.calling.generate import inplace_of
from torchgrad_jax.calling.public import public
from torchgrad_jax.calling.recalled import recalling
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.elements import put_part, put_picked_at_hand
from torchgrad_jax.core.level import in_transform
from torchgrad_jax.core.made import created, wrap
from torchgrad_jax.core.order import plain
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import beside, indexed, part_of, picked_beside, viewed
from torchgrad_jax.core.writing import apply_inplace, check_writable, fill_, warn_of_lost_parts
from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.declaration.memory_order import dense_order
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.functions.devices import move
from torchgrad_jax.functions.views import expand, select, slice_dim, unsqueeze, view
from torchgrad_jax.memory.at_hand import places_in, taken
from torchgrad_jax.memory.storage import InferenceStorage, OfMask, View
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime._jax_compat import traced_around
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.recorder import LEAST_INT, MOST_INT, large_int, per_thread
from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.runtime.value import Value, aval_of, constant

_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)
_ONE = (int, slice, Tensor)
_MASKS = "?B"  # the dtypes of masks, the second of which is deprecated as one
ZERO_DIM = "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim tensor to a number"


def _of_no_dimension(key: int) -> IndexError:
    """What is said of a number as the index of a tensor without dimensions."""
    return IndexError(f"index {key} is out of bounds for dimension 0 with size 0" if key else ZERO_DIM)


@public("torch.Tensor.__getitem__")
def getitem(self: Tensor, key: Any) -> Tensor:
    """``self[key]``."""
    if type(key) is int and not self._aval.ndim:
        raise _of_no_dimension(key)
    if self._aval.device is not CPU:
        key = _beside(self, key)
    if type(key) is Tensor and key._aval.ndim and self._aval.ndim:
        if key._aval.dtype is _INT64:
            return _rows(self, key)
        if _is_mask_of(self, key):
            return _where_true(self, key)
    found = indexed(self, key) if type(key) is tuple else indexed(self, (key,)) if type(key) in _ONE else None
    if found is not None:
        return found
    if type(key) is slice:  # by itself even a slice of everything is one
        return _sliced(self, 0, key, whole=False)
    if type(key) is list or (type(key) is tuple and list in map(type, key)):
        key = _with_lists(self, key)
    if type(key) is tuple:
        found = picked_beside(self, key)
        if found is not None:
            return found
    return _by_any(self, key)


def _with_lists(t: Tensor, key: Any) -> Any:
    """The keys with lists of ints that are in range as tensors. They are kept: a list comes again. (Inside of transformations of the user's its dtype
    is JAX's to say.)"""
    if per_thread.recorder.rare or traced_around():
        return key
    if type(key) is list:
        return _of_list(t, key, 0)
    if not all([type(k) is int or type(k) is slice or type(k) is list for k in key]):  # how many dimensions others are is for the general way to say
        return key
    return tuple([_of_list(t, k, dim) if type(k) is list else k for dim, k in enumerate(key)])


def _of_list(t: Tensor, key: list[Any], dim: int) -> Any:
    shape = t._aval.shape
    if dim >= len(shape) or not key or not all([type(i) is int and -shape[dim] <= i < shape[dim] for i in key]):
        return key
    return wrap(_places_in(tuple(key), shape[dim], t.device))


@lru_cache(1024)
def _places_in(key: tuple[int, ...], size: int, where: Any) -> Value:
    array = np.array(key, np.int64)
    return constant(np.where(array < 0, array + size, array), aval_of(array.shape, _INT64, where))


def _beside(t: Tensor, key: Any) -> Any:
    """An index of a tensor on an accelerator, where its own tensors may be on the CPU."""
    if isinstance(key, Tensor):
        return move(key, t.device) if key._aval.device is CPU else key
    return tuple([_beside(t, k) for k in key]) if type(key) is tuple else key


@partial(recalling, bounds=True)
def _rows(self: Tensor, key: Tensor) -> Tensor:
    return _gather(self, {0: key})


def _is_mask_of(t: Tensor, key: Tensor) -> bool:
    mask = key._aval
    return mask.dtype is _BOOL and mask.ndim > 0 and mask.shape == t._aval.shape[: mask.ndim]


def _where_true(self: Tensor, mask: Tensor) -> Tensor:
    """What is where a mask holds, which is looked at. Of elements that are there already, and that nobody follows, it is taken at once: how many they
    are is another number each time, and so would be the program."""
    holds, rec = np.asarray(mask._concrete("mask")), per_thread.recorder
    if not rec.rare and self._aval.device is CPU and not (self._rg and rec.grad_enabled):
        array = self._read().at_hand()
        if array is not None:
            return created(constant(taken(array, holds)))
    places = places_of(places_in(holds), mask._aval.shape, self.device, mask)
    return apply(_index_by(tuple(range(len(places))), True), (self, *places))


@partial(recalling, bounds=True)
def _by_any(self: Tensor, key: Any) -> Tensor:
    out, indices = _basic(self, key)
    if len(indices) == 1:
        ((dim, index),) = indices.items()
        return _along(out, index, dim)
    return _gather(out, indices) if indices else out


@partial(recalling, bounds=True)
def _along(self: Tensor, key: Tensor, dim: int) -> Tensor:
    return _gather(self, {dim: key})


beside.along = _along


@public("torch.Tensor.__setitem__")
def setitem(self: Tensor, key: Any, value: Any) -> None:
    """``self[key] = value``."""
    if key is False:
        return
    if self._aval.device is not CPU:
        key = _beside(self, key)
    if type(key) is slice and not self._aval.ndim:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    if type(key) is int and not self._aval.ndim:
        raise _of_no_dimension(key)
    number = type(value) is float or (type(value) is int and LEAST_INT <= value <= MOST_INT)
    if number or type(value) is Tensor:
        keys = key if type(key) is tuple else (key,)
        given: Any = value if type(value) is Tensor else promotion.fitting(value, self._aval.dtype)
        if put_part(self, keys, given) or put_picked_at_hand(self, keys, given) or (number and _filled(self, key, value)):
            return
    if type(key) is list or (type(key) is tuple and list in map(type, key)):
        key = _with_lists(self, key)
    if _by_integers(key):
        _set_at(self, key, value, number)
    else:
        _set(self, key, value, number)


def _by_integers(key: Any) -> bool:
    """Whether an index has tensors of int64 as its only tensors, of which no elements are asked for."""
    if type(key) is Tensor:
        return key._aval.ndim > 0 and key._aval.dtype == np.int64
    if type(key) is not tuple:
        return False
    found = [k for k in key if type(k) is Tensor]
    return bool(found) and all([k._aval.ndim and k._aval.dtype == np.int64 for k in found])


def _set(self: Tensor, key: Any, value: Any, number: bool) -> None:
    """``self[key] = value``. number: whether that is a Python number within the range of an int64."""
    target = indexed(self, key) if type(key) is tuple else indexed(self, (key,)) if type(key) is slice or type(key) is int else None
    indices: dict[int, Tensor] = {}
    if target is None and type(key) is Tensor and key._aval.ndim and self._aval.ndim:
        if key._aval.dtype == np.int64:
            target, indices = self, {0: key}
        elif _is_mask_of(self, key):
            places = places_of(places_in(np.asarray(key._concrete("mask"))), key._aval.shape, self.device, key)
            target, indices = self, dict(enumerate(places))
    if target is None:
        target, indices = (unsqueeze(self, 0), indices) if key is True else _basic(self, key, alias=False)
    if not isinstance(value, Tensor):
        if not isinstance(value, (int, float, complex, bool, np.generic)):
            raise TypeError(f"can't assign a {c_name(type(value))} to a torch.{self.dtype.title}Tensor")
        if isinstance(value, int) and not LEAST_INT <= value <= MOST_INT:
            raise ValueError("Overflow when unpacking long long")
        value = promotion.fitting(value, self._aval.dtype)
        plainly = number and self._aval.dtype.char in "fd" and self.device is CPU
        value = created(constant(np.array(value, self._aval.dtype)) if plainly else from_data(value, self.dtype, self.device))
    if not indices:
        assign(target, value)
        return
    if value._aval.size == 1 and _is_mask(key):
        refuse_byte_mask(key[0] if isinstance(key, tuple) else key)
    shape = _trimmed(value._aval.shape)
    trimmed = value if len(shape) == value._aval.ndim else view(value, shape)
    if trimmed._aval.dtype != self._aval.dtype and value._aval.size == 1 and _is_mask(key):  # PyTorch fills it with a number
        if trimmed.is_complex():
            promotion.fitting(trimmed.item(), self._aval.dtype)
        trimmed = cast(trimmed, self.dtype)
    put(target, indices, trimmed, accumulate=False)


_set_at = recalling(_set, bounds=True, writes=True)


def _filled(self: Tensor, key: Any, number: Any) -> bool:
    """The short way of numbers that are written where nobody follows: to a part, or where a mask is true, which need not be looked at then. False
    where nothing was done."""
    rec, view_of = per_thread.recorder, self._view
    if rec.rare or (rec.grad_enabled and self.requires_grad) or (view_of is not None and 0 in view_of.strides):  # which PyTorch warns of
        return False
    if type(key) is Tensor and key._aval.dtype == np.bool_ and (ndim := key._aval.ndim):
        shape = self._aval.shape
        if key._aval.shape != shape[:ndim] or key.device is not self.device or (ndim < len(shape) and not plain(key)):
            return False
        mask = key if ndim == len(shape) else view(key, (*key._aval.shape, *(1,) * (len(shape) - ndim)))
        apply_inplace(_MASKED_FILL, (self, mask, promotion.fitting(number, self._aval.dtype)))
        return True
    if type(key) is int and self._aval.ndim:
        key = (key,)
    target = indexed(self, key) if type(key) is tuple else None
    if target is None:
        return False
    apply_inplace(_FILL_NUMBER, (target, promotion.fitting(number, self._aval.dtype)))
    return True


def _is_mask(key: Any) -> bool:
    """Whether the index is one tensor of booleans and nothing else."""
    if isinstance(key, tuple) and len(key) == 1:
        (key,) = key
    if isinstance(key, np.ndarray):
        return key.ndim > 0 and key.dtype in (np.bool_, np.uint8)
    return isinstance(key, Tensor) and key._aval.dtype in (np.bool_, np.uint8) and key._aval.ndim > 0


def refuse_byte_mask(mask: Any) -> None:
    """RuntimeError where a number would be written at a mask of bytes."""
    if mask.dtype in (dtypes.uint8, np.uint8):
        raise RuntimeError("masked_fill_ only supports boolean masks, but got mask with dtype unsigned char")


def c_name(kind: type) -> str:
    """A class's name as C code has it: with its module, unless it is Python's own or written in Python."""
    written_in_c = not kind.__flags__ & 1 << 9
    return f"{kind.__module__}.{kind.__name__}" if written_in_c and kind.__module__ != "builtins" else kind.__name__


def assign(target: Tensor, value: Tensor) -> None:
    """Write `value`, expanded, into `target`. RuntimeError where its shape does not fit."""
    shape = target._aval.shape
    if value._aval.shape == shape:
        copy_(target, value)
    elif not value._aval.ndim and value.device is target.device:
        fill_(target, value)
    else:
        value = view(value, _trimmed(value._aval.shape))
        copy_(target, value if value._aval.shape == shape else expand(value, shape))


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without its leading dimensions of size 1."""
    return shape[next((i for i, n in enumerate(shape) if n != 1), len(shape)) :]


@public("torch.Tensor")
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Write `src`, broadcast and converted, into this tensor. `non_blocking` changes nothing: every copy is asynchronous."""
    if not isinstance(src, Tensor):
        # A number is converted as a tensor's elements are.
        src = large_int(src, self._aval.dtype.kind) if type(src) is int else src
        kept = dtypes.float64 if type(src) is float else dtypes.int64 if type(src) is int else self.dtype
        src = created(from_data(src, kept, self.device))
    if src.device is not self.device:
        src = move(src, self.device)
    if src._aval.dtype is not self._aval.dtype:
        warn_of_lost_parts(src._aval.dtype, self._aval.dtype)
    shape = self._aval.shape
    if src._aval.shape != shape:
        try:
            fits = broadcast_shapes(shape, src._aval.shape) == shape
        except RuntimeError:
            check_writable(per_thread.recorder, self, src)
            raise
        if not fits:
            check_writable(per_thread.recorder, self, src)
            raise RuntimeError(f"output with shape {list(shape)} doesn't match the broadcast shape {list(broadcast_shapes(shape, src._aval.shape))}")
    return apply_inplace(_COPY, (self, src))


@public("torch.Tensor")
def masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Write `value` where `mask` is true."""
    if isinstance(mask, Tensor) and mask._aval.shape != self._aval.shape:
        try:
            broadcast_shapes(self._aval.shape, mask._aval.shape)
        except RuntimeError:
            check_writable(per_thread.recorder, self)
            raise
    return _masked_fill_(self, mask, value if isinstance(value, Tensor) else promotion.fitting(value, self._aval.dtype))


_masked_fill_ = inplace_of(registry["masked_fill"], "torch.Tensor.masked_fill_")
_COPY = registry["copy"].bind((ARRAY, ARRAY))
_MASKED_FILL = registry["masked_fill"].bind((ARRAY, ARRAY, ARRAY))
_FILL_NUMBER = registry["fill_number"].bind((ARRAY, ARRAY))


# ---------------------------------------------------------------------- basic indexing


def _as_tuple(key: Any) -> tuple[Any, ...]:
    if isinstance(key, tuple):
        return key
    if not isinstance(key, (list, range)):
        return (key,)
    keys = list(key)
    if len(keys) < 32 and any(isinstance(k, (slice, type(None), type(...), list, tuple, range, Tensor)) for k in keys):
        warn_user(NON_TUPLE)
        return tuple(keys)
    return (keys,)


NON_TUPLE = (
    "Using a non-tuple sequence for multidimensional indexing is deprecated and will be changed in pytorch 2.9; use x[tuple(seq)] instead of "
    "x[seq]. In pytorch 2.9 this will be interpreted as tensor index, x[torch.tensor(seq)], which will result either in an error or a different "
    "result"
)


def _consumes(k: Any) -> int:
    """How many dimensions an index stands for."""
    if type(k) is int or type(k) is slice:
        return 1
    if isinstance(k, Tensor):
        return k._aval.ndim if k._aval.dtype.char in _MASKS else 1
    if k is None or k is Ellipsis or isinstance(k, bool):
        return 0
    if isinstance(k, np.ndarray) and k.dtype == np.bool_:
        return k.ndim
    return 1


def _basic(self: Tensor, key: Any, alias: bool = True) -> tuple[Tensor, dict[int, Tensor]]:
    """The view that ints, slices, None and ... make, and the index tensors by dimension of it. alias: a new tensor even if it is all of `self`."""
    keys = _as_tuple(key)
    shape = self._aval.shape
    used = sum([1 if type(k) is int or type(k) is slice else _consumes(k) for k in keys])
    if used > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    out = self
    dim = 0
    indices: dict[int, Tensor] = {}
    for place, k in enumerate(keys):
        if type(k) is int:  # what is most frequent first
            out = _selected(out, dim, k, place)
        elif isinstance(k, slice):
            out = _sliced(out, dim, k)
            dim += 1
        elif type(k) is Tensor and k._aval.dtype == _INT64:
            if k._aval.ndim or not k._content().readable:
                indices[dim] = k
                dim += 1
            else:
                out = _selected(out, dim, int(k), place)
        elif k is None:
            out = unsqueeze(out, dim)
            dim += 1
        elif k is Ellipsis:
            dim += len(shape) - used
        elif isinstance(k, bool) or _is_truth(k):
            out = unsqueeze(out, dim)
            indices[dim] = created(from_data(np.zeros(int(k), np.int64), None, self.device))
            dim += 1
        elif _is_integer(k):
            out = _selected(out, dim, int(k), place)
        else:
            for index in index_tensors(k, out, dim):
                indices[dim] = index
                dim += 1
    if indices and dim > out._aval.ndim:  # by a second ...
        raise IndexError(f"too many indices for tensor of dimension {out._aval.ndim} (got {dim})")
    if alias and out is self and not indices:
        out = viewed("alias", self)
    return out, indices


def _is_truth(k: Any) -> bool:
    """Whether this is one boolean in an array: a mask of the tensor as a whole. `np.bool_` is no index in PyTorch."""
    if isinstance(k, Tensor):
        return not k._aval.ndim and k._aval.dtype.char in _MASKS
    return isinstance(k, np.ndarray) and not k.ndim and k.dtype == np.bool_


def _is_integer(k: Any) -> bool:
    if isinstance(k, Tensor):
        return k._aval.ndim == 0 and k._aval.dtype.kind in "iu" and k._aval.dtype.char not in _MASKS and k._content().readable
    return hasattr(k, "__index__") and not isinstance(k, (list, tuple, np.ndarray, np.bool_)) and not getattr(k, "ndim", 0)  # JAX's arrays have it


def _outside(index: int, dim: int, n: int) -> Exception:
    if not -(1 << 63) <= index < 1 << 63:
        return ValueError("Overflow when unpacking long long")
    return IndexError(f"index {index} is out of bounds for dimension {dim} with size {n}")


def _selected(t: Tensor, dim: int, index: int, place: int) -> Tensor:
    """place: which of the indices this is, which PyTorch tells as the dimension."""
    n = t._aval.shape[dim]
    if not -n <= index < n:
        raise _outside(index, place, n)
    if View.replayed_somewhere:
        return select(t, dim, index)
    return part_of("select", t, index + n if index < 0 else index, (dim,))


def _sliced(t: Tensor, dim: int, k: slice, whole: bool = True) -> Tensor:
    """whole: the tensor itself where nothing is left out."""
    if not t._aval.ndim:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    if whole and k.start is k.stop is k.step is None:
        return t
    start, stop, step = [None if v is None else _bound(v) for v in (k.start, k.stop, k.step)]
    if step == 0:
        raise ValueError("slice step cannot be zero")
    if step is not None and step < 0:
        raise ValueError("step must be greater than zero")
    n = t._aval.shape[dim]
    if whole and start in (None, 0) and (stop is None or stop >= n) and step in (None, 1):
        return t
    return slice_dim(t, dim, 0 if start is None else start, MOST_INT if stop is None else stop, 1 if step is None else step)


def _bound(v: Any) -> int:
    """A bound of a slice. TypeError in Python's words for what is no integer."""
    if not hasattr(v, "__index__"):
        raise TypeError("slice indices must be integers or None or have an __index__ method")
    return v.__index__()


def index_tensors(k: Any, t: Tensor, dim: int) -> list[Tensor]:
    """An index as int64 tensors, one for each dimension it stands for: a boolean mask as the places where it holds."""
    if not isinstance(k, Tensor):
        if isinstance(k, str):
            raise TypeError("new(): invalid data type 'str'")
        if isinstance(k, range):
            k = list(k)
        if not isinstance(k, (list, tuple, np.ndarray)):
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got " + c_name(type(k)) + ")"
            )
        listed = not isinstance(k, np.ndarray)
        k = created(from_data(k, None, t.device))
        if listed and k._aval.dtype.kind == "f":
            k = created(from_data(np.asarray(k._concrete()).astype(np.int64), None, t.device))
    if k._aval.dtype.char in _MASKS:
        if k._aval.dtype == np.uint8:
            warn_user("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
        for i, n in enumerate(k._aval.shape):
            if n != t._aval.shape[dim + i]:
                raise IndexError(
                    f"The shape of the mask {list(k._aval.shape)} at index {i} does not match the shape of the indexed tensor "
                    f"{list(t._aval.shape)} at index {dim + i}"
                )
        return places_of(places_in(np.asarray(k._concrete("mask"))), k._aval.shape, t.device, k)
    if k._aval.dtype not in (np.int64, np.int32):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    return [k]


def places_of(found: tuple[np.ndarray, ...], shape: tuple[int, ...], where: Any, mask: Tensor) -> list[Tensor]:
    """The places where `mask` is true, by dimension of a shape: indices that are known to be in range, and are outdated when the mask is."""
    counter, places = OfMask(mask._content()), []
    for along, n in zip(found, shape, strict=True):
        value = constant(np.array(along, np.int64), aval_of(along.shape, _INT64, where))
        value.counter = counter
        if along.size:
            value.bounds = 0, n - 1
        places.append(created(value))
    if mask.is_inference() and not per_thread.recorder.inference:  # so that PyTorch's refusal to save the mask is met
        for index in places:
            index._storage = InferenceStorage(index._value)
    return places


# ---------------------------------------------------------------------- index tensors


def _gathered_shape(shape: tuple[int, ...], indices: dict[int, Tensor]) -> tuple[int, ...]:
    if len(indices) == 1:
        [(d, index)] = indices.items()
        return (*shape[:d], *index._aval.shape, *shape[d + 1 :])
    dims = sorted(indices)
    try:
        index_shape = broadcast_shapes(*(indices[d]._aval.shape for d in dims))
    except RuntimeError:
        shapes = ", ".join(str(list(indices[d]._aval.shape)) for d in dims)
        raise IndexError(f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}") from None
    if dims == list(range(dims[0], dims[-1] + 1)):
        return (*shape[: dims[0]], *index_shape, *shape[dims[-1] + 1 :])
    return (*index_shape, *(n for i, n in enumerate(shape) if i not in indices))


def known_bounds(index: Tensor) -> tuple[int, int] | None:
    """The smallest and largest element of host data; None where the values are not at hand without a computation. A view of all elements of
    host data has its bounds."""
    found, whole = index._read().known_bounds(), None if index._view is None else _viewed(index)
    if found is None and whole is not None and whole.aval.size == index._aval.size and dense_order(index._aval.shape, index._strides()) is not None:
        found = whole.known_bounds()
    return found


def may_be_out_of_range(index: Tensor, low: int, size: int) -> bool:
    """Whether an index of which no more is known may have an element below `low`, or of `size` and above: one that is a view has none that its memory
    has not."""
    whole = None if index._view is None else _viewed(index)
    bounds = None if whole is None else whole.known_bounds()
    return bounds is None or bounds[0] < low or bounds[1] >= size


def _viewed(index: Tensor) -> Value | None:
    """All that a view is part of, where its elements are of that."""
    storage = index._storage
    if storage is None or in_transform():
        return None
    whole = storage.peek()
    return whole if whole.aval.dtype == index._aval.dtype else None


def _check_indices(shape: tuple[int, ...], indices: dict[int, Tensor]) -> bool:
    """Raise IndexError for host indices out of range; whether all indices are known to be in range."""
    known = True
    for place, (dim, index) in enumerate(sorted(indices.items())):
        if not index._aval.size:
            continue
        bounds = known_bounds(index)
        n = shape[dim]
        if bounds is None:
            known = known and not may_be_out_of_range(index, -n, n)
        elif bounds[0] < -n or bounds[1] >= n:
            bad = next(i for i in np.asarray(index._concrete()).flat if not -n <= i < n)
            # PyTorch counts the index tensors here, not the dimensions.
            raise IndexError(f"index {bad} is out of bounds for dimension {place} with size {n}")
    return known


def _gather(t: Tensor, indices: dict[int, Tensor]) -> Tensor:
    dims = tuple(sorted(indices))
    if len(dims) > 1:
        _gathered_shape(t._aval.shape, indices)
    return apply(_index_by(dims, _check_indices(t._aval.shape, indices)), (t, *[indices[d] for d in dims]))


@lru_cache(256)
def _index_by(dims: tuple[int, ...], known: bool) -> Any:
    return registry["index" if known else "index_checked"].bind((ARRAY, len(dims), Static(dims)))


def put_at(t: Tensor, indices: dict[int, Tensor], values: Tensor) -> str:
    """The operator that writes `values` at index tensors of the dimensions given. RuntimeError where shapes or dtypes do not fit, IndexError for
    an index that is known to be out of range."""
    shape = _gathered_shape(t._aval.shape, indices)
    try:
        fits = values._aval.shape == shape or broadcast_shapes(shape, values._aval.shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values._aval.shape)} cannot be broadcast to indexing result of shape {list(shape)}"
        )
    if t._aval.dtype != values._aval.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {t.dtype.title} for the destination and {values.dtype.title} "
            "for the source."
        )
    return "index_put" if _check_indices(t._aval.shape, indices) else "index_put_checked"


@lru_cache(256)
def _put_by(name: str, dims: tuple[int, ...], accumulate: bool) -> Any:
    return registry[name].bind((ARRAY, ARRAY, len(dims), Static(dims), Static(accumulate)))


def put(t: Tensor, indices: dict[int, Tensor], values: Tensor, accumulate: bool) -> Tensor:
    """Write (or add) `values` at index tensors."""
    name, dims = put_at(t, indices, values), tuple(sorted(indices))
    return apply_inplace(_put_by(name, dims, accumulate), (t, values, *(indices[d] for d in dims)))
