"""Order: sorting, the k largest, quantiles, search in sorted values, counting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_indexing, numpy_placing, numpy_running, promotion
from torchgrad_jax.declaration.converting import where, zeros_like
from torchgrad_jax.declaration.operator import NOT_IMPLEMENTED, op
from torchgrad_jax.declaration.refusals import no_derivative, refusing
from torchgrad_jax.operators.extreme import at_place
from torchgrad_jax.operators.kernels import along, loops, numpy_counting
from torchgrad_jax.operators.reduction import wrap_one
from torchgrad_jax.runtime._jax_compat import has_x64
from torchgrad_jax.runtime.baseline.loops import AT_PLACE, MEDIAN, MEDIAN_OF_NUMBERS
from torchgrad_jax.runtime.value import aval_of

# ---------------------------------------------------------------------- along a dimension


def take_along(x: Any, indices: Any, dim: int) -> Any:
    """The elements of `x` at `indices` along `dim`."""
    return along.picked(x, indices, dim)


def put_along(grad: Any, shape: tuple[int, ...], indices: Any, dim: int) -> Any:
    """Zeros of `shape` with `grad` at `indices` along `dim`, no place twice."""
    if not shape:
        return grad.reshape(())
    dim = wrap_one(dim, len(shape))
    return along.put(grad, indices, dim, along.LAST, length=shape[dim])


# ---------------------------------------------------------------------- sorting

_BITS = {1: np.dtype(np.int8), 2: np.dtype(np.int16), 4: np.dtype(np.int32)}


def _ordered_bits(x: Any) -> Any:
    """Integers as wide as `x` in the same order: nan above all, -0 equal to 0. `x` has at most 32 bits."""
    if x.dtype == np.bool_:
        return x.astype(np.int32)
    if x.dtype.kind in "iu":
        return x.astype(np.int64)
    signed = _BITS[x.dtype.itemsize]
    bits = lax.bitcast_convert_type(where(x == 0, zeros_like(x), x), signed)
    bits = where(bits < 0, bits ^ np.array(np.iinfo(signed).max, signed), bits)
    return where(x != x, np.array(np.iinfo(signed).max, signed), bits)


def sorted_order(x: Any, dim: int, descending: bool) -> Any:
    """The indices that sort `x` along `dim`, equal elements in their order; nan is the largest. int64.

    Elements of at most 32 bits are sorted as one integer with their place, which XLA does several times faster than pairs.
    """
    dim, n = dim % x.ndim, x.shape[dim]  # it is counted from the end where a loop is said otherwise
    if x.dtype.itemsize <= 4 and n < 2**31 and has_x64():
        place = lax.broadcasted_iota(np.int64, x.shape, dim)
        bits = _ordered_bits(x).astype(np.int64)
        key = ((~bits if descending else bits) << 31) | place
        return lax.sort(key, dim, is_stable=False) & (2**31 - 1)
    place = lax.broadcasted_iota(np.int32, x.shape, dim)
    if not descending:
        return lax.sort((x, place), dim, is_stable=True, num_keys=1)[1].astype(np.int64)
    # Descending and still stable: ascending over the mirrored places, mirrored.
    backwards = lax.rev(place, (dim,))
    return lax.rev(lax.sort((lax.rev(x, (dim,)), backwards), dim, is_stable=True, num_keys=1)[1], (dim,)).astype(np.int64)


def _sorted(x: Any, dim: int, descending: bool) -> tuple[Any, Any]:
    if not x.ndim:
        wrap_one(dim, 0)
        return x, jnp.zeros((), np.int64)
    dim = wrap_one(dim, x.ndim)
    order = sorted_order(lax.stop_gradient(x), dim, descending)
    return take_along(x, order, dim), order


def _refuse_complex_sort(x: Any, **_: Any) -> None:
    if x.dtype.kind == "c":
        raise RuntimeError(" Sort does not support complex dtypes on CPU")


for _name, _node in (("sort", "SortBackward0"), ("sort_stable", "SortBackward1")):
    op(f"{_name}(Tensor self, int dim, bool descending)", keeps_order=True, method=False, toplevel=False, node=_node, results=("values", "indices"),
       validate=_refuse_complex_sort, numpy=numpy_indexing.sort, numpy_grads=numpy_placing.put_back,
       grads={"self": lambda grad, self_sym_sizes, indices, dim: put_along(grad, self_sym_sizes, indices, dim)})(_sorted)  # fmt: skip


@op("argsort(Tensor self, int dim=-1, bool descending=False, bool stable=False)", keeps_order=True, differentiable=False,
    validate=_refuse_complex_sort, numpy=numpy_indexing.argsort)  # fmt: skip
def argsort(x: Any, dim: int, descending: bool, stable: bool) -> Any:
    """The indices that sort along `dim`."""
    return _sorted(x, dim, descending)[1]


# A partial selection wins over a full sort up to about this share of the elements.
_SELECTED_SHARE = 8


def _largest(x: Any, k: int, dim: int, largest: bool) -> tuple[Any, Any]:
    n = x.shape[dim]
    if k * _SELECTED_SHARE > n or x.dtype not in (np.float32, jnp.bfloat16):
        order = lax.slice_in_dim(sorted_order(x, dim, largest), 0, k, axis=dim)
    else:
        moved = jnp.moveaxis(x, dim, -1)
        # XLA takes a NaN with a sign, as 0 / 0 gives, for less than all numbers.
        key = where(jnp.isnan(moved), jnp.nan if largest else -jnp.inf, moved if largest else -moved).astype(x.dtype)
        order = jnp.moveaxis(lax.top_k(key, k)[1].astype(np.int64), -1, dim)
    return take_along(x, order, dim), order


def _check_topk(x: Any, k: int, dim: int, largest: bool, sorted: bool) -> None:
    dim = wrap_one(dim, len(x.shape))
    if k < 0 or k > (x.shape[dim] if x.shape else 1):
        raise RuntimeError("selected index k out of range")
    if x.dtype.kind == "c" or x.dtype == np.bool_:
        raise RuntimeError(f" topk does not support {'complex' if x.dtype.kind == 'c' else 'bool'} dtypes on CPU")


@op("topk(Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True)", results=("values", "indices"), validate=_check_topk,
    numpy=numpy_indexing.topk, numpy_grads=numpy_placing.put_back,
    grads={"self": lambda grad, self_sym_sizes, indices, dim: put_along(grad, self_sym_sizes, indices, dim)})  # fmt: skip
def topk(x: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    """The `k` largest (or smallest) elements along `dim` in order, and their indices."""
    if not x.ndim:
        return x, jnp.zeros((), np.int64)
    return _largest(x, k, wrap_one(dim, x.ndim), largest)


# ---------------------------------------------------------------------- one element of the order


def _said_selected(x: Any, dim: int, which: int, position: int) -> list[Any]:
    if which == AT_PLACE:
        return list(_one_of_order(x, position, dim, True))
    n = x.shape[dim]
    nans = jnp.sum((x != x).astype(np.int64), dim, keepdims=True)
    among = (jnp.maximum(n - nans, 1) - 1) // 2 if which == MEDIAN_OF_NUMBERS else where(nans > 0, n - nans, (n - 1) // 2)
    return list(_one_of_order(x, among, dim, True))


_LOOP = along.selection(_said_selected)


def _selected(x: Any, dim: int, keepdim: bool, which: int, position: int = 0) -> tuple[Any, Any]:
    """An element of the order along `dim`, and its index: that at a position, or a median."""
    found = (_LOOP if along.fits(x) else _said_selected)(x, dim, which, position)
    value, at = found if keepdim else [lax.squeeze(a, (dim,)) for a in found]
    return value, at


def _one_of_order(x: Any, position: Any, dim: int, keepdim: bool, order: Any = None) -> tuple[Any, Any]:
    """The element at `position` (an int, or an array with `dim` of size 1) of the order along `dim`, and its index."""
    order = sorted_order(x, dim, False) if order is None else order
    at = lax.slice_in_dim(order, position, position + 1, axis=dim) if isinstance(position, int) else take_along(order, position, dim)
    value = take_along(x, at, dim)
    return (value, at) if keepdim else (lax.squeeze(value, (dim,)), lax.squeeze(at, (dim,)))


def _at_place(grad: Any, self_sym_sizes: tuple[int, ...], indices: Any, dim: int, keepdim: bool) -> Any:
    return at_place(grad, self_sym_sizes, indices, dim, keepdim)


def _refuse_empty_dim(name: str, x: Any, dim: int) -> None:
    dim = wrap_one(dim, len(x.shape))
    if x.shape and x.shape[dim] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")


def _check_kthvalue(x: Any, k: int, dim: int, keepdim: bool) -> None:
    _refuse_empty_dim("kthvalue", x, dim)
    n = x.shape[wrap_one(dim, len(x.shape))] if x.shape else 1
    if not 1 <= k <= n:
        raise RuntimeError("kthvalue(): selected number k out of range for dimension " + str(wrap_one(dim, len(x.shape))))
    if x.shape:
        refusing("kthvalue_cpu", "bc")(x)


@op("kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False)", results=("values", "indices"), validate=_check_kthvalue,
    grads={"self": _at_place}, numpy=numpy_running.kthvalue, numpy_grads=numpy_placing.put_back)  # fmt: skip
def kthvalue(x: Any, k: int, dim: int, keepdim: bool) -> Any:
    """The `k`-th smallest element along `dim`, counted from 1, and its index."""
    if not x.ndim:
        return x, jnp.zeros((), np.int64)
    return _selected(x, wrap_one(dim, x.ndim), keepdim, AT_PLACE, k - 1)


def _median(x: Any, dim: int, keepdim: bool, ignore_nan: bool) -> tuple[Any, Any]:
    """The lower median along `dim`. A nan is the median unless it is ignored."""
    if not x.ndim:
        return x, jnp.zeros((), np.int64)
    dim = wrap_one(dim, x.ndim)
    n = x.shape[dim]
    if x.dtype.kind in "iub":
        return _one_of_order(x, (n - 1) // 2, dim, keepdim)
    return _selected(x, dim, keepdim, MEDIAN_OF_NUMBERS if ignore_nan else MEDIAN)


def _value_shared(grad: Any, self: Any, result: Any) -> Any:
    mask = (self == result) | ((self != self) & (result != result))
    return where(mask, grad / mask.sum().astype(grad.dtype), 0).astype(grad.dtype)


def _check_median(x: Any) -> None:
    if x.size:
        refusing("median_cpu", "bc")(x)


def _declare_median(name: str, ignore_nan: bool) -> None:
    def over_dim(x: Any, dim: int, keepdim: bool) -> Any:
        return _median(x, dim, keepdim, ignore_nan)

    def over_all(x: Any) -> Any:
        if not x.size:  # nan, as each dtype holds it
            return jnp.full((), np.iinfo(x.dtype).min if x.dtype.kind in "iu" else jnp.nan, x.dtype)
        return _median(x.reshape(-1), 0, False, ignore_nan)[0]

    def validate(x: Any, dim: int, keepdim: bool) -> None:
        _refuse_empty_dim("median", x, dim)
        refusing("median_out", "bc")(x)

    over_dim.__doc__ = "The lower median along one dimension, and its index."
    over_all.__doc__ = "The lower median of all elements."
    op(f"{name}(Tensor self)", method=False, toplevel=False, validate=_check_median, keeps=("self", "result"),
       grads={"self": _value_shared}, numpy=getattr(numpy_running, f"{name}_of_all"), numpy_grads=numpy_running.shared_grads)(over_all)  # fmt: skip
    op(f"{name}_dim(Tensor self, int dim, bool keepdim=False)", method=False, toplevel=False, node=f"{name.title()}Backward1",
       results=("values", "indices"), validate=validate, grads={"self": _at_place}, numpy=getattr(numpy_running, name),
       numpy_grads=numpy_placing.put_back)(over_dim)  # fmt: skip


_declare_median("median", False)
_declare_median("nanmedian", True)


def _check_mode(x: Any, dim: int, keepdim: bool) -> None:
    _refuse_empty_dim("mode", x, dim)
    if x.shape and x.size:
        refusing("mode_cpu", "c")(x)


@op("mode(Tensor self, int dim=-1, bool keepdim=False)", results=("values", "indices"), validate=_check_mode, grads={"self": _at_place},
    numpy=numpy_placing.mode, numpy_grads=numpy_placing.put_back)  # fmt: skip
def mode(x: Any, dim: int, keepdim: bool) -> Any:
    """The most frequent element along `dim`, the smallest of equally frequent ones, and its last index."""
    if not x.ndim:
        return x, jnp.zeros((), np.int64)
    dim = wrap_one(dim, x.ndim)
    order = sorted_order(x, dim, False)
    values = take_along(x, order, dim)
    place = lax.broadcasted_iota(np.int64, x.shape, dim)
    before = lax.slice_in_dim(values, 0, -1, axis=dim)
    starts = lax.slice_in_dim(values, 1, None, axis=dim) != before
    starts = jnp.concatenate([jnp.ones_like(lax.slice_in_dim(values, 0, 1, axis=dim), dtype=bool), starts], dim)
    length = place - lax.cummax(where(starts, place, 0), axis=dim)
    return _one_of_order(x, lax.expand_dims(lax.argmax(length, dim, np.int64), (dim,)), dim, keepdim, order)


@op("_quantile(Tensor self, Tensor|Scalar q, int? dim, bool keepdim, str interpolation, bool ignore_nan)", differentiable=False, method=False,
    toplevel=False, numpy=numpy_counting.quantile)  # fmt: skip
def quantile(x: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool) -> Any:
    """The quantiles of all elements, or along `dim`; those of a vector `q` lie along the first dimension."""
    shape, vector = numpy_counting.shape_of_quantiles(x.shape, q.shape, dim, keepdim), q.ndim > 0
    rows = x.reshape(-1) if dim is None or not x.ndim else jnp.moveaxis(x, dim, -1)
    values, q = lax.sort(rows), jnp.atleast_1d(q.astype(x.dtype))
    last, nans = values.shape[-1] - 1, jnp.sum((values != values).astype(np.int64), -1, keepdims=True)
    if ignore_nan:
        rank = jnp.maximum(q * (last - nans).astype(x.dtype), 0)
    else:
        rank = where(nans > 0, jnp.asarray(last, x.dtype), q * jnp.asarray(last, x.dtype))
    if interpolation in ("lower", "higher", "nearest"):
        rank = {"lower": jnp.floor, "higher": jnp.ceil, "nearest": jnp.round}[interpolation](rank)
    below = rank.astype(np.int64)
    made = take_along(values, below, values.ndim - 1)
    if interpolation in ("linear", "midpoint"):
        weight = jnp.full_like(rank, 0.5) if interpolation == "midpoint" else rank - below.astype(x.dtype)
        above = take_along(values, jnp.ceil(rank).astype(np.int64), values.ndim - 1)
        way = above - made
        made = where(weight < 0.5, made + weight * way, above - way * (1 - weight))
    return (jnp.moveaxis(made, -1, 0) if vector else made).reshape(shape)


# ---------------------------------------------------------------------- search and counting


def _check_values(sequence: Any, values: Any, sorter: Any, **_: Any) -> None:
    if isinstance(values, type) or values.size:
        refusing("searchsorted_out_cpu", "bc")(aval_of((), promotion.result_type([sequence, values])))


@op("_searchsorted(Tensor sorted_sequence, Tensor|Scalar self, Tensor? sorter, bool out_int32, bool right)", differentiable=False,
    method=False, toplevel=False, validate=_check_values, numpy=numpy_indexing.searchsorted)  # fmt: skip
def searchsorted(sequence: Any, values: Any, sorter: Any, out_int32: bool, right: bool) -> Any:
    """Where each value would be put into the sorted last dimension of `sequence`."""
    if sorter is not None:
        sequence = take_along(sequence, sorter, sequence.ndim - 1)
    kind = promotion.promote_types(np.dtype(sequence.dtype), np.dtype(values.dtype))
    sequence, values = sequence.astype(kind), values.astype(kind)
    if not values.size or not sequence.size:
        return jnp.zeros(values.shape, np.int32 if out_int32 else np.int64)
    rows = sequence.reshape(-1, sequence.shape[-1])
    sought = values.reshape(rows.shape[0], -1)
    span = jnp.zeros(sought.shape, np.int64), jnp.full(sought.shape, rows.shape[-1], np.int64)
    turns = int(rows.shape[-1]).bit_length()
    span = loops.fori_loop(0, turns, lambda _, span: numpy_indexing.halved(jnp, rows, sought, right, span), span)
    return span[0].reshape(values.shape).astype(np.int32 if out_int32 else np.int64)


@op("_histc(Tensor self, int bins, Scalar min, Scalar max)", differentiable=False, method=False, toplevel=False, numpy=numpy_placing.histc)
def histc(x: Any, low: Any, high: Any, bins: int) -> Any:
    """Counts of the elements in `bins` equal parts of [min, max]; the range of the elements where both are equal."""
    x = x.reshape(-1)
    own = low == high
    if x.size:
        low, high = where(own, x.min(), low), where(own, x.max(), high)
    same = low == high
    low, high = where(same, low - 1, low), where(same, high + 1, high)
    inside = (x >= low) & (x <= high)
    place = jnp.clip(((x - low) / (high - low) * bins).astype(np.int64), 0, bins - 1)
    return jnp.zeros(bins, x.dtype).at[where(inside, place, bins)].add(1, mode="drop")


@op("_bincount(Tensor self, Tensor? weights, int length)", differentiable=False, method=False, toplevel=False, numpy=numpy_indexing.bincount)
def bincount(x: Any, weights: Any, length: int) -> Any:
    """How often each number below `length` occurs, or the sum of its weights."""
    if weights is None:
        return jnp.zeros(length, np.int64).at[x].add(1)
    weights = weights if weights.dtype == np.float32 else weights.astype(np.float64)
    return jnp.zeros(length, weights.dtype).at[x].add(weights)


def _check_isin(elements: Any, test_elements: Any, invert: bool) -> None:
    for given in (elements, test_elements):
        kind = np.dtype(given) if isinstance(given, type) else given.dtype
        if kind.kind in "bc":
            raise RuntimeError(f"Unsupported input type encountered for isin(): {dtypes.of(kind).title}")


@op("_isin(Tensor|Scalar elements, Tensor|Scalar test_elements, bool invert)", differentiable=False, method=False, toplevel=False,
    validate=_check_isin)  # fmt: skip
def isin(elements: Any, test_elements: Any, invert: bool) -> Any:
    """Whether each element is among `test_elements`."""
    kind = promotion.result_type([elements, test_elements])
    return jnp.isin(elements.astype(kind), test_elements.astype(kind), invert=invert)


def _refuse_distinct(grad: Any, name: str) -> Any:
    raise NotImplementedError(f"the derivative for '{name}' is not implemented.")


@op("_distinct(Tensor self, Tensor values, str name)", method=False, toplevel=False, edges=("self",), grads={"self": _refuse_distinct},
    node=lambda name: "".join(w.capitalize() for w in name.split("_")) + "Backward0")  # fmt: skip
def distinct(x: Any, values: Any, name: str) -> Any:
    """The distinct elements of `self`, already found."""
    return values


@op("_histogramdd(Tensor self, Tensor? weight, Tensor[] edges)", method=False, toplevel=False, node=NOT_IMPLEMENTED,
    grads={"self": no_derivative("histogram")}, numpy=numpy_counting.histogramdd)  # fmt: skip
def histogramdd(x: Any, weight: Any, edges: Any) -> Any:
    """How many rows of `self` are in each cell between the edges, of which there is one tensor for each column; the sum of their weights where there
    are some. The last edge of a column belongs to its last cell; NaN is in none."""
    shape = tuple(e.shape[0] - 1 for e in edges)
    place, inside = jnp.zeros(x.shape[0], np.int64), jnp.ones(x.shape[0], bool)
    for column, e in zip(x.T, edges, strict=True):
        count = e.shape[0] - 1
        inside &= (column >= e[0]) & (column <= e[-1])
        place = place * count + jnp.clip(jnp.searchsorted(e, column, side="right") - 1, 0, max(count - 1, 0))
    cells = math.prod(shape)
    added = jnp.ones(x.shape[0], x.dtype) if weight is None else weight
    return jnp.zeros(cells, x.dtype).at[where(inside, place, cells)].add(added, mode="drop").reshape(shape)
