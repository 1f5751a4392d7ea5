"""Losses of torch.nn.functional."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.calling.expecting import not_a_tensor
from torchgrad_jax.calling.public import public
from torchgrad_jax.calling.recalled import recalling
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import broadcast_shapes, check_added
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.overloads import with_number
from torchgrad_jax.functions.views import expand, reshape, unsqueeze, view
from torchgrad_jax.nn.activation import log_softmax
from torchgrad_jax.operators import (
    extreme,  # noqa: F401 - declares the operator
    registry,
)
from torchgrad_jax.operators import loss as _operators  # noqa: F401 - declares the operators
from torchgrad_jax.runtime.user_code import warn_user

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "gaussian_nll_loss", "huber_loss", "kl_div",
    "l1_loss", "mse_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss",
]  # fmt: skip

REDUCTIONS = ("none", "mean", "sum")


def reduction_of(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> str:
    """The reduction asked for, also by the arguments that came before it. ValueError for another word."""
    if size_average is not None or reduce is not None:
        reduction = former_reduction(size_average, reduce)
        warn_user(f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.", UserWarning)
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def former_reduction(size_average: bool | None, reduce: bool | None) -> str:
    """What these arguments, each True if None, said before there were words for it."""
    averaged, reduced = [True if argument is None else bool(argument) for argument in (size_average, reduce)]
    return "mean" if averaged and reduced else "sum" if reduced else "none"


def reduce_loss(x: Tensor, reduction: str) -> Tensor:
    return x.mean() if reduction == "mean" else x.sum() if reduction == "sum" else x


def clamp_min_of(x: Tensor, least: float) -> Tensor:
    return apply(registry["clamp_min_number"].bind((ARRAY, ARRAY)), (x, least))


@lru_cache(1024, typed=True)
def _bound(name: str, given: tuple[bool, ...], *statics: Any) -> Any:
    """The operator `name` of arrays, as far as these are given, and of what is static."""
    return registry[name].bind((*[ARRAY if there else Static(None) for there in given], *map(Static, statics)))


def call_loss(name: str, tensors: tuple[Tensor | None, ...], *statics: Any) -> Tensor:
    return apply(_bound(name, tuple([t is not None for t in tensors]), *statics), tuple([t for t in tensors if t is not None]))


# ---------------------------------------------------------------------- regression


def _same_size(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both expanded to one shape. RuntimeError where they cannot be; a warning where they have to be."""
    a, b = input._aval.shape, target.size()
    if a == tuple(b):
        return input, target
    warn_user(
        f"Using a target size ({b}) that is different to the input size ({input.size()}). This will likely lead to incorrect results due to "
        "broadcasting. Please ensure they have the same size.",
        UserWarning,
    )
    shape = broadcast_shapes(a, tuple(b))
    return expand(input, shape), expand(target, shape)


def _check_weights(losses: Tensor, weight: Tensor) -> None:
    if losses._aval.shape != weight._aval.shape:
        raise ValueError("Inputs and weights must have the same size.")


def _weighted(losses: Tensor, weight: Tensor, reduction: str) -> Tensor:
    _check_weights(losses, weight)
    losses = losses * weight
    return losses.sum() / weight.sum() if reduction == "mean" else reduce_loss(losses, reduction)


def mse_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """The squared differences; their mean or sum. ValueError for an unknown reduction."""
    input, target = _same_size(input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    if weight is not None:
        return _weighted((input - target) ** 2, weight, reduction)
    return call_loss("mse_loss", (input, target), reduction)


def l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """The absolute differences; their mean or sum. ValueError for an unknown reduction."""
    input, target = _same_size(input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    losses = (input - target).abs()
    return reduce_loss(losses, reduction) if weight is None else _weighted(losses, weight, reduction)


def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Quadratic for differences less than `beta`, linear beyond. RuntimeError for a negative beta, ValueError for an unknown reduction."""
    input, target = _same_size(input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return reduce_loss((input - target).abs(), reduction)
    return call_loss("smooth_l1_loss", (input, target), reduction, float(beta))


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None) -> Tensor:
    """`delta` times `smooth_l1_loss` of that beta. RuntimeError where delta is not positive, ValueError for an unknown reduction."""
    input, target = _same_size(input, target)
    reduction = reduction_of(reduction)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    if weight is not None:
        losses = like_input("huber_loss", input, target, "none", float(delta))
        _check_weights(losses, weight)
        return reduce_loss(losses * weight, reduction)
    return like_input("huber_loss", input, target, reduction, float(delta))


def like_input(name: str, input: Tensor, target: Tensor, reduction: str, *statics: Any) -> Tensor:
    """A loss whose elements have the input's dtype, whatever they are computed in."""
    if input._aval.dtype == target._aval.dtype:
        return call_loss(name, (input, target), reduction, *statics)
    return reduce_loss(cast(call_loss(name, (input, target), "none", *statics), input.dtype), reduction)


# ---------------------------------------------------------------------- likelihoods


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: bool | None = None, eps: float = 1e-8,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The negative log likelihood of a Poisson distribution; `full` adds Stirling's approximation. ValueError for an unknown reduction."""
    x: Any = input
    reduction = reduction_of(reduction, size_average, reduce)
    product = target * (x if log_input else with_number("add", x, eps).log())
    loss = (x.exp() if log_input else x) - product
    if full:
        t: Any = target
        stirling = t * t.log() - t + (2 * math.pi * t).log() * 0.5
        loss = loss + stirling.masked_fill(t <= 1, 0)
    return reduce_loss(loss, reduction)


def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> Tensor:
    """The negative log likelihood of a normal distribution with variances `var`. ValueError for a negative variance or a wrong shape of it."""
    x, v = input, var
    if not isinstance(v, Tensor):
        if v < 0:
            raise ValueError("var has negative entry/entries")
        v = v * x.new_ones(x._aval.shape)
    elif bool((v < 0).any()):
        raise ValueError("var has negative entry/entries")
    shape, given = x._aval.shape, v._aval.shape
    if given != shape:
        if shape[:-1] == given:
            v = unsqueeze(v, -1)
        elif not _expands(given, shape):
            raise ValueError("var is of incorrect size")
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not valid")
    raised = v.clone()
    with no_grad():
        raised.clamp_min_(eps)  # gradients pass to var as if it had not been raised to eps
    loss = 0.5 * (raised.log() + (x - target) ** 2 / raised)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduce_loss(loss, reduction)


def _expands(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) == len(to) and all(n in (1, m) for n, m in zip(shape, to, strict=True))


def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """target * (log(target) - input) where `input` is a logarithm; "batchmean" divides the sum by the first size.

    ValueError for an unknown reduction.
    """
    x: Any = input
    t: Any = target
    if size_average is not None or reduce is not None:
        reduction = reduction_of(reduction, size_average, reduce)
    if reduction == "mean":
        warn_user(
            "reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides only by "
            "the batch size, and aligns with the KL div math definition.'mean' will be changed to behave the same "
            "as 'batchmean' in the next major release.",
            UserWarning,
        )
    kind = "sum" if reduction == "batchmean" else reduction_of(reduction)
    categories = dtypes.category(x._aval.dtype), dtypes.category(t._aval.dtype)
    if categories != (dtypes.FLOAT, dtypes.FLOAT):
        raise RuntimeError(f"kl_div: {'Complex' if dtypes.COMPLEX in categories else 'Integral'} inputs not supported.")
    if log_target:
        loss = t.exp() * (t - x)
    else:
        product = t * x  # before xlogy, as in PyTorch
        loss = t.xlogy(t) - product
    reduced = reduce_loss(loss, kind)
    return reduced / x._aval.shape[0] if reduction == "batchmean" and x._aval.ndim else reduced


# ---------------------------------------------------------------------- two classes


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """The cross entropy of probabilities `input` and `target`. RuntimeError for what is not between 0 and 1, ValueError for another size."""
    reduction = reduction_of(reduction, size_average, reduce)
    if target.size() != input.size():
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}) is deprecated. "
            "Please ensure they have the same size."
        )
    if weight is not None:
        check_added(target._aval.shape, weight._aval.shape)
        weight = expand(weight, target._aval.shape)
    return call_loss("binary_cross_entropy", (input, target, weight), reduction)


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`binary_cross_entropy` of sigmoid(input), stable for large inputs. ValueError for another size of the target."""
    reduction = reduction_of(reduction, size_average, reduce)
    return _with_logits(input, target, weight, pos_weight, reduction)


def _with_logits(input: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None, reduction: str) -> Tensor:
    if target.size() != input.size():
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    shape = target._aval.shape
    if pos_weight is not None:
        broadcast_shapes(pos_weight._aval.shape, shape)  # PyTorch says it in this order
        check_added(shape, pos_weight._aval.shape)
    if weight is not None:
        check_added(shape, weight._aval.shape)
    name, dtype = "binary_cross_entropy_with_logits", target._aval.dtype
    if input._aval.dtype == dtype and (weight is None or weight._aval.dtype == dtype) and (pos_weight is None or pos_weight._aval.dtype == dtype):
        return call_loss(name, (input, target, weight, pos_weight), reduction)
    # PyTorch makes the elements in place of the target's.
    return reduce_loss(cast(call_loss(name, (input, target, weight, pos_weight), "none"), target.dtype), reduction)


# ---------------------------------------------------------------------- several classes


def _host(x: Tensor) -> np.ndarray | None:
    """The values where they are at hand without a computation."""
    return x._read().at_hand()


def _classes_known(target: Tensor, classes: int, ignore_index: int) -> bool:
    """Whether all targets are known to be classes. IndexError for one that is known not to be."""
    if not target._aval.size:
        return True
    bounds = target._read().known_bounds()
    if bounds is None:
        return False
    if bounds[0] < 0 or bounds[1] >= classes:
        values = np.asarray(target._concrete())
        bad = values[(values != ignore_index) & ((values < 0) | (values >= classes))]
        if bad.size:
            raise IndexError(f"Target {bad.flat[0]} is out of bounds.")
    return True


def _nll(name: str, input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str) -> Tensor:
    classes = input._aval.shape[0 if input._aval.ndim == 1 else 1]
    known = target._aval.dtype.kind not in "iu" or _classes_known(target, classes, ignore_index)
    bound = _bound(f"_{name}" if known else f"_{name}_checked", (True, True, weight is not None, True), reduction)
    return apply(bound, (input, target, ignore_index) if weight is None else (input, target, weight, ignore_index))


def _check_weight(weight: Tensor | None, classes: int, spatial: bool) -> None:
    if weight is None or weight._aval.shape == (classes,):
        return
    if spatial:
        raise RuntimeError("weight tensor should be defined either for all or no classes")
    raise RuntimeError(
        f"weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: {list(weight._aval.shape)}"
    )


def _nll_1d(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str) -> Tensor:
    a, b = input._aval.shape, target._aval.shape
    if len(b) > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if len(a) == 1 and b == (1,):
        target = reshape(target, ())
    elif len(a) == 1 and b:
        raise ValueError(f"For 1D input, 1D target must have size 1, but got target size: {b[0]}")
    elif len(a) == 2 and a[:1] != b:
        raise RuntimeError(f"size mismatch (got input: {list(a)}, target: {list(b)})")
    _check_weight(weight, a[-1], False)
    return _nll("nll_loss", input, target, weight, ignore_index, reduction)


def _nll_2d(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str) -> Tensor:
    a, b = input._aval.shape, target._aval.shape
    if len(b) != 3:
        raise RuntimeError(f"only batches of spatial targets supported (3D tensors) but got targets of dimension: {len(b)}")
    if (a[0], *a[2:]) != b:
        raise RuntimeError(f"size mismatch (got input: {list(a)} , target: {list(b)}")
    _check_weight(weight, a[1], True)
    return _nll("nll_loss2d", input, target, weight, ignore_index, reduction)


def _nll_any(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str) -> Tensor:
    a, b = input._aval.shape, target._aval.shape
    if not a:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if len(a) != 1 and (not b or a[0] != b[0]):
        raise ValueError(f"Expected input batch_size ({a[0]}) to match target batch_size ({b[0] if b else 0}).")
    if len(a) <= 2:
        return _nll_1d(input, target, weight, ignore_index, reduction)
    if len(a) == 4:
        return _nll_2d(input, target, weight, ignore_index, reduction)
    out = (a[0], *a[2:])
    if b != out:
        raise RuntimeError(f"Expected target size {list(out)}, got {list(b)}")
    rest = math.prod(a[2:])
    image, classes = (a[0], a[1], 1, rest), (a[0], 1, rest)
    found = _nll_2d(reshape(input, image), reshape(target, classes), weight, ignore_index, reduction)
    return view(found, out) if reduction == "none" else found


_logs_over, _nll_of = recalling(log_softmax), recalling(_nll_any, bounds=True)


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-input[n, target[n]] for log-probabilities (N, C, *) or (C), weighted by class; the mean divides by the sum of the weights.

    IndexError for a target that is no class, ValueError and RuntimeError for shapes that do not fit.
    """
    return _nll_any(input, target, weight, ignore_index, reduction_of(reduction, size_average, reduce))


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
    reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """`nll_loss` of log_softmax(input) for classes, or the cross entropy with target probabilities of the input's shape.

    IndexError for a target that is no class, ValueError and RuntimeError for shapes and dtypes that do not fit.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if not isinstance(input, Tensor) or not isinstance(target, Tensor):
        at, name, given = (1, "input", input) if not isinstance(input, Tensor) else (2, "target", target)
        raise not_a_tensor("cross_entropy_loss", given, name, at)
    axis = 0 if input._aval.ndim == 1 else 1
    if input._aval.shape == target._aval.shape:
        if dtypes.category(target._aval.dtype) != dtypes.FLOAT:
            raise RuntimeError(f"Expected floating point type for target with class probabilities, got {dtypes.of(target._aval.dtype).title}")
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return _cross_entropy_of_probabilities(log_softmax(input, axis), target, weight, reduction, label_smoothing)
    if label_smoothing > 0:
        _check_smoothing(label_smoothing)
        return _smoothed(log_softmax(input, axis), target, weight, ignore_index, reduction, label_smoothing)
    return _nll_of(_logs_over(input, axis), target, weight, ignore_index, reduction)


def _check_smoothing(label_smoothing: float) -> None:
    if label_smoothing > 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")


def _along_classes(weight: Tensor, like: Tensor) -> Tensor:
    ndim = like._aval.ndim
    return weight if ndim == 1 else view(weight, (1, -1, *(1,) * (ndim - 2)))


def _cross_entropy_of_probabilities(logs: Any, target: Any, weight: Tensor | None, reduction: str, smoothing: float) -> Tensor:
    axis = 0 if logs._aval.ndim == 1 else 1
    shape = logs._aval.shape
    if weight is not None and weight._aval.shape != (shape[axis],):
        raise RuntimeError(
            f"cross_entropy: weight tensor should be defined either for all {shape[axis]} classes or no classes but got weight tensor of shape: "
            f"{list(weight._aval.shape)}"
        )
    if smoothing > 0:
        _check_smoothing(smoothing)
        target = with_number("add", with_number("mul", target, 1 - smoothing), smoothing / shape[axis])
    product = logs * target
    if weight is not None:
        product = product * _along_classes(weight, logs)
    if reduction == "none":
        return -product.sum(axis)
    total = -product.sum()
    return total if reduction == "sum" else with_number("div", total, math.prod(shape) / shape[axis] if shape[axis] else 0)


def _smoothed(logs: Any, target: Any, weight: Tensor | None, ignore_index: int, reduction: str, smoothing: float) -> Tensor:
    axis = 0 if logs._aval.ndim == 1 else 1
    exact = _nll_any(logs, target, weight, ignore_index, reduction)
    each = -(logs if weight is None else logs * _along_classes(weight, logs)).sum(axis)
    ignored = target == ignore_index
    each = each.masked_fill(ignored, 0)
    if reduction == "mean":
        if weight is None:
            uniform = each.sum() / (~ignored).sum().to(logs.dtype)
        else:
            chosen = weight[target.masked_fill(ignored, 0)].masked_fill(ignored, 0)
            uniform = each.sum() / chosen.sum()
    else:
        uniform = reduce_loss(each, reduction)
    return with_number("mul", exact, 1 - smoothing) + with_number("mul", uniform, smoothing / logs._aval.shape[axis])


# ---------------------------------------------------------------------- torch.X: the reduction is a number there


def numbered(function: Any, *names: str) -> Any:
    """The same loss with `reduction` as 0, 1 or 2 for none, mean and sum."""

    def call(*args: Any, reduction: int | str = 0, **kwargs: Any) -> Tensor:
        given = dict(zip(names, args, strict=False)) | kwargs
        reduction = given.pop("reduction", reduction)
        return function(**given, reduction=reduction if isinstance(reduction, str) else REDUCTIONS[reduction])

    call.__name__ = call.__qualname__ = function.__name__
    call.__doc__ = function.__doc__
    return call


public("torch")(numbered(kl_div, "input", "target", "reduction"))
public("torch")(numbered(poisson_nll_loss, "input", "target", "log_input", "full", "eps", "reduction"))
public("torch")(numbered(binary_cross_entropy_with_logits, "input", "target", "weight", "pos_weight", "reduction"))
