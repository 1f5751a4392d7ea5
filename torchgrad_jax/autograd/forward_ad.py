"""`torch.autograd.forward_ad`: derivatives computed along with the values, by dual tensors."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from torchgrad_jax.autograd.grad_mode import Mode
from torchgrad_jax.calling.kinds import type_name
from torchgrad_jax.calling.overrides import Public, guard
from torchgrad_jax.core.duals import Level, seen_tangent, set_tangent, tangent_of, without_duals
from torchgrad_jax.core.op_node import OpNode, node_class
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.tracked_view import PrimalView
from torchgrad_jax.core.viewing import viewed
from torchgrad_jax.runtime.recorder import Recorder, per_thread

__all__ = ["UnpackedDualTensor", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual", "dual_level"]

# The level that is open, -1 while none is. There is one at most, and its tensors carry tangents in the thread that opened it.
_current_level = -1


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns: the value, and the derivative in one direction (None where there is none)."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Open a dual level and return its number. RuntimeError where one is open: they do not nest."""
    global _current_level
    rec = per_thread.recorder
    if _current_level >= 0 or rec.flags.dual_level is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    if rec.level is not None:
        rec.level.refuses("forward mode")
    outer, rare = rec.level, rec.rare
    try:
        rec.level = rec.flags.dual_level = Level(outer)
        rec.rare += 1
        _current_level = 0
        return _current_level
    except BaseException:  # an interrupt: it is open or not
        rec.level, rec.flags.dual_level, rec.rare, _current_level = outer, None, rare, -1
        raise


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the dual level: all its tangents are gone. RuntimeError where `level` is not the one that is open."""
    global _current_level
    number = _current_level if level is None else level
    if number != _current_level:
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not supported.")
    if number < 0:
        raise RuntimeError("Dual level must be a positive number.")
    rec = _opener()
    opened, rare = rec.flags.dual_level, rec.rare - 1
    try:
        opened.close()
        rec.flags.dual_level, rec.level, rec.rare, _current_level = None, opened.outer, rare, -1
    except BaseException:  # an interrupt: it is closed nevertheless
        rec.flags.dual_level, rec.level, rec.rare, _current_level = None, opened.outer, rare, -1
        raise


def _opener() -> Recorder:
    """This thread's recorder. RuntimeError where another thread opened the level: its tangents are not seen here."""
    rec = per_thread.recorder
    if rec.flags.dual_level is None:
        raise RuntimeError(
            "The forward AD level was opened by another thread, and tensors carry tangents in that thread alone: open one here after it is closed."
        )
    return rec


def make_dual_plainly(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of `tensor` that has a tangent: `tangent` itself, or a copy where its strides are others.

    tensor, tangent: of the same shape, floating point or complex. RuntimeError where no level is open, `tensor` is dual already, or the shapes
    differ; ValueError for other dtypes.
    """
    number = _current_level if level is None else level
    if number < 0:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )  # fmt: skip
    for what, t in (("primal", tensor), ("tangent", tangent)):
        if not (t.is_floating_point() or t.is_complex()):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {t.dtype}")
    if number != _current_level:
        raise RuntimeError(
            "Invalid level given to _make_dual"
            if number
            else "Trying to access a forward AD level with an invalid index. This index was either not created or is already deleted."
        )
    rec = _opener()
    if tangent_of(tensor) is not None:
        raise RuntimeError(f"Making a dual Tensor based on a Tensor that already has a forward gradient at the same level {number} is not supported.")
    with without_duals(rec):
        dual = viewed("view", tensor, tuple(tensor._aval.shape))
    if not rec.inference:
        set_tangent(dual, tangent)
    return dual


def unpack_dual_plainly(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value of a dual tensor, a view of it that has no tangent, and its tangent."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"_unpack_dual(): argument 'dual' (position 1) must be Tensor, not {type_name(tensor)}")
    number = _current_level if level is None else level
    if number < 0:
        return UnpackedDualTensor(tensor, None)
    if number > max(_current_level, 0) and tangent_of(tensor) is not None:
        raise RuntimeError("Invalid level given to _fw_primal")
    with without_duals(per_thread.recorder):
        primal = viewed("alias", tensor)
    view = primal._view
    if view is not None and view.base is not None:
        storage: Any = primal._storage
        primal._view = PrimalView(view.base, view.links, view.skip, storage, view.strides, view.offset, view.made_in)
        primal._view.source = None
    node = primal._node
    if isinstance(node, OpNode):
        node.plan = copy.copy(node.plan)
        node.plan.name = "torch::autograd::Identity"
        node.__class__ = node_class("Identity")
    return UnpackedDualTensor(primal, seen_tangent(tensor))


make_dual = guard(make_dual_plainly, Public("torch.autograd.forward_ad.make_dual", in_python=True))
unpack_dual = guard(unpack_dual_plainly, Public("torch.autograd.forward_ad.unpack_dual", in_python=True))


class dual_level(Mode):
    """Opens a dual level for a block, or for a decorated function."""

    def __enter__(self) -> int:  # type: ignore[override]
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        opened = per_thread.recorder.flags.dual_level
        try:
            exit_dual_level()
        except BaseException:
            if opened is not None and per_thread.recorder.flags.dual_level is opened:  # an interrupt came before it was closed
                exit_dual_level()
            raise


# ---------------------------------------------------------------------- whether tangents are passed on


def _is_fwd_grad_enabled() -> bool:
    """Whether operations in this thread pass tangents on."""
    return per_thread.recorder.flags.forward_grad


class _set_fwd_grad_enabled(Mode):
    """Whether operations pass tangents on, from the call on, and until the end of the block where it opens one."""

    def __init__(self, mode: bool) -> None:
        self.mode, self.prev = mode, _is_fwd_grad_enabled()
        per_thread.recorder.flags.forward_grad = mode

    def clone(self) -> Any:
        """See Mode."""
        return type(self)(self.mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        per_thread.recorder.flags.forward_grad = self.prev
