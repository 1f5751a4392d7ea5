"""Reductions and normalizations of the elements that a mask names.

Each function takes a mask that broadcasts to the input, True for what takes part; without one all elements do. Others are replaced by what makes no
difference to the result.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import ones_like
from torchgrad_jax.functions.limits import iinfo
from torchgrad_jax.functions.matrices.norms import vector_norm
from torchgrad_jax.functions.overloads import where
from torchgrad_jax.functions.reductions import nanmedian

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median", "norm", "normalize", "prod",
    "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip

_Dims = int | Sequence[int] | None


def _mask_of(input: Tensor, mask: Tensor) -> Tensor:
    if mask.dim() > input.dim():
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    return mask.bool().expand(input.shape)


def _filled(name: str, input: Tensor, mask: Tensor | None, value: float, dtype: dtypes.dtype | None) -> Tensor:
    """The input in its dtype for a result, `value` where the mask is not; of integers infinities are the largest and the smallest."""
    input = input if dtype is None else input.to(dtype)
    if math.isinf(value) and input.dtype is dtypes.bool_:
        raise NotImplementedError(f"identity of {name} on torch.bool input")
    if mask is None:
        return input
    mask = _mask_of(input, mask)
    if math.isinf(value) and not (input.is_floating_point() or input.is_complex()):
        value = iinfo(input.dtype).max if value > 0 else iinfo(input.dtype).min
    return where(mask, input, value)


def _dims(input: Tensor, dim: _Dims) -> tuple[int, ...]:
    """All of them for None and for none."""
    if dim is None or (not isinstance(dim, int) and not builtins.sum(1 for _ in dim)):
        return tuple(range(input.dim()))
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    found = tuple([d % input.dim() if -input.dim() <= d < input.dim() else d for d in dims])
    for d in found:
        if found.count(d) > 1:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
    return found


# ---------------------------------------------------------------------- reductions


def sum(input: Tensor, dim: _Dims = None, *, keepdim: bool = False, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """Sums over `dim`, all dimensions where None; 0 of no elements."""
    return _filled("sum", input, mask, 0, dtype).sum(_dims(input, dim), keepdim=keepdim)


def prod(input: Tensor, dim: _Dims = None, *, keepdim: bool = False, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """Products over `dim`; 1 of no elements."""
    made = _filled("prod", input, mask, 1, dtype)
    for d in sorted(_dims(input, dim), reverse=True):
        made = made.prod(d, keepdim=keepdim)
    return made


def amax(input: Tensor, dim: _Dims = None, *, keepdim: bool = False, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """The largest elements along `dim`; minus infinity, or the smallest integer, of none."""
    return _filled("amax", input, mask, -math.inf, dtype).amax(_dims(input, dim), keepdim=keepdim)


def amin(input: Tensor, dim: _Dims = None, *, keepdim: bool = False, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """The smallest elements along `dim`; infinity, or the largest integer, of none."""
    return _filled("amin", input, mask, math.inf, dtype).amin(_dims(input, dim), keepdim=keepdim)


def argmax(input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """Where the largest elements are, as numbers of the input's dtype, which is PyTorch's choice."""
    filled = _filled("argmax", input, mask, -math.inf, dtype)
    return filled.argmax(dim, keepdim=bool(keepdim)).to(filled.dtype)


def argmin(input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """Where the smallest elements are, as numbers of the input's dtype, which is PyTorch's choice."""
    filled = _filled("argmin", input, mask, math.inf, dtype)
    return filled.argmin(dim, keepdim=bool(keepdim)).to(filled.dtype)


def _count(input: Tensor, dims: tuple[int, ...], keepdim: bool, mask: Tensor | None) -> Tensor:
    shown = ones_like(input, dtype=dtypes.bool_) if mask is None else _mask_of(input, mask)
    return shown.sum(dims, keepdim=keepdim)


def mean(input: Tensor, dim: _Dims = None, *, keepdim: bool = False, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """Means over `dim`; nan of no elements. ValueError for integers, unless `dtype` says otherwise."""
    wanted = input.dtype if dtype is None else dtype
    if not (wanted.is_floating_point or wanted.is_complex):
        raise ValueError(
            "mean(): Could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {input.dtype}" if dtype is None else f"mean(): dtype must be either a floating point or complex dtype. Got: {dtype}"
        )  # fmt: skip
    total = sum(input, dim, keepdim=keepdim, dtype=dtype, mask=mask)
    return total / _count(input, _dims(input, dim), keepdim, mask)


def var(
    input: Tensor, dim: _Dims = None, unbiased: bool | None = None, *, correction: float | None = None, keepdim: bool = False,
    dtype: dtypes.dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Variances over `dim`, of sums divided by the number of elements less `correction`, 1 where None; nan of no elements."""
    assert unbiased is None or correction is None, "Only one of unbiased and correction may be given"
    less = correction if correction is not None else 0 if unbiased is False else 1
    wanted = dtype or (input.dtype if input.is_floating_point() or input.is_complex() else dtypes.float32)
    input, dims = input.to(wanted) if input.dtype is not dtypes.bool_ else input, _dims(input, dim)
    count = _count(input, dims, True, mask)
    away = input - sum(input, dims, keepdim=True, mask=mask) / count
    total = sum((away * away.conj()).real if away.is_complex() else away * away, dims, keepdim=True, mask=mask)
    found = total / (count - less).clamp(min=0)
    return found if keepdim else found.sum(dims)


def std(
    input: Tensor, dim: _Dims = None, unbiased: bool | None = None, *, correction: float | None = None, keepdim: bool = False,
    dtype: dtypes.dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The square roots of `var`."""
    return var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask).sqrt()


def norm(
    input: Tensor, ord: float = 2.0, dim: _Dims = None, *, keepdim: bool = False, dtype: dtypes.dtype | None = None, mask: Tensor | None = None
) -> Tensor:  # fmt: skip
    """Norms of vectors along `dim`; 0 of no elements, but infinity for `ord` of minus infinity."""
    filled = _filled("norm", input, mask, math.inf if ord == -math.inf else 0, dtype)
    return vector_norm(filled, ord, _dims(input, dim), keepdim)


def logsumexp(
    input: Tensor, dim: _Dims = None, *, keepdim: bool = False, dtype: dtypes.dtype | None = None, mask: Tensor | None = None
) -> Tensor:  # fmt: skip
    """Logarithms of sums of exponentials over `dim`; minus infinity of no elements."""
    return _filled("logsumexp", input, mask, -math.inf, dtype).logsumexp(_dims(input, dim), keepdim=keepdim)


def logaddexp(
    input: Tensor, other: Tensor, *, dtype: dtypes.dtype | None = None, input_mask: Tensor | None = None, other_mask: Tensor | None = None
) -> Tensor:  # fmt: skip
    """Logarithms of sums of two exponentials, of one where the mask of the other is False."""
    return _filled("logaddexp", input, input_mask, -math.inf, dtype).logaddexp(_filled("logaddexp", other, other_mask, -math.inf, dtype))


def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """Medians along `dim`; nan of no elements, which is a ValueError for integers."""
    input = input if dtype is None else input.to(dtype)
    if not input.is_floating_point():
        if mask is not None and not bool(_mask_of(input, mask).any(dim).all()):
            raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
        return nanmedian(_filled("median", input.double(), mask, math.nan, None), dim, keepdim).values.to(input.dtype)
    return nanmedian(_filled("median", input, mask, math.nan, None), dim, keepdim).values


# ---------------------------------------------------------------------- all elements


def cumsum(input: Tensor, dim: int, *, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """Sums of the elements up to each one."""
    return _filled("cumsum", input, mask, 0, dtype).cumsum(dim)


def cumprod(input: Tensor, dim: int, *, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """Products of the elements up to each one."""
    return _filled("cumprod", input, mask, 1, dtype).cumprod(dim)


def softmax(input: Tensor, dim: int, *, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """Exponentials divided by their sum; nan where there are none."""
    return _filled("softmax", input, mask, -math.inf, dtype).softmax(dim)


def log_softmax(input: Tensor, dim: int, *, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """The logarithm of `softmax`."""
    return _filled("log_softmax", input, mask, -math.inf, dtype).log_softmax(dim)


def softmin(input: Tensor, dim: int, *, dtype: dtypes.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """`softmax` of the negated input."""
    return (-_filled("softmin", input, mask, math.inf, dtype)).softmax(dim)


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: dtypes.dtype | None = None, mask: Tensor | None = None
) -> Tensor:  # fmt: skip
    """The elements divided by their norm along `dim`, by `eps` where that is less."""
    size = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled("normalize", input, mask, 0, dtype) / size.clamp(min=eps)
