"""Functions that gather, scatter and write along one dimension by index tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.calling.entries import MANY
from torchgrad_jax.calling.out import with_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.fields import content_of, needs_grad
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.order import plain
from torchgrad_jax.core.strided import check_strides
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.core.writing import apply_inplace
from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.declaration.derivative import refuse_complex
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.functions import views
from torchgrad_jax.functions.indexing import index_tensors, known_bounds, may_be_out_of_range, put_at, refuse_byte_mask
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.indexing import BOUNDS
from torchgrad_jax.operators.pointwise import cast_to
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_once
from torchgrad_jax.runtime.value import aval_of, constant


def call(name: str, *arguments: Any) -> Tensor:
    """The operator `name` of tensors (and sequences of them), the other arguments being static."""
    layout, operands = laid_out(arguments)
    return apply(registry[name].bind(layout), operands)


def nobody_asks(*tensors: Any) -> bool:
    """Whether nobody sees what results are made of: there is no graph of these tensors, no transform and no mode."""
    rec = per_thread.recorder
    return not rec.rare and not (rec.grad_enabled and any([isinstance(t, Tensor) and needs_grad(t) for t in tensors]))


def laid_out(arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Any]]:
    layout: list[Any] = []
    operands: list[Any] = []
    for a in arguments:
        if isinstance(a, Tensor) or type(a) is RunTime:
            layout.append(ARRAY)
            operands.append(a if isinstance(a, Tensor) else a[0])
        elif isinstance(a, list):
            layout.append(len(a))
            operands.extend(a)
        else:
            layout.append(_static(a))
    return tuple(layout), operands


_static = lru_cache(1024, typed=True)(Static)


# Up to so many bytes what is there already is joined at once.
_MOST_BYTES = 1 << 20


def joined(function: Callable[..., Any], name: str, tensors: list[Any], dim: int) -> Tensor:
    """Tensors joined by the operator `name`, or at once by the function of NumPy's that does the same."""
    made = _joined_at_once(function, tensors, dim)
    return apply(_join(name, len(tensors), dim), tensors) if made is None else made


@lru_cache(1024)
def _join(name: str, count: int, dim: int) -> Any:
    return registry[name].bind((count, Static(dim)))


def _joined_at_once(join: Callable[..., Any], tensors: list[Any], dim: int) -> Tensor | None:
    """Many tensors of one dtype, whose content is on the host and that nobody follows, joined there by a function of NumPy's. None for others.

    As part of a program they would be as many operands of it, and which of them are one tensor would tell it from others: what is drawn of a buffer
    would be new each time.
    """
    rec = per_thread.recorder
    if len(tensors) < MANY or rec.rare or rec.inference or modes.execution == "eager" or not modes.interprets():
        return None
    aval = tensors[0]._aval
    arrays, nbytes = [], 0
    for t in tensors:
        if type(t) is not Tensor or t._aval.dtype is not aval.dtype or (rec.grad_enabled and needs_grad(t)) or not plain(t):
            return None
        content = content_of(t)
        array = content.array
        if array is None or content.aval.device is not CPU or (found := content.at_hand()) is None:
            return None
        arrays.append(found)
        nbytes += found.nbytes
    if nbytes > _MOST_BYTES:
        return None
    try:
        made = join(arrays, dim)
    except ValueError:  # sizes that do not fit together, which the operator says
        return None
    made.flags.writeable = False
    return wrap(constant(made, aval_of(made.shape, aval.dtype)))


class RunTime(tuple[Any]):
    """A number given to programs at run time."""

    def __new__(cls, value: Any) -> RunTime:
        return super().__new__(cls, (value,))


# ---------------------------------------------------------------------- an index along one dimension


def _choose(name: str, index: Tensor, size: int, dim: int) -> str:
    """The operator for `index`: the plain one where it is known to be in range, else the checked one. PyTorch's error where it
    is known not to be."""
    if not index._aval.size:
        return name
    error, negative = BOUNDS[name]
    least = -size if negative else 0
    bounds = known_bounds(index)
    if bounds is None:
        return name + "_checked" if may_be_out_of_range(index, least, size) else name
    low, high = bounds
    if high >= size:
        raise error(high, dim, size)
    if low < least:
        raise error(low, dim, size)
    return name


def _size(t: Tensor, dim: int) -> int:
    return t._aval.shape[dim] if t._aval.ndim else 1


def _is_int(index: Tensor) -> bool:
    return index._aval.dtype in (np.int32, np.int64)


def _fits_index(name: str, input: Tensor, index: Tensor, what: str) -> None:
    if not _is_int(index):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")
    if max(index._aval.ndim, 1) != max(input._aval.ndim, 1):
        raise RuntimeError(f"Index tensor must have the same number of dimensions as {what} tensor")


def _larger(index: Tensor, other: Tensor, dim: int | None) -> int | None:
    a, b = index._aval.shape or (1,), other._aval.shape or (1,)
    return next((d for d in range(len(a)) if d != dim and a[d] > b[d]), None)


@public("torch", "torch.Tensor")
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Any = None) -> Tensor:
    """The elements that `index` picks along `dim`. The gradient is strided, also with `sparse_grad`.

    RuntimeError for an index out of range, or larger than input elsewhere.
    """
    dim = wrap_dim(dim, input._aval.ndim)
    if index._aval.size:
        _fits_index("gather", input, index, "input")
        bad = _larger(index, input, dim)
        if bad is not None:
            raise RuntimeError(
                f"Size does not match at dimension {bad} expected index {list(index._aval.shape)} to be no larger than self "
                f"{list(input._aval.shape)} apart from dimension {dim}"
            )
    name = _choose("gather", index, _size(input, dim), dim)
    return with_out("gather", out, call(name, input, dim, index), (input, index))


@public("torch", "torch.Tensor")
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, out: Any = None) -> Tensor:
    """As gather, the other dimensions being broadcast against each other; of the flattened tensors without dim."""
    if indices._aval.dtype != np.int64:
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {indices.dtype.title}")
    if dim is None:
        return gather(views.reshape(input, (-1,)), 0, views.reshape(indices, (-1,)), out=out)
    a, b = input._aval.shape, indices._aval.shape
    if len(a) != len(b):
        raise RuntimeError(
            f"torch.take_along_dim(): input and indices should have the same number of dimensions, but got {len(a)} dimensions for input, "
            f"and {len(b)} dimensions for indices"
        )
    dim = wrap_dim(dim, len(a))
    shape = broadcast_shapes((*a[:dim], 1, *a[dim + 1 :]), (*b[:dim], 1, *b[dim + 1 :]))
    full, picked = (*shape[:dim], a[dim], *shape[dim + 1 :]), (*shape[:dim], b[dim], *shape[dim + 1 :])
    input, indices = views.expand(input, full), views.expand(indices, picked)
    return with_out("take_along_dim", out, call("take_along_dim", input, dim, indices), (input, indices))


@public("torch", "torch.Tensor")
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Any = None) -> Tensor:
    """The slices of `dim` at a vector of indices. IndexError where one is out of range."""
    dim = wrap_dim(dim, input._aval.ndim)
    if index._aval.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if not _is_int(index):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    if not input._aval.ndim and index._aval.size != 1:
        raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {index._aval.size} value(s)")
    return with_out("index_select", out, call(_choose("index_select", index, _size(input, dim), dim), input, dim, index), (input, index))


def _two_ways(prepare: Any, name: str, doc: str) -> tuple[Any, Any]:
    """The function and its in-place twin of what `prepare` turns into (operator, arguments)."""

    def function(input: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Tensor:
        operator, arguments = prepare(input, *args, **kwargs)
        return with_out(name, out, call(operator, *arguments), [a for a in arguments[1:] if isinstance(a, Tensor)])

    def inplace(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        operator, arguments = prepare(self, *args, **kwargs)
        layout, operands = laid_out(arguments)
        return apply_inplace(registry[operator].bind(layout), tuple(operands))

    function.__name__ = function.__qualname__ = name
    inplace.__name__ = inplace.__qualname__ = name + "_"
    function.__doc__, inplace.__doc__ = doc, f"In-place version of `{name}`. {doc}"
    return function, inplace


_OTHER_SHAPE = "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = {} source.shape = {}"


def _vector_shape(name: str, self: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    """PyTorch's refusals of an index and a source that do not fit."""
    count = source._aval.shape[dim] if source._aval.ndim else 1
    if index._aval.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {index._aval.ndim} with type: {index.dtype.title} "
            f"and size: {list(index._aval.shape)}"
        )
    if not _is_int(index):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index but got: {index.dtype.title}")
    if self._aval.dtype != source._aval.dtype:
        raise RuntimeError(f"{name}(): self ({self.dtype.title}) and source ({source.dtype.title}) must have the same scalar type")
    if index._aval.size != count:
        if not source._aval.ndim:
            raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        raise RuntimeError(
            f"{name}(): Number of indices ({index._aval.size}) should be equal to source.size(dim): ({count}), for dim: {dim}"
        )  # fmt: skip
    if self._aval.ndim != source._aval.ndim or _without(self, dim) != _without(source, dim):
        raise RuntimeError(_OTHER_SHAPE.format(list(self._aval.shape), list(source._aval.shape)))


def _without(t: Tensor, dim: int) -> tuple[int, ...]:
    """Its shape without `dim`. Of a vector nothing is left, and a 0-dim tensor is not even that."""
    shape = t._aval.shape
    return (*shape[:dim], *shape[dim + 1 :]) if shape else ()


def _index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Any:
    dim = wrap_dim(dim, self._aval.ndim)
    _vector_shape("index_add_", self, dim, index, source)
    return _choose("index_add", index, _size(self, dim), dim), (self, dim, index, source, RunTime(alpha))


def _index_reduce(self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    if not isinstance(include_self, bool):
        raise TypeError(f"index_reduce(): argument 'include_self' must be bool, not {type(include_self).__name__}")
    warn_once("index_reduce() is in beta and the API may change at any time.")
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    dim = wrap_dim(dim, self._aval.ndim)
    _vector_shape("index_reduce_", self, dim, index, source)
    if self._aval.dtype.kind in "bc":
        raise NotImplementedError(f"\"index_func_\" not implemented for '{self.dtype.title}'")
    return _choose("index_reduce", index, _size(self, dim), dim), (self, dim, index, source, reduce, include_self)


def _index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    dim = wrap_dim(dim, self._aval.ndim)
    mine, theirs = self._aval.ndim, source._aval.ndim
    if index._aval.ndim > 1:
        raise IndexError(f"index_copy_(): Index should have dimension 1 or 0 (got {index._aval.ndim})")
    if not theirs and index._aval.size != 1:
        raise IndexError(f"index_copy_(): When source is scalar, index should have one element (got {index._aval.size})")
    if mine and theirs and mine != theirs:
        raise IndexError(
            f"index_copy_(): When source and destination are not scalars, their dimensionality must match. Source dimensionality ({theirs}), "
            f"destination dimensionality ({mine})"
        )
    if index._aval.dtype != np.int64:
        raise RuntimeError(f"index_copy_(): Expected a long tensor for index, but got {index.dtype.title}")
    if self._aval.dtype != source._aval.dtype:
        raise RuntimeError(
            f"index_copy_(): self and source expected to have the same dtype, but got (self) {self.dtype.title} and (source) {source.dtype.title}"
        )
    if _without(self, dim) != _without(source, dim):
        mine, theirs = (" ".join(map(str, _without(t, dim))) for t in (self, source))
        raise RuntimeError(
            f"index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: {mine} at dimension {dim} and "
            f"source slice shape: {theirs} at dimension {dim}."
        )
    count = source._aval.shape[dim] if source._aval.ndim else 1
    if index._aval.size != count:
        raise IndexError(f"index_copy_(): Number of indices ({index._aval.size}) should be equal to source.size(dim) ({count})")
    return _choose("index_copy", index, _size(self, dim), dim), (self, dim, index, source)


def _index_fill(self: Tensor, dim: int, index: Tensor, value: Any) -> Any:
    if isinstance(value, Tensor) and value._aval.ndim:
        raise RuntimeError(f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value._aval.ndim} dimension(s).")
    if index._aval.dtype != np.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if (isinstance(value, complex) or (isinstance(value, Tensor) and value._aval.dtype.kind == "c")) and self._aval.dtype.kind != "c":
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    dim = wrap_dim(dim, self._aval.ndim)
    if index._aval.ndim > 1:
        raise RuntimeError("Index has to be a vector/scalar")
    if isinstance(value, Tensor):
        return _choose("index_fill_tensor", index, _size(self, dim), dim), (self, dim, index, value)
    return _choose("index_fill_scalar", index, _size(self, dim), dim), (self, dim, index, RunTime(promotion.fitting(value, self._aval.dtype)))


index_add, index_add_ = _two_ways(_index_add, "index_add", "`alpha` times the slices of source added to those of `dim` at index.")
public("torch.index_add", "torch.Tensor.index_add")(index_add)
public("torch.Tensor.index_add_")(index_add_)
index_reduce, index_reduce_ = _two_ways(_index_reduce, "index_reduce", "The slices of source with one index reduced, along `dim`.")
public("torch.index_reduce", "torch.Tensor.index_reduce")(index_reduce)
public("torch.Tensor.index_reduce_")(index_reduce_)


@public("torch")
def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None, offsets: Tensor | None = None, axis: int = 0,
    unsafe: bool = False, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Neighbouring elements of `axis` put together: by their sum, mean, max, min or prod.

    lengths: of the segments, or offsets: where each begins, and the end of the last; of as many dimensions as `axis` is the last of. unsafe: lengths
    need not add up to the size of data. initial: what each segment begins with. RuntimeError for other lengths and offsets, and for indices.
    """
    axis = wrap_dim(axis, data._aval.ndim)
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if reduce not in ("sum", "mean", "max", "min", "prod"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    bounds, given = (lengths, "lengths") if offsets is None else (offsets, "offsets")
    if bounds is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if bounds._aval.ndim > data._aval.ndim:
        raise RuntimeError(
            f"Expected data.dim() >= {given}_value.dim() to be true, but got false.  (Could this error message be improved?  If so, please report "
            "an enhancement request to PyTorch.)"
        )
    if axis != bounds._aval.ndim - 1:
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of {given} but got {axis}.")
    if not (unsafe or bounds._aval.size or offsets is not None):
        raise RuntimeError(
            "min(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
        )  # fmt: skip
    if bounds.dtype not in (dtypes.int32, dtypes.int64):
        raise NotImplementedError(f"\"_segment_reduce_{given}_cpu_kernel1\" not implemented for '{bounds.dtype.title}'")
    return call("segment_reduce", data, bounds, reduce, offsets is not None, bool(unsafe), None if initial is None else float(initial))


index_copy, index_copy_ = _two_ways(_index_copy, "index_copy", "The slices of source in place of those of `dim` at index.")
public("torch.index_copy", "torch.Tensor.index_copy")(index_copy)
public("torch.Tensor.index_copy_")(index_copy_)
index_fill, index_fill_ = _two_ways(_index_fill, "index_fill", "A number, or 0-dim tensor, written to the slices of `dim` at index.")
public("torch.index_fill", "torch.Tensor.index_fill")(index_fill)
public("torch.Tensor.index_fill_")(index_fill_)


# ---------------------------------------------------------------------- scatter


def _fits_scatter(self: Tensor, dim: int, index: Tensor, src: Any) -> Any:
    """`src`. RuntimeError with PyTorch's text for dtypes and shapes that do not fit."""
    if not index._aval.size:
        return src
    if not _is_int(index):
        raise RuntimeError("scatter(): Expected dtype int32/int64 for index")
    if src is not None and src._aval.dtype != self._aval.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    if max(index._aval.ndim, 1) != max(self._aval.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as self tensor")
    if src is not None and max(index._aval.ndim, 1) != max(src._aval.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    if _larger(index, self, dim) is not None or (src is not None and _larger(index, src, None) is not None):
        tail = "" if src is None else f" and to be no larger size than src {list(src._aval.shape)}"
        raise RuntimeError(
            f"Expected index {list(index._aval.shape)} to be no larger than self {list(self._aval.shape)} apart from dimension {dim}{tail}"
        )  # fmt: skip
    return src


_REDUCTIONS = {"add": "sum", "multiply": "prod"}


def _scatter(self: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Any:
    dim = wrap_dim(dim, self._aval.ndim)
    src = value if src is None else src
    if reduce is not None and reduce not in _REDUCTIONS:
        raise RuntimeError("reduce argument must be either add or multiply.")
    tensor = src if isinstance(src, Tensor) else None
    tensor = _fits_scatter(self, dim, index, tensor)
    if reduce is not None:
        if tensor is not None:
            warn_once(
                "The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a future PyTorch release. Use "
                "torch.scatter_reduce instead for more reduction options."
            )
        else:
            number: Any = src
            tensor = self.new_full(index._aval.shape, number)
        name = _choose("scatter_reduced", index, _size(self, dim), dim)
        return name, (self, dim, index, tensor, _REDUCTIONS[reduce])
    name = _choose("scatter_value" if tensor is None else "scatter_src", index, _size(self, dim), dim)
    return name, (self, dim, index, RunTime(src) if tensor is None else tensor)


def _scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    dim = wrap_dim(dim, self._aval.ndim)
    src = _fits_scatter(self, dim, index, src)
    return _choose("scatter_add", index, _size(self, dim), dim), (self, dim, index, src)


def _scatter_reduce(self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    dim = wrap_dim(dim, self._aval.ndim)
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    src = _fits_scatter(self, dim, index, src)
    if index._aval.size:
        refusing(f"scatter_gather_tensor_cpu_reduce_{reduce}", {"mean": "b", "amax": "c", "amin": "c"}.get(reduce, ""))(self._aval)
    elif reduce == "mean":  # nothing is added, but all divided
        refusing("div_floor_cpu", "b")(self._aval)
    return _choose("scatter_reduce", index, _size(self, dim), dim), (self, dim, index, src, reduce, bool(include_self))


scatter, scatter_ = _two_ways(_scatter, "scatter", "src (a tensor or a number) written at index along `dim`.")
public("torch.scatter", "torch.Tensor.scatter")(scatter)
public("torch.Tensor.scatter_")(scatter_)
scatter_add, scatter_add_ = _two_ways(_scatter_add, "scatter_add", "src added at index along `dim`.")
public("torch.scatter_add", "torch.Tensor.scatter_add")(scatter_add)
public("torch.Tensor.scatter_add_")(scatter_add_)
scatter_reduce, scatter_reduce_ = _two_ways(_scatter_reduce, "scatter_reduce", "The elements of src with one index reduced, along `dim`.")
public("torch.scatter_reduce", "torch.Tensor.scatter_reduce")(scatter_reduce)
public("torch.Tensor.scatter_reduce_")(scatter_reduce_)


# ---------------------------------------------------------------------- elements in order


@public("torch", "torch.Tensor")
def take(input: Tensor, index: Tensor, *, out: Any = None) -> Tensor:
    """Elements of the flattened tensor. IndexError where an index is out of range."""
    if index._aval.dtype != np.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {index.dtype.title}")
    if index._aval.size and not input._aval.size:
        raise IndexError("take(): tried to take from an empty tensor")
    return with_out("take", out, call(_choose("take", index, input._aval.size, 0), input, index), (input, index))


def _put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
    if index._aval.dtype != np.int64:
        raise RuntimeError(f"put_(): Expected a long tensor for index, but got {index.dtype.title}")
    if self._aval.dtype != source._aval.dtype:
        raise RuntimeError(
            "put_(): self and source expected to have the same dtype, but got "
            f"self.dtype = {self.dtype.title} and source.dtype = {source.dtype.title}"
        )
    if index._aval.size != source._aval.size:
        raise IndexError(
            f"put_(): Expected source and index to have the same number of elements, but got source.numel() = {source._aval.size}, "
            f"index.numel() = {index._aval.size}"
        )
    return _choose("put", index, self._aval.size, 0), (self, index, source, bool(accumulate))


put_flat, put_flat_ = _two_ways(_put, "put", "Elements of the flattened tensor written, or added to.")
public("torch.put", "torch.Tensor.put")(put_flat)
public("torch.Tensor.put_")(put_flat_)


def _masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Any:
    if mask._aval.dtype != np.bool_:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype.title}")
    if self._aval.dtype != source._aval.dtype:
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes but got{self.dtype.title} and {source.dtype.title}")
    return "masked_scatter", (self, mask, source)


masked_scatter, masked_scatter_ = _two_ways(_masked_scatter, "masked_scatter", "The elements of source in order, where the mask is true.")
public("torch.masked_scatter", "torch.Tensor.masked_scatter")(masked_scatter)
public("torch.Tensor.masked_scatter_")(masked_scatter_)


def _index_put(self: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Any:
    if len(indices) > self._aval.ndim:
        raise IndexError(f"too many indices for tensor of dimension {self._aval.ndim} (got {len(indices)})")
    if values._aval.size == 1 and len(indices) == 1 and isinstance(indices[0], Tensor):
        refuse_byte_mask(indices[0])
    found: dict[int, Tensor] = {}
    dim = 0
    for index in indices:
        if index is None:
            dim += 1
            continue
        for one in index_tensors(index, self, dim):
            found[dim] = one
            dim += 1
    name, dims = put_at(self, found, values), tuple(sorted(found))
    return name, (self, values, [found[d] for d in dims], dims, bool(accumulate))


index_put, index_put_ = _two_ways(_index_put, "index_put", "values written (or added) at index tensors, as by ``self[indices] = values``.")
public("torch.index_put", "torch.Tensor.index_put")(index_put)
public("torch.index_put_", "torch.Tensor.index_put_")(index_put_)


# ---------------------------------------------------------------------- a view's part replaced


def _of_part_size(src: Tensor, size: tuple[int, ...]) -> None:
    if src._aval.shape != size:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src._aval.shape)}, slice size = {list(size)}"
        )  # fmt: skip


def _refuse_complex(name: str, input: Tensor, src: Tensor) -> None:
    """RuntimeError where a complex result would need a gradient: the operators as such, which writes through views use too, have one."""
    if per_thread.recorder.grad_enabled and (input.requires_grad or src.requires_grad):
        refuse_complex(name, (input._aval,))


@public("torch", "torch.Tensor")
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with src in place of the slice at `index` of `dim`."""
    dim = wrap_dim(dim, input._aval.ndim)
    n = input._aval.shape[dim]
    if not -n <= index < n:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(input._aval.shape)} at dimension {dim}")
    _of_part_size(src, _without(input, dim))
    _refuse_complex("select_scatter", input, src)
    if src._aval.dtype != input._aval.dtype:
        src = apply(cast_to(input._aval.dtype), (src,))
    return call("select_scatter", input, src, dim, RunTime(index % n))


@public("torch", "torch.Tensor")
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1, *, out: Any = None
) -> Tensor:
    """A copy with src in place of every `step`-th slice of `dim` from start to end."""
    dim = wrap_dim(dim, input._aval.ndim)
    shape = input._aval.shape
    first, last, step = slice(start, end, step).indices(shape[dim])
    length = max(0, -(-(last - first) // step))
    _of_part_size(src, (*shape[:dim], length, *shape[dim + 1 :]))
    _refuse_complex("slice_scatter", input, src)
    if src._aval.dtype != input._aval.dtype:
        src = apply(cast_to(input._aval.dtype), (src,))
    return with_out("slice_scatter", out, call("slice_scatter", input, src, dim, RunTime(first), length, step))


@public("torch", "torch.Tensor")
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy with src in place of a diagonal."""
    shape = input._aval.shape
    a, b = wrap_dim(dim1, len(shape)), wrap_dim(dim2, len(shape))
    length = max(0, min(shape[a] + min(offset, 0), shape[b] - max(offset, 0)))
    _of_part_size(src, (*(n for d, n in enumerate(shape) if d not in (a, b)), length))
    return call("diagonal_scatter", input, src, int(offset), a, b)


@public("torch", "torch.Tensor")
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A copy of a tensor in row-major order with src in place of its elements by strides. `storage_offset` is counted as by `as_strided`."""
    size, stride, begin = tuple(size), tuple(stride), input._offset()
    if not input.is_contiguous():
        raise RuntimeError("as_strided_scatter is currently only supported for contiguous inputs")
    offset = begin if storage_offset is None else storage_offset
    check_strides(input, size, stride, offset)
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if 0 not in size and not begin <= offset <= last < begin + input._aval.size:
        raise RuntimeError("torchgrad_jax: as_strided_scatter writes to elements of its input alone, not to others of the same memory")
    _of_part_size(src, size)
    return call("as_strided_scatter", input, src, size, stride, offset - begin)
