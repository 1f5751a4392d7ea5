"""Embeddings and one-hot vectors of torch.nn.functional."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.declaration.refusals import unsupported
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.creation import arange, from_data
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.indexing import copy_, known_bounds, setitem
from torchgrad_jax.functions.matrices.norms import vector_norm
from torchgrad_jax.functions.overloads import where
from torchgrad_jax.functions.reductions import isin
from torchgrad_jax.functions.views import reshape, unsqueeze
from torchgrad_jax.memory.storage import OfMask
from torchgrad_jax.operators import embedding as _operators  # noqa: F401 - declares the operators
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.sparse.embedding import followed

__all__ = ["embedding", "embedding_bag", "one_hot"]


def _look_up(weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool = False) -> Tensor:
    name = _known_or_checked("embedding", weight, indices)
    if sparse and _has_sparse_gradient(weight):
        if scale_grad_by_freq:
            raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
        return followed(call(name, weight.detach(), indices, padding_idx, False), weight, indices, padding_idx)
    return apply(_bound(name, padding_idx, bool(scale_grad_by_freq)), (weight, indices))


@lru_cache(1024)
def _bound(name: str, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    return registry[name].bind((ARRAY, ARRAY, Static(padding_idx), Static(scale_grad_by_freq)))


def _has_sparse_gradient(weight: Tensor) -> bool:
    """Whether it gets a sparse gradient: a leaf does, of a backward pass. What transforms functions, and what made another tensor, has dense ones."""
    rec = per_thread.recorder
    return weight.requires_grad and weight.is_leaf and rec.grad_enabled and rec.level is None


def _known_or_checked(name: str, weight: Tensor, indices: Tensor) -> str:
    """The operator for indices known to be in range, or the one that checks them. IndexError, RuntimeError where they do not fit."""
    if indices._aval.dtype not in (np.int64, np.int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
            f"{dtypes.of(indices._aval.dtype).tensor_type} instead (while checking arguments for {name})"
        )
    if weight._aval.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    bounds = known_bounds(indices) if indices._aval.size else (0, -1)
    if bounds is not None and (bounds[0] < 0 or bounds[1] >= weight._aval.shape[0]):
        raise IndexError("index out of range in self")
    return name + "_checked" if bounds is None else name


def _padding(padding_idx: int | None, rows: int) -> int:
    if padding_idx is None:
        return -1
    if padding_idx >= rows or padding_idx < -rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx % rows


def _renormalize(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows that are looked up to a norm of at most `max_norm`, in place."""
    if norm_type is None:
        raise TypeError("embedding_renorm_(): argument 'norm_type' (position 4) must be float, not NoneType")
    with no_grad():
        if not (weight._content().readable and indices._content().readable):
            rows: Any = weight.detach()
            norms = vector_norm(rows, norm_type, 1, True)
            used = unsqueeze(isin(arange(rows._aval.shape[0], device=weight.device), indices), 1)
            copy_(weight, where(used & (norms > max_norm), rows * (max_norm / (norms + 1e-7)), rows))
            return
        found = np.unique(np.asarray(indices._concrete()))
        rows = np.asarray(weight._concrete())[found]
        norms = np.linalg.norm(rows, norm_type, axis=1, keepdims=True)
        scaled = np.where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows).astype(rows.dtype)
        setitem(weight, created(from_data(found, None, weight.device)), created(from_data(scaled, weight.dtype, weight.device)))


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """The rows of `weight` (V, D) at `input`. The row `padding_idx` gets no gradient. sparse: whether the gradient is a sparse tensor.

    IndexError for an index out of range, AssertionError for such a padding_idx, RuntimeError for a wrong dtype or shape.
    """
    if not weight._aval.ndim:
        raise RuntimeError("'weight' must be 2-D")
    padding = _padding(padding_idx, weight._aval.shape[0])
    if max_norm is not None:
        _renormalize(weight, input, max_norm, norm_type)
    return _look_up(weight, input, padding, scale_grad_by_freq, sparse)


@public("torch.embedding")
def _embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """`torch.embedding`: the table comes first, and padding_idx is -1 for none."""
    return _look_up(weight, indices, padding_idx, scale_grad_by_freq, sparse)


def _bags(input: Tensor, offsets: Tensor | None, include_last_offset: bool) -> tuple[np.ndarray, int]:
    """The bag of each index, and the number of bags."""
    if input._aval.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. "
                f"However, found offsets of type {type(offsets)}"
            )
        if input._aval.dtype.kind in "bc":  # where the bags begin is of the indices' dtype
            raise unsupported("arange_cpu", input._aval.dtype)
        count, length = input._aval.shape
        return np.repeat(np.arange(count), length), count
    if input._aval.ndim != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input._aval.ndim}")
    if offsets is None or offsets._aval.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor but got None" if offsets is None else "offsets has to be a 1D Tensor")
    starts = np.asarray(offsets._concrete())
    if starts.size and starts[0] != 0:
        raise RuntimeError(
            f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {starts[0]}"
        )
    if starts.size and starts[-1] > input._aval.size:
        raise RuntimeError(f"offsets[-1] can not be greater than input's length {input._aval.size} but got offsets[-1] of {starts[-1]}")
    if (starts[1:] < starts[:-1]).any():
        raise RuntimeError("Your input appears to be incorrect: a bag begins before the one in front of it, so offsets have to increase")
    if include_last_offset and not starts.size:
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    count = len(starts) - 1 if include_last_offset else len(starts)
    return np.searchsorted(starts[:count], np.arange(input._aval.size), side="right") - 1, count


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """The sum, mean or largest elements of the rows of each bag: a row of a 2-dim `input`, or what lies between offsets. Looks at offsets.

    IndexError for an index out of range, ValueError for a wrong mode or shape.
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None:
        if mode != "sum":
            raise NotImplementedError(
                "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
                f"(got mode='{mode}'). Please open a feature request on GitHub."
            )
        if per_sample_weights._aval.shape != input._aval.shape:
            raise ValueError(
                f"embedding_bag: If per_sample_weights ({list(per_sample_weights._aval.shape)}) is not None, it must have the same shape "
                f"as the input ({list(input._aval.shape)})"
            )
        per_sample_weights = reshape(per_sample_weights, (-1,))
    input, offsets = _of_one_dtype(input, offsets)
    bags, count = _bags(input, offsets, include_last_offset)
    if max_norm is not None:
        _renormalize(weight, input, max_norm, norm_type)
    if sparse and _has_sparse_gradient(weight):
        return _reduced_sparse(weight, input, bags, count, mode, per_sample_weights, scale_grad_by_freq, padding_idx, offsets)
    return _reduced(weight, input, bags, count, mode, per_sample_weights, scale_grad_by_freq, padding_idx, offsets)


def _of_one_dtype(input: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """PyTorch widens one of them."""
    if offsets is None or offsets._aval.dtype == input._aval.dtype:
        return input, offsets
    common = dtypes.of(promotion.promote_types(input._aval.dtype, offsets._aval.dtype))
    return cast(input, common), cast(offsets, common)


def _reduced(
    weight: Tensor, input: Tensor, bags: np.ndarray, count: int, mode: str, per_sample_weights: Tensor | None, scale_grad_by_freq: bool,
    padding_idx: int | None, offsets: Tensor | None,
) -> Tensor:  # fmt: skip
    """The rows of each bag, reduced. offsets: by which the bags were found, which are saved for backward with them."""
    rows = weight._aval.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise RuntimeError(f"padding_idx must be within the number of embeddings, {-rows} through {rows - 1}, but got {padding_idx}")
    padding = _padding(padding_idx, rows)
    flat = reshape(input, (-1,))
    bags = _without_padding(flat, bags, padding)
    name = _known_or_checked("embedding_bag_max" if mode == "max" else "embedding_bag", weight, flat)
    where = created(from_data(bags.astype(np.int64), None, weight.device))
    if offsets is not None and where._storage is None:
        where._value.counter = OfMask(offsets._content())
    return call(name, weight, flat, where, per_sample_weights, count, mode, padding, bool(scale_grad_by_freq))


def _reduced_sparse(
    weight: Tensor, input: Tensor, bags: np.ndarray, count: int, mode: str, per_sample_weights: Tensor | None, scale_grad_by_freq: bool,
    padding_idx: int | None, offsets: Tensor | None,
) -> Tensor:  # fmt: skip
    """`_reduced` by way of the rows, whose gradient with respect to the table is sparse."""
    if mode == "max":
        raise ValueError("max mode does not support sparse weights")
    if scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    flat = reshape(input, (-1,))
    rows = weight._aval.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise RuntimeError(f"padding_idx must be within the number of embeddings, {-rows} through {rows - 1}, but got {padding_idx}")
    padding = _padding(padding_idx, rows)
    found = _look_up(weight, flat, padding, False, True)
    bags = _without_padding(flat, bags, padding)
    each = arange(len(bags), device=weight.device)
    return _reduced(found, each, bags, count, mode, per_sample_weights, False, None, offsets)


def _without_padding(flat: Tensor, bags: np.ndarray, padding: int) -> np.ndarray:
    """The bag of each index, -1 for one that is in none."""
    return bags if padding < 0 else np.where(np.asarray(flat._concrete()) == padding, -1, bags)


_MODES = ("sum", "mean", "max")


@public("torch.embedding_bag")
def _embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """`torch.embedding_bag`: the table comes first, mode is 0, 1, 2 for sum, mean, max. Beside the result: the bag of each index, the size of each
    bag and the indices of the largest elements, each as far as backward of PyTorch's kernel needs it.

    IndexError for an index out of range, RuntimeError for a wrong mode, offsets or shapes.
    """
    if mode not in (0, 1, 2):
        raise RuntimeError("`mode` must be sum, mean, or max.")
    if per_sample_weights is not None and mode:
        raise RuntimeError("embedding_bag: per_sample_weights only supported with mode='sum'")
    indices, starts = _of_one_dtype(indices, offsets)
    flat = reshape(indices, (-1,))
    bags, count = _bags(flat, starts, include_last_offset)
    made = _reduced(weight, flat, bags, count, _MODES[mode], per_sample_weights, scale_grad_by_freq, padding_idx, starts)
    kept = _without_padding(flat, bags, _padding(padding_idx, weight._aval.shape[0]))
    dtype = indices._aval.dtype
    sizes = np.bincount(kept[kept >= 0], minlength=count) if mode else np.zeros(count)
    of_index = bags if mode or padding_idx is not None else bags[:0]
    found = [created(from_data(x.astype(dtype), None, weight.device)) for x in (of_index, sizes)]
    return made, found[0], found[1], _largest(weight, flat, kept, made) if mode == 2 else found[1].clone()


def _largest(weight: Tensor, flat: Tensor, bags: np.ndarray, made: Tensor) -> Tensor:
    """The index whose row has the largest element of each bag, 0 for an empty bag: (bags, features)."""
    count = len(bags)
    if not count:
        return flat.new_zeros(made._aval.shape)
    at = created(from_data(np.where(bags < 0, 0, bags), None, weight.device))
    there = created(from_data(bags >= 0, None, weight.device))
    rows = _look_up(weight.detach(), flat, -1, False)
    equal = (rows == made.detach()[at]) & unsqueeze(there, 1)
    place = where(equal, unsqueeze(arange(count, device=weight.device), 1), count)
    first = place.new_full(made._aval.shape, count).scatter_reduce(0, unsqueeze(at, 1).expand(-1, made._aval.shape[1]), place, "amin")
    return where(first < count, flat[first.clamp(max=count - 1)], 0)


@public("torch.embedding_renorm_")
def _embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows at `indices` whose norm is larger to `max_norm`, in place. RuntimeError for wrong dtypes and shapes, IndexError for no row."""
    checking = "(while checking arguments for embedding_renorm_)"
    if input._aval.ndim != 2:
        raise RuntimeError(f"Expected 2-dimensional tensor, but got {input._aval.ndim}-dimensional tensor for argument #1 'self' {checking}")
    if indices._aval.dtype not in (np.int64, np.int32):
        raise RuntimeError(
            "Expected tensor for argument #2 'indices' to have one of the following scalar types: Long, Int; but got "
            f"{dtypes.of(indices._aval.dtype).tensor_type} instead {checking}"
        )
    bounds = known_bounds(indices) if indices._aval.size else None
    outside = [] if bounds is None else [i for i in bounds if not 0 <= i < input._aval.shape[0]]
    if outside:
        raise IndexError(f"select(): index {outside[0]} out of range for tensor of size {list(input._aval.shape)} at dimension 0")
    _renormalize(input, indices, max_norm, norm_type)
    return input


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """int64 vectors with a 1 at each class. Looks at the values. RuntimeError for what is no class, no int64, or traced without num_classes."""
    if num_classes == -1 and not input._content().readable:
        raise RuntimeError("When vmap-ing torch.nn.functional.one_hot, please provide an explicit positive num_classes argument.")
    if input._aval.dtype != np.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if not input._aval.size:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        low, high = 0, -1
    elif (values := input._read().everything()) is None:  # JAX transforms: there are no values yet
        low, high = 0, num_classes - 1
    else:
        low, high = int(values.min()), int(values.max())
    if low < 0:
        raise RuntimeError("Class values must be non-negative.")
    if num_classes == -1:
        num_classes = high + 1
    elif high >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return apply(registry["_one_hot"].bind((ARRAY, Static(num_classes))), (input,))
