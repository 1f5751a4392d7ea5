"""Operators that read and write at places given by tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_indexing, numpy_placing
from torchgrad_jax.declaration import numpy_forms as forms
from torchgrad_jax.declaration.converting import convert, where, zeros_like, zeros_like_grad
from torchgrad_jax.declaration.memory_order import INDEXED
from torchgrad_jax.declaration.numpy_indexing import INDEX_BITS, SIZE_BITS
from torchgrad_jax.declaration.operator import NOT_IMPLEMENTED, SAME, op
from torchgrad_jax.declaration.refusals import no_derivative
from torchgrad_jax.operators.kernels import along


@op("copy(Tensor self, Tensor src)", method=False, toplevel=False, node="torch::autograd::CopyBackwards",
    grads={"self": zeros_like_grad, "src": SAME}, numpy=forms.copy)  # fmt: skip
def copy(x: Any, src: Any) -> Any:
    """`src` in the shape and dtype of self."""
    return jnp.broadcast_to(convert(src, x.dtype), x.shape)


def _key(x: Any, indices: list[Any], dims: tuple[int, ...]) -> tuple[Any, ...]:
    key: list[Any] = [slice(None)] * x.ndim
    for index, dim in zip(indices, dims, strict=True):
        key[dim] = where(index < 0, index + x.shape[dim], index)
    return tuple(key)


def _at(x: Any, indices: list[Any], dims: tuple[int, ...]) -> Any:
    return x.at[_key(x, indices, dims)]


_ONE = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))


def _first_offender(index: Any, lowest: int, size: int) -> tuple[Any, Any]:
    """Whether an index is out of range, and the first that is (any if none is). In few primitives: tracing one takes 60 us."""
    flat = lax.convert_element_type(lax.reshape(index, (index.size,)), np.int64)
    bad = lax.bitwise_or(lax.lt(flat, lax.full_like(flat, lowest)), lax.ge(flat, lax.full_like(flat, size)))
    where = lax.reshape(lax.argmax(bad, 0, np.int64), (1,))
    return tuple([lax.gather(x, where, _ONE, (1,), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS) for x in (bad, flat)])


def _pair(bad: Any, content: Any) -> Any:
    return lax.concatenate([lax.reshape(lax.convert_element_type(x, np.int64), (1,)) for x in (bad, content)], 0)


def first_bad(x_shape: tuple[int, ...], indices: list[Any], dims: tuple[int, ...]) -> Any:
    """The check of index tensors: the first that `_first_outside` finds in them. PyTorch counts the index tensors here, not the dimensions."""
    code = None
    for place, (index, dim) in enumerate(zip(indices, dims, strict=True)):
        if index.size:
            found = _first_outside(index, x_shape[dim], place, -x_shape[dim])
            code = found if code is None else lax.select(lax.broadcast(code[0] != 0, (2,)), code, found)
    return jnp.zeros(2, jnp.int64) if code is None else code


def _out_of_bounds(packed: int) -> Exception:
    return outside_fill(*unpack_outside(packed))


def _index(x: Any, indices: list[Any], dims: tuple[int, ...]) -> Any:
    return _at(x, indices, dims).get(mode="promise_in_bounds" if all(not i.size for i in indices) else "clip")


op("index(Tensor self, Tensor[] indices, any dims)", method=False, toplevel=False, order=INDEXED, linear=("self",),
    attributes="self_sym_sizes", numpy=numpy_indexing.index, numpy_vjp=numpy_indexing.index_vjp)(_index)  # fmt: skip


@op("index_checked(Tensor self, Tensor[] indices, any dims)", method=False, toplevel=False, node="IndexBackward0", linear=("self",),
    order=INDEXED, check=_out_of_bounds, attributes="self_sym_sizes", numpy=numpy_indexing.index_checked,
    numpy_vjp=numpy_indexing.index_vjp)  # fmt: skip
def _index_checked(x: Any, indices: list[Any], dims: tuple[int, ...]) -> Any:
    return _index(x, indices, dims), first_bad(x.shape, indices, dims)


@op("_masked_select(Tensor self, Tensor[] indices, any shape)", method=False, toplevel=False, node="MaskedSelectBackward0", linear=("self",),
    keeps=("self",), numpy=numpy_indexing.masked_select, numpy_vjp=numpy_indexing.masked_select_vjp)  # fmt: skip
def masked_select(x: Any, indices: list[Any], shape: tuple[int, ...]) -> Any:
    """The elements at indices in range of the tensor expanded to `shape`."""
    return _index(jnp.broadcast_to(x, shape), indices, tuple(range(len(shape))))


def _index_put(x: Any, values: Any, indices: list[Any], dims: tuple[int, ...], accumulate: bool) -> Any:
    at = _at(x, indices, dims)
    if not accumulate:
        return at.set(values)
    return at.max(values) if x.dtype == np.bool_ else at.add(values)


# An element that is written several times passes its gradient on to all that were written: no linear function's transpose does that.
_INDEX_PUT_GRADS = {
    "self": lambda grad, indices, dims, accumulate: grad if accumulate else _at(grad, indices, dims).set(0),
    "values": lambda grad, indices, dims: _index(grad, indices, dims),
}
# What PyTorch calls writes to a tensor whose elements are one place in memory, which it allows: see `into_expanded`.
_BY_INDICES, _BY_MASK = ("index_put_", "tensor[indices] = tensor"), ("index_fill_", "tensor[mask] = scalar")

op("index_put(Tensor self, Tensor values, Tensor[] indices, any dims, bool accumulate)", method=False, toplevel=False,
   keeps_order=True, grads=_INDEX_PUT_GRADS, attributes="accumulate", into_expanded=_BY_INDICES,
   numpy=numpy_indexing.index_put, numpy_grads=numpy_placing.index_put_grads)(_index_put)  # fmt: skip


@op(
    "index_put_checked(Tensor self, Tensor values, Tensor[] indices, any dims, bool accumulate)", method=False, toplevel=False,
    keeps_order=True, node="IndexPutBackward0", grads=_INDEX_PUT_GRADS, check=_out_of_bounds, attributes="accumulate", into_expanded=_BY_INDICES,
    numpy_grads=numpy_placing.index_put_grads)  # fmt: skip
def _index_put_checked(x: Any, values: Any, indices: list[Any], dims: tuple[int, ...], accumulate: bool) -> Any:
    return _index_put(x, values, indices, dims, accumulate), first_bad(x.shape, indices, dims)


# ---------------------------------------------------------------------- an index along one dimension
# `NAME` is for indices known to be in range; `NAME_checked` clips them and reports the first that is not.


def _first_outside(index: Any, size: int, dim: int, lowest: int) -> Any:
    """The check of one index tensor: the pair (1, offender, its dimension and that dimension's size packed), else zeros."""
    if not index.size:
        return jnp.zeros(2, jnp.int64)
    bad, offender = _first_offender(index, lowest, size)
    half = 1 << (INDEX_BITS - 1)
    packed = lax.add(lax.clamp(np.int64(-half), offender, np.int64(half - 1)), np.int64(numpy_indexing.packing(size, dim)))
    return _pair(bad, lax.select(bad, packed, lax.full_like(packed, 0)))


def unpack_outside(packed: int) -> tuple[int, int, int]:
    """(index, dim, size) of what `_first_outside` found."""
    index = (packed & ((1 << INDEX_BITS) - 1)) - (1 << (INDEX_BITS - 1))
    return index, packed >> (INDEX_BITS + SIZE_BITS), (packed >> INDEX_BITS) & ((1 << SIZE_BITS) - 1)


def outside_dimension(index: int, dim: int, size: int) -> Exception:
    """gather's and scatter's error."""
    return RuntimeError(f"index {index} is out of bounds for dimension {dim} with size {size}")


def outside_self(index: int, dim: int, size: int) -> Exception:
    """index_select's error."""
    return IndexError("index out of range in self")


def outside_copy(index: int, dim: int, size: int) -> Exception:
    """index_copy's error."""
    return IndexError(f"index_copy_(): index {index} is out of bounds for dimension {dim} with size {size}")


def outside_fill(index: int, dim: int, size: int) -> Exception:
    """index_fill's error."""
    return IndexError(f"index {index} is out of bounds for dimension {dim} with size {size}")


def outside_elements(index: int, dim: int, size: int) -> Exception:
    """take's and put's error."""
    return IndexError(f"out of range: tried to access index {index} on a tensor of {size} elements.")


# Which error an operator raises for an index out of range, and the lowest index it allows (as a multiple of -size).
BOUNDS: dict[str, tuple[Callable[[int, int, int], Exception], bool]] = {}


def _indexed(
    schema: str, error: Callable[[int, int, int], Exception], negative: bool = False, numpy: tuple[Any, Any] = (None, None), **options: Any
) -> Callable[..., Any]:
    """Declare the operator and its checked twin. Negative indices count from the end where `negative` holds. numpy: the forms of both."""

    def declare(function: Callable[..., Any]) -> Any:
        made = op(schema, method=False, toplevel=False, numpy=numpy[0], **options)(function)
        position = [p.name for p in made.schema.parameters if p.is_tensor or p.is_number].index("index")

        def checked(*arrays: Any, **statics: Any) -> Any:
            x, index = arrays[0], arrays[position]
            dim = statics.get("dim")
            size = x.size if dim is None else (x.shape[dim] if x.ndim else 1)
            inside = jnp.clip(index, -size if negative else 0, max(size - 1, 0))
            out = function(*arrays[:position], inside, *arrays[position + 1 :], **statics)
            return out, _first_outside(index, size, dim or 0, -size if negative else 0)

        twin = schema.replace("(", "_checked(", 1)
        of_twin = {**options, "node": made.node, "numpy": numpy[1]}
        op(twin, method=False, toplevel=False, **of_twin, check=lambda packed: error(*unpack_outside(packed)))(checked)
        BOUNDS[made.name] = (error, negative)
        return made

    return declare


def _as_vector(x: Any) -> Any:
    return x if x.ndim else lax.reshape(x, (1,))


def _along(x: Any, index: Any, dim: int) -> tuple[Any, ...]:
    """The key of the elements that `index` picks along `dim`, at its own place in all other dimensions."""
    return tuple(index if d == dim else lax.broadcasted_iota(index.dtype, index.shape, d) for d in range(x.ndim))


def gather_along(x: Any, index: Any, dim: int) -> Any:
    """x[.., index[..], ..] for indices in range."""
    shape = index.shape
    x, index = _as_vector(x), _as_vector(index)
    if not index.size:
        return jnp.zeros(shape, x.dtype)
    return lax.reshape(along.picked(x, index, dim), shape)


def _cut(src: Any, index: Any) -> Any:
    """The part of `src` that `index` says where to write."""
    return src if src.shape == index.shape or not src.ndim or not index.ndim else src[tuple(slice(n) for n in index.shape)]


def _uncut(grad: Any, shape: tuple[int, ...]) -> Any:
    """The gradient of a source of this shape from that of its `_cut`."""
    if grad.shape == shape or not grad.ndim or not shape:
        return lax.reshape(grad, shape)
    return lax.pad(grad, jnp.zeros((), grad.dtype), [(0, n - m, 0) for n, m in zip(shape, grad.shape, strict=True)])


_PUT = {"set": along.LAST, "add": along.SUM, "max": along.MOST, "min": along.LEAST}


def write_along(x: Any, index: Any, values: Any, dim: int, how: str) -> Any:
    """`values` (of at least the index's shape, or a number) written, added ... at `index` along `dim`."""
    shape = x.shape
    x, index = _as_vector(x), _as_vector(index)
    if not index.size:
        return lax.reshape(x, shape)
    values = _cut(values, index)
    values = lax.reshape(values, index.shape) if values.ndim or index.shape == (1,) else values
    if how != "multiply" and values.ndim and values.dtype == x.dtype:
        return lax.reshape(along.put(values, index, dim, _PUT[how], x), shape)
    at = x.at[_along(x, index, dim)]
    made = getattr(at, how)(values, mode="promise_in_bounds", wrap_negative_indices=False)
    return lax.reshape(made, shape)


@_indexed("gather(Tensor self, int dim, Tensor index)", outside_dimension, linear=("self",), keeps=("self",), attributes="dim sparse_grad=False",
          numpy=(numpy_indexing.gather, numpy_indexing.gather_checked), numpy_vjp=numpy_indexing.gather_vjp)  # fmt: skip
def gather(x: Any, index: Any, dim: int) -> Any:
    """The elements that `index` picks along `dim`, at its own place in the other dimensions."""
    return gather_along(x, index, dim)


@op("take_along_dim(Tensor self, int dim, Tensor index)", method=False, toplevel=False, linear=("self",), keeps=("self",),
    copies=("index",), node="GatherBackward0", numpy=numpy_placing.take_along_dim, numpy_grads=numpy_placing.take_along_dim_grads)  # fmt: skip
def take_along_dim(x: Any, index: Any, dim: int) -> Any:
    """As gather, indices counted modulo the size."""
    return gather_along(x, index % max(x.shape[dim], 1), dim)


def select_rows(x: Any, index: Any, dim: int) -> Any:
    """The slices of `x` at a vector of indices in range."""
    if not x.ndim:
        return jnp.broadcast_to(x, index.shape) if index.ndim and index.shape != (1,) else x
    key = (slice(None),) * dim + (_as_vector(index),)
    if not index.size or not x.shape[dim]:
        return jnp.zeros((*x.shape[:dim], index.size, *x.shape[dim + 1 :]), x.dtype)
    return x.at[key].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _write_rows(x: Any, index: Any, values: Any, dim: int, how: str) -> Any:
    shape = x.shape
    x, index = _as_vector(x), _as_vector(index)
    if not index.size:
        return lax.reshape(x, shape)
    if values.ndim or how != "set":
        values = lax.reshape(values, (*x.shape[:dim], index.size, *x.shape[dim + 1 :]))
    at = x.at[(slice(None),) * dim + (index,)]
    return lax.reshape(getattr(at, how)(values, mode="promise_in_bounds", wrap_negative_indices=False), shape)


def _clear_rows(grad: Any, index: Any, dim: int) -> Any:
    return _write_rows(grad, index, jnp.zeros((), grad.dtype), dim, "set")


def _rows_of(grad: Any, index: Any, source: Any, dim: int) -> Any:
    return lax.reshape(select_rows(grad, index, dim), source.shape)


@_indexed("index_select(Tensor self, int dim, Tensor index)", outside_self, linear=("self",), attributes="dim self_sym_sizes",
          numpy=(numpy_indexing.index_select, numpy_indexing.index_select_checked), numpy_vjp=numpy_indexing.index_select_vjp)  # fmt: skip
def index_select(x: Any, index: Any, dim: int) -> Any:
    """The slices of `dim` at a vector of indices."""
    return select_rows(x, index, dim)


@_indexed("index_add(Tensor self, int dim, Tensor index, Tensor source, Scalar alpha)", outside_dimension, keeps=("source if source",),
          grads={"self": SAME, "source": lambda grad, index, source, alpha, dim: _rows_of(grad, index, source, dim) * alpha},
          attributes="source_dim", numpy=(numpy_indexing.index_add, numpy_indexing.index_add_checked),
          numpy_grads=numpy_indexing.index_add_grads)  # fmt: skip
def index_add(x: Any, index: Any, source: Any, alpha: Any, dim: int) -> Any:
    """`alpha` times the slices of `source` added to those at `index`; an index may occur several times."""
    if x.dtype == np.bool_:
        return _write_rows(x, index, source & (alpha != 0), dim, "max")
    return _write_rows(x, index, source * (convert(alpha, x.dtype) if x.dtype.kind in "iu" else alpha), dim, "add")


@_indexed("index_copy(Tensor self, int dim, Tensor index, Tensor source)", outside_copy, keeps=("source if source",),
          grads={"self": lambda grad, index, dim: _clear_rows(grad, index, dim),
                 "source": lambda grad, index, source, dim: _rows_of(grad, index, source, dim)}, attributes="source_dim")  # fmt: skip
def index_copy(x: Any, index: Any, source: Any, dim: int) -> Any:
    """The slices of `source` in place of those at `index`."""
    return _write_rows(x, index, source, dim, "set")


def _from_end(index: Any, x: Any, dim: int) -> Any:
    return where(index < 0, index + (x.shape[dim] if x.ndim else 1), index)


@_indexed("index_fill_scalar(Tensor self, int dim, Tensor index, Scalar value)", outside_fill, True, into_expanded=_BY_MASK,
          keeps_order=True, node="IndexFillBackward0",
          grads={"self": lambda grad, index, dim: _clear_rows(grad, _from_end(index, grad, dim), dim)},
          numpy=(numpy_placing.index_fill, numpy_placing.index_fill_checked), numpy_grads=numpy_placing.index_fill_grads)  # fmt: skip
def index_fill_scalar(x: Any, index: Any, value: Any, dim: int) -> Any:
    """A number written to the slices at `index`."""
    return _write_rows(x, _from_end(index, x, dim), convert(value, x.dtype), dim, "set")


@_indexed("index_fill_tensor(Tensor self, int dim, Tensor index, Tensor value)", outside_fill, True, into_expanded=_BY_MASK,
          keeps_order=True, node="IndexFillBackward1",
          grads={"self": lambda grad, index, dim: _clear_rows(grad, _from_end(index, grad, dim), dim),
                 "value": lambda grad, index, dim: jnp.sum(grad - _clear_rows(grad, _from_end(index, grad, dim), dim))},
          numpy=(numpy_placing.index_fill, numpy_placing.index_fill_checked), numpy_grads=numpy_placing.index_fill_grads)  # fmt: skip
def index_fill_tensor(x: Any, index: Any, value: Any, dim: int) -> Any:
    """A 0-dim tensor written to the slices at `index`."""
    return _write_rows(x, _from_end(index, x, dim), convert(value, x.dtype), dim, "set")


# ---------------------------------------------------------------------- scatter


def _clear_along(grad: Any, index: Any, dim: int) -> Any:
    return write_along(grad, index, jnp.zeros((), grad.dtype), dim, "set")


@_indexed("scatter_src(Tensor self, int dim, Tensor index, Tensor src)", outside_dimension, node="ScatterBackward0",
          grads={"self": lambda grad, index, dim: _clear_along(grad, index, dim),
                 "src": lambda grad, index, src_sym_sizes, dim: _uncut(gather_along(grad, index, dim), src_sym_sizes)},
          numpy=(numpy_placing.scatter_src, numpy_placing.scatter_src_checked), numpy_grads=numpy_placing.scatter_grads)  # fmt: skip
def scatter_src(x: Any, index: Any, src: Any, dim: int) -> Any:
    """`src` written at `index` along `dim`."""
    return write_along(x, index, src, dim, "set")


@_indexed("scatter_value(Tensor self, int dim, Tensor index, Scalar value)", outside_dimension, node="ScatterBackward1",
          grads={"self": lambda grad, index, dim: _clear_along(grad, index, dim)},
          numpy=(numpy_placing.scatter_value, numpy_placing.scatter_value_checked), numpy_grads=numpy_placing.scatter_grads)  # fmt: skip
def scatter_value(x: Any, index: Any, value: Any, dim: int) -> Any:
    """A number written at `index` along `dim`."""
    return write_along(x, index, convert(value, x.dtype), dim, "set")


@_indexed("scatter_add(Tensor self, int dim, Tensor index, Tensor src)", outside_dimension,
          grads={"self": SAME, "src": lambda grad, index, src_sym_sizes, dim: _uncut(gather_along(grad, index, dim), src_sym_sizes)},
          numpy=(numpy_indexing.scatter_add, numpy_indexing.scatter_add_checked), numpy_grads=numpy_placing.scatter_add_grads)  # fmt: skip
def scatter_add(x: Any, index: Any, src: Any, dim: int) -> Any:
    """`src` added at `index` along `dim`; an index may occur several times."""
    return write_along(x, index, src, dim, "max" if x.dtype == np.bool_ else "add")


_HOW = {"sum": "add", "mean": "add", "amax": "max", "amin": "min"}


def _counts(like: Any, index: Any, dim: int, include_self: bool) -> Any:
    start = jnp.ones_like(like) if include_self else zeros_like(like)
    counts = write_along(start, index, jnp.ones(index.shape, like.dtype), dim, "add")
    return where(counts == 0, jnp.ones_like(counts), counts)


def _neutral(x: Any, reduce: str) -> Any:
    if reduce in ("sum", "mean"):
        return jnp.zeros((), x.dtype)
    if reduce == "prod":
        return jnp.ones((), x.dtype)
    low, high = _limits(x.dtype)
    return jnp.asarray(low if reduce == "amax" else high, x.dtype)


def _limits(dtype: Any) -> tuple[Any, Any]:
    if dtype == np.bool_:
        return False, True
    if jnp.issubdtype(dtype, jnp.floating):
        return -np.inf, np.inf
    info = jnp.iinfo(dtype)
    return info.min, info.max


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def product_along(x: Any, index: Any, src: Any, dim: int) -> Any:
    """`x` times the elements of `src` that have its index. JAX multiplies but does not differentiate this scatter."""
    return write_along(x, index, src, dim, "min" if x.dtype == np.bool_ else "multiply")


@product_along.defjvp
def _product_tangent(dim: int, primals: Any, tangents: Any) -> Any:
    x, index, src = primals
    out = product_along(x, index, src, dim)
    alone = product_along(jnp.ones_like(x), index, src, dim)
    change = write_along(zeros_like(out), index, factors_beside(x, index, src, out, dim) * tangents[2], dim, "add")
    return out, alone * tangents[0] + change


def factors_beside(x: Any, index: Any, src: Any, product: Any, dim: int) -> Any:
    """For each element of `src`, the product without it: a quotient, and where it is zero, the product of what is left."""
    zero = src == 0
    zeros = gather_along(write_along(jnp.zeros(x.shape, np.int32), index, zero.astype(np.int32), dim, "add"), index, dim)
    alone = zero & (zeros == 1)
    others = gather_along(product_along(x, index, where(alone, jnp.ones_like(src), src), dim), index, dim)
    quotient = gather_along(product, index, dim) / where(zero, jnp.ones_like(src), src)
    return where(zero, where(alone, others, zeros_like(src)), quotient)


def reduce_along(x: Any, index: Any, src: Any, dim: int, reduce: str, include_self: bool) -> Any:
    """The elements of `src` that have one index reduced, together with self's own if `include_self`."""
    start = x if include_self else write_along(x, index, _neutral(x, reduce), dim, "set")
    made = (
        product_along(start, index, src, dim)
        if reduce == "prod"
        else write_along(start, index, src, dim, "max" if x.dtype == np.bool_ and _HOW[reduce] == "add" else _HOW[reduce])
    )
    if reduce != "mean":
        return made
    counts = _counts(x, index, dim, include_self)
    return made / counts if dtypes.is_float(np.dtype(x.dtype)) else jnp.floor_divide(made, counts)


def _reduce_self(grad: Any, self: Any, index: Any, src: Any, result: Any, dim: int, reduce: str, include_self: bool) -> Any:
    src = _cut(src, index)
    if reduce == "sum":
        made = grad
    elif reduce == "mean":
        made = grad / _counts(grad, index, dim, include_self)
    elif reduce == "prod":
        filled = where(self == 0, jnp.ones_like(self), self)
        made = grad * reduce_along(filled, index, src, dim, reduce, include_self) / filled
    else:
        made = (self == result) * (grad / _winners(self, index, src, result, dim))
    return made if include_self else _clear_along(made, index, dim)


def _winners(x: Any, index: Any, src: Any, result: Any, dim: int) -> Any:
    """How many elements share an extreme."""
    own = (x == result).astype(result.dtype)
    won = (src == gather_along(result, index, dim)).astype(result.dtype)
    return write_along(own, index, won, dim, "add")


def _reduce_src(grad: Any, self: Any, index: Any, src: Any, result: Any, dim: int, reduce: str, include_self: bool) -> Any:
    return _uncut(_reduce_cut(grad, self, index, _cut(src, index), result, dim, reduce, include_self), src.shape)


def _reduce_cut(grad: Any, self: Any, index: Any, src: Any, result: Any, dim: int, reduce: str, include_self: bool) -> Any:
    if reduce == "sum":
        return gather_along(grad, index, dim)
    if reduce == "mean":
        return gather_along(grad / _counts(grad, index, dim, include_self), index, dim)
    if reduce in ("amax", "amin"):
        shared = gather_along(grad / _winners(self, index, src, result, dim), index, dim)
        return (src == gather_along(result, index, dim)) * shared
    start = self if include_self else write_along(self, index, jnp.ones((), self.dtype), dim, "set")
    return factors_beside(start, index, src, result, dim) * gather_along(grad, index, dim)


def _zeros_meet(self: Any, index: Any, src: Any, dim: int, reduce: str) -> bool:
    """Whether several zeros of `src` are multiplied into one place: there the product's gradient is zero, but its derivative need not be."""
    zeros = (_cut(src, index) == 0).astype(np.int32)
    return reduce == "prod" and bool((write_along(jnp.zeros(self.shape, np.int32), index, zeros, dim, "add") > 1).any())


def _refusal(function: str, name: str) -> str:
    return f"{function}(): Double backward is unsupported for {name} when >1 zeros in {name} are scattered to the same position in self"


@_indexed("scatter_reduce(Tensor self, int dim, Tensor index, Tensor src, str reduce, bool include_self)", outside_dimension,
          grads={"self": _reduce_self, "src": _reduce_src}, once=("src", _zeros_meet, _refusal("scatter_reduce", "src")),
          real="scatter_reduce", numpy=(numpy_placing.scatter_reduce, numpy_placing.scatter_reduce_checked),
          numpy_grads=numpy_placing.scatter_reduce_grads)  # fmt: skip
def scatter_reduce(x: Any, index: Any, src: Any, dim: int, reduce: str, include_self: bool) -> Any:
    """See `reduce_along`."""
    return reduce_along(x, index, _cut(src, index), dim, reduce, include_self)


def _spread(index: Any, source: Any, dim: int) -> Any:
    """A vector of indices as the index of each element of `source`."""
    shape = tuple(n if d == dim else 1 for d, n in enumerate(source.shape))
    return jnp.broadcast_to(lax.reshape(index, shape), source.shape)


@_indexed("index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, bool include_self)", outside_self,
          grads={"self": lambda grad, self, index, source, result, dim, reduce, include_self: _reduce_self(
                     grad, self, _spread(index, source, dim), source, result, dim, reduce, include_self),
                 "source": lambda grad, self, index, source, result, dim, reduce, include_self: _reduce_src(
                     grad, self, _spread(index, source, dim), source, result, dim, reduce, include_self)},
          once=("source", lambda self, index, source, dim, reduce: _zeros_meet(self, _spread(index, source, dim), source, dim, reduce),
                _refusal("index_reduce", "source")))  # fmt: skip
def index_reduce(x: Any, index: Any, source: Any, dim: int, reduce: str, include_self: bool) -> Any:
    """As scatter_reduce, by slices of `dim`."""
    return reduce_along(x, _spread(index, source, dim), source, dim, reduce, include_self)


@_indexed("scatter_reduced(Tensor self, int dim, Tensor index, Tensor src, str reduce)", outside_dimension, node=NOT_IMPLEMENTED,
          grads={"self": no_derivative("scatter"), "src": no_derivative("scatter")},
          numpy=(numpy_placing.scatter_reduced, numpy_placing.scatter_reduced_checked))  # fmt: skip
def scatter_reduced(x: Any, index: Any, src: Any, dim: int, reduce: str) -> Any:
    """`scatter` with the argument `reduce`, which PyTorch has no derivative of."""
    return reduce_along(x, index, _cut(src, index), dim, reduce, True)


# ---------------------------------------------------------------------- elements in order


@_indexed(
    "take(Tensor self, Tensor index)", outside_elements, True, (numpy_indexing.take, numpy_indexing.take_checked), linear=("self",), keeps=("self",)
)
def take(x: Any, index: Any) -> Any:
    """Elements of the flattened tensor."""
    return _taken(x, index)


def _taken(x: Any, index: Any) -> Any:
    return x.reshape(-1)[where(index < 0, index + x.size, index)] if index.size else jnp.zeros(index.shape, x.dtype)


def _put_flat(x: Any, index: Any, source: Any, accumulate: bool) -> Any:
    at = x.reshape(-1).at[where(index < 0, index + x.size, index).reshape(-1)]
    values = source.reshape(-1) if source.ndim else source
    if not accumulate:
        return at.set(values).reshape(x.shape)
    return (at.max(values) if x.dtype == np.bool_ else at.add(values)).reshape(x.shape)


@_indexed("put(Tensor self, Tensor index, Tensor source, bool accumulate)", outside_elements, True,
          grads={"self": lambda grad, index, accumulate: grad if accumulate else _put_flat(grad, index, jnp.zeros((), grad.dtype), False),
                 "source": lambda grad, index, source: _taken(grad, index).reshape(source.shape)})  # fmt: skip
def put(x: Any, index: Any, source: Any, accumulate: bool) -> Any:
    """Elements of the flattened tensor written, or added to."""
    return _put_flat(x, index, source, accumulate) if index.size else x


def _too_few(offender: int) -> Exception:
    return RuntimeError("Number of elements of source < number of ones in mask")


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    shape = jnp.broadcast_shapes(x.shape, mask.shape)
    x, mask = jnp.broadcast_to(x, shape), jnp.broadcast_to(mask, shape)
    if not source.size or not x.size:
        return x
    order = jnp.cumsum(mask.reshape(-1)) - 1
    picked = source.reshape(-1)[jnp.clip(order, 0, source.size - 1)]
    return where(mask, picked.reshape(shape), x)


@op("masked_scatter(Tensor self, Tensor mask, Tensor source)", method=False, toplevel=False, linear=("self", "source"), check=_too_few,
    attributes="source_sym_sizes", numpy=numpy_placing.masked_scatter)  # fmt: skip
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """The elements of `source` in order, where the mask is true."""
    count = jnp.sum(jnp.broadcast_to(mask, jnp.broadcast_shapes(x.shape, mask.shape)))
    return _masked_scatter(x, mask, source), jnp.stack([(count > source.size).astype(jnp.int64), count.astype(jnp.int64)])
