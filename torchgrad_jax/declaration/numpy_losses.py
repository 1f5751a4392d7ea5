"""Losses that are added up, averaged or checked, element by element, and divisions that are checked: their forms on NumPy arrays.

What they are of each element is the same operator's with `reduction="none"`, which vectors tell for all shapes. Else each size would be traced anew,
as a mean knows how many elements there are: that takes 0.5 to 2 ms, and the last batch of a dataset is a smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.declaration.operator import BoundOperator, Static, registry
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.reducing import summing
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
