"""The socket of what carries out operations otherwise than by recording them: forward mode, and function transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.memory.storage import Link
from torchgrad_jax.runtime.recorder import per_thread


class Interpreter:
    """What `Recorder.level` holds while it is active; `Recorder.rare` counts it. Dispatch asks it first, and goes on where it answers NotImplemented.

    An interpreter that itself calls operations puts another in its place meanwhile, the one outside of it or None.
    """

    __slots__ = ()

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """The results of an operation: a Tensor, or a tuple of them."""
        return NotImplemented

    def apply_inplace(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """The first operand, after the operation's result was written into it."""
        return NotImplemented

    def view_made(self, t: Any, out: Any, links: tuple[Link, ...], strides: tuple[int, ...], offset: int) -> None:
        """`out` was just computed from `t` by `links`, and is about to become a view of it."""

    def meets(self, t: Any, grad: str = "") -> None:
        """A tensor is about to be read or changed otherwise than by an operation. grad: "read" or "written", where it is its `.grad`."""

    def applied(self, outs: Any, node: Any) -> None:
        """An operation on tensors was recorded, with this node or None."""

    def departs(self) -> None:
        """Something is about to be done that makes gradients others than those of the operations: a Function of the user's, or a hook."""

    def twin_made(self, t: Any) -> None:
        """`t` was just made on the memory of another tensor."""

    def refuses(self, what: str) -> None:
        """`what` is about to begin, of which an interpreter may say that it cannot go together with it."""

    def draws(self, make: Callable[[], Any]) -> Any:
        """What `make` draws at random on the host."""
        return make()

    def drew(self, value: Any, make: Callable[[], Any]) -> None:
        """`value` holds what `draws` gave for `make`."""


def meet(t: Any, grad: str = "") -> None:
    """Tell what carries out operations of a tensor that is about to be read or changed otherwise; see `Interpreter.meets`."""
    level = per_thread.recorder.level
    if level is not None:
        level.meets(t, grad)
