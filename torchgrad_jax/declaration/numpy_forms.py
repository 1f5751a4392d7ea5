"""Operators on NumPy arrays: what `numpy` and `numpy_vjp` of a declaration say.

A form gives bit for bit what the operator's JAX function gives, of arrays and NumPy scalars alike, and never writes to its operands. What it returns
may be a view of them. Called with arrays that take no memory, it tells the result's shape and dtype; None says that it is not for operands like
these. Errors are not its concern: where it raises, the operator is traced, and raises its own.

Two differences, in which a form is as PyTorch: XLA's CPU compiler takes subnormal numbers for 0 when it converts; and zeros in gradients may have
another sign, which with XLA depends on what it fuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_parts import narrow, split, unbind
from torchgrad_jax.runtime.baseline import Forms, blocks
from torchgrad_jax.runtime.baseline.broadcasting import FILLED, repeated
from torchgrad_jax.runtime.baseline.carrying import Joined
from torchgrad_jax.runtime.baseline.copying import contiguous, joined, reshaped, stacked, written
from torchgrad_jax.runtime.baseline.reducing import summing
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval

Array = np.ndarray
Shape = tuple[int, ...]


Form = Callable[..., Any] | Forms


def applied(form: Form, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Forms:
    """A form with its functions changed."""
    return form.changed(change) if isinstance(form, Forms) else Forms(change(form))


# Triangles of up to so many elements are kept: making one takes as long as all the rest.
_KEPT_ELEMENTS = 1 << 16
_ALL = slice(None)


def like(x: Array, *_: Any, **__: Any) -> Array:
    """The result of what keeps the shape and the dtype of its first operand."""
    return x


def of_aval(grad: Array, aval: Aval, *_: Any, **__: Any) -> Array:
    """The result of a gradient in the shape of its tensor."""
    return stand_in(aval.shape, grad.dtype)


def same_dtype(tensors: Sequence[Array]) -> bool:
    """Whether nothing has to be converted to bring these together."""
    return all([t.dtype == tensors[0].dtype for t in tensors])


# ---------------------------------------------------------------------- conversion


def convertible(source: np.dtype, target: np.dtype) -> bool:
    """Whether NumPy converts as `declare.convert` does. What does not fit into uint64 differs between processors."""
    return target != np.uint64 or source.kind in "biu"


def converted(x: Array, target: np.dtype) -> Array:
    """`declare.convert` for NumPy arrays."""
    source = x.dtype
    if source == target:
        return x
    if target.kind == "b":
        return np.not_equal(x, np.zeros((), source))
    if source.kind == "c" and target.kind != "c":
        x = np.real(x)
    if target.kind in "iu" and source.kind not in "biu":
        return _to_integer(x, target)
    if target.itemsize == 2 and target.kind not in "iu" and x.dtype.itemsize == 8 and x.dtype.kind == "f":
        x = x.astype(np.float32)  # PyTorch rounds twice
    return blocks.converted(x, target)


def _to_integer(x: Array, target: np.dtype) -> Array:
    x = blocks.widened(x)
    whole = target if target in (np.int32, np.int64) else np.dtype(np.int64)
    lowest = x.dtype.type(-(1 << (8 * whole.itemsize - 1)))  # `np.iinfo` takes 3 us
    fits = np.logical_and(np.greater_equal(x, lowest), np.less(x, -lowest))
    if np.count_nonzero(fits) != fits.size:
        x = np.where(fits, x, lowest)
    return x.astype(whole).astype(target, copy=False)


def _as_dtype(x: Array, dtype: np.dtype) -> Array | None:
    return stand_in(x.shape, dtype) if convertible(x.dtype, dtype) else None


to_copy = Forms(lambda x, dtype: converted(x, dtype), lambda x, dtype: _as_dtype(x, dtype))
to_copy_vjp = Forms(lambda grad, aval, dtype: converted(grad, aval.dtype), lambda grad, aval, dtype: _as_dtype(grad, aval.dtype))


def _copied(x: Array, src: Array) -> Array:
    return expand(converted(src, x.dtype), x.shape)


copy = Forms(_copied, lambda x, src: x if convertible(src.dtype, x.dtype) and np.broadcast_shapes(src.shape, x.shape) == x.shape else None)


# ---------------------------------------------------------------------- one number everywhere


def full(value: Array, size: Shape, dtype: np.dtype) -> Array | None:
    """A number everywhere, in one element of memory."""
    if not convertible(value.dtype, dtype):
        return None
    return np.ndarray(size, dtype, converted(value, dtype).tobytes(), 0, (0,) * len(size))


def fill(x: Array, value: Array) -> Array | None:
    """A number in the shape and dtype of `x`."""
    return None if value.ndim else full(value, x.shape, x.dtype)


def constant(size: Shape, fill_value: int, dtype: np.dtype) -> Array | None:
    """0 or 1 everywhere."""
    return full(np.array(fill_value), size, dtype)


def zeros_like(x: Array) -> Array:
    """Zeros in the shape and dtype of `x`."""
    return stand_in(x.shape, x.dtype)


def zeros_vjp(grad: Array, aval: Aval, *_: Any, **__: Any) -> Array:
    """The gradient of what the result does not depend on."""
    return stand_in(aval.shape, grad.dtype)


def identity_like(x: Array) -> Array:
    """The identity matrix, as often as `x` has matrices."""
    return expand(np.eye(x.shape[-1], dtype=x.dtype), x.shape)


# ---------------------------------------------------------------------- parts


def diagonal(x: Array, offset: int, dim1: int, dim2: int) -> Array:
    """The diagonal of two dimensions, as the last dimension, a view."""
    return x.diagonal(offset, dim1, dim2)


def _trace_of(x: Array) -> Array | None:
    wide = x.dtype.kind in "iu" or (x.dtype.kind in "fc" and x.dtype.itemsize > 2)
    return stand_in((), x.dtype if x.dtype.kind in "fc" else np.dtype(np.int64)) if wide and x.ndim == 2 else None


trace = Forms(lambda x: np.asarray(np.add.reduce(x.diagonal(), dtype=x.dtype if x.dtype.kind in "fc" else np.int64, initial=0)), _trace_of, True)


def _write(whole: Array, part: Array, src: Array) -> Array:
    part.setflags(write=True)  # NumPy gives a diagonal as read-only
    part[...] = src
    return whole


def writing(read: Callable[..., Array]) -> Forms:
    """`src` written to the part of `x` that `read` gives a view of."""

    def function(x: Array, src: Array, *numbers: Any, **statics: Any) -> Array:
        return overwriting(np.array(x), src, *numbers, **statics)

    def overwriting(x: Array, src: Array, *numbers: Any, **statics: Any) -> Array:
        return _write(x, read(x, *numbers, **statics), src)

    def result(x: Array, src: Array, *numbers: Any, **statics: Any) -> Array | None:
        return x if src.dtype == x.dtype and read(x, *numbers, **statics).shape == src.shape else None

    return Forms(function, result, True, overwriting)


def placing(read: Callable[..., Array]) -> Forms:
    """The gradient of the part that `read` gives a view of: zeros elsewhere."""

    def function(grad: Array, aval: Aval, *numbers: Any, **statics: Any) -> Array:
        whole = np.zeros(aval.shape, grad.dtype)
        return _write(whole, read(whole, *numbers, **statics), grad)

    return Forms(function, of_aval, True)


def _joined(read: Callable[..., tuple[Array, ...]], join: Callable[[list[Any], int], Array]) -> Forms:
    def function(grads: list[Array | None], aval: Aval, **statics: Any) -> Array:
        if type(None) not in map(type, grads):  # `None in grads` would compare arrays
            return join(grads, statics["dim"])
        whole = np.zeros(aval.shape, aval.dtype)
        for part, grad in zip(read(whole, **statics), grads, strict=True):
            if grad is not None:
                part[...] = grad
        return whole

    return Forms(function, lambda grads, aval, **statics: stand_in(aval.shape, aval.dtype))


split_vjp, unbind_vjp = _joined(split, joined), _joined(unbind, stacked)


# ---------------------------------------------------------------------- shapes


def reshape_vjp(grad: Array, aval: Aval, **_: Any) -> Array:
    """The same elements in the tensor's shape."""
    return reshaped(grad, aval.shape)


# The options of a view operator that gives the same elements in the same order.
RESHAPED: dict[str, Any] = {
    "numpy_vjp": reshape_vjp,
    "numpy_write": lambda x, src, **_: src.reshape(x.shape),
}


def transpose(x: Array, dim0: int, dim1: int) -> Array:
    """Two dimensions exchanged, a view."""
    return x.swapaxes(dim0, dim1) if x.ndim else x


def unsqueeze(x: Array, dim: int) -> Array:
    """A dimension of size 1 put in before `dim`, a view."""
    return x[(*(_ALL,) * dim, None, ...)]


def expand(x: Array, size: Shape) -> Array:
    """Dimensions of size 1 repeated: a view where that is much."""
    if x.shape == size:
        return x
    if math.prod(size) > FILLED:
        return repeated(x, size)
    found = np.empty(size, x.dtype)
    found[...] = x
    return found


def summed(grad: Array, dims: Shape) -> Array:
    """The sum over `dims`, of half precision in float32."""
    if not dims:
        return grad
    if grad.dtype.itemsize == 2:
        return blocks.converted(summing(dims, blocks.SINGLE)(blocks.widened(grad)), grad.dtype)
    return summing(dims, grad.dtype)(grad)


def _expand_vjp(grad: Array, aval: Aval, size: Shape) -> Array:
    new = len(size) - aval.ndim
    dims = (*range(new), *[new + i for i, n in enumerate(aval.shape) if n == 1 and size[new + i] != 1])
    return summed(grad, dims).reshape(aval.shape)


expand_vjp = Forms(_expand_vjp, of_aval)


def expand_scatter(x: Array, src: Array, size: Shape) -> Array:
    """The first of what was repeated, a view."""
    if not src.size:  # expanded to nothing
        return x
    first = src[tuple([slice(0, n) for n in (1,) * (src.ndim - x.ndim) + x.shape])]
    return first.reshape(x.shape)


def _repeated(x: Array, repeats: Shape) -> Array:
    shape = (1,) * (len(repeats) - x.ndim) + x.shape
    apart = [n for pair in zip(repeats, shape, strict=True) for n in pair]
    copies = contiguous(repeated(x.reshape([n for pair in shape for n in (1, pair)]), tuple(apart)))
    return copies.reshape([r * n for r, n in zip(repeats, shape, strict=True)])


def _repeat_result(x: Array, repeats: Shape) -> Array:
    shape = (1,) * (len(repeats) - x.ndim) + x.shape
    return stand_in(tuple([r * n for r, n in zip(repeats, shape, strict=True)]), x.dtype)


def _repeat_vjp(grad: Array, aval: Aval, repeats: Shape) -> Array:
    shape = (1,) * (len(repeats) - aval.ndim) + aval.shape
    apart = grad.reshape([n for pair in zip(repeats, shape, strict=True) for n in pair])
    return summed(apart, tuple([2 * d for d, times in enumerate(repeats) if times != 1])).reshape(aval.shape)


repeat, repeat_vjp = Forms(_repeated, _repeat_result), Forms(_repeat_vjp, of_aval)


def tiled(x: Array, times: int) -> Array:
    """A vector `times` times over."""
    return expand(x, (times, x.shape[0])).reshape(times * x.shape[0])


def unfold(x: Array, dimension: int, size: int, step: int) -> Array:
    """Windows of `size` along `dimension`, as a new last dimension, a view."""
    if not x.ndim:
        return x.reshape(1)[:size]
    count = (x.shape[dimension] - size) // step + 1
    if count < 1 or step < 1:
        raise ValueError("no windows")
    shape = (*x.shape[:dimension], count, *x.shape[dimension + 1 :], size)
    strides = (*x.strides[:dimension], x.strides[dimension] * step, *x.strides[dimension + 1 :], x.strides[dimension])
    if x.flags.c_contiguous and x.dtype.isbuiltin == 1:
        found = np.ndarray(shape, x.dtype, x, 0, strides)
        found.flags.writeable = False
        return found
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


def strided_places(size: Shape, stride: Shape, offset: int | None) -> Array:
    """Where in a base's memory the elements are that are read by strides."""
    found = np.array(offset or 0)
    for n, s in zip(size, stride, strict=True):
        found = np.add.outer(found, np.arange(n) * s)
    return found


def by_strides(x: Array, size: Shape, stride: Shape, offset: int | None) -> Array | None:
    """The elements of an array's own memory that are read by strides, in elements; None where they have to be looked up."""
    if not x.flags.c_contiguous or x.dtype.isbuiltin != 1:
        return None
    each = x.itemsize
    return np.ndarray(size, x.dtype, x, (offset or 0) * each, tuple([s * each for s in stride]))


def _strided(x: Array, size: Shape, stride: Shape, storage_offset: int | None) -> Array:
    found = by_strides(x, size, stride, storage_offset)
    return x.reshape(-1)[strided_places(size, stride, storage_offset)] if found is None else found


def _strided_result(x: Array, size: Shape, stride: Shape, storage_offset: int | None) -> Array | None:
    begin = storage_offset or 0
    last = begin + sum([(n - 1) * s for n, s in zip(size, stride, strict=True)])
    inside = 0 not in size and min(stride, default=0) >= 0 and 0 <= begin <= last < x.size
    return stand_in(size, x.dtype) if inside else None


as_strided = Forms(_strided, _strided_result)


# ---------------------------------------------------------------------- joining


def _not_empty(tensors: Sequence[Any]) -> list[Any]:
    return [t for t in tensors if t.shape != (0,)]


def _cat_result(tensors: list[Array], dim: int) -> Array | None:
    kept = _not_empty(tensors) or tensors[:1]
    shape = list(kept[0].shape)
    shape[dim] = sum([t.shape[dim] for t in kept])
    return stand_in(tuple(shape), kept[0].dtype) if same_dtype(tensors) else None


def _cat_vjp(grad: Array, avals: Sequence[Aval], dim: int) -> tuple[Array, ...]:
    found, at = [], 0
    for a in avals:
        if a.shape == (0,):
            found.append(stand_in((0,), grad.dtype))
        else:
            found.append(narrow(grad, dim, at, a.shape[dim]))
            at += a.shape[dim]
    return tuple(found)


def _cat(tensors: list[Array], dim: int) -> Array:
    try:
        return joined(tensors, dim)
    except ValueError:  # PyTorch leaves out vectors without an element beside tensors of more dimensions
        return joined(_not_empty(tensors) or tensors[:1], dim)


def _cat_steps(tensors: list[Array], dim: int) -> Any:
    return [(Joined(dim), range(len(tensors)))] if len(_not_empty(tensors)) == len(tensors) else None


cat, cat_vjp = Forms(_cat, _cat_result, steps=_cat_steps), _cat_vjp


def _stack_result(tensors: list[Array], dim: int) -> Array | None:
    shape = tensors[0].shape
    return stand_in((*shape[:dim], len(tensors), *shape[dim:]), tensors[0].dtype) if same_dtype(tensors) else None


def stack_vjp(grad: Array, avals: Sequence[Aval], dim: int) -> tuple[Array, ...]:
    """The slices along `dim`, views."""
    return tuple([grad[(*(_ALL,) * dim, i, ...)] for i in range(len(avals))])


stack = Forms(lambda tensors, dim: stacked(tensors, dim), _stack_result, steps=lambda tensors, dim: [(Joined(dim, True), range(len(tensors)))])


def _matrix(t: Array) -> Array:
    return t.reshape((1,) * (2 - t.ndim) + t.shape)


def _block_diag(tensors: list[Array]) -> Array:
    matrices = [_matrix(t) for t in tensors]
    whole = np.zeros(_block_diag_result(tensors).shape, tensors[0].dtype)  # type: ignore[union-attr] - it was asked for these operands
    row = column = 0
    for m in matrices:
        whole[row : row + m.shape[0], column : column + m.shape[1]] = m
        row, column = row + m.shape[0], column + m.shape[1]
    return whole


def _block_diag_result(tensors: list[Array]) -> Array | None:
    if not tensors or not same_dtype(tensors):
        return None
    shapes = [_matrix(t).shape for t in tensors]
    return stand_in((sum([s[0] for s in shapes]), sum([s[1] for s in shapes])), tensors[0].dtype)


def block_diag_vjp(grad: Array, avals: Sequence[Aval]) -> tuple[Array, ...]:
    """The blocks."""
    found, row, column = [], 0, 0
    for aval in avals:
        height, width = (1, 1, *aval.shape)[-2:]
        found.append(grad[row : row + height, column : column + width].reshape(aval.shape))
        row, column = row + height, column + width
    return tuple(found)


block_diag = Forms(_block_diag, _block_diag_result)


# ---------------------------------------------------------------------- complex numbers as pairs


def as_real(x: Array) -> Array:
    """Complex numbers as pairs in a last dimension, a view."""
    return x[..., None].view(_parts(x.dtype))


def _parts(dtype: np.dtype) -> np.dtype:
    return np.real(np.zeros((), dtype)).dtype


def _as_complex(x: Array) -> Array:
    whole = np.ascontiguousarray(x)
    return whole.view(np.complex64 if x.dtype == np.float32 else np.complex128)[..., 0]


def _as_complex_result(x: Array) -> Array | None:
    pairs = x.dtype in (np.float32, np.float64) and x.shape[-1] == 2
    return stand_in(x.shape[:-1], np.dtype(np.complex64 if x.dtype == np.float32 else np.complex128)) if pairs else None


as_complex = Forms(_as_complex, _as_complex_result)
as_complex_vjp = Forms(lambda grad, aval: _as_complex(grad), lambda grad, aval: _as_complex_result(grad))
as_complex_scatter = Forms(lambda x, src: _as_complex(src), lambda x, src: _as_complex_result(src))
conj = Forms(lambda x: np.conjugate(x), lambda x: x if x.dtype.kind == "c" else None)
conj_vjp = Forms(lambda grad, aval: np.conjugate(grad), lambda grad, aval: grad if grad.dtype.kind == "c" else None)


# ---------------------------------------------------------------------- mirroring, rolling, triangles


def rolled(x: Array, shifts: Shape, dims: Shape) -> Array:
    """The elements moved along `dims`, or in the order of all elements."""
    if not x.size:
        return x
    if not dims:
        return rolled(x.reshape(-1), shifts, (0,)).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        at, before = -shift % x.shape[dim], (_ALL,) * (dim % x.ndim)
        x = np.concatenate([x[(*before, slice(at, None))], x[(*before, slice(at))]], dim)
    return x


roll = Forms(rolled, like)
roll_vjp = Forms(lambda grad, aval, shifts, dims: rolled(grad, tuple([-s for s in shifts]), dims), of_aval)


def _tril(x: Array, diagonal: int) -> Array:
    kept = _bits_of_triangle(x, diagonal, -1)
    return np.where(_triangle(x.shape, diagonal), x, np.zeros((), x.dtype)) if kept is None else (x.view(kept.dtype) & kept).view(x.dtype)


def _triu(x: Array, diagonal: int) -> Array:
    kept = _bits_of_triangle(x, diagonal - 1, 0)
    return np.where(_triangle(x.shape, diagonal - 1), np.zeros((), x.dtype), x) if kept is None else (x.view(kept.dtype) & kept).view(x.dtype)


def _triangle(shape: Shape, diagonal: int) -> Array:
    """Whether elements of matrices are on a diagonal or below it."""
    rows, columns = shape[-2:]
    return np.tri(rows, columns, diagonal, bool)


def _bits_of_triangle(x: Array, diagonal: int, below: int) -> Array | None:
    """Which bits of matrices are kept, all or none of an element's: `below` a diagonal and on it -1 or 0. A quarter of a choice's time. None of what
    is too large to be remembered."""
    rows, columns = x.shape[-2:]
    return _kept_triangle(rows, columns, diagonal, below, x.itemsize) if rows * columns <= _KEPT_ELEMENTS and x.itemsize <= 8 else None


@lru_cache(16)
def _kept_triangle(rows: int, columns: int, diagonal: int, below: int, size: int) -> Array:
    dtype = np.dtype(f"i{size}")
    kept = np.where(np.tri(rows, columns, diagonal, bool), dtype.type(below), dtype.type(-1 - below))
    kept.flags.writeable = False
    return kept


tril, triu = Forms(_tril, like), Forms(_triu, like)
tril_vjp = Forms(lambda grad, aval, diagonal: _tril(grad, diagonal), of_aval)
triu_vjp = Forms(lambda grad, aval, diagonal: _triu(grad, diagonal), of_aval)


def _diag_embedded(x: Array, offset: int, dim1: int, dim2: int) -> Array:
    n = x.shape[-1] + abs(offset)
    whole = np.zeros((*x.shape[:-1], n, n), x.dtype)
    whole = _write(whole, whole.diagonal(offset, -2, -1), x)
    return whole if (dim1 % whole.ndim, dim2 % whole.ndim) == (whole.ndim - 2, whole.ndim - 1) else np.moveaxis(whole, (-2, -1), (dim1, dim2))


def _diag_embed_result(x: Array, offset: int, dim1: int, dim2: int) -> Array:
    n = x.shape[-1] + abs(offset)
    return np.moveaxis(stand_in((*x.shape[:-1], n, n), x.dtype), (-2, -1), (dim1, dim2))


diag_embed = Forms(_diag_embedded, _diag_embed_result)


# ---------------------------------------------------------------------- padding, channels


def _padded(x: Array, value: Array, pad: Shape) -> Array:
    shape, into, of = _padding(x.shape, pad)
    whole = np.empty(shape, x.dtype)
    whole[...] = value
    written(whole[into], x[of])
    return whole


@lru_cache(1024)
def _padding(shape: Shape, pad: Shape) -> tuple[Shape, tuple[slice, ...], tuple[slice, ...]]:
    """The shape, where the elements that are kept are written to, and where they are read. ValueError where more is removed than there is."""
    made = list(shape)
    into, of = [_ALL] * len(shape), [_ALL] * len(shape)
    for i in range(len(pad) // 2):
        d, before, after = len(shape) - 1 - i, pad[2 * i], pad[2 * i + 1]
        made[d] += before + after
        first, first_kept = max(before, 0), max(-before, 0)
        count = max(min(shape[d] - max(-after, 0) - first_kept, made[d] - first), 0)
        into[d], of[d] = slice(first, first + count), slice(first_kept, first_kept + count)
    if min(made, default=0) < 0:
        raise ValueError("more removed than there is")
    return tuple(made), tuple(into), tuple(of)


def _pad(x: Array, value: Array, pad: Shape) -> Array:
    return _padded(x, converted(value, x.dtype), pad)


def _pad_result(x: Array, value: Array, pad: Shape) -> Array | None:
    return stand_in(_padding(x.shape, pad)[0], x.dtype) if convertible(value.dtype, x.dtype) else None


def _pad_vjp(grad: Array, aval: Aval, pad: Shape) -> Array:
    return _padded(grad, np.zeros((), grad.dtype), tuple([-p for p in pad]))


constant_pad, constant_pad_vjp = Forms(_pad, _pad_result), Forms(_pad_vjp, of_aval)


def _pixels_joined(x: Array, upscale_factor: int) -> Array:
    *lead, c, h, w = x.shape
    n, r = len(lead), upscale_factor
    blocks = x.reshape((*lead, c // (r * r), r, r, h, w)).transpose((*range(n + 1), n + 3, n + 1, n + 4, n + 2))
    return blocks.reshape((*lead, c // (r * r), h * r, w * r))


def _pixels_apart(x: Array, downscale_factor: int) -> Array:
    *lead, c, h, w = x.shape
    n, r = len(lead), downscale_factor
    blocks = x.reshape((*lead, c, h // r, r, w // r, r)).transpose((*range(n + 1), n + 2, n + 4, n + 1, n + 3))
    return blocks.reshape((*lead, c * r * r, h // r, w // r))


def _channels_shuffled(x: Array, groups: int) -> Array:
    n, c, *spatial = x.shape
    return x.reshape((n, groups, c // groups, *spatial)).swapaxes(1, 2).reshape(x.shape)


def _of_grad(form: Callable[..., Array]) -> Forms:
    def function(grad: Array, aval: Aval, **statics: Any) -> Array:
        return form(grad, *statics.values())

    return Forms(function, of_aval)


# A reshape of what takes no memory is a view: these tell their own results.
pixel_shuffle, pixel_shuffle_vjp = Forms(_pixels_joined, _pixels_joined), _of_grad(_pixels_apart)
pixel_unshuffle, pixel_unshuffle_vjp = Forms(_pixels_apart, _pixels_apart), _of_grad(_pixels_joined)
channel_shuffle = Forms(_channels_shuffled, _channels_shuffled)
