"""Losses that are added up, averaged or checked, element by element, and divisions that are checked: their forms on NumPy arrays.

What they are of each element is the same operator's with `reduction="none"`, which vectors tell for all shapes. Else each size would be traced anew,
as a mean knows how many elements there are: that takes 0.5 to 2 ms, and the last batch of a dataset is a smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Shape
from torchgrad_jax.declaration.numpy_indexing import RIGHT, in_range, reading
from torchgrad_jax.declaration.operator import BoundOperator, Static, registry
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.reducing import summing
from torchgrad_jax.runtime.native.handlers import losses_of_classes
from torchgrad_jax.runtime.operation import Signature, signature, stand_in
from torchgrad_jax.runtime.value import Aval, aval_of

Array = np.ndarray


class Loss:
    """The form of a loss, of its operands, for a BoundOperator and what its operands are like; None where there is none.

    plain: the name of the operator that does the same without a check, where this one has one; outcome: of the operands, what that check tells.
    """

    def __init__(self, plain: str = "", outcome: Callable[..., Array] | None = None) -> None:
        self.plain, self.outcome = plain, outcome

    def of_each(self, bound: BoundOperator, specs: tuple[Any, ...]) -> Signature | None:
        """The loss of each element, where `bound` adds them up or averages them, or checks something besides; None if there is no such form."""
        if bound.statics.get("reduction") not in ("mean", "sum", *(("none",) if self.plain else ())):
            return None
        operator = registry[self.plain] if self.plain else bound.operator
        parameters = operator.schema.parameters
        layout = [Static("none") if p.name == "reduction" else item for p, item in zip(parameters, bound.layout, strict=True)]
        found = signature(operator.bind(tuple(layout), bound.device), specs)
        one_dtype = {s.dtype for s in (*specs, *found.avals) if isinstance(s, Aval)} == {found.avals[0].dtype}
        return found if one_dtype and found.avals[0].dtype.char in "fd" and getattr(found.baseline, "shape_free", False) else None

    def __call__(self, bound: BoundOperator, specs: tuple[Any, ...]) -> Forms | None:
        each = self.of_each(bound, specs)
        if each is None:
            return None
        plan, outcome, (aval,) = each.baseline, self.outcome, each.avals
        alone = bound.statics["reduction"] == "none"
        total = summing(tuple(range(len(aval.shape))), aval.dtype) if aval.shape and not alone else np.asarray
        count, like = _count(bound, aval.shape, aval.dtype), stand_in(aval.shape if alone else (), aval.dtype)

        def function(*arrays: Any) -> Any:
            found = total(plan(*arrays)[0])  # type: ignore[misc] - of_each saw that there is one
            found = found if count is None else found / count
            return found if outcome is None else (found, outcome(*arrays))

        steps: Any = None if outcome is not None else plan.as_steps(range(len(specs)))  # type: ignore[union-attr]
        if steps is not None:
            steps += [(total, (-len(steps),))] if aval.shape and not alone else []
            steps += [(np.true_divide, (-len(steps), np.asarray(count)))] if count is not None else []
        made = like if outcome is None else (like, stand_in((2,), np.dtype(np.int64)))
        return Forms(
            function, lambda *arrays: made, planned=steps is None, fused=lambda *arrays: plan.cost,  # type: ignore[union-attr]
            steps=None if steps is None else lambda *arrays: steps,
        )  # fmt: skip

    def vjp(self, bound: BoundOperator, specs: tuple[Any, ...], of_gradient: Callable[[Signature], Any]) -> Any:
        """The `numpy_form` of its backward operation. of_gradient: gives the backward operation of another Signature, and what that saves of it."""
        each = self.of_each(bound, specs)
        made = None if each is None else of_gradient(each)
        if each is None or made is None:
            return None
        back, saved = made
        (aval,) = each.avals
        # The same gradient for all elements is of no dimension.
        given = aval if bound.statics["reduction"] == "none" else aval_of((), aval.dtype, aval.device)
        plan: Any = signature(back, (given, *saved)).baseline
        count, like, results = _count(bound, aval.shape, aval.dtype), stand_in(aval.shape, aval.dtype), len(back.of_plan.inputs)

        def function(grad: Any, *arrays: Any) -> Any:
            found = plan(grad if count is None else grad / count, *arrays)
            return found[0] if len(found) == 1 else tuple(found)

        if plan is None:
            return None
        shared = [] if count is None else [(np.true_divide, (0, np.asarray(count)))]
        steps = plan.as_steps([-1 if shared else 0, *range(1, 1 + len(saved))], len(shared))
        known = Forms(
            function, lambda *arrays: like if results == 1 else (like,) * results, planned=steps is None, fused=lambda *arrays: plan.cost,
            steps=None if steps is None else lambda *arrays: [*shared, *steps],
        )  # fmt: skip
        return lambda taken: known if taken[0].shape == given.shape and taken[0].dtype == aval.dtype else None


form = Loss()


def _count(bound: BoundOperator, shape: tuple[int, ...], dtype: Any) -> Any:
    return dtype.type(math.prod(shape)) if bound.statics["reduction"] == "mean" else None


def without_zeros(plain: Signature) -> Forms | None:
    """The form of a division of integers that tells of divisors that are 0. plain: the division that does not."""
    plan, (aval,) = plain.baseline, plain.avals
    if any([not isinstance(s, Aval) or s.dtype != aval.dtype for s in plain.specs]) or not getattr(plan, "shape_free", False):
        return None

    def function(x: Array, y: Array) -> tuple[Array, Array]:
        zero = y == 0
        bad = zero.any()
        (found,) = plan(x, np.where(zero, y.dtype.type(1), y) if bad else y)  # type: ignore[misc] - it is no None
        return found, np.array([bad, 0], np.int64)

    like = stand_in(aval.shape, aval.dtype), stand_in((2,), np.dtype(np.int64))
    return Forms(function, lambda *arrays: like, True, fused=lambda *arrays: plan.cost)  # type: ignore[union-attr]


# ---------------------------------------------------------------------- the negative log likelihood


def _likelihood(x: Array, target: Array, weight: Array | None, ignore_index: Any, reduction: str) -> Array:
    found = None if weight is not None else _by_loop(x, target, ignore_index, reduction)
    return _one_by_one(x, target, weight, ignore_index, reduction) if found is None else found


def _likelihood_checked(x: Array, target: Array, weight: Array | None, ignore_index: Any, reduction: str) -> tuple[Array, Array]:
    found = None if weight is not None else _by_loop(x, target, ignore_index, reduction)  # which knows classes from other numbers
    return _LIKELIHOOD.function(x, target, weight, ignore_index, reduction=reduction) if found is None else (found, RIGHT)


def _by_loop(x: Array, target: Array, ignore_index: Any, reduction: str) -> Array | None:
    """The losses by a loop of C's; None where there is none, or one of the targets is no class."""
    if not (x.flags.c_contiguous and target.flags.c_contiguous):
        return None
    losses, count = losses_of_classes(x, target, int(ignore_index))
    return None if count < 0 else _reduced(losses, count, reduction)


def _one_by_one(x: Array, target: Array, weight: Array | None, ignore_index: Any, reduction: str) -> Array:
    kept = target != ignore_index
    count = np.count_nonzero(kept)
    whole = count == target.size
    places = target if whole else np.where(kept, target, 0)
    losses = x.reshape(-1).take(_in_row(places, x.shape))
    np.negative(losses, losses)
    if weight is not None:
        weights = weight.take(places, mode="clip")
        if not whole:
            weights[~kept] = 0
        losses *= weights
        count = np.add.reduce(weights, None)
    if not whole:
        losses[~kept] = 0
    return _reduced(losses, count, reduction)


def _reduced(losses: Array, count: Any, reduction: str) -> Array:
    if reduction == "none":
        return losses
    dtype = losses.dtype.type
    total = np.add.reduce(losses, None, initial=dtype(0))
    return np.asarray(total if reduction == "sum" else total / dtype(count) if count else dtype(np.nan))


@lru_cache(1024)
def _starts_of_rows(rows: int, columns: int) -> Array:
    return np.arange(rows) * columns


@lru_cache(256)
def _starts_of_images(samples: int, classes: int, pixels: int) -> Array:
    return (np.arange(samples)[:, None] * (classes * pixels) + np.arange(pixels)).reshape(-1)


# Starts of so many pixels are kept.
_MOST_STARTS = 1 << 16


def _in_row(classes: Array, shape: Shape) -> Array:
    """Where in the memory of (samples, classes, ...) the elements of these classes (samples, ...) are."""
    if len(shape) == 2:
        return classes + _starts_of_rows(*shape)
    samples, pixels = shape[0], classes.size // shape[0]
    make = _starts_of_images if classes.size <= _MOST_STARTS else _starts_of_images.__wrapped__
    return (classes * pixels).reshape(-1).__iadd__(make(samples, shape[1], pixels)).reshape(classes.shape)


def _likelihood_shape(x: Array, target: Array, weight: Array | None, ignore_index: Any, reduction: str) -> Shape | None:
    fits = x.ndim >= 2 and x.dtype.char in "fd" and target.dtype == np.int64 and target.size and x.size
    fits = fits and (weight is None or (weight.dtype == x.dtype and weight.shape == x.shape[1:2]))
    return None if not fits else target.shape if reduction == "none" else ()


def _are_classes(x: Array, target: Array, weight: Array | None, ignore_index: Any, reduction: str) -> bool:
    return in_range(target, x.shape[1]) or in_range(target[target != ignore_index], x.shape[1])


def _no_class(x: Array, target: Array, weight: Array | None, ignore_index: Any, reduction: str) -> Array:
    return np.array([1, target[((target < 0) | (target >= x.shape[1])) & (target != ignore_index)][0]], np.int64)


def _classes_clipped(x: Array, target: Array, weight: Array | None, ignore_index: Any, reduction: str) -> tuple[Any, ...]:
    return x, np.where(target == ignore_index, target, np.clip(target, 0, x.shape[1] - 1)), weight, ignore_index


nll_loss = reading(_likelihood, _likelihood_shape, picks=False)
_LIKELIHOOD = reading(_likelihood, _likelihood_shape, _are_classes, _no_class, _classes_clipped, False)
nll_loss_checked = _LIKELIHOOD._replace(function=_likelihood_checked)


def _likelihood_grad(grad: Array, aval: Aval, x: Array, target: Array, *others: Any, reduction: str) -> Array:
    weight, ignore_index = others if len(others) == 2 else (None, *others)
    found = np.zeros(x.shape, x.dtype)
    kept, each = target != ignore_index, None
    if weight is not None:
        each = weight.take(target, mode="clip")
        each[~kept] = 0
    if reduction == "mean":
        grad = np.true_divide(grad, np.add.reduce(each, None) if each is not None else x.dtype.type(np.count_nonzero(kept)))
    each = -grad if each is None else -grad * each
    whole = bool(np.logical_and.reduce(kept, None))
    if whole and in_range(target, x.shape[1]):
        found.reshape(-1)[_in_row(target, x.shape)] = each
        return found
    kept &= (target >= 0) & (target < x.shape[1])  # of others the checked twin tells
    found.reshape(-1)[_in_row(target, x.shape)[kept]] = each[kept] if each.ndim else each
    return found


def _likelihood_grad_result(grad: Array, aval: Aval, x: Array, target: Array, *others: Any, reduction: str) -> Array | None:
    weight = others[0] if len(others) == 2 else None
    fits = x.size and _likelihood_shape(x, target, weight, others[-1], reduction) is not None
    return stand_in(x.shape, x.dtype) if fits else None


nll_loss_vjp = Forms(_likelihood_grad, _likelihood_grad_result, True)


# ---------------------------------------------------------------------- margins between classes


def _outcome(target: Array, low: int, classes: int) -> Array:
    if in_range(target, classes, low):
        return RIGHT
    return np.array([1, target[(target < low) | (target >= classes)].reshape(-1)[0]], np.int64)


def _of_samples(losses: Array, shape: Shape, reduction: str) -> Array:
    losses /= losses.dtype.type(shape[-1] if shape else 1)
    return losses.reshape(shape[:-1]) if reduction == "none" else _reduced(losses, losses.size, reduction)


def _to_samples(grad: Array, count: int, classes: int, reduction: str) -> Array:
    grad = np.true_divide(grad, grad.dtype.type(count)) if reduction == "mean" else grad
    return np.broadcast_to(np.true_divide(grad, grad.dtype.type(classes)).reshape(-1, 1), (count, 1))


def _margin(x: Array, target: Array, margin: float) -> tuple[Array, Array, Array]:
    """How far each class of each sample is within the margin of the right one, which is at 0; the samples' numbers, and their classes."""
    rows, classes = x.reshape(-1, x.shape[-1] if x.ndim else 1), target.reshape(-1)
    if not in_range(classes, rows.shape[1]):
        classes = np.clip(classes, 0, rows.shape[1] - 1)
    samples = _starts_of_rows(len(rows), 1)
    within = (x.dtype.type(margin) - rows[samples, classes])[:, None] + rows
    np.fmax(within, 0, out=within)
    within[samples, classes] = 0
    return within, samples, classes


def _margins(x: Array, target: Array, weight: Array | None, p: float, margin: float, reduction: str) -> tuple[Array, Array]:
    within, _, classes = _margin(x, target, margin)
    if p != 1:
        within *= within
    if weight is not None:
        within *= weight.take(classes)[:, None]
    return _of_samples(np.add.reduce(within, 1), x.shape, reduction), _outcome(target, 0, x.shape[-1] if x.ndim else 1)


def _margins_result(x: Array, target: Array, weight: Array | None, p: float, margin: float, reduction: str) -> Any:
    fits = x.dtype.char in "fd" and x.size and target.dtype == np.int64 and target.size == (len(x) if x.ndim > 1 else 1)
    fits = fits and (weight is None or weight.dtype == x.dtype)
    return (stand_in(x.shape[:-1] if reduction == "none" else (), x.dtype), stand_in((2,), np.dtype(np.int64))) if fits else None


def _margins_grad(grad: Array, aval: Aval, x: Array, target: Array, *weight: Array, p: float, margin: float, reduction: str) -> Array:
    within, samples, classes = _margin(x, target, margin)
    found = (within > 0).astype(x.dtype) if p == 1 else within * x.dtype.type(2)
    found *= _to_samples(grad, len(found), found.shape[1], reduction)
    if weight:
        found *= weight[0].take(classes)[:, None]
    found[samples, classes] = -np.add.reduce(found, 1)
    return found.reshape(x.shape)


def _margins_grad_result(grad: Array, aval: Aval, x: Array, target: Array, *weight: Array, p: float, margin: float, reduction: str) -> Array | None:
    fits = len(weight) < 2 and grad.dtype == x.dtype and _margins_result(x, target, weight[0] if weight else None, p, margin, reduction) is not None
    return stand_in(x.shape, x.dtype) if fits else None


multi_margin_loss = Forms(_margins, _margins_result, True)
multi_margin_vjp = Forms(_margins_grad, _margins_grad_result, True)


def _pairs(x: Array, target: Array) -> tuple[Array, Array, Array, Array]:
    """Of each target before a sample's first -1 its sample, its class, and how far classes that are none are within its margin; and the rows."""
    rows, targets = [a.reshape(-1, a.shape[-1] if a.ndim else 1) for a in (x, target)]
    count = rows.shape[1]
    samples, places = np.logical_and.accumulate(targets >= 0, 1).nonzero()
    classes = np.minimum(targets[samples, places], count - 1)
    other = np.ones(rows.shape, x.dtype)
    other[samples, classes] = 0
    within = rows.take(samples, 0)
    within += (x.dtype.type(1) - rows[samples, classes])[:, None]
    np.fmax(within, 0, out=within)
    within *= other.take(samples, 0)
    return samples, classes, within, rows


def _multilabel(x: Array, target: Array, reduction: str) -> tuple[Array, Array]:
    samples, _, within, rows = _pairs(x, target)
    losses = np.bincount(samples, np.add.reduce(within, 1), len(rows)).astype(x.dtype)
    return _of_samples(losses, x.shape, reduction), _outcome(target, -1, rows.shape[1])


def _multilabel_result(x: Array, target: Array, reduction: str) -> Any:
    fits = x.dtype.char in "fd" and x.size and target.dtype == np.int64 and target.shape == x.shape
    return (stand_in(x.shape[:-1] if reduction == "none" else (), x.dtype), stand_in((2,), np.dtype(np.int64))) if fits else None


def _multilabel_grad(grad: Array, aval: Aval, x: Array, target: Array, reduction: str) -> Array:
    samples, classes, within, rows = _pairs(x, target)
    each = (within > 0).astype(x.dtype)
    found = np.zeros(rows.shape, x.dtype)
    if samples.size:
        begins = np.flatnonzero(np.concatenate([[True], samples[1:] != samples[:-1]]))
        found[samples[begins]] = np.add.reduceat(each, begins, 0)
    np.subtract.at(found, (samples, classes), np.add.reduce(each, 1))
    found *= _to_samples(grad, len(rows), rows.shape[1], reduction)
    return found.reshape(x.shape)


def _multilabel_grad_result(grad: Array, aval: Aval, x: Array, target: Array, reduction: str) -> Array | None:
    return stand_in(x.shape, x.dtype) if grad.dtype == x.dtype and _multilabel_result(x, target, reduction) is not None else None


multilabel_margin_loss = Forms(_multilabel, _multilabel_result, True)
multilabel_margin_vjp = Forms(_multilabel_grad, _multilabel_grad_result, True)
