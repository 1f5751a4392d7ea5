"""Interpreters around which another may be: what they do not do themselves, that one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.level import Interpreter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import apply_inplace
from torchgrad_jax.declaration.operator import BoundOperator
from torchgrad_jax.memory.storage import Link
from torchgrad_jax.runtime.recorder import per_thread

_NONE = Interpreter()


class Chained(Interpreter):
    """outer: the interpreter around it, or None. It is asked all but what operations do: how it is asked that is for subclasses to say."""

    __slots__ = ("outer", "_asked")

    def __init__(self, outer: Interpreter | None) -> None:
        self.outer = outer
        self._asked = _NONE if outer is None else outer

    @property
    def transforms(self) -> bool:  # type: ignore[override] - a plain attribute there
        """See Interpreter."""
        return self._asked.transforms

    @property
    def depth(self) -> int:
        """How many levels of transforms it is inside of."""
        return getattr(self._asked, "depth", 0)

    def view_made(self, t: Any, out: Any, links: tuple[Link, ...], strides: tuple[int, ...], offset: int) -> None:
        """See Interpreter."""
        self._asked.view_made(t, out, links, strides, offset)

    def created(self, t: Any) -> None:
        """See Interpreter."""
        self._asked.created(t)

    def random(self, shape: tuple[int, ...], draw: Callable[[tuple[int, ...]], Any], into: Any = None) -> Any:
        """See Interpreter."""
        return self._asked.random(shape, draw, into)

    def random_of(self, draw: Callable[..., Any], tensors: Sequence[Any]) -> Any:
        """See Interpreter."""
        return self._asked.random_of(draw, tensors)

    def mapped_as(self, t: Any, like: Any) -> Any:
        """See Interpreter."""
        return self._asked.mapped_as(t, like)

    def by_parts(self, function: Callable[..., Any], tensors: Sequence[Any]) -> Any:
        """See Interpreter."""
        return self._asked.by_parts(function, tensors)

    def detached(self, t: Any) -> Any:
        """See Interpreter."""
        return self._asked.detached(t)

    def function(self, cls: Any, args: tuple[Any, ...]) -> Any:
        """See Interpreter."""
        return self._asked.function(cls, args)

    def stands_for_batch(self, t: Any) -> bool:
        """See Interpreter."""
        return self._asked.stands_for_batch(t)

    def lies(self, t: Any) -> tuple[tuple[int, ...], int]:
        """See Interpreter."""
        return self._asked.lies(t)

    def locates(self, t: Any) -> None:
        """See Interpreter."""
        self._asked.locates(t)

    def as_strided(self, t: Any, size: tuple[int, ...], stride: tuple[int, ...], offset: int | None) -> Any:
        """See Interpreter."""
        return self._asked.as_strided(t, size, stride, offset)

    def rewritten(self, t: Any, value: Any, name: str) -> bool:
        """See Interpreter."""
        return self._asked.rewritten(t, value, name)

    def refuses_memory(self, t: Any, new: Any, name: str) -> str | None:
        """See Interpreter."""
        return self._asked.refuses_memory(t, new, name)

    def meets(self, t: Any, grad: str = "") -> None:
        """See Interpreter."""
        self._asked.meets(t, grad)

    def carried(self, op: Any, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """See Interpreter."""
        return self._asked.carried(op, args, run)

    def applied(self, outs: Any, node: Any) -> None:
        """See Interpreter."""
        self._asked.applied(outs, node)

    def plan(self, plan_of: Callable[[Any, int], Any], sig: Any, mask: int) -> Any:
        """See Interpreter."""
        return self._asked.plan(plan_of, sig, mask)

    def writes_apart(self, t: Any) -> None:
        """See Interpreter."""
        self._asked.writes_apart(t)

    def departs(self) -> None:
        """See Interpreter."""
        self._asked.departs()

    def twin_made(self, t: Any) -> None:
        """See Interpreter."""
        self._asked.twin_made(t)

    def refuses(self, what: str) -> None:
        """See Interpreter."""
        self._asked.refuses(what)

    def draws(self, make: Callable[[], Any]) -> Any:
        """See Interpreter."""
        return self._asked.draws(make)

    def renewed(self, group: dict[str, Any], key: str) -> Any:
        """See Interpreter."""
        return self._asked.renewed(group, key)

    def drew(self, value: Any, make: Callable[[], Any]) -> None:
        """See Interpreter."""
        self._asked.drew(value, make)


class Through(Chained):
    """A context manager that looks at operations within its block, and lets them be carried out as they are around it."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None)

    def __enter__(self) -> Any:
        rec = per_thread.recorder
        Chained.__init__(self, rec.level)
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
        inner, rec.level = rec.level, self.outer
        try:
            return apply(bound, operands)
        finally:
            rec.level = inner

    def write_outside(self, bound: Any, operands: tuple[Any, ...]) -> Tensor:
        """An operation whose result goes into its first operand, as it is carried out around this interpreter."""
        rec = per_thread.recorder
        inner, rec.level = rec.level, self.outer
        try:
            return apply_inplace(bound, operands)
        finally:
            rec.level = inner


def is_view(bound: Any) -> bool:
    """Whether an operation computes nothing: its result is part of the memory of its operand."""
    return isinstance(bound, BoundOperator) and (bound.operator.view is not None or bound.operator.gives_views)
