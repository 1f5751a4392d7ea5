"""The level of forward mode: its tensors carry tangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core import duals
from torchgrad_jax.core.duals import seen_tangent, set_tangent
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.level import Level
from torchgrad_jax.memory.storage import Link
from torchgrad_jax.runtime.recorder import Recorder


class ForwardLevel(Level):
    """See the module. pushing: what carries out operations of which an operand has a tangent."""

    __slots__ = ("pushing",)

    def __init__(self) -> None:
        super().__init__()
        self.pushing = duals.Level()

    def opened(self, rec: Recorder) -> None:
        """See Level."""
        rec.flags.dual_level, rec.flags.forward_grad, rec.flags.suspended = self.pushing, True, None

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Interpreter."""
        found = super().apply(bound, operands)
        return self.pushing.apply(bound, operands) if found is NotImplemented else found

    def apply_inplace(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """See Interpreter."""
        found = super().apply_inplace(bound, operands)
        return self.pushing.apply_inplace(bound, operands) if found is NotImplemented else found

    def view_made(self, t: Tensor, out: Tensor, links: tuple[Link, ...], strides: tuple[int, ...], offset: int) -> None:
        """See Interpreter."""
        if self.owns(t):
            self.pushing.view_made(t, out, links, strides, offset)
        else:
            super().view_made(t, out, links, strides, offset)

    def dual(self, primal: Tensor, tangent: Tensor) -> Tensor:
        """A tensor of this level that has a tangent. RuntimeError where shapes differ."""
        t = self.argument(self.lift(primal), primal)
        set_tangent(t, self.lift(tangent))
        return t

    def unpack(self, t: Tensor) -> tuple[Tensor, Tensor | None]:
        """The tensors of the level outside that `t` and its tangent are; None where it has none."""
        tangent = seen_tangent(t) if self.owns(t) else None
        return self.unwrap(t), None if tangent is None else self.unwrap(tangent)


def forward_level() -> ForwardLevel:
    """Opens a level of forward mode for a block."""
    return ForwardLevel()
