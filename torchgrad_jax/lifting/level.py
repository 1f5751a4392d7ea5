"""Levels: what a function sees while it is transformed.

A transform opens a level. A tensor of a level is an ordinary Tensor, with a graph, views and versions of its own, but its Values hold in place of
an array a tensor of the level outside: Lifted. An operation on such Values is carried out on the tensors that they hold, outside of the level, and
its results are lifted again. So levels nest in any order, each transform is a few lines, and what is computed in the end is recorded as ever.
`depth` counts the levels; tensors of a level outside take part in operations as constants of this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.duals import followed
from torchgrad_jax.core.level import Interpreter
from torchgrad_jax.core.tensor import Tensor, wrap
from torchgrad_jax.core.writing import apply_inplace
from torchgrad_jax.declaration.operator import ARRAY
from torchgrad_jax.memory.storage import Link
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.value import Aval, Lifted, Value, constant

CAPTURED = (
    "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation (aten::{}) that would mutate a "
    "captured Tensor. This is not supported; please rewrite the function being transformed to explicitly accept the mutated Tensor(s) as inputs."
)
_COPY = registry["copy"].bind((ARRAY, ARRAY))
ESCAPED = (
    "Either your tensor may have escaped from inside a function being vmapped and this is a user error (see "
    "https://pytorch.org/functorch/stable/ux_limitations.html), or it was made inside of a function that was being transformed and is used after "
    "that has returned, where it has no value."
)
WRITTEN = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor that a function which is transformed "
    "has read was written to since, outside of the transform."
)


class Held(Lifted):
    """A tensor of the level outside. version: what its memory counted when it was lifted."""

    __slots__ = ("tensor", "version")

    def __init__(self, level: Level, tensor: Tensor) -> None:
        self.level, self.tensor = level, tensor
        self.version = 0 if tensor._storage is None or tensor.is_inference() else tensor._storage.counter.version

    def below(self) -> Tensor:
        """The tensor. RuntimeError where it was written to since it was lifted, or its level is closed."""
        if not self.level.open:
            raise RuntimeError(ESCAPED)
        storage = self.tensor._storage
        if storage is not None and storage.counted and storage.counter.version != self.version:
            raise RuntimeError(WRITTEN)
        return self.tensor

    def concrete(self) -> Any:
        """See Lifted."""
        with self.level.outside:
            return self.tensor._concrete()

    def followed(self) -> bool:
        """See Lifted."""
        with self.level.outside:
            return followed(self.tensor)


def held(t: Tensor) -> Any:
    """What a tensor holds in place of an array if it is of a level; something else if not."""
    storage = t._storage
    return (t._value if storage is None else storage.value).array


def held_tensor(t: Tensor) -> Tensor | None:
    """The tensor of the level outside that `t` holds, be its own left; None for a tensor of no level."""
    array = held(t)
    return array.tensor if isinstance(array, Held) else None


class Outside:
    """A block that is carried out as if its level were not open. What is not recorded in the level is not recorded outside of it, but while
    `records`: what the level does of its own accord."""

    __slots__ = ("level", "dual_level", "forward_grad", "suspended", "packing", "grad_enabled", "rare", "records", "_before")

    def __init__(self, rec: Recorder) -> None:
        flags = rec.flags
        self.level, self.grad_enabled, self.rare = rec.level, rec.grad_enabled, rec.rare
        self.dual_level, self.forward_grad, self.suspended, self.packing = flags.dual_level, flags.forward_grad, flags.suspended, flags.packing
        self.records = False
        self._before: list[tuple[Any, ...]] = []

    def __enter__(self) -> None:
        rec = per_thread.recorder
        flags = rec.flags
        before = rec.level, rec.grad_enabled, rec.rare, flags.dual_level, flags.forward_grad, flags.suspended, flags.packing
        self._before.append(before)
        rec.level, rec.grad_enabled, rec.rare = self.level, self.grad_enabled and (before[1] or self.records), self.rare
        flags.dual_level, flags.forward_grad, flags.suspended, flags.packing = self.dual_level, self.forward_grad, self.suspended, self.packing

    def __exit__(self, *exc: object) -> None:
        rec = per_thread.recorder
        flags = rec.flags
        rec.level, rec.grad_enabled, rec.rare, flags.dual_level, flags.forward_grad, flags.suspended, flags.packing = self._before.pop()


class Level(Interpreter):
    """The level of one transform, while it is entered: then its tensors can be used. It may be entered again after it was left, inside of others
    then than at first.

    outside: see Outside; None while it is left. depth: how many levels it is inside of.
    """

    __slots__ = ("depth", "outside", "_arguments")
    transforms = True

    def __init__(self) -> None:
        self.depth = 0
        self.outside: Outside = None  # type: ignore[assignment] - none but while it is entered
        self._arguments: list[tuple[Tensor, Tensor]] = []

    @property
    def open(self) -> bool:
        """Whether it is entered."""
        return self.outside is not None

    def __enter__(self) -> Any:
        rec = per_thread.recorder
        outer = rec.level
        self.outside = Outside(rec)
        self.depth = 1 + getattr(outer, "depth", 0)
        rec.rare += 1
        rec.level = self
        rec.flags.packing = []
        self.opened(rec)
        return self

    def __exit__(self, kind: Any = None, *exc: object) -> None:
        try:
            if kind is None:
                self._return_arguments()
        finally:
            rec = per_thread.recorder
            outside, flags = self.outside, rec.flags
            rec.level, rec.grad_enabled, rec.rare = outside.level, outside.grad_enabled, outside.rare
            flags.dual_level, flags.forward_grad, flags.suspended = outside.dual_level, outside.forward_grad, outside.suspended
            flags.packing = outside.packing
            self._arguments.clear()
            self.outside = None  # type: ignore[assignment] - it is left

    def _return_arguments(self) -> None:
        """Let arguments that were written to inside have their new content outside."""
        for inside, t in self._arguments:
            if inside._version:
                with self.outside:
                    apply_inplace(_COPY, (t, self.content(inside)))

    def content(self, t: Tensor) -> Tensor:
        """The tensor of the level outside that a tensor of this one is."""
        return self._below(t._read())

    def argument(self, inside: Tensor, t: Tensor) -> Tensor:
        """Remember that the function was given `inside` for `t`: if it writes to the one, it writes to the other."""
        self._arguments.append((inside, t))
        return inside

    def opened(self, rec: Recorder) -> None:
        """What else a level sets when it is entered."""

    # ------------------------------------------------------------------ tensors

    def owns(self, t: Tensor) -> bool:
        """Whether a tensor is of this level."""
        array = held(t)
        return isinstance(array, Held) and array.level is self

    def lift(self, t: Tensor) -> Tensor:
        """`t`, of a level outside, as a constant of this one."""
        return wrap(constant(Held(self, t), t._aval))

    def unwrap(self, t: Tensor) -> Tensor:
        """The tensor of the level outside that `t` is."""
        return self.content(t) if self.owns(t) else t

    def _below(self, value: Any) -> Any:
        """An operand as the level outside has it."""
        if type(value) is not Value:
            return value
        array = value.array
        if isinstance(array, Held) and array.level is self:
            return array.below()
        return wrap(value)

    def created(self, t: Tensor) -> None:
        """See Interpreter: what is made here is a constant of this level, which may be written to."""
        inner = wrap(t._value)
        if self.outside.level is not None:
            self.outside.level.created(inner)
        value = constant(Held(self, inner), t._value.aval)
        if t._storage is not None:
            t._storage.value = value
            value.counter, value.version = t._storage.counter, t._storage.counter.version
        t._value = value

    # ------------------------------------------------------------------ operations

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Interpreter."""
        own = foreign = False
        for o in operands:
            if isinstance(o, Tensor):
                if self.owns(o):
                    own = True
                else:
                    foreign = True
        if not own:
            return self.apart(bound, operands)
        return apply(bound, self._all_own(operands)) if foreign else NotImplemented

    def apart(self, bound: Any, operands: Sequence[Any]) -> Any:
        """The results of an operation of which no operand is of this level."""
        with self.outside:
            found = apply(bound, operands)
        operator = getattr(bound, "operator", None)
        if operator is not None and operator.view is not None:  # it shares memory outside
            return found
        return tuple([self.lift(t) for t in found]) if type(found) is tuple else self.lift(found)

    def _all_own(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([self.lift(o) if isinstance(o, Tensor) and not self.owns(o) else o for o in operands])

    def apply_inplace(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """See Interpreter."""
        target = operands[0]
        if not self.owns(target):
            return self.write_outside(bound, operands)
        if all([self.owns(o) for o in operands if isinstance(o, Tensor)]):
            return NotImplemented
        return apply_inplace(bound, self._all_own(operands))

    def write_outside(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """An in-place operation on a tensor of a level outside. RuntimeError where it may not be."""
        kind = ".Tensor" if len(operands) > 1 and isinstance(operands[1], Tensor) else ""
        raise RuntimeError(CAPTURED.format(bound.operator.name + "_" + kind))

    def view_made(self, t: Any, out: Any, links: tuple[Link, ...], strides: tuple[int, ...], offset: int) -> None:
        """See Interpreter."""
        if self.outside.level is not None and not self.owns(t):
            with self.outside:
                self.outside.level.view_made(t, out, links, strides, offset)

    def call(self, bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
        """An operation on Values of which one is of this level: its results, and its Signature here."""
        sig = signature(bound, tuple([v.aval if type(v) is Value else type(v) for v in values]))
        given = [self._below(v) for v in values]
        with self.outside:
            found = apply(bound, given)
        return self._lifted(found, sig.avals), sig

    def _lifted(self, found: Any, avals: Sequence[Aval]) -> Any:
        if type(found) is tuple:
            return tuple([constant(Held(self, t), aval) for t, aval in zip(found, avals, strict=True)])
        return constant(Held(self, found), avals[0])
