"""`is_grads_batched`: many backward passes over one graph at once.

A graph of operators is one function of the gradients and of what the nodes saved: that function is mapped over the gradients by `jax.vmap`, and
recorded as one operation. A graph with the user's Python in it, and a pass of which a graph is made, is walked once within a level of vmap, so that
each hook sees a gradient of the ordinary shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from torchgrad_jax.autograd import tape
from torchgrad_jax.autograd.engine import rehearse
from torchgrad_jax.core.made import fresh
from torchgrad_jax.core.node import AccumulateGrad, Edge
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.operation import ArgSpec, Signature
from torchgrad_jax.runtime.recorder import per_thread, record
from torchgrad_jax.runtime.recording.epoch import Epoch
from torchgrad_jax.runtime.value import Aval, Value, aval_of

MAX_KEPT = 256
_kept: dict[Any, BatchedTape] = {}


class Levels:
    """How the user's Python runs for a batch. The module that does it by levels puts its functions here; see `lifting/basis.py`."""

    __slots__ = ("pull", "push", "mapped", "transform")
    pull: Callable[..., list[Tensor | None]]
    push: Callable[..., list[tuple[Aval, Tensor | None]]]
    mapped: Callable[..., list[Tensor]]
    transform: Callable[..., Callable[..., Any]]


levels = Levels()


def run_batched(
    roots: Sequence[Edge], grads: Sequence[Tensor], *, retain_graph: bool, create_graph: bool, captures: Sequence[Edge], accumulate: bool
) -> list[Tensor | None]:
    """`run_backward` for gradients whose first dimension is a batch; so is the results'. ValueError where their sizes differ."""
    size = _batch_size(grads)
    found = None if create_graph else _as_operation(roots, grads, captures, retain_graph)
    if found is not None:
        return found
    return levels.pull(roots, grads, size, retain_graph=retain_graph, create_graph=create_graph, captures=captures, accumulate=accumulate)


def _batch_size(grads: Sequence[Tensor]) -> int:
    for g in grads:
        if not g._aval.ndim:
            raise ValueError(
                "vmap(vjp, in_dims=0, ...)(<inputs>): Got in_dim=0 for some input, but that input is a Tensor of dimensionality 0 so expected "
                "in_dim to satisfy 0 <= in_dim < 0."
            )
    sizes = [g._aval.shape[0] for g in grads]
    if len(set(sizes)) > 1:
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped dimension")
    return sizes[0] if sizes else 0


# ---------------------------------------------------------------------- as one operation


class BatchedTape:
    """A Tape mapped over its first operands, the gradients: a BoundOp."""

    __slots__ = ("name", "device", "signatures", "differentiable", "tape", "grads")

    def __init__(self, whole: tape.Tape, grads: frozenset[int]) -> None:
        self.name, self.differentiable = "batched_backward", False
        self.device: device | None = None
        self.signatures: dict[tuple[ArgSpec, ...], Signature] = {}
        self.tape, self.grads = whole, grads

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""
        axes = tuple(0 if i in self.grads else None for i in range(len(specs)))
        return jax.vmap(self.tape.specialize(specs), in_axes=axes)

    def check(self, specs: Sequence[ArgSpec]) -> None:
        """Backward operations check nothing of their own."""


def _as_operation(roots: Sequence[Edge], grads: Sequence[Tensor], captures: Sequence[Edge], retain_graph: bool) -> list[Tensor | None] | None:
    """The pass as one recorded operation; None where the user's Python must run."""
    if not without_hooks(captures):
        return None
    singles = [standing_for(g._aval.shape[1:], g._aval) for g in grads]
    print_ = tape.fingerprint(roots, singles, captures, False)
    if print_ is None:
        return None
    places = [next(i for i, o in enumerate(print_.operands) if o is single) for single in singles]
    found = _kept.get(print_.key)
    if found is None:
        if len(_kept) >= MAX_KEPT:
            _kept.clear()
        found = _kept[print_.key] = BatchedTape(rehearse(print_, roots, singles, captures), frozenset(places))
    operands = list(print_.operands)
    for place, g in zip(places, grads, strict=True):
        operands[place] = g._read()
    outs: Any = record(per_thread.recorder, found, tuple(operands)) if found.tape.targets else ()
    nodes = list(print_.index)
    reached = {(nodes[i], nr): g for (i, nr), g in zip(found.tape.targets, outs if type(outs) is tuple else (outs,), strict=True)}
    if not retain_graph:
        for i in found.tape.runs:
            nodes[i].release()
    return [None if (g := reached.get(edge)) is None else fresh(per_thread.recorder, per_thread.recorder.alias(g)) for edge in captures]


def without_hooks(captures: Sequence[Edge]) -> bool:
    """Whether no leaf among these has a hook on its gradient, which nothing else of the graph tells."""
    for node, _ in captures:
        if type(node) is AccumulateGrad:
            extra = node.variable._extra
            if extra is not None and extra.hooks:
                return False
    return True


def standing_for(shape: tuple[int, ...], like: Aval) -> Value:
    """Stands for one gradient of a batch, of the dtype and on the device of `like`: it has no content and is never computed."""
    value = Value()
    value.aval, value.array, value.slot, value.epoch = aval_of(shape, like.dtype, like.device), None, 0, Epoch(None)
    value.counter, value.version = None, 0
    return value
