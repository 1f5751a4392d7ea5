"""Losses of torch.nn.functional that ask for a margin between what belongs together and what does not."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.overloads import where, with_number
from torchgrad_jax.functions.questions import broadcast_shapes
from torchgrad_jax.nn.activation import logsigmoid
from torchgrad_jax.nn.distance import pairwise_distance
from torchgrad_jax.nn.loss import call_loss, clamp_min_of, like_input, numbered, reduce_loss, reduction_of

__all__ = [
    "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "soft_margin_loss", "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip


def soft_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input)) for targets 1 and -1. ValueError for an unknown reduction, RuntimeError for a larger target."""
    reduction = reduction_of(reduction, size_average, reduce)
    a, b = input._aval.shape, target._aval.shape
    pairs = list(zip(reversed(a), reversed(b), strict=False))
    if all([1 in pair or pair[0] == pair[1] for pair in pairs]) and (len(b) > len(a) or any([n == 1 != m for n, m in pairs])):
        raise RuntimeError(f"output with shape {list(a)} doesn't match the broadcast shape {list(broadcast_shapes(a, b))}")
    return like_input("soft_margin_loss", input, target, reduction)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """input where the target is 1, max(0, margin - input) where it is -1. ValueError for an unknown reduction."""
    x: Any = input
    t: Any = target
    reduction = reduction_of(reduction, size_average, reduce)
    zero = x.new_zeros(x.shape)
    apart = where(t != 1, clamp_min_of(x.new_full((), margin) - x, 0), zero)
    together = where(t != -1, x, zero)
    return reduce_loss(apart + together, reduction)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, -target * (input1 - input2) + margin). RuntimeError for different numbers of dimensions, ValueError for an unknown reduction."""
    reduction = reduction_of(reduction, size_average, reduce)
    if not input1._aval.ndim == input2._aval.ndim == target._aval.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.size()}, input2: {input2.size()}, target: {target.size()} "
        )
    return _ranked(input1, input2, target, margin, reduction)


def _ranked(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, reduction: str = "mean") -> Tensor:
    """max(0, -target * (input1 - input2) + margin), of tensors that broadcast."""
    return reduce_loss(clamp_min_of(with_number("add", -target * (input1 - input2), float(margin)), 0), reduction)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """1 - cos for targets 1, max(0, cos - margin) for targets -1. RuntimeError for shapes that do not fit, ValueError for an unknown reduction."""
    x, y, t = input1, input2, target
    reduction = reduction_of(reduction, size_average, reduce)
    if t._aval.ndim > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    wanted = t._aval.ndim + 1
    if x._aval.ndim != wanted or y._aval.ndim != wanted:
        raise RuntimeError(
            f"{wanted - 1}D target tensor expects {wanted}D input tensors, but found inputs with sizes {list(x._aval.shape)} and "
            f"{list(y._aval.shape)}."
        )
    axis = wanted - 1
    eps = 1e-12  # PyTorch's guard of this loss: added to the squared norms.
    product = (x * y).sum(axis)
    a, b = (with_number("add", (v * v).sum(axis), eps) for v in (x, y))
    cosine: Any = product / (a * b).sqrt()
    zero = cosine.new_zeros(cosine.shape)
    near, far = cosine.new_ones(()) - cosine, clamp_min_of(with_number("sub", cosine, margin), 0)
    together, apart = where(t == 1, near, zero), where(t == -1, far, zero)
    return reduce_loss(together + apart, reduction)


def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The mean over classes of max(0, margin - input[target] + input[i]) ** p. RuntimeError for shapes that do not fit, ValueError for another p."""
    reduction = reduction_of(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    a, b = input._aval.shape, target._aval.shape
    if weight is not None and weight._aval.shape != a[-1:]:
        if weight._aval.ndim != 1:
            raise ValueError("weight must be one-dimensional")
        raise RuntimeError(f"inconsistent weight size, expected {a[-1]} but got {list(weight._aval.shape)}")
    _check_classes(a)
    samples = a[:1] if len(a) == 2 else (1,)
    if b != samples and (len(a) == 2 or b):
        raise RuntimeError(
            f"multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch size). "
            f"Expected target size {list(samples)}, but got {list(b)}. Input has shape {list(a)}."
        )
    return call_loss("multi_margin_loss", (input, target, weight), p, margin, reduction)


def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """The margins between all target classes (those before the first -1) and all others. RuntimeError for shapes that do not fit."""
    reduction = reduction_of(reduction, size_average, reduce)
    _check_classes(input._aval.shape)
    if input._aval.shape != target._aval.shape:
        raise RuntimeError(f"inconsistent target size: {list(target._aval.shape)} for input of size: {list(input._aval.shape)}")
    return call_loss("multilabel_margin_loss", (input, target), reduction)


def _check_classes(shape: tuple[int, ...]) -> None:
    if len(shape) > 2 or 0 in shape[-1:]:
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(shape)}")


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over the input's last dimension of the binary cross entropy of sigmoid(input). ValueError for an unknown reduction."""
    reduction = reduction_of(reduction, size_average, reduce)
    t: Any = target
    losses: Any = -(t * logsigmoid(input) + (1 - t) * logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    classes = input._aval.ndim - 1  # which is not the last one of the losses where the target has more dimensions
    return reduce_loss(losses.sum(classes) / input.size(classes), reduction)


# ---------------------------------------------------------------------- triplets


def _check_triplet(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float) -> None:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    a, p, n = anchor._aval.ndim, positive._aval.ndim, negative._aval.ndim
    if not a == p == n:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {a}D, positive {p}D, and negative {n}D inputs"
        )


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6, swap: bool = False,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, d(anchor, positive) - d(anchor, negative) + margin); `swap` takes the nearer of anchor and positive. ValueError for a margin <= 0."""
    reduction = reduction_of(reduction, size_average, reduce)

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return pairwise_distance(x, y, p, eps)

    _check_triplet(anchor, positive, negative, margin)
    near, far = _nearer(anchor, positive, negative, distance, swap)
    return reduce_loss(clamp_min_of(with_number("add", near, margin) - far, 0), reduction)


def _nearer(anchor: Tensor, positive: Tensor, negative: Tensor, distance: Any, swap: bool) -> tuple[Any, Any]:
    near, far = distance(anchor, positive), distance(anchor, negative)
    return near, far.minimum(distance(positive, negative)) if swap else far


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function: Any = None, margin: float = 1.0, swap: bool = False,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """`triplet_margin_loss` for any distance."""
    _check_triplet(anchor, positive, negative, margin)
    near, far = _nearer(anchor, positive, negative, distance_function or pairwise_distance, swap)
    return reduce_loss(clamp_min_of(margin + near - far, 0), reduction_of(reduction))


public("torch")(numbered(cosine_embedding_loss, "input1", "input2", "target", "margin", "reduction"))
public("torch")(numbered(hinge_embedding_loss, "input", "target", "margin", "reduction"))
public("torch.margin_ranking_loss")(numbered(_ranked, "input1", "input2", "target", "margin", "reduction"))
public("torch")(numbered(triplet_margin_loss, "anchor", "positive", "negative", "margin", "p", "eps", "swap", "reduction"))
