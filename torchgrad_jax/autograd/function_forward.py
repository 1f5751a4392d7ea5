"""The forward derivative of a Function: its `jvp` called with the inputs' tangents, and what it may return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.duals import hold, keep_tangents_of_saved, set_tangent, without_duals, zeros_like
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.recorder import per_thread

NOT_INPLACE = (
    "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is modifying an input inplace, then the jvp "
    "function must modify the corresponding gradient inplace."
)
NOT_AS_IS = (
    "An inplace custom Function is not returning the forward mode gradients as-is. If the forward is modifying an input inplace, then the jvp "
    "function must modify the gradient inplace and return it as-is."
)
NO_VIEW = "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view."

NO_VIEW_OF_GIVEN = "A custom Function is returning a view but the jvp is not returning a view of the {}given grad input."
NOT_DIFFERENTIABLE = (
    "Function's jvp returned a gradient at position {}, but  the corresponding forward output is not a differentiable Tensor."
    "You should return None at that position instead."
)


def push_function(ctx: Any, args: Sequence[Any], found: Sequence[Any], outs: Sequence[Any], tangents: dict[int, Tensor]) -> None:
    """Give the results of a Function their tangents.

    found: what forward returned. outs: what became of that. tangents: those of the tensor inputs, by their place among these. RuntimeError with
    PyTorch's text where jvp returns what does not fit.
    """
    made, given, versions = _call_jvp(ctx, args, tangents)
    if len(made) != len(outs):
        raise RuntimeError(f"Function's jvp returned an invalid number of forward gradients (expected {len(outs)} but got {len(made)})")
    dirty, constant = ({id(t) for t in marked or ()} for marked in (ctx.dirty_tensors, ctx.non_differentiable))
    by_input = {id(t): g for t, g in given}
    for i, (out, raw, tangent) in enumerate(zip(outs, found, made, strict=True)):
        if tangent is not None and not isinstance(tangent, Tensor):
            raise RuntimeError(f"expected Variable or None (got {type(tangent).__name__}) for grad output {i}.")
        if not isinstance(out, Tensor):
            continue
        if id(raw) in constant or not dtypes.is_float(out._aval.dtype):
            if tangent is not None:
                raise RuntimeError(NOT_DIFFERENTIABLE.format(i))
        elif id(raw) in dirty:
            if tangent is None or tangent._version == versions.get(id(raw)):
                raise RuntimeError(NOT_INPLACE)
            if tangent is not by_input.get(id(raw)):
                raise RuntimeError(NOT_AS_IS)
            hold(out, tangent)
        elif tangent is None or not dtypes.is_float(tangent._aval.dtype):
            raise RuntimeError("Expected both tensor and its forward grad to be floating point or complex")
        else:
            source = by_input[id(raw)] if id(raw) in by_input else _tangent_for_memory(out, args, tangents) if out._is_view() else None
            if source is not None:
                _check_view(tangent, source)
            set_tangent(out, tangent)
    ctx._recorded_saved = keep_tangents_of_saved(ctx._recorded_saved or (), ctx.to_save or ())


def _tangent_for_memory(out: Tensor, args: Sequence[Any], tangents: dict[int, Tensor]) -> Tensor | None:
    """The tangent of the input that a result is a view of; None where that has none, and where it is a view of no input."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    return next((tangents.get(i) for i, t in enumerate(tensors) if t._storage is out._storage), None)


def _check_view(tangent: Tensor, source: Tensor) -> None:
    """RuntimeError where a tangent is no view of the tangent `source`, or of what that is a view of."""
    if not tangent._is_view():
        raise RuntimeError(NO_VIEW)
    if tangent._storage is not source._storage:
        raise RuntimeError(NO_VIEW_OF_GIVEN.format("same base as the " if source._is_view() else ""))


def _call_jvp(
    ctx: Any, args: Sequence[Any], tangents: dict[int, Tensor]
) -> tuple[tuple[Any, ...], list[tuple[Tensor, Tensor | None]], dict[int, int]]:
    """What jvp returned, what it was given for each tensor among the arguments, and the versions that these tangents had, by the tensor's id."""
    given: list[tuple[Any, Tensor | None]] = []
    tensors = 0
    for a in args:
        tangent = None
        if isinstance(a, Tensor):
            tangent = tangents.get(tensors)
            tensors += 1
            if tangent is None and ctx.materialize_grads and dtypes.is_float(a._aval.dtype):
                tangent = zeros_like(a)
        given.append((a, tangent))
    versions = {id(a): g._version for a, g in given if g is not None}
    with without_duals(per_thread.recorder):
        made = ctx.apply_jvp(*[g for _, g in given])
    return made if isinstance(made, tuple) else (made,), [(a, g) for a, g in given if isinstance(a, Tensor)], versions
