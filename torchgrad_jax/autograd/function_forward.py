"""The forward derivative of a Function: its `jvp` called with the inputs' tangents, and what it may return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.ops import dtypes
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.tensor.duals import hold, keep_tangents_of_saved, set_tangent, without_duals, zeros_like
from torchgrad_jax.tensor.tensor import Tensor

NOT_INPLACE = (
    "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is modifying an input inplace, then the jvp "
    "function must modify the corresponding gradient inplace."
)
NO_VIEW = "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view."


def push_function(ctx: Any, args: Sequence[Any], found: Sequence[Any], outs: Sequence[Any], tangents: dict[int, Tensor]) -> None:
    """Give the results of a Function their tangents.

    found: what forward returned. outs: what became of that. tangents: those of the tensor inputs, by their place among these. RuntimeError with
    PyTorch's text where jvp returns what does not fit.
    """
    inputs = [a for a in args if isinstance(a, Tensor)]
    made = _call_jvp(ctx, args, inputs, tangents)
    if len(made) != len(outs):
        raise RuntimeError(f"Function's jvp returned an invalid number of forward gradients (expected {len(outs)} but got {len(made)})")
    dirty = {id(t) for t in ctx.dirty_tensors or ()}
    by_input = {id(t): tangents.get(i) for i, t in enumerate(inputs)}
    for i, (out, raw, tangent) in enumerate(zip(outs, found, made, strict=True)):
        if tangent is not None and not isinstance(tangent, Tensor):
            raise RuntimeError(f"expected Variable or None (got {type(tangent).__name__}) for grad output {i}.")
        if not isinstance(out, Tensor) or not dtypes.is_float(out._aval.dtype):
            continue
        if tangent is None or not dtypes.is_float(tangent._aval.dtype):
            raise RuntimeError("Expected both tensor and its forward grad to be floating point or complex")
        if id(raw) in dirty:
            if tangent is not by_input.get(id(raw)):
                raise RuntimeError(NOT_INPLACE)
            hold(out, tangent)
        elif id(raw) in by_input or out._is_view():
            if not _is_view_of(tangent, by_input.values()):
                raise RuntimeError(NO_VIEW)
            hold(out, tangent)
        else:
            set_tangent(out, tangent)
    ctx._saved = keep_tangents_of_saved(ctx._saved or (), ctx.to_save or ())


def _is_view_of(tangent: Tensor, sources: Any) -> bool:
    """Whether a tangent is a view of one of the inputs' tangents."""
    return tangent._is_view() and any(s is not None and s._storage is tangent._storage for s in sources)


def _call_jvp(ctx: Any, args: Sequence[Any], inputs: Sequence[Tensor], tangents: dict[int, Tensor]) -> tuple[Any, ...]:
    rec = per_thread.recorder
    places = {id(t): i for i, t in enumerate(inputs)}
    given: list[Any] = []
    for a in args:
        if not isinstance(a, Tensor):
            given.append(None)
        elif (tangent := tangents.get(places[id(a)])) is not None or not ctx.materialize_grads:
            given.append(tangent)
        else:
            given.append(zeros_like(a))
    with without_duals(rec):
        made = ctx.apply_jvp(*given)
    return made if isinstance(made, tuple) else (made,)
