"""The socket of what carries out operations otherwise than by recording them: forward mode, and function transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.memory.storage import Link


class Interpreter:
    """What `Recorder.level` holds while it is active; `Recorder.rare` counts it. Dispatch asks it first, and goes on where it answers NotImplemented.

    An interpreter that itself calls operations puts another in its place meanwhile, the one outside of it or None.
    """

    __slots__ = ()
    # Whether it is one of a function that is transformed: some of what PyTorch has is refused there.
    transforms = False

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """The results of an operation: a Tensor, or a tuple of them."""
        return NotImplemented

    def apply_inplace(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """The first operand, after the operation's result was written into it."""
        return NotImplemented

    def view_made(self, t: Any, out: Any, links: tuple[Link, ...], strides: tuple[int, ...], offset: int) -> None:
        """`out` was just computed from `t` by `links`, and is about to become a view of it."""

    def created(self, t: Any) -> None:
        """`t` was just made from no operand that is recorded."""
