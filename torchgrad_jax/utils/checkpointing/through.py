"""Interpreters that look at operations and let them be carried out as they are outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.level import Interpreter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import apply_inplace
from torchgrad_jax.declaration.operator import BoundOperator
from torchgrad_jax.memory.storage import Link
from torchgrad_jax.runtime.recorder import per_thread


class Through(Interpreter):
    """A context manager within which it is asked first. `outer` is the interpreter around it."""

    __slots__ = ("outer",)

    def __enter__(self) -> Any:
        rec = per_thread.recorder
        self.outer = rec.level
        rec.level = self
        rec.rare += 1
        return self

    def __exit__(self, *exc: object) -> None:
        rec = per_thread.recorder
        rec.level = self.outer
        rec.rare -= 1

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Interpreter."""
        return self.outside(bound, operands)

    def apply_inplace(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """See Interpreter."""
        return self.write_outside(bound, operands)

    def outside(self, bound: Any, operands: Sequence[Any]) -> Any:
        """The results of an operation as it is carried out around this interpreter."""
        rec = per_thread.recorder
        rec.level = self.outer
        try:
            return apply(bound, operands)
        finally:
            rec.level = self

    def write_outside(self, bound: Any, operands: tuple[Any, ...]) -> Tensor:
        """An operation whose result goes into its first operand, as it is carried out around this interpreter."""
        rec = per_thread.recorder
        rec.level = self.outer
        try:
            return apply_inplace(bound, operands)
        finally:
            rec.level = self

    def view_made(self, t: Any, out: Any, links: tuple[Link, ...], strides: tuple[int, ...], offset: int) -> None:
        """See Interpreter."""
        if self.outer is not None:
            self.outer.view_made(t, out, links, strides, offset)


def is_view(bound: Any) -> bool:
    """Whether an operation computes nothing: its result is part of the memory of its operand."""
    return isinstance(bound, BoundOperator) and (bound.operator.view is not None or bound.operator.gives_views)
