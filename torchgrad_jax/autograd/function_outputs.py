"""What the results of a Function's `forward` become: new tensors of its node, views of its inputs, inputs written to, or constants."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.history import rebase
from torchgrad_jax.core.made import detached
from torchgrad_jax.core.node import Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.tracked_view import raise_by_origin
from torchgrad_jax.core.viewing import viewed
from torchgrad_jax.core.writing import LEAF_USED, VIEW_OF_LEAF
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.recorder import per_thread

DIRTY_NOT_RETURNED = (
    "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified inplace must all be "
    "outputs of the Function."
)
DIRTY_VIEW_AND_MORE = (
    "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one Tensor. This is not "
    "supported by the current autograd engine. You should either make sure the input is not a view (using .clone() for example) or make your "
    "Function only return one Tensor (potentially splitting it into two Functions: one doing the inplace that returns a single Tensor and a second "
    "one that does the other operations). You can ask on the forum https://discuss.pytorch.org/ if you need help to do this change."
)
DIRTY_NO_INPUT = (
    "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated should be passed to ctx.mark_dirty()."
)


class Marks:
    """What forward was given and what it said of its tensors, by identity: the tensors are held, so that no identity is used twice."""

    __slots__ = ("inputs", "dirty", "constant")

    def __init__(self, inputs: Sequence[Tensor], dirty: Any, constant: Any) -> None:
        dirty = _tensors("mark_dirty can only accept variables, but argument ", dirty)
        constant = _tensors("mark_non_differentiable only accepts variable arguments, but got ", constant)
        self.inputs, self.dirty, self.constant = ({id(t): t for t in group} for group in (inputs, dirty, constant))


def _tensors(complaint: str, marked: Any) -> tuple[Tensor, ...]:
    found = () if marked is None else tuple(marked)
    if not all(isinstance(t, Tensor) for t in found):
        raise RuntimeError(complaint)
    return found


def settle_outputs(node: Node, found: Sequence[Any], marks: Marks, differentiable: bool) -> tuple[list[Any], tuple[bool, ...]]:
    """The results that the user gets, and which of them carry a gradient to `node`.

    RuntimeError with PyTorch's text where an input was written to that may not be.
    """
    for t in marks.dirty.values():
        count_write(t)
        if differentiable and id(t) not in marks.inputs:
            warnings.warn(DIRTY_NO_INPUT, UserWarning, stacklevel=3)
    returned = {id(out) for out in found}
    if any(i not in returned for i in marks.dirty):
        raise RuntimeError(DIRTY_NOT_RETURNED)
    carries = tuple([
        differentiable and isinstance(out, Tensor) and id(out) not in marks.constant and dtypes.is_float(out._aval.dtype)
        for out in found
    ])  # fmt: skip
    made_in = "custom" if carries.count(True) < 2 else node.name()
    outs = []
    for i, out in enumerate(found):
        if isinstance(out, Tensor):
            if not carries[i]:
                out = _constant(out, marks)
            elif id(out) in marks.dirty:
                _check_written(out, len(found))
                rebase(out, node, i)
            else:
                if id(out) in marks.inputs:
                    out = viewed("alias", out)
                out._rg, out._node, out._nr = True, node, i
            view = out._view
            if view is not None and id(out) not in marks.dirty:
                assert out._storage is not None
                view.made_in, view.node_seen = made_in if carries[i] else "custom", out._storage.counter.version
        outs.append(out)
    return outs, carries


def _constant(out: Tensor, marks: Marks) -> Tensor:
    """An output that carries no gradient."""
    is_input = id(out) in marks.inputs
    if out.requires_grad:
        if is_input:
            return detached(out)
        out._rg, out._node, out._nr = False, None, 0
    elif is_input and id(out) not in marks.dirty:
        return viewed("alias", out)
    return out


def count_write(t: Tensor) -> None:
    """Count a tensor's version up: to be marked dirty is to be written to."""
    storage = t._shared()
    storage.write(per_thread.recorder.alias(storage.value))


def _check_written(t: Tensor, outputs: int) -> None:
    """Refuse a dirty input whose history cannot be rewritten. RuntimeError."""
    view = t._view
    if view is not None and view.base is not None and not (view.made_in == "no_grad" and t._node is None):
        if outputs > 1:
            raise RuntimeError(DIRTY_VIEW_AND_MORE)
        if view.made_in != "default":
            raise_by_origin(t, view, "is being modified inplace")
        if view.base._rg and view.base._node is None:
            raise RuntimeError(VIEW_OF_LEAF)
    elif t.requires_grad and t._node is None:
        raise RuntimeError(LEAF_USED)
