"""What a thread's modes are, beside those that every operation asks for, which are the Recorder's own."""

from __future__ import annotations

from typing import Any


class Flags:
    """One thread's settings and what is under way in it, for the layers above.

    task: the backward pass that is running. evaluating: in anomaly mode, its node that is running. packing: the pairs of saved-tensor hooks that are
    active, innermost last. packing_refused: why none may be made active; None where they may. mutation: whether writes to saved tensors are allowed.
    multithreading: whether backward may use threads. view_replay: whether views get their grad_fn anew by their operations done again. grad_layout:
    whether a first gradient gets its leaf's order. grad_in_inference: the grad mode that the user sees in inference mode.
    around_inference: whether inference mode is on outside of the transform that left it. dual_level: the level of
    forward mode that is open. forward_grad: whether the user has its tangents passed on. suspended: `Recorder.level` and `forward_grad` as the user
    has them, while the library has put them aside.
    watch: what sees the operations of this thread, a profile or the like. autocast: the thread's settings of it; None until there are any. casting:
    the same while autocast is on, None while it is off. casts: the conversions of leaves that it keeps.
    """

    __slots__ = (
        "task", "evaluating", "packing", "packing_refused", "mutation", "multithreading", "view_replay", "grad_layout", "grad_in_inference",
        "around_inference", "dual_level", "forward_grad", "suspended", "watch", "autocast", "casting", "casts",
    )  # fmt: skip

    def __init__(self) -> None:
        self.task: Any = None
        self.evaluating: Any = None
        self.packing: list[Any] = []
        self.packing_refused: str | None = None
        self.mutation = self.view_replay = self.grad_in_inference = self.around_inference = False
        self.multithreading = self.grad_layout = self.forward_grad = True
        self.dual_level: Any = None
        self.watch: Any = None
        self.autocast: Any = None
        self.casting: Any = None
        self.casts: dict[int, Any] = {}
        self.suspended: tuple[Any, bool] | None = None
