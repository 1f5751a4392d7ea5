"""Losses that are added up, or averaged, element by element: their forms on NumPy arrays.

What they are of each element is the same operator's with `reduction="none"`, which vectors tell for all shapes. Else each size would be traced anew,
as a mean knows how many elements there are: that takes 0.5 to 2 ms, and the last batch of a dataset is a smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.declaration.operator import BoundOperator, Static
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.reducing import summing
from torchgrad_jax.runtime.operation import Signature, signature, stand_in
from torchgrad_jax.runtime.value import Aval, aval_of


def of_each(bound: BoundOperator, specs: tuple[Any, ...]) -> Signature | None:
    """The loss of each element, where `bound` adds them up or averages them; None where it does not, or there is no such form."""
    if bound.statics.get("reduction") not in ("mean", "sum"):
        return None
    parameters = bound.operator.schema.parameters
    layout = [Static("none") if p.name == "reduction" else item for p, item in zip(parameters, bound.layout, strict=True)]
    found = signature(bound.operator.bind(tuple(layout), bound.device), specs)
    one_dtype = {s.dtype for s in (*specs, *found.avals) if isinstance(s, Aval)} == {found.avals[0].dtype}
    return found if one_dtype and found.avals[0].dtype.char in "fd" and getattr(found.baseline, "shape_free", False) else None


def form(bound: BoundOperator, specs: tuple[Any, ...]) -> Forms | None:
    """The form of a loss, of its operands."""
    each = of_each(bound, specs)
    if each is None:
        return None
    plan: Any = each.baseline
    shape, dtype = each.avals[0].shape, each.avals[0].dtype
    total, count = summing(tuple(range(len(shape))), dtype) if shape else np.asarray, _count(bound, shape, dtype)

    def function(*arrays: Any) -> Any:
        found = total(plan(*arrays)[0])
        return found if count is None else found / count

    return Forms(function, lambda *arrays: stand_in((), dtype), planned=True)


def vjp_form(bound: BoundOperator, specs: tuple[Any, ...], of_gradient: Callable[[Signature], Any]) -> Any:
    """The `numpy_form` of a loss's backward operation. of_gradient: gives the backward operation of another Signature, and what that saves of it."""
    each = of_each(bound, specs)
    made = None if each is None else of_gradient(each)
    if each is None or made is None:
        return None
    back, saved = made
    shape, dtype = each.avals[0].shape, each.avals[0].dtype
    # The same gradient for all elements is of no dimension.
    plan: Any = signature(back, (aval_of((), dtype, each.avals[0].device), *saved)).baseline
    count = _count(bound, shape, dtype)

    def function(grad: Any, *given: Any) -> Any:
        found = plan(grad if count is None else grad / count, *given)
        return found[0] if len(found) == 1 else tuple(found)

    results = len(back.of_plan.inputs)

    def result(grad: Any, *given: Any) -> Any:
        return stand_in(shape, dtype) if results == 1 else (stand_in(shape, dtype),) * results

    known = Forms(function, result, planned=True)
    return (lambda taken: known if taken[0].shape == () and taken[0].dtype == dtype else None) if plan is not None else None


def _count(bound: BoundOperator, shape: tuple[int, ...], dtype: Any) -> Any:
    return dtype.type(math.prod(shape)) if bound.statics["reduction"] == "mean" else None
