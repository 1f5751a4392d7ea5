"""Quantiles, covariance and areas under curves, made of the operators that PyTorch makes them of."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.calling.out import with_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.calling.recalled import recalling
from torchgrad_jax.calling.return_types import return_type
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.functions.arithmetic import clamp_parts, lerp
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.creation import full_like, holding, linspace
from torchgrad_jax.functions.gathering import call, nobody_asks
from torchgrad_jax.functions.overloads import matmul, with_number
from torchgrad_jax.functions.reductions import diff, sort, sum_
from torchgrad_jax.functions.shaping import cat
from torchgrad_jax.functions.views import conj, diagonal, expand, flatten, narrow, real, reshape, select, squeeze, t, transpose, unsqueeze, view
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.kernels import numpy_counting
from torchgrad_jax.operators.kernels.spacing import evenly_spaced

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


# ---------------------------------------------------------------------- quantiles


def _quantile(name: str) -> Callable[..., Tensor]:
    def function(input: Tensor, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear", out: Any = None) -> Tensor:
        _check_quantile(name, input, q, interpolation)
        axis = None if dim is None else wrap_dim(dim, input._aval.ndim)
        found = (_recorded if nobody_asks(input, q) else _quantiles)(input, q, axis, keepdim, interpolation, name == "nanquantile")
        return with_out(name, out, found)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "The `q`-th quantiles along `dim` (all elements where None). `q` is a number, or a vector: its dimension comes first."
    return function


def _check_quantile(name: str, input: Tensor, q: Any, interpolation: str) -> None:
    if not input._aval.size:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if input._aval.dtype not in (np.float32, np.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if isinstance(q, Tensor):
        if q._aval.ndim > 1:
            raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
        if q._aval.dtype != input._aval.dtype:
            raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
        values = q._read().everything()
        if values is not None and not ((values >= 0) & (values <= 1)).all():
            raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    elif not 0 <= q <= 1:
        raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {float(q):g}")
    if interpolation not in INTERPOLATIONS:
        raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}")


def _at_once(input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool) -> Tensor:
    layout = ARRAY, ARRAY, Static(dim if input._aval.ndim else None), Static(keepdim), Static(interpolation), Static(ignore_nan)
    return apply(registry["_quantile"].bind(layout), (input, q))


_of_number = recalling(_at_once)


def _recorded(input: Tensor, q: Any, *how: Any) -> Tensor:
    return _at_once(input, q, *how) if isinstance(q, Tensor) else _of_number(input, float(q), *how)


def _quantiles(input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool) -> Tensor:
    shape = input._aval.shape
    size = (1,) * len(shape) if dim is None else (*shape[:dim], 1, *shape[dim + 1 :])
    if not keepdim or not shape:
        size = () if dim is None else (*shape[:dim], *shape[dim + 1 :])
    rows = flatten(input) if dim is None else input if dim == len(shape) - 1 else transpose(unsqueeze(input, -1), dim, -1)
    count = rows._aval.shape[-1]
    values = view(sort(rows)[0], (*size, count))
    vector = isinstance(q, Tensor) and q._aval.ndim == 1
    rank = _ranks(values, q, count, ignore_nan)
    if interpolation in ("lower", "higher", "nearest"):
        rank = call({"lower": "floor", "higher": "ceil", "nearest": "round"}[interpolation], rank.detach(), *((None,) * (interpolation == "nearest")))
    below = cast(rank.detach(), dtypes.int64)
    made = call("gather", values, -1 + len(size) + 1, below)
    if interpolation in ("linear", "midpoint"):
        weight = full_like(rank, 0.5) if interpolation == "midpoint" else rank - below
        made = lerp(made, call("gather", values, len(size), cast(call("ceil", rank.detach()), dtypes.int64)), weight)
    if vector:
        made = call("_transpose_written", call("_unsqueeze_written", made, 0), 0, len(size) + 1)
    return call("_squeeze_written", made, -1)


def _ranks(values: Tensor, q: Any, count: int, ignore_nan: bool) -> Any:
    """Where the quantiles lie among the sorted values, nan coming last: a fraction for each row and each `q`."""
    nan: Any = call("isnan", values.detach())
    if ignore_nan:
        last = cast(call("logical_not", nan).sum(-1, keepdim=True) - 1, values.dtype)
        rank = q * last
        return rank.masked_fill(rank.detach() < 0, 0)
    if not isinstance(q, Tensor):
        q = full_like(select(reshape(values.detach(), (-1,)), 0, 0), q)
    rank = with_number("mul", q, count - 1)
    any_nan = call("any", nan, -1, True)
    rank = expand(rank, (*values._aval.shape[:-1], q._aval.size))
    return rank.masked_fill(any_nan, count - 1)


quantile, nanquantile = _quantile("quantile"), _quantile("nanquantile")
public("torch.quantile", "torch.Tensor.quantile")(quantile)
public("torch.nanquantile", "torch.Tensor.nanquantile")(nanquantile)


# ---------------------------------------------------------------------- covariance


@public("torch", "torch.Tensor")
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """The covariance matrix of a matrix's rows; of a vector, its variance. RuntimeError for more dimensions, or weights that do not fit."""
    x: Any = input
    if x._aval.ndim > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {x._aval.ndim} dimensions")
    if x._aval.dtype == np.bool_:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = x if x._aval.ndim == 2 else view(x, (1, -1))
    count = x._aval.shape[1]
    f: Any = fweights
    a: Any = aweights
    _check_weights("fweights", f, count)
    _check_weights("aweights", a, count)
    weights = f if a is None else a if f is None else f * a
    if weights is None:
        mean, factor = x.sum(1) / count, count - correction
    else:
        total = weights.sum()
        mean = (x * weights).sum(1) / total
        if not correction:
            factor = total
        elif a is None:
            factor = total - correction
        else:
            factor = total - with_number("mul", (weights * a).sum(), correction) / total
    centred = x - unsqueeze(mean, 1)
    right = t(centred if weights is None else centred * weights)
    product = matmul(centred, conj(right))
    if float(factor) <= 0:
        warnings.warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.", stacklevel=2)
        factor = 0
    return squeeze(product / factor)


def _check_weights(name: str, weights: Any, count: int) -> None:
    if weights is None:
        return
    aval, whole = weights._aval, name == "fweights"
    if aval.ndim > 1:
        raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {name} with {aval.ndim} dimensions")
    if (aval.dtype.kind not in "iu") if whole else not dtypes.of(aval.dtype).is_floating_point:
        wanted = "integral" if whole else "floating point"
        raise RuntimeError(f"cov(): expected {name} to have {wanted} dtype but got {name} with {weights.dtype.title} dtype")
    if aval.size != count:
        raise RuntimeError(f"cov(): expected {name} to have the same numel as there are observations in the input but got {aval.size} != {count}")
    if (np.asarray(weights._concrete()) < 0).any():
        raise RuntimeError(f"cov(): {name} cannot be negative")


@public("torch", "torch.Tensor")
def corrcoef(input: Tensor) -> Tensor:
    """The correlation matrix of a matrix's rows. RuntimeError for more dimensions."""
    if input._aval.ndim > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input._aval.ndim} dimensions")
    c: Any = cov(input)
    if not c._aval.ndim:
        return c / c
    deviation = real(diagonal(c)).sqrt()
    return clamp_parts(c / view(deviation, (-1, 1)) / view(deviation, (1, -1)), -1, 1)


# ---------------------------------------------------------------------- areas


def _widths(name: str, y: Tensor, x: Tensor, dim: int) -> Tensor:
    """How far apart the places `x` are, shaped to multiply what lies along `dim` of `y`."""
    missing = y._aval.ndim - x._aval.ndim
    if x._aval.ndim == 1:
        if x._aval.shape[0] != y._aval.shape[dim]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        return diff(view(x, [-1 if d == dim else 1 for d in range(y._aval.ndim)]), dim=dim)
    return diff(view(x, (1,) * missing + x._aval.shape) if missing > 0 else x, dim=dim)


def _check_area(name: str, y: Tensor, x: Tensor | None, dx: Any) -> None:
    for label, given in (("y", y), ("x", x)):
        if given is not None and given._aval.dtype == np.bool_:
            raise RuntimeError(f"{name}: received a bool input for `{label}`, but bool is not supported")
    if isinstance(dx, complex):
        raise RuntimeError(f"{name}: Currently, we only support dx as a real number.")


def _neighbours(y: Any, dim: int) -> Any:
    n = max(y._aval.shape[dim], 1)  # of nothing there are no neighbours
    return narrow(y, dim, min(1, y._aval.shape[dim]), n - 1) + narrow(y, dim, 0, n - 1)


@public("torch", "torch.trapz")
def trapezoid(y: Any, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The area under `y` along `dim` by the trapezoidal rule, at places `x` or `dx` apart."""
    _check_area("trapezoid", y, x, dx)
    dim = wrap_dim(dim, y._aval.ndim)
    if not y._aval.shape[dim]:
        return sum_(y, dim)
    if x is not None:
        return with_number("div", sum_(_neighbours(y, dim) * _widths("trapezoid", y, x, dim), dim), 2)
    ends = with_number("mul", select(y, dim, 0) + select(y, dim, -1), 0.5)
    return with_number("mul", sum_(y, dim) - ends, 1 if dx is None else dx)


@public("torch")
def cumulative_trapezoid(y: Any, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The areas under `y` up to each place along `dim` by the trapezoidal rule."""
    _check_area("cumulative_trapezoid", y, x, dx)
    dim = wrap_dim(dim, y._aval.ndim)
    both = _neighbours(y, dim)
    if x is not None:
        return with_number("div", (both * _widths("cumulative_trapezoid", y, x, dim)).cumsum(dim), 2)
    return with_number("mul", both, (1 if dx is None else dx) / 2).cumsum(dim)


# ---------------------------------------------------------------------- histograms


@public("torch", "torch.Tensor")
def histogram(input: Tensor, bins: Any = 100, *, range: Any = None, weight: Tensor | None = None, density: bool = False, out: Any = None) -> Any:
    """How many elements are between each two neighbours of the edges, and the edges; the last edge belongs to its bin.

    bins: the edges, in order, or how many bins of equal width there are between the numbers `range`, by default the least and the largest element.
    weight: what each element counts. density: divide so that the integral is 1. Looks at the values where it needs the range. RuntimeError where
    shapes, dtypes or numbers do not fit.
    """
    counts, edges = _histogram(1, reshape(input, (-1, 1)), [bins], range, _flat(weight), density)
    return with_out("histogram", out, _HISTOGRAM((counts, edges[0])))


@public("torch")
def histogramdd(input: Tensor, bins: Any, range: Any = None, weight: Tensor | None = None, density: bool = False) -> Any:
    """As `histogram`, of points: `input` is (..., number of coordinates). bins: a tensor of edges, or a number, for each coordinate, or one number
    for all. range: two numbers for each coordinate, one after the other."""
    if input._aval.ndim < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    count = input._aval.shape[-1]
    parts = [bins] * count if isinstance(bins, int) else list(bins)
    if len(parts) != count:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    if weight is not None and weight._aval.shape != input._aval.shape[:-1]:
        raise RuntimeError(_weight_shape(input._aval.shape, weight._aval.shape))
    counts, edges = _histogram(count, reshape(input, (-1, count)), parts, range, _flat(weight), density)
    return _HISTOGRAMDD((counts, tuple(edges)))


_HISTOGRAM, _HISTOGRAMDD = return_type("histogram", ("hist", "bin_edges")), return_type("histogramdd", ("hist", "bin_edges"))


def _flat(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else reshape(weight, (-1,))


def _weight_shape(points: tuple[int, ...], weight: tuple[int, ...]) -> str:
    return (
        "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor excluding its innermost dimension, but "
        f"got input with shape {list(points)} and weight with shape {list(weight)}"
    )


def _histogram(count: int, points: Tensor, bins: list[Any], limits: Any, weight: Tensor | None, density: bool) -> tuple[Tensor, list[Tensor]]:
    refusing("histogramdd", "biuchV")(points._aval)
    if weight is not None:
        if weight._aval.shape != points._aval.shape[:1]:
            raise RuntimeError(_weight_shape(points._aval.shape, weight._aval.shape))
        if weight._aval.dtype != points._aval.dtype:
            raise RuntimeError(
                "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same dtype, but got "
                f"input({points.dtype.word}), and weight({weight.dtype.word})"
            )
    if limits is None and weight is None and not density and not isinstance(bins[0], Tensor) and _is_read(points):
        return _read(points, np.asarray(points._concrete()), bins)
    edges = [_given_edges(i, b, points) for i, b in enumerate(bins)] if isinstance(bins[0], Tensor) else _equal_edges(count, points, bins, limits)
    counts: Any = call("_histogramdd", points, weight, edges)
    if density:
        counts = counts / counts.sum()
        for i, e in enumerate(edges):
            counts = counts / reshape(diff(e), [-1 if d == i else 1 for d in range(count)])
    return counts, edges


def _is_read(points: Tensor) -> bool:
    """Whether the elements are looked at anyway, and nobody asks what becomes of them but the caller."""
    return points._aval.size > 0 and points._aval.dtype.char in "fd" and nobody_asks(points)


def _read(points: Tensor, values: np.ndarray, bins: list[Any]) -> tuple[Tensor, list[Tensor]]:
    columns = np.ascontiguousarray(values.T)
    low, high = np.minimum.reduce(columns, 1).tolist(), np.maximum.reduce(columns, 1).tolist()
    limits = _checked_limits(low, high, bins)
    edges = [evenly_spaced(a, b, n + 1, values.dtype) for (a, b), n in zip(limits, bins, strict=True)]
    return holding(numpy_counting.counted(columns, None, edges, True), points), [holding(e, points) for e in edges]


def _checked_limits(low: list[float], high: list[float], bins: list[Any]) -> list[tuple[float, float]]:
    found = []
    for dim, (a, b, n) in enumerate(zip(low, high, bins, strict=True)):
        _check_bins(n, dim)
        if not (math.isfinite(a) and math.isfinite(b)):
            raise RuntimeError(f"torch.histogramdd: dimension {dim}'s range [{a:g}, {b:g}] is not finite")
        if a > b:
            raise RuntimeError(f"torch.histogramdd: min should not exceed max, but got min {a:g} max {b:g} for dimension {dim}")
        found.append((a - 0.5, b + 0.5) if a == b else (a, b))
    return found


def _given_edges(dim: int, edges: Tensor, points: Tensor) -> Tensor:
    if edges._aval.dtype != points._aval.dtype:
        raise RuntimeError(
            "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
            f"{points.dtype.word} and bins for dimension {dim} with dtype {edges.dtype.word}"
        )
    if edges._aval.ndim != 1:
        raise RuntimeError(
            f"torch.histogramdd: bins tensor should have one dimension, but got {edges._aval.ndim} dimensions in the bins tensor for dimension {dim}"
        )
    _check_bins(edges._aval.size - 1, dim)
    return edges


def _check_bins(count: int, dim: int) -> None:
    if count <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {max(count, 0)} for dimension {dim}")


def _equal_edges(count: int, points: Tensor, bins: list[Any], limits: Any) -> list[Tensor]:
    for dim, n in enumerate(bins):
        _check_bins(n, dim)
    if limits is not None:
        if len(limits) != 2 * count:
            raise RuntimeError(
                f"torch.histogramdd: for a {count}-dimensional histogram range should have {2 * count} elements, but got {len(limits)}"
            )
        low, high = list(limits[::2]), list(limits[1::2])
    elif not points._aval.size:
        low, high = [0.0] * count, [1.0] * count
    else:
        found: Any = points.detach()
        low, high = found.amin(0).tolist(), found.amax(0).tolist()
    return [linspace(a, b, n + 1, dtype=points.dtype, device=points.device) for (a, b), n in zip(_checked_limits(low, high, bins), bins, strict=True)]


# ---------------------------------------------------------------------- differences


@public("torch")
def gradient(input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """The derivative along each of the dimensions `dim` (all where None), by differences of second order, at the edges of order `edge_order`.

    spacing: the distance of neighbours, one number or one for each dimension, or a tuple of tensors with the coordinates along each. RuntimeError,
    IndexError where the arguments do not fit.
    """
    if input._aval.dtype == np.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    ndim = input._aval.ndim
    dims = list(range(ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    wrapped = [wrap_dim(d, ndim) for d in dims]
    for d in wrapped:
        if wrapped.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    if spacing is None or not isinstance(spacing, (tuple, list)):
        parts: list[Any] = [1 if spacing is None else spacing] * len(dims)
    else:
        parts = list(spacing)
        _check_spacing(parts, dims, ndim, dim is None)
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    if any(input._aval.shape[d] < edge_order + 1 for d in wrapped):
        raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    return tuple([_derivative(input, d, h, edge_order) for d, h in zip(wrapped, parts, strict=True)])


def _check_spacing(parts: list[Any], dims: list[int], ndim: int, every: bool) -> None:
    if len(parts) == len(dims):
        return
    if every:
        raise RuntimeError(
            f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = {ndim}', since dim argument "
            f"was not given, but got a list of length {len(parts)}"
        )
    raise RuntimeError(
        "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to have the same length, but got a spacing "
        f"argument of length {len(parts)} and a dim argument of length {len(dims)}."
    )


def _derivative(x: Any, dim: int, spacing: Any, edge_order: int) -> Tensor:
    n = x._aval.shape[dim]

    def at(start: int, length: int) -> Any:
        return narrow(x, dim, start % n, length)

    if not (isinstance(spacing, Tensor) and spacing._aval.ndim):
        first, last = (at(1, 1) - at(0, 1)) / spacing, (at(-1, 1) - at(-2, 1)) / spacing
        if edge_order == 2:
            first = (-3 * at(0, 1) + 4 * at(1, 1) - at(2, 1)) / (2 * spacing)
            last = (3 * at(-1, 1) - 4 * at(-2, 1) + at(-3, 1)) / (2 * spacing)
        middle = (at(2, n - 2) - at(0, n - 2)) / (2 * spacing)
        return cat([first, middle, last], dim)
    # Lagrange's parabola through three neighbours at distances p and q.
    steps = reshape(diff(spacing), [-1 if d == dim else 1 for d in range(x._aval.ndim)])
    k = steps._aval.shape[dim]
    p, q = narrow(steps, dim, 0, k - 1), narrow(steps, dim, 1, k - 1)
    middle = -q / (p * (p + q)) * at(0, n - 2) + (q - p) / (p * q) * at(1, n - 2) + p / (q * (p + q)) * at(2, n - 2)
    if edge_order == 1:
        first, last = (at(1, 1) - at(0, 1)) / narrow(steps, dim, 0, 1), (at(-1, 1) - at(-2, 1)) / narrow(steps, dim, k - 1, 1)
        return cat([first, middle, last], dim)
    p, q = narrow(steps, dim, 0, 1), narrow(steps, dim, 1, 1)
    first = -(2 * p + q) / (p * (p + q)) * at(0, 1) + (p + q) / (p * q) * at(1, 1) - p / (q * (p + q)) * at(2, 1)
    p, q = narrow(steps, dim, k - 2, 1), narrow(steps, dim, k - 1, 1)
    last = q / (p * (p + q)) * at(-3, 1) - (p + q) / (p * q) * at(-2, 1) + (p + 2 * q) / (q * (p + q)) * at(-1, 1)
    return cat([first, middle, last], dim)
