"""Reductions, order and limits as PyTorch spells them: overloads, defaults, named tuples, compositions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from torchgrad_jax.calling.expecting import expect_tensor
from torchgrad_jax.calling.generate import function_of
from torchgrad_jax.calling.out import with_out, write_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.calling.return_types import return_type
from torchgrad_jax.core.called import unary
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.level import by_parts
from torchgrad_jax.core.replacing import static_op
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.core.writing import apply_inplace
from torchgrad_jax.declaration import dtypes, numpy_placing, promotion  # noqa: F401 - declare operators
from torchgrad_jax.declaration.operator import ARRAY, NUMBERS, Static
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.declaration.schema import real_number
from torchgrad_jax.functions.creation import holding, zeros_like
from torchgrad_jax.functions.shaping import cat
from torchgrad_jax.functions.views import narrow
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.kernels.distinct import distinct, distinct_slices, without_repetitions
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_user

_NONE = Static(None)
_NOT_GIVEN: Any = object()


def as_int_dims(dim: Any, name: str = "sum") -> tuple[int, ...] | None:
    """`dim` as a tuple of ints."""
    if dim is None:
        return None
    dims = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    for d in dims:
        if not hasattr(d, "__index__"):
            given = type(dim).__name__
            raise TypeError(f"{name}() received an invalid combination of arguments - got (dim={given}), but dim must be an int or a tuple of ints")
    return tuple([d.__index__() for d in dims])


# ---------------------------------------------------------------------- sums, means, products


def _computed_in(dtype: Any, out: Any) -> Any:
    """The dtype that elements are added or multiplied in: the one asked for, or that of `out=`."""
    return dtype.np if dtype is not None else None if out is None else out._aval.dtype


def _sum_like(name: str, doc: str) -> Callable[..., Tensor]:
    whole = static_op(name, None, False, None)

    def general(
        input: Tensor, dim: Any = _NOT_GIVEN, keepdim: bool = False, *, dtype: Any = None, out: Any = None, axis: Any = None, keepdims: Any = None
    ) -> Tensor:
        expect_tensor(name, input)
        dim = dim if axis is None else axis
        keepdim = keepdim if keepdims is None else keepdims
        kind = _computed_in(dtype, out if name == "sum" else None)
        if dim is _NOT_GIVEN and keepdim:
            dim = None
        if dim is _NOT_GIVEN:  # with ``dim=None`` it is the other operator, as its node's name tells
            made = apply(static_op(name, None, False, kind), (input,))
        else:
            made = apply(static_op(name + "_dim", as_int_dims(dim), keepdim, kind), (input,))
        return with_out(name, out, made)

    made = unary(whole, name, general)
    made.__doc__ = doc
    return made


sum_ = public("torch", "torch.Tensor")(
    _sum_like("sum", "The sum over `dim` (int or tuple; all where None). Integers and booleans are added as int64.")
)
mean = public("torch", "torch.Tensor")(_sum_like("mean", "The mean over `dim` (int or tuple; all where None)."))


@public("torch", "torch.Tensor")
def prod(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Tensor:
    """The product of all elements, or over one dimension."""
    if dim is not None and not hasattr(dim, "__index__"):
        raise TypeError(f"prod() received an invalid combination of arguments - got ({type(dim).__name__}), but expected one of:")
    kind = _computed_in(dtype, out)
    made = apply(static_op("prod", kind) if dim is None else static_op("prod_dim", dim.__index__(), keepdim, kind), (input,))
    return with_out("prod", out, made)


@public("torch", "torch.Tensor")
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Tensor:
    """The mean over `dim` of what is not nan."""
    if not dtypes.is_float(input._aval.dtype):
        raise RuntimeError(f"nanmean(): expected input to have floating point or complex dtype but got {input.dtype.title}")
    count = sum_(~input.isnan(), dim, keepdim)
    return with_out("nanmean", out, input.nansum(dim, keepdim, dtype=dtype) / count)


# ---------------------------------------------------------------------- variances


def _spread(name: str, doc: str, pair: bool) -> Callable[..., Any]:
    def function(
        input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None, out: Any = None, axis: Any = None
    ) -> Any:
        expect_tensor(name, input)
        dim = dim if axis is None else axis
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if correction is None and (dim is not None or unbiased is not None):
            correction = 0 if unbiased is False else 1
        made = apply(static_op(name, as_int_dims(dim), correction, bool(keepdim)), (input,))
        results = (made[0] if pair else made)._aval.size
        if input._aval.size <= (1 if correction is None else real_number(correction)) * results:
            warn_user(
                f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel divided by output "
                "numel)."
            )
        return with_out(name, out, made)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


var = public("torch", "torch.Tensor")(
    _spread("var", "The variance over `dim`, with `correction` (1; 0 for unbiased=False) taken off the count.", False)
)
std = public("torch", "torch.Tensor")(
    _spread("std", "The standard deviation over `dim`, with `correction` (1; 0 for unbiased=False) taken off the count.", False)
)
var_mean = public("torch")(_spread("var_mean", "The variance and the mean over `dim`.", True))
std_mean = public("torch")(_spread("std_mean", "The standard deviation and the mean over `dim`.", True))


@public("torch", "torch.Tensor", "torch.special")
def logsumexp(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None, axis: Any = None) -> Tensor:
    """log(sum(exp(input))) over `dim`, without overflow."""
    dim = dim if axis is None else axis
    if dim is None:
        raise TypeError('logsumexp() missing 1 required positional arguments: "dim"')
    return with_out("logsumexp", out, apply(static_op("logsumexp", as_int_dims(dim), keepdim), (input,)))


# ---------------------------------------------------------------------- extremes, medians, order


def _pair_type(name: str) -> Any:
    return return_type(name, ("values", "indices"))


def _overloaded(name: str, binary_name: str | None, whole_name: str) -> Callable[..., Any]:
    pair = _pair_type(name)
    whole = static_op(whole_name)
    of_two = None if binary_name is None else function_of(registry[binary_name])

    def general(input: Tensor, dim: Any = None, keepdim: Any = False, *, out: Any = None, other: Any = None, axis: Any = None) -> Any:
        expect_tensor(name, input)
        dim = dim if axis is None else axis
        other = dim if isinstance(dim, Tensor) else other
        if other is not None and of_two is not None:
            made = of_two(input, other)
        elif dim is None:
            made = apply(whole, (input,))
        else:
            made = pair(apply(static_op(name + "_dim", _index(name, dim), keepdim), (input,)))
        return with_out(name if isinstance(made, Tensor) else name + "_dim", out, made)

    made = unary(whole, name, general)
    also = "; the larger or smaller of two tensors" if binary_name else ""
    made.__doc__ = f"The {name} of all elements; (values, indices) over one dimension{also}."
    return made


def _index(name: str, dim: Any) -> int:
    if isinstance(dim, (bool, float, str)) or not hasattr(dim, "__index__"):
        raise TypeError(f"{name}(): argument 'dim' (position 2) must be int, not {type(dim).__name__}")
    return dim.__index__()


max_ = public("torch", "torch.Tensor")(_overloaded("max", "maximum", "max_all"))
min_ = public("torch", "torch.Tensor")(_overloaded("min", "minimum", "min_all"))
median = public("torch", "torch.Tensor")(_overloaded("median", None, "median"))
nanmedian = public("torch", "torch.Tensor")(_overloaded("nanmedian", None, "nanmedian"))

_SORTED = _pair_type("sort")


@public("torch", "torch.Tensor")
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: Any = None, *, out: Any = None) -> Any:
    """The elements along `dim` in order, and their indices."""
    name = "sort" if stable is None else "sort_stable"
    return with_out("sort", out, _SORTED(apply(static_op(name, _index("sort", dim), bool(descending)), (input,))))


@public("torch", "torch.Tensor")
def msort(input: Tensor, *, out: Any = None) -> Tensor:
    """The elements along the first dimension in order."""
    return with_out("msort", out, sort(input, 0).values)


# ---------------------------------------------------------------------- limits


def _clamp_call(input: Tensor, low: Any, high: Any) -> tuple[Any, tuple[Any, ...]]:
    if type(low) in NUMBERS and type(high) in NUMBERS:
        return _BETWEEN, (input, low, high)
    tensors = isinstance(low, Tensor) or isinstance(high, Tensor)
    if isinstance(low, Tensor) and not low._aval.ndim and isinstance(high, NUMBERS):
        low, tensors = low.item(), False
    elif isinstance(high, Tensor) and not high._aval.ndim and isinstance(low, NUMBERS):
        high, tensors = high.item(), False
    for i, limit in ((2, low), (3, high)):
        if limit is not None and (isinstance(limit, Tensor) != tensors or not isinstance(limit, (Tensor, *NUMBERS, np.generic))):
            label = "min" if i == 2 else "max"
            wanted = "Tensor" if tensors else "Number"
            raise TypeError(f"clamp(): argument '{label}' (position {i}) must be {wanted}, not {type(limit).__name__}")
    given = tuple(x.item() if isinstance(x, np.generic) else x for x in (low, high) if x is not None)
    layout = (ARRAY, _NONE if low is None else ARRAY, _NONE if high is None else ARRAY)
    return registry["clamp_tensor" if tensors else "clamp_number"].bind(layout), (input, *given)


_BETWEEN = registry["clamp_number"].bind((ARRAY, ARRAY, ARRAY))


@public("torch", "torch.clip", "torch.Tensor", "torch.Tensor.clip")
def clamp(input: Tensor, min: Any = None, max: Any = None, *, out: Any = None) -> Tensor:
    """Elements outside of [min, max] moved to its ends: numbers, or tensors that broadcast. The ends pass the gradient."""
    expect_tensor("clamp", input)
    made = apply(*_clamp_call(input, min, max))
    return made if out is None else write_out("clamp", out, made, inputs=(input, min, max))


@public("torch", "torch.clip_", "torch.Tensor", "torch.Tensor.clip_")
def clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """In-place version of `clamp`."""
    return apply_inplace(*_clamp_call(self, min, max))


def _one_sided(kind: str) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    def chosen(limit: Any) -> Any:
        return registry[f"clamp_{kind}_{'tensor' if isinstance(limit, Tensor) else 'number'}"].bind((ARRAY, ARRAY))

    def limit_of(input: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = (*args, *kwargs.values())
        fits = len(found) == 1 and {kind}.issuperset(kwargs) and isinstance(found[0], (Tensor, *NUMBERS, np.generic))
        if not isinstance(input, Tensor) or not fits:
            given = ", ".join(type(x).__name__ for x in (input, *found))
            raise TypeError(f"clamp_{kind}() received an invalid combination of arguments - got ({given})")
        return found[0].item() if isinstance(found[0], np.generic) else found[0]

    def function(input: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Tensor:
        limit = limit_of(input, args, kwargs)
        overload = ".Tensor" if isinstance(limit, Tensor) else ""
        made = apply(chosen(limit), (input, limit))
        return made if out is None else write_out(f"clamp_{kind}{overload}", out, made, inputs=(input, limit))

    def inplace(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        limit = limit_of(self, args, kwargs)
        return apply_inplace(chosen(limit), (self, limit))

    function.__doc__ = f"clamp with `{kind}` alone."
    inplace.__doc__ = f"In-place version of `clamp_{kind}`."
    return function, inplace


clamp_min, clamp_min_ = _one_sided("min")
public("torch.clamp_min", "torch.Tensor.clamp_min")(clamp_min)
public("torch.clamp_min_", "torch.Tensor.clamp_min_")(clamp_min_)
clamp_max, clamp_max_ = _one_sided("max")
public("torch.clamp_max", "torch.Tensor.clamp_max")(clamp_max)
public("torch.clamp_max_", "torch.Tensor.clamp_max_")(clamp_max_)


# ---------------------------------------------------------------------- differences and areas


@public("torch", "torch.Tensor")
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *, out: Any = None) -> Tensor:
    """The `n`-th differences of neighbours along `dim`."""
    if not input._aval.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    dim = wrap_dim(dim, input._aval.ndim)
    if n == 0:  # what would be joined to it is left out too
        return with_out("diff", out, zeros_like(input).copy_(input))
    if prepend is not None or append is not None:
        input = cat([t for t in (prepend, input, append) if t is not None], dim)
    for _ in range(builtin_min(n, input._aval.shape[dim])):
        size = input._aval.shape[dim]
        late, early = narrow(input, dim, 1, size - 1), narrow(input, dim, 0, size - 1)
        input = late.logical_xor(early) if input._aval.dtype == np.bool_ else late - early
    return with_out("diff", out, input)


builtin_min = min


# ---------------------------------------------------------------------- search and counting


@public("torch")
def searchsorted(
    sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None, out: Any = None
) -> Tensor:
    """Where each value would be put into the sorted last dimension of `sorted_sequence` (before equals, or after them if right)."""
    _check_search(sorted_sequence, input, right, side, sorter)
    operands = (sorted_sequence, input) if sorter is None else (sorted_sequence, input, sorter)
    layout = (ARRAY, ARRAY, _NONE if sorter is None else ARRAY, Static(bool(out_int32)), Static(bool(right or side == "right")))
    return with_out("searchsorted", out, apply(registry["_searchsorted"].bind(layout), operands))


def _check_search(sequence: Tensor, input: Any, right: bool, side: str | None, sorter: Any) -> None:
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if right and side == "left":
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )  # fmt: skip
    shape = sequence._aval.shape
    if len(shape) != 1 and (not isinstance(input, Tensor) or not input._aval.ndim):
        raise RuntimeError(
            "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but we got boundaries tensor "
            f"dim({len(shape)}) and input value's dim(0) numel(1)"
        )
    if not shape:
        raise RuntimeError("torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension")
    if isinstance(input, Tensor) and len(shape) != 1 and (len(input._aval.shape) != len(shape) or input._aval.shape[:-1] != shape[:-1]):
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value tensor "
            f"must match, but we got boundaries tensor {list(shape)} and input value tensor {list(input._aval.shape)}"
        )
    if sorter is not None and sorter._aval.shape != shape:
        raise RuntimeError(
            f"torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor {list(shape)}and got sorter tensor "
            f"{list(sorter._aval.shape)}"
        )


@public("torch")
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Any = None) -> Tensor:
    """The bucket between the sorted `boundaries` that each value falls into."""
    if boundaries._aval.ndim != 1:
        raise RuntimeError(f"bucketize(): boundaries tensor must be 1 dimension, but got dim({boundaries._aval.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


@public("torch", "torch.Tensor")
def histc(input: Tensor, bins: int = 100, min: Any = 0, max: Any = 0, *, out: Any = None) -> Tensor:
    """Counts of the elements in `bins` equal parts of [min, max]; of the range of the elements where both are equal."""
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    if min > max:
        raise RuntimeError("torch.histc: max must be larger than min")
    # The kernel that PyTorch comes to first.
    first = "linspace_cpu" if input._aval.dtype == np.bool_ else "aminmax_cpu" if min == max and input._aval.size else "histogram_cpu"
    refusing("histogram_cpu" if input._aval.dtype.kind in "iu" else first, "biuc")(input._aval)
    if per_thread.recorder.level is None and isinstance(min, NUMBERS) and isinstance(max, NUMBERS):
        own = min == max
        min, max = _checked_range(input, min, max)
        if own and min != max and out is None and input._aval.dtype.char in "fd" and not per_thread.recorder.rare:  # the elements were looked at
            values = np.asarray(input._concrete())
            limits = [values.dtype.type(limit) for limit in (min, max)]
            return holding(numpy_placing.histc.function(values, *limits, bins), input)
    return with_out("histc", out, apply(registry["_histc"].bind((ARRAY, Static(bins), ARRAY, ARRAY)), (input, min, max)))


def _checked_range(input: Tensor, low: Any, high: Any) -> tuple[Any, Any]:
    """The limits. RuntimeError where they are not finite. Looks at the values if they are the elements' own."""
    if low == high and input._aval.size and input._content().readable:
        values = np.asarray(input._concrete())
        low, high = np.minimum.reduce(values, None).item(), np.maximum.reduce(values, None).item()
    if not (math.isfinite(low) and math.isfinite(high)):
        shown = ["-nan" if n != n else f"{n:g}" for n in map(float, (low, high))]
        raise RuntimeError(f"torch.histc: range of [{shown[0]}, {shown[1]}] is not finite")
    return low, high


@public("torch", "torch.Tensor")
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number occurs, or the sum of its weights. Looks at the values."""
    refusing("bincount_cpu", "bfVc")(input._aval)
    if input._aval.ndim != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    return by_parts(partial(_counted, minlength), *([input] if weights is None else [input, weights]))


def _counted(minlength: int, input: Tensor, weights: Tensor | None = None) -> Tensor:
    values = np.asarray(input._concrete())
    if values.size and np.minimum.reduce(values) < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights._aval.shape != input._aval.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    length = builtins_max(int(np.maximum.reduce(values)) + 1 if values.size else 0, minlength)
    layout = (ARRAY, _NONE if weights is None else ARRAY, Static(length))
    return apply(registry["_bincount"].bind(layout), (input,) if weights is None else (input, weights))


builtins_max = max


@public("torch")
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False, out: Any = None) -> Tensor:
    """Whether each element is among `test_elements`. `assume_unique` promises distinct elements, which is of no use here."""
    return with_out("isin", out, apply(registry["_isin"].bind((ARRAY, ARRAY, Static(bool(invert)))), (elements, test_elements)))


# ---------------------------------------------------------------------- distinct elements


def _found(values: np.ndarray, input: Tensor, name: str) -> Tensor:
    """The distinct elements. As in PyTorch they need a gradient where `input` does, but have no derivative."""
    made = holding(values, input)
    return apply(registry["_distinct"].bind((ARRAY, ARRAY, Static(name))), (input, made)) if input.requires_grad else made


def _selected(found: tuple[Any, Any, Any], input: Tensor, name: str, return_inverse: bool, return_counts: bool) -> Any:
    """What is asked for of distinct elements, their places and their counts."""
    values, inverse, counts = found
    made = [_found(values, input, name)]
    if return_inverse:
        made.append(holding(inverse, input))
    if return_counts:
        made.append(holding(counts, input))
    return made[0] if len(made) == 1 else tuple(made)


@public("torch", "torch.Tensor")
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The distinct elements (or slices along `dim`); where asked, the place of each and the counts. They are in order, `sorted` or not.

    Looks at the values.
    """
    expect_tensor("_unique2" if dim is None else "unique_dim", input)
    refusing("unique" if dim is None else "unique_dim", "c")(input._aval)
    array = np.asarray(input._concrete("_unique2" if dim is None else "unique_dim"))
    axis = None if dim is None else wrap_dim(dim, array.ndim)
    found = distinct(array, return_inverse, return_counts) if axis is None else distinct_slices(array, axis)
    return _selected(found, input, "_unique2" if dim is None else "unique_dim", return_inverse, return_counts)


@public("torch", "torch.Tensor")
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The elements (or slices along `dim`) without direct repetitions. Looks at the values."""
    expect_tensor("unique_consecutive" if dim is None else "unique_dim_consecutive", input)
    refusing("unique" if dim is None else "unique_dim", "c")(input._aval)
    array = np.asarray(input._concrete("unique_consecutive"))
    axis = None if dim is None else wrap_dim(dim, array.ndim)
    found = without_repetitions(array, axis, return_inverse)
    return _selected(found, input, "unique_consecutive", return_inverse, return_counts)
