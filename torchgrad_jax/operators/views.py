"""View operators: how each is read, how it is written back into its parent, and the strides it has.

`name` reads; `name_scatter` (made here, with `Tensor src` after `self`) gives the parent with `src` written to the view; `name_copy` reads into
memory of its own. All dims are non-negative and all sizes are known when these are reached.

`numpy` and `numpy_vjp` are the options of `op`; `numpy_write` is the form of `name_scatter`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import numpy_forms as forms
from torchgrad_jax.declaration import numpy_parts as parts
from torchgrad_jax.declaration import numpy_placing
from torchgrad_jax.declaration.converting import where, wide, zeros_like
from torchgrad_jax.declaration.operator import SAME, op
from torchgrad_jax.declaration.strides import apart, contiguous_strides

# What a view's strides and offset are: (shape, strides, offset, *arguments in the schema's order) -> (strides, offset).
StrideRule = Callable[..., tuple[tuple[int, ...], int]]
stride_rules: dict[str, StrideRule] = {}


def viewed(
    schema: str, write: Callable[..., Any], strides: StrideRule, *, numpy_write: Any = None, scatter_attributes: str = "", **options: Any
) -> Callable[[Callable[..., Any]], Any]:  # fmt: skip
    """Declare a view operator, its copying twin `X_copy`, and `X_scatter`, which writes to what it reads."""

    def declare(read: Callable[..., Any]) -> Any:
        made = op(schema, linear=True, method=False, toplevel=False, out=False, view=strides, **options)(read)
        copies = {**options, "node": f"{made.node}_copy"}
        op(schema.replace("(", "_copy(", 1), linear=True, method=False, toplevel=False, out=False, **copies)(read)
        scatter = schema.replace("(Tensor self", "_scatter(Tensor self, Tensor src", 1)
        op(scatter, linear=True, keeps_order=True, method=False, toplevel=False, out=False, numpy=numpy_write,
           attributes=scatter_attributes)(write)  # fmt: skip
        stride_rules[made.name] = strides
        return made

    return declare


def _drop(items: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return items[:dim] + items[dim + 1 :]


def _put(items: tuple[int, ...], dim: int, item: int) -> tuple[int, ...]:
    return (*items[:dim], item, *items[dim + 1 :])


def _starts(x: Any, dim: int, start: Any) -> list[Any]:
    zero = jnp.zeros((), start.dtype)
    return [start if i == dim else zero for i in range(x.ndim)]


# ---------------------------------------------------------------------- parts of a dimension
# Where a part begins is a run-time number: a loop over x[i] is one program, not one for each i.


def _select_write(x: Any, src: Any, index: Any, dim: int) -> Any:
    return lax.dynamic_update_slice(x, jnp.expand_dims(src, dim), _starts(x, dim, index))


@viewed("select(Tensor self, int dim, Index index)", _select_write,
       lambda shape, strides, offset, dim, index: (_drop(strides, dim), offset + index * strides[dim]),
       numpy=parts.select, numpy_vjp=forms.placing(parts.select), numpy_write=forms.writing(parts.select),
    attributes="dim self_sym_sizes", scatter_attributes="dim")  # fmt: skip
def select(x: Any, index: Any, dim: int) -> Any:
    """The slice of `x` at `index` of `dim`."""
    part = lax.dynamic_slice(x, _starts(x, dim, index), _put(x.shape, dim, 1))
    return lax.reshape(part, _drop(x.shape, dim))


def _span(length: int, step: int) -> int:
    return (length - 1) * step + 1 if length else 0


def _slice_write(x: Any, src: Any, start: Any, dim: int, length: int, step: int) -> Any:
    if step == 1:
        return lax.dynamic_update_slice(x, src, _starts(x, dim, start))
    part = lax.dynamic_slice(x, _starts(x, dim, start), _put(x.shape, dim, _span(length, step)))
    where = [slice(None)] * x.ndim
    where[dim] = slice(None, None, step)
    return lax.dynamic_update_slice(x, part.at[tuple(where)].set(src), _starts(x, dim, start))


@viewed("slice(Tensor self, int dim, Index start, int length, int step)", _slice_write,
       lambda shape, strides, offset, dim, start, length, step: (_put(strides, dim, strides[dim] * step), offset + start * strides[dim]),
       numpy=parts.slice_, numpy_vjp=forms.placing(parts.slice_), numpy_write=forms.writing(parts.slice_),
    attributes="dim step self_sym_sizes", scatter_attributes="dim step")  # fmt: skip
def slice_(x: Any, start: Any, dim: int, length: int, step: int) -> Any:
    """`length` slices of `x` along `dim`, from `start` on, every `step`-th."""
    part = lax.dynamic_slice(x, _starts(x, dim, start), _put(x.shape, dim, _span(length, step)))
    if step == 1:
        return part
    return lax.slice_in_dim(part, 0, part.shape[dim], step, dim)


# ---------------------------------------------------------------------- the order of dimensions


def _swap(items: tuple[int, ...], a: int, b: int) -> tuple[int, ...]:
    if not items:  # PyTorch lets a 0-dim tensor be transposed
        return items
    found = list(items)
    found[a], found[b] = found[b], found[a]
    return tuple(found)


@viewed("transpose(Tensor self, int dim0, int dim1)", lambda x, src, dim0, dim1: lax.transpose(src, _swap(tuple(range(src.ndim)), dim0, dim1)),
       lambda shape, strides, offset, dim0, dim1: (_swap(strides, dim0, dim1), offset),
       permutation=lambda ndim, dim0, dim1: _swap(tuple(range(ndim)), dim0, dim1), numpy=forms.transpose,
       numpy_vjp=lambda grad, aval, dim0, dim1: forms.transpose(grad, dim0, dim1),
       numpy_write=lambda x, src, dim0, dim1: forms.transpose(src, dim0, dim1), attributes="dim0 dim1")  # fmt: skip
def transpose(x: Any, dim0: int, dim1: int) -> Any:
    """Two dimensions exchanged."""
    return lax.transpose(x, _swap(tuple(range(x.ndim)), dim0, dim1))


@viewed("t(Tensor self)", lambda x, src: src.T, lambda shape, strides, offset: (strides[::-1], offset),
       permutation=lambda ndim: tuple(reversed(range(ndim))),
       numpy=lambda x: x.T, numpy_vjp=lambda grad, aval: grad.T, numpy_write=lambda x, src: src.T)  # fmt: skip
def t(x: Any) -> Any:
    """A matrix transposed."""
    return lax.transpose(x, tuple(reversed(range(x.ndim))))


def _inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(dims)), key=dims.__getitem__))


@viewed("permute(Tensor self, int[] dims)", lambda x, src, dims: lax.transpose(src, _inverse(dims)),
       lambda shape, strides, offset, dims: (tuple(strides[d] for d in dims), offset), permutation=lambda ndim, dims: dims,
       numpy=lambda x, dims: x.transpose(dims), numpy_vjp=lambda grad, aval, dims: grad.transpose(_inverse(dims)),
       numpy_write=lambda x, src, dims: src.transpose(_inverse(dims)), attributes="dims")  # fmt: skip
def permute(x: Any, dims: tuple[int, ...]) -> Any:
    """The dimensions in another order."""
    return lax.transpose(x, dims)


# ---------------------------------------------------------------------- shapes


@functools.lru_cache(4096)
def view_strides(shape: tuple[int, ...], strides: tuple[int, ...], size: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of the same memory seen as `size`; None where no strides describe it.

    Neighbouring dimensions whose strides continue each other form one run of memory; each run must be filled exactly by
    consecutive new dimensions.
    """
    if 0 in shape:
        return strides if shape == size else contiguous_strides(size)
    runs: list[tuple[int, int]] = []  # (elements, stride of the innermost), the innermost first
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if runs and (n == 1 or s == runs[-1][0] * runs[-1][1]):
            runs[-1] = (runs[-1][0] * n, runs[-1][1])
        else:
            runs.append((n, s))
    found: list[int] = []
    rest = list(size)
    for elements, step in runs or [(1, 1)]:
        filled = 1
        while rest and (filled < elements or rest[-1] == 1):
            found.append(filled * step)
            filled *= rest.pop()
        if filled != elements:
            return None
    return None if rest else tuple(reversed(found))


def _view_rule(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, size: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    found = view_strides(shape, strides, size)
    if found is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). "
            "Use .reshape(...) instead."
        )
    return found, offset


for _name, _node in (("view", "ViewBackward0"), ("_reshape_alias", "ReshapeAliasBackward0")):

    @viewed(f"{_name}(Tensor self, int[] size)", lambda x, src, size: lax.reshape(src, x.shape), _view_rule, node=_node,
           numpy=lambda x, size: forms.reshaped(x, size), attributes="self_sym_sizes", **forms.RESHAPED)  # fmt: skip
    def view(x: Any, size: tuple[int, ...]) -> Any:
        """The same elements in another shape."""
        return lax.reshape(x, size)


def _unsqueeze_strides(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dim: int) -> tuple[tuple[int, ...], int]:
    step = shape[dim] * strides[dim] if dim < len(shape) else 1
    return (*strides[:dim], step, *strides[dim:]), offset


@viewed("unsqueeze(Tensor self, int dim)", lambda x, src, dim: lax.reshape(src, x.shape), _unsqueeze_strides,
       numpy=forms.unsqueeze, **forms.RESHAPED, attributes="dim")  # fmt: skip
def unsqueeze(x: Any, dim: int) -> Any:
    """A dimension of size 1 put in before `dim`."""
    return lax.expand_dims(x, (dim,))


def _squeeze_strides(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dim: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    return tuple(s for i, s in enumerate(strides) if i not in dim), offset


for _name, _node in (("squeeze", "SqueezeBackward0"), ("squeeze_dim", "SqueezeBackward1"), ("squeeze_dims", "SqueezeBackward2")):

    @viewed(f"{_name}(Tensor self, int[] dim)", lambda x, src, dim: lax.reshape(src, x.shape), _squeeze_strides, node=_node,
           numpy=lambda x, dim: x.squeeze(dim), attributes="self_sym_sizes", **forms.RESHAPED)  # fmt: skip
    def _squeeze(x: Any, dim: tuple[int, ...]) -> Any:
        """Dimensions of size 1 left out."""
        return lax.squeeze(x, dim)


def _expand_strides(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, size: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    if not shape:
        return (0,) * len(size), offset
    new = len(size) - len(shape)
    found = [s if n == m else 0 for n, m, s in zip(shape, size[new:], strides, strict=True)]
    for i in reversed(range(new)):
        found.insert(0, 0 if size[i] != 1 else size[i + 1] * found[0] if found else 1)
    return tuple(found), offset


def _expand_write(x: Any, src: Any, size: tuple[int, ...]) -> Any:
    if 0 in src.shape:  # expanded to nothing
        return x
    new = src.ndim - x.ndim
    first = lax.slice(src, (0,) * src.ndim, (1,) * new + x.shape)
    return lax.reshape(first, x.shape)


@viewed("expand(Tensor self, int[] size)", _expand_write, _expand_strides,
       numpy=forms.expand, numpy_vjp=forms.expand_vjp, numpy_write=forms.expand_scatter, attributes="self_sym_sizes", repeats=True)  # fmt: skip
def expand(x: Any, size: tuple[int, ...]) -> Any:
    """Dimensions of size 1 repeated without memory."""
    return jnp.broadcast_to(wide(x), size).astype(x.dtype)  # the gradient adds in the wide precision


def _diagonal_index(x: Any, offset: int, dim1: int, dim2: int) -> tuple[Any, Any, int]:
    rows, columns = x.shape[dim1], x.shape[dim2]
    length = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    i = jnp.arange(length)
    return i + max(-offset, 0), i + max(offset, 0), length


def _diagonal_write(x: Any, src: Any, offset: int, dim1: int, dim2: int) -> Any:
    i, j, _ = _diagonal_index(x, offset, dim1, dim2)
    moved = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    return jnp.moveaxis(moved.at[..., i, j].set(src), (-2, -1), (dim1, dim2))


def _diagonal_strides(shape: tuple[int, ...], strides: tuple[int, ...], start: int, offset: int, dim1: int, dim2: int) -> tuple[tuple[int, ...], int]:
    kept = tuple(s for i, s in enumerate(strides) if i not in (dim1, dim2))
    empty = min(shape[dim1] + min(offset, 0), shape[dim2] - max(offset, 0)) <= 0
    begin = 0 if empty else offset * strides[dim2] if offset >= 0 else -offset * strides[dim1]
    return (*kept, strides[dim1] + strides[dim2]), start + begin


@viewed("diagonal(Tensor self, int offset, int dim1, int dim2)", _diagonal_write, _diagonal_strides,
       numpy=forms.diagonal, numpy_vjp=forms.placing(forms.diagonal), numpy_write=forms.writing(forms.diagonal),
    attributes="offset dim1 dim2 self_sym_sizes", scatter_attributes="offset dim1 dim2")  # fmt: skip
def diagonal(x: Any, offset: int, dim1: int, dim2: int) -> Any:
    """The diagonal of two dimensions, as the last dimension."""
    return jnp.diagonal(x, offset, dim1, dim2)


def _unfold_index(x: Any, dimension: int, size: int, step: int) -> Any:
    count = (x.shape[dimension] - size) // step + 1
    return jnp.arange(count)[:, None] * step + jnp.arange(size)[None, :]


def _unfold_write(x: Any, src: Any, dimension: int, size: int, step: int) -> Any:
    if not x.ndim:
        return lax.reshape(src, ()) if size else x
    index = _unfold_index(x, dimension, size, step)
    moved = jnp.moveaxis(x, dimension, 0)
    return jnp.moveaxis(moved.at[index].set(jnp.moveaxis(src, (dimension, -1), (0, 1))), 0, dimension)


def _unfold_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dimension: int, size: int, step: int
) -> tuple[tuple[int, ...], int]:
    if not shape:
        return (1,), offset
    return (*_put(strides, dimension, strides[dimension] * step), strides[dimension]), offset


@viewed("unfold(Tensor self, int dimension, int size, int step)", _unfold_write, _unfold_strides, numpy=forms.unfold,
    numpy_grads=numpy_placing.unfold_grads, attributes="dimension size step self_sym_sizes", repeats=True)  # fmt: skip
def unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    """Windows of `size` along `dimension`, as a new last dimension."""
    if not x.ndim:
        return lax.reshape(x, (1,))[:size]
    return jnp.moveaxis(jnp.take(x, _unfold_index(x, dimension, size, step), axis=dimension), dimension + 1, -1)


@op("unfold_backward(Tensor grad_in, int[] input_sizes, int dim, int size, int step)", linear=True, method=False, toplevel=False,
    node="UnfoldBackwardBackward0", attributes="dim size step")  # fmt: skip
def unfold_backward(x: Any, input_sizes: tuple[int, ...], dim: int, size: int, step: int) -> Any:
    """The sums of windows of `size`, the last dimension, at the places along `dim` that they were taken from."""
    x = jnp.moveaxis(x, dim, -2)
    count, parts = x.shape[-2], -(-size // step)
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, parts * step - size)])
    # Window k begins at k * step, so its j-th part of that size lies on the (k + j)-th such piece.
    pieces = [jnp.pad(x[..., j * step : (j + 1) * step], [(0, 0)] * (x.ndim - 2) + [(j, parts - 1 - j), (0, 0)]) for j in range(parts)]
    total = functools.reduce(jnp.add, pieces)
    flat = jnp.reshape(total, (*total.shape[:-2], (count + parts - 1) * step))
    rest = input_sizes[dim] - flat.shape[-1]
    flat = lax.pad(flat, jnp.zeros((), flat.dtype), [(0, 0, 0)] * (flat.ndim - 1) + [(0, rest, 0)])
    return jnp.moveaxis(flat, -1, dim)


def _no_overlap(_: int) -> Exception:
    return RuntimeError("istft(...) window overlap add min: 1\n[ CPUBoolType{} ]")


@op("_overlapping(Tensor self)", method=False, toplevel=False, check=_no_overlap, grads={"self": SAME})
def overlapping(x: Any) -> Any:
    """The sums of the squares of overlapping windows, none of which may be 0."""
    bad = (abs(x).min() <= 1e-11).astype(np.int64)
    return x, jnp.stack([bad, zeros_like(bad)])


# ---------------------------------------------------------------------- complex numbers as pairs


def _as_real(x: Any) -> Any:
    return jnp.stack([x.real, x.imag], -1)


def _as_complex(x: Any) -> Any:
    return lax.complex(x[..., 0], x[..., 1])


@viewed("view_as_real(Tensor self)", lambda x, src: _as_complex(src),
       lambda shape, strides, offset: ((*(2 * s for s in strides), 1), 2 * offset), grads={"self": lambda grad: _as_complex(grad)},
       numpy=forms.as_real, numpy_vjp=forms.as_complex_vjp, numpy_write=forms.as_complex_scatter, by_strides=False)  # fmt: skip
def view_as_real(x: Any) -> Any:
    """Complex numbers as pairs in a last dimension."""
    return _as_real(x)


@viewed("view_as_complex(Tensor self)", lambda x, src: _as_real(src),
       lambda shape, strides, offset: (tuple(s // 2 for s in strides[:-1]), offset // 2), grads={"self": lambda grad: _as_real(grad)},
       numpy=forms.as_complex, numpy_vjp=lambda grad, aval: forms.as_real(grad), numpy_write=lambda x, src: forms.as_real(src),
    by_strides=False)  # fmt: skip
def view_as_complex(x: Any) -> Any:
    """Pairs in the last dimension as complex numbers."""
    return _as_complex(x)


def _view_dtype_strides(shape: Any, strides: Any, offset: int, dtype: Any, smaller: int, larger: int) -> tuple[tuple[int, ...], int]:
    if smaller == larger:
        return strides, offset
    return (*(s * smaller // larger for s in strides[:-1]), 1), offset * smaller // larger


def _view_dtype_write(x: Any, src: Any, dtype: Any, smaller: int, larger: int) -> Any:
    # Of bytes that are taken for booleans, those stay what they are that are not written to.
    return where(src == (x != 0), x, src.astype(x.dtype)) if dtype == np.bool_ else src.view(x.dtype)


def _view_dtype_form(x: Any, dtype: Any, smaller: int, larger: int) -> Any:
    return x != 0 if dtype == np.bool_ else np.asarray(x, order="C").view(dtype)


# Of a last dimension there are `smaller` times as many elements where they are smaller, and a `larger`-th where they are larger.
@viewed("view_dtype(Tensor self, dtype dtype, int smaller, int larger)", _view_dtype_write, _view_dtype_strides, numpy=_view_dtype_form,
    by_strides=False)  # fmt: skip
def view_dtype(x: Any, dtype: Any, smaller: int, larger: int) -> Any:
    """The bytes of all elements as elements of another dtype."""
    return x != 0 if dtype == np.bool_ else x.view(dtype)


# ---------------------------------------------------------------------- all of it, and any of it


@viewed("_conj(Tensor self)", lambda x, src: lax.conj(src), lambda shape, strides, offset: (strides, offset), node="ConjBackward0", keeps_order=True,
       numpy=forms.conj, numpy_vjp=forms.conj_vjp, by_strides=False)  # fmt: skip
def conj(x: Any) -> Any:
    """The complex conjugate."""
    return lax.conj(x)


@viewed("alias(Tensor self)", lambda x, src: src, lambda shape, strides, offset: (strides, offset),
       numpy=lambda x: x, numpy_vjp=lambda grad, aval: grad, numpy_write=lambda x, src: src)  # fmt: skip
def alias(x: Any) -> Any:
    """All of it."""
    return x


def _strided_index(shape: tuple[int, ...], size: tuple[int, ...], stride: tuple[int, ...], offset: int | None) -> Any:
    index = jnp.full((), offset or 0)
    for i, (n, s) in enumerate(zip(size, stride, strict=True)):
        index = index + (jnp.arange(n) * s).reshape((n,) + (1,) * (len(size) - 1 - i))
    return jnp.broadcast_to(index, size)


def _strided_write(x: Any, src: Any, size: tuple[int, ...], stride: tuple[int, ...], storage_offset: int | None) -> Any:
    return x.reshape(-1).at[_strided_index(x.shape, size, stride, storage_offset)].set(src).reshape(x.shape)


def _strided_back(grad: Any, shape: tuple[int, ...], size: tuple[int, ...], stride: tuple[int, ...], storage_offset: int | None) -> Any:
    """The gradient of what was read by strides: where no element was read twice it is put in its place, be it a negative 0."""
    at = jnp.zeros(math.prod(shape), grad.dtype).at[_strided_index(shape, size, stride, storage_offset)]
    return (at.set(grad, unique_indices=True) if apart(size, stride) else at.add(grad)).reshape(shape)


@viewed("as_strided(Tensor self, int[] size, int[] stride, int? storage_offset)", _strided_write,
       lambda shape, strides, offset, size, stride, storage_offset: (stride, storage_offset or 0), numpy=forms.as_strided,
       numpy_grads=numpy_placing.as_strided_grads, numpy_write=numpy_placing.as_strided_scatter,
       transpose=_strided_back, attributes="size stride storage_offset", repeats=True, scatter_attributes="size stride storage_offset")  # fmt: skip
def as_strided(x: Any, size: tuple[int, ...], stride: tuple[int, ...], storage_offset: int | None) -> Any:
    """Elements of the base's memory by strides, from its beginning where no offset is given."""
    return x.reshape(-1)[_strided_index(x.shape, size, stride, storage_offset)]


def _in_memory_write(x: Any, src: Any, memory: tuple[int, ...], stride: tuple[int, ...], storage_offset: int) -> Any:
    return src.reshape(-1)[_strided_index(x.shape, x.shape, stride, storage_offset)]


def in_memory(x: Any, memory: tuple[int, ...], stride: tuple[int, ...], storage_offset: int) -> Any:
    """An array of shape `memory` in which `x` lies by strides, among zeros. Of several elements at one place each has an equal part in it."""
    places = np.zeros(x.shape, int)
    for i, (n, step) in enumerate(zip(x.shape, stride, strict=True)):
        places += (np.arange(n) * step).reshape((n,) + (1,) * (x.ndim - 1 - i))
    _, inverse, counts = np.unique(places, return_inverse=True, return_counts=True)
    shares = x if counts.max(initial=1) == 1 else x / counts[inverse].reshape(x.shape).astype(x.dtype)
    return jnp.zeros(math.prod(memory), x.dtype).at[places + storage_offset].add(shares).reshape(memory)


for _name, _function in (("in_memory(Tensor self", in_memory), ("in_memory_scatter(Tensor self, Tensor src", _in_memory_write)):
    op(f"{_name}, int[] memory, int[] stride, int storage_offset)", linear=True, method=False, toplevel=False, out=False)(_function)
