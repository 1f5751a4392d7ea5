"""What becomes of a tensor that was kept from inside of a transform: the tensor that it held there."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.dispatch import apply, settled
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import viewed
from torchgrad_jax.core.writing import make_view
from torchgrad_jax.runtime.recorder import per_thread


def settle(t: Tensor, held: Tensor) -> None:
    """Let `t`, whose level was left, be a view of `held`, the tensor that it stands for, with its graph and on its memory. If it was a view inside it
    is one of what its base becomes, which both go on to share."""
    rec = per_thread.recorder
    recording = rec.grad_enabled
    rec.grad_enabled = True  # what it was made of does not depend on where it is first used again
    try:
        made = _again(t) if t._view is not None and t._view.base is not None else viewed("alias", held)
    finally:
        rec.grad_enabled = recording
    t._value, t._storage, t._view, t._node, t._nr, t._rg = made._value, made._storage, made._view, made._node, made._nr, made._rg


def _again(t: Tensor) -> Tensor:
    """The view that `t` is, of its base outside."""
    view: Any = t._view
    base, out = view.base, view.base
    settled((base,))
    for link in view.links:
        out = apply(link.read, (out, *link.numbers))
    begin = 0 if base._view is None else base._offset()
    return make_view(per_thread.recorder, base, out, view.links, view.strides, begin + view.offset, "default")
