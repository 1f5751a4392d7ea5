"""Levels: what a function sees while it is transformed.

A transform opens a level. A tensor of a level is an ordinary Tensor, with a graph, views and versions of its own, but its Values hold in place of
an array a tensor of the level outside: Lifted. An operation on such Values is carried out on the tensors that they hold, outside of the level, and
its results are lifted again. So levels nest in any order, each transform is a few lines, and what is computed in the end is recorded as ever.
`depth` counts the levels; tensors of a level outside take part in operations as constants of this one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from torchgrad_jax.autograd.function import record_call
from torchgrad_jax.core.dispatch import apply, settled
from torchgrad_jax.core.duals import followed, hold, tangent_of
from torchgrad_jax.core.level import Interpreter, by_parts, lies, mapped_as, stands_for_batch
from torchgrad_jax.core.made import detached, wrap
from torchgrad_jax.core.strided import as_strided as strided
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import apply_inplace, memory_of, overwrite, rewrite
from torchgrad_jax.declaration.operator import ARRAY
from torchgrad_jax.declaration.strides import contiguous_strides
from torchgrad_jax.functions.resizing import resize_
from torchgrad_jax.functions.views import as_strided
from torchgrad_jax.lifting.outliving import settle
from torchgrad_jax.lifting.striding import told
from torchgrad_jax.memory.storage import Link, Storage
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.recorder import Recorder, anomaly_of, per_thread, settle_autocast
from torchgrad_jax.runtime.value import Aval, Lifted, Value, constant

CAPTURED = (
    "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation (aten::{}) that would mutate a "
    "captured Tensor. This is not supported; please rewrite the function being transformed to explicitly accept the mutated Tensor(s) as inputs."
)
_CLONE, _COPY = registry["clone"].bind((ARRAY,)), registry["copy"].bind((ARRAY, ARRAY))
ESCAPED = (
    "Either your tensor may have escaped from inside a function being vmapped and this is a user error (see "
    "https://pytorch.org/functorch/stable/ux_limitations.html), or it was made inside of a function that was being transformed and is used after "
    "that has returned, where it has no value."
)
APART = (
    "inside of nested transforms, or where a graph goes on outside of one, what detach() and data give has a memory of its own, so that a write to "
    "it would not be seen by the tensor: clone() it before it is written to, or write to the tensor itself under torch.no_grad()."
)
WRITTEN = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor that a function which is transformed "
    "has read was written to since, outside of the transform."
)


class Held(Lifted):
    """A tensor of the level outside. version: what its memory counted when it was lifted. apart: why it may not be written to, where it was made
    of a tensor of this level whose memory it would share elsewhere; else empty."""

    __slots__ = ("tensor", "version", "apart")

    def __init__(self, level: Level, tensor: Tensor) -> None:
        self.level, self.tensor, self.apart = level, tensor, ""
        self.version = 0 if tensor._storage is None or tensor.is_inference() else tensor._storage.counter.version

    def below(self) -> Tensor:
        """The tensor. RuntimeError where it was written to since it was lifted, or its level is closed."""
        if not self.level.open:
            raise RuntimeError(ESCAPED)
        storage = self.tensor._storage
        if storage is not None and storage.counted and storage.counter.version != self.version:
            raise RuntimeError(WRITTEN)
        return self.tensor

    def settle(self, t: Tensor) -> bool:
        """See Lifted."""
        if self.level.open:
            return False
        settle(t, self.tensor)
        return True

    def concrete(self, asked: str = "") -> Any:
        """See Lifted."""
        value = self.tensor._content()
        return value.array.concrete(asked) if isinstance(value.array, Lifted) else value.concrete()

    def shown(self) -> str:
        """See Lifted."""
        return self._shown("GradTrackingTensor", "")

    def _shown(self, name: str, more: str) -> str:
        number = self.level.depth if self.level.open else -2  # PyTorch's number of what is dead
        return f"{name}(lvl={number}, {more}value=\n{textwrap.indent(repr(self.tensor), '    ')}\n)"

    @property
    def readable(self) -> bool:
        """See Lifted."""
        return self.tensor._content().readable

    def everything(self) -> Any:
        """See Lifted."""
        return self.tensor._content().everything()

    def innermost(self) -> Value:
        """See Lifted."""
        value = self.tensor._content()
        return value.array.innermost() if isinstance(value.array, Lifted) else value

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


class Together(Storage):
    """The memory of an argument that lies in the memory of another one: what is written to it is written outside at once, where the others see it.

    inside: the argument, outer: what it is outside; None once its level was left. others: all that lie there, in the same way.
    """

    __slots__ = ("level", "inside", "outer", "others")

    def __init__(self, level: Level, inside: Tensor, outer: Tensor, others: list[tuple[Tensor, Tensor]]) -> None:
        super().__init__(inside._value)
        self.level, self.others = level, others
        self.inside: Tensor | None = inside
        self.outer: Tensor | None = outer

    def write(self, value: Value) -> None:
        """Put a new content in."""
        super().write(value)
        if self.inside is None or self.outer is None:
            return
        level = self.level
        content = level.content(self.inside)
        with level.outside:
            apply_inplace(_COPY, (self.outer, content))
        for other, outer in self.others:
            if other is not self.inside and type(other._storage) is Together:
                other._storage._follow(level.held_again(other, outer)._value)

    def _follow(self, value: Value) -> None:
        """Take the content that was written by way of another."""
        value.counter, value.version = self.counter, self.counter.version
        self.writes, self.value = self.writes + 1, value

    def part(self) -> None:
        """Be memory as any other, now that the level is left."""
        self.inside = self.outer = None
        self.others = []


def _overlap(a: Tensor, b: Tensor) -> bool:
    """Whether each of two tensors in one memory begins before the other ends."""
    return a is b or (_start(a) < _end(b) and _start(b) < _end(a))


def _start(t: Tensor) -> int:
    return 0 if t._view is None else t._offset()


def _end(t: Tensor) -> int:
    return _start(t) + (1 + sum([(n - 1) * step for n, step in zip(t._aval.shape, t._strides(), strict=True)]) if t._aval.size else 0)


class Outside:
    """A block that is carried out as if its level were not open. What is not recorded in the level is not recorded outside of it, but while
    `records`: what the level does of its own accord. apart: whether the level has a grad mode of its own."""

    __slots__ = ("apart", "level", "dual_level", "forward_grad", "suspended", "packing", "refused", "grad_enabled", "_rare", "records", "_before")

    def __init__(self, rec: Recorder, apart: bool) -> None:
        flags = rec.flags
        self.apart = apart
        self.level, self.grad_enabled, self._rare = rec.level, rec.grad_enabled, rec.rare - len(flags.packing)
        self.dual_level, self.forward_grad, self.suspended, self.packing = flags.dual_level, flags.forward_grad, flags.suspended, flags.packing
        self.refused, self.records = flags.packing_refused, False
        self._before: list[tuple[Any, ...]] = []

    @property
    def rare(self) -> int:
        """`Recorder.rare` outside: hooks of saved tensors may be set outside from within, by levels without a graph."""
        return self._rare + len(self.packing)

    def __enter__(self) -> None:
        rec = per_thread.recorder
        flags = rec.flags
        before = rec.level, rec.grad_enabled, rec.rare, flags.dual_level, flags.forward_grad, flags.suspended, flags.packing, flags.packing_refused
        self._before.append(before)
        rec.level, rec.rare = self.level, self.rare
        rec.grad_enabled = (self.grad_enabled and (before[1] or self.records)) or (before[1] and not self.apart)
        flags.dual_level, flags.forward_grad, flags.suspended = self.dual_level, self.forward_grad, self.suspended
        flags.packing, flags.packing_refused = self.packing, self.refused

    def __exit__(self, *exc: object) -> None:
        rec = per_thread.recorder
        flags = rec.flags
        before = self._before.pop()
        rec.level, rec.grad_enabled, rec.rare = before[:3]
        flags.dual_level, flags.forward_grad, flags.suspended, flags.packing, flags.packing_refused = before[3:]


class Level(Interpreter):
    """The level of one transform, while it is entered: then its tensors can be used. It may be entered again after it was left, inside of others
    then than at first.

    outside: see Outside; None while it is left. depth: how many levels it is inside of.
    """

    __slots__ = ("depth", "outside", "_arguments", "_lying")
    transforms = True
    # Whether a graph may be recorded in it: then hooks of saved tensors that are set inside see what that saves.
    has_graph = True
    # Whether it has a grad mode of its own, which is on at first, beside that of what is outside.
    own_grad_mode = False
    # Why hooks of saved tensors are refused inside; None where they are not.
    refuses_hooks: str | None = None

    def __init__(self) -> None:
        self.depth = 0
        self.outside: Outside = None  # type: ignore[assignment] - none but while it is entered
        self._arguments: list[tuple[Tensor, Tensor]] = []
        # The arguments and what they are outside, by the memory that they have there.
        self._lying: dict[int, list[tuple[Tensor, Tensor]]] = {}

    @property
    def open(self) -> bool:
        """Whether it is entered."""
        return self.outside is not None

    def __enter__(self) -> Any:
        rec = per_thread.recorder
        outer = rec.level
        if self.refuses_hooks is not None and rec.flags.packing:
            raise RuntimeError(self.refuses_hooks)
        self.outside = Outside(rec, self.own_grad_mode or rec.flags.around_inference)
        self.depth = 1 + getattr(outer, "depth", 0)
        rec.rare += 1
        rec.level = self
        if self.has_graph:
            rec.flags.packing, rec.flags.packing_refused = [], self.refuses_hooks
        self.opened(rec)
        return self

    def __exit__(self, kind: Any = None, *exc: object) -> None:
        try:
            # What was written to when the function raised has been written to; its own error is the one to be told.
            with nullcontext() if kind is None else suppress(Exception):
                self._return_arguments()
        finally:
            rec = per_thread.recorder
            outside, flags = self.outside, rec.flags
            rec.level, rec.rare = outside.level, outside.rare
            if self.own_grad_mode:
                rec.grad_enabled = outside.grad_enabled
            flags.dual_level, flags.forward_grad, flags.suspended = outside.dual_level, outside.forward_grad, outside.suspended
            flags.packing, flags.packing_refused = outside.packing, outside.refused
            anomaly_of(rec)  # it may have been set since
            settle_autocast(rec)
            for inside, _ in self._arguments:
                if type(inside._storage) is Together:
                    inside._storage.part()
            self._arguments.clear()
            self._lying.clear()
            self.outside = None  # type: ignore[assignment] - it is left

    def _return_arguments(self) -> None:
        """Let arguments that were written to inside have their new content outside."""
        for inside, t in self._arguments:
            if inside._version and type(inside._storage) is not Together:
                content = self.content(inside)
                with self.outside:
                    if content._aval.shape != t._aval.shape:
                        resize_(t, content._aval.shape)
                    apply_inplace(_COPY, (t, content))

    def content(self, t: Tensor) -> Tensor:
        """The tensor of the level outside that a tensor of this one is."""
        return self._below(t._read())

    def argument(self, inside: Tensor, t: Tensor) -> Tensor:
        """Remember that the function was given `inside` for `t`: if it writes to the one, it writes to the other."""
        self._arguments.append((inside, t))
        self.lies_outside(inside, t)
        return inside

    def lies_outside(self, inside: Tensor, t: Tensor) -> None:
        """Note that an argument is `t` outside, and let those that lie in each other's memory there have it together. inside: the argument, `t`
        itself where that is of no level."""
        root: Any = t
        while type(root._storage) is Together and root._storage.outer is not None:  # they lie together further outside
            root = root._storage.outer
        place, base = memory_of(root), None if root._view is None else root._view.base
        others = self._lying.get(place)
        if others is None:  # its base may have been noted when it shared its memory with nobody
            others = self._lying[place] = [] if base is None else self._lying.get(id(base), [])
        for other, outer in others:
            if memory_of(t) != memory_of(outer) or _overlap(t, outer):
                for argument, of in ((inside, t), (other, outer)):
                    if argument._storage is None and self.owns(argument):
                        argument._storage = Together(self, argument, of, others)
        others.append((inside, t))

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

    def random(self, shape: tuple[int, ...], draw: Callable[[tuple[int, ...]], Any], into: Any = None) -> Any:
        """See Interpreter."""
        return self.lift(self.random_outside(shape, draw))

    def random_outside(self, shape: tuple[int, ...], draw: Callable[[tuple[int, ...]], Any]) -> Any:
        """Random numbers as the level outside draws them."""
        with self.outside:
            outer = self.outside.level
            return draw(shape) if outer is None else outer.random(shape, draw)

    def mapped_as(self, t: Any, like: Any) -> Any:
        """See Interpreter."""
        if not self.owns(like):
            return t
        inner, model = self.unwrap(t), self.content(like)
        with self.outside:
            made = mapped_as(inner, model)
        return t if made is inner else self.lift(made)

    def by_parts(self, function: Callable[..., Any], tensors: Sequence[Any]) -> Any:
        """See Interpreter."""
        given = [self.unwrap(t) for t in tensors]
        with self.outside:
            return self.lifted(by_parts(function, *given))

    def random_of(self, draw: Callable[..., Any], tensors: Sequence[Any]) -> Any:
        """See Interpreter."""
        given = [self.unwrap(t) for t in tensors]
        with self.outside:
            return self.lift(draw(*given))

    # ------------------------------------------------------------------ operations

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Interpreter."""
        own = foreign = False
        for o in operands:
            if isinstance(o, Tensor):
                array = held(o)
                if isinstance(array, Held):
                    array.settle(o)  # of a level inside of this one, which was left
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
        if operator is not None and (operator.view is not None or operator.gives_views):  # it shares memory outside
            return found
        return tuple([self.lift(t) for t in found]) if type(found) is tuple else self.lift(found)

    def _all_own(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([self.lift(o) if isinstance(o, Tensor) and not self.owns(o) else o for o in operands])

    def apply_inplace(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """See Interpreter."""
        target = operands[0]
        settled(operands)
        if not self.owns(target):
            return self.write_outside(bound, operands)
        if held(target).apart:
            raise RuntimeError(held(target).apart)
        if not all([self.owns(o) for o in operands if isinstance(o, Tensor)]):
            return apply_inplace(bound, self._all_own(operands))
        return NotImplemented if per_thread.recorder.grad_enabled else self._unnoticed(bound, operands)

    def _unnoticed(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """An in-place operation without a graph: where the tensor outside has one it keeps it, with the new content."""
        target = operands[0]
        inner = self.content(target)
        if not inner.requires_grad or target._view is not None:
            return NotImplemented
        computed = apply(bound, operands)
        if computed._aval is not target._aval or self.content(computed)._aval is not inner._aval:
            return NotImplemented
        outside = self.outside
        before, outside.records = outside.records, True
        try:
            with outside:
                kept = apply(_CLONE, (inner,))
        finally:
            outside.records = before
        with outside:
            apply_inplace(_COPY, (kept, self.content(computed)))
        overwrite(target, self.held_again(computed, kept)._value)
        return target

    def write_outside(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """An in-place operation on a tensor of a level outside. RuntimeError where it may not be."""
        name, binary = bound.operator.name.removesuffix("_number").removesuffix("_tensor"), len(operands) == 2 and bound.operator.name != "copy"
        kind = "" if not binary else ".Tensor" if isinstance(operands[1], Tensor) or name in ("add", "sub", "mul", "div") else ".Scalar"
        raise RuntimeError(CAPTURED.format(name + "_" + kind))

    def detached(self, t: Tensor) -> Any:
        """See Interpreter. A tensor on a memory of its own."""
        own = self.owns(t)
        inner = self.content(t) if own else t
        if self.outside.level is None and not inner.requires_grad:
            return NotImplemented
        with self.outside:
            cut = detached(inner)
        if not own:
            return cut
        made = self.held_again(t, cut)
        held(made).apart = APART
        return made

    def held_again(self, t: Tensor, inner: Tensor) -> Tensor:
        """The tensor of this level that holds `inner` as `t` holds its own."""
        return self.lift(inner)

    def function(self, cls: Any, args: tuple[Any, ...]) -> Any:
        """A call of an autograd Function: outside it is one too, so that each level differentiates it by the user's own backward."""
        tensors = [a for a in args if isinstance(a, Tensor)]
        if not any(map(self.owns, tensors)):
            with self.outside:
                return self.lifted(cls.apply(*args))
        recording = per_thread.recorder.grad_enabled  # which is off while it is called
        return record_call(cls, self._all_own(args), lambda *own: self._forward_outside(cls, own, recording), True)

    def function_of_duals(self, cls: Any, args: tuple[Any, ...], tangents: dict[int, Tensor]) -> Any:
        """See Interpreter: what becomes a constant of this level keeps its tangent."""
        own = self._all_own(args)
        for i, t in enumerate([a for a in own if isinstance(a, Tensor)]):
            if i in tangents and tangent_of(t) is None:
                hold(t, tangents[i])
        return self.function(cls, own)

    def _forward_outside(self, cls: Any, args: tuple[Any, ...], recording: bool) -> Any:
        given = [self.unwrap(a) if isinstance(a, Tensor) else a for a in args]
        versions = [g._version if isinstance(g, Tensor) else 0 for g in given]
        rec = per_thread.recorder
        rec.grad_enabled = recording
        try:
            with self.outside:
                found = cls.apply(*given)
        finally:
            rec.grad_enabled = False
        same = {id(g): a for g, a in zip(given, args, strict=True) if isinstance(g, Tensor)}
        for g, a, version in zip(given, args, versions, strict=True):
            if isinstance(g, Tensor) and g._version != version:
                overwrite(a, constant(Held(self, g), a._aval))
        return self.lifted(found, same)

    def lifted(self, found: Any, same: dict[int, Tensor] | None = None) -> Any:
        """Results of a Function outside as constants of this level. same: for the id of a tensor outside, what it is here."""
        if isinstance(found, tuple):
            return tuple([self.lifted(t, same) for t in found])
        if not isinstance(found, Tensor):
            return found
        return same[id(found)] if same is not None and id(found) in same else self.lift(found)

    def lies(self, t: Tensor) -> tuple[tuple[int, ...], int]:
        """See Interpreter."""
        if not self.owns(t):
            with self.outside:
                return lies(t)
        inner, steps, begin = self._memory(t)
        return told(t, inner._aval.shape, steps, begin) or (t._strides(), t._offset())

    def as_strided(self, t: Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int | None) -> Any:
        """See Interpreter."""
        if not self.owns(t):
            with self.outside:
                return as_strided(t, size, stride, offset)
        inner, steps, begin = self._memory(t)
        if steps != contiguous_strides(inner._aval.shape):
            return NotImplemented
        return strided(t, size, stride, None if offset is None else offset - begin)

    def _memory(self, t: Tensor) -> tuple[Tensor, tuple[int, ...], int]:
        """What the memory of `t` is outside, and how it lies there."""
        inner = held(t).tensor
        with self.outside:
            return inner, *lies(inner)

    def stands_for_batch(self, t: Tensor) -> bool:
        """See Interpreter."""
        inner = self.unwrap(t)
        with self.outside:
            return stands_for_batch(inner)

    def rewritten(self, t: Tensor, value: Value, name: str) -> bool:
        """See Interpreter."""
        if self.owns(t):
            return False
        inner = self._below(value)
        with self.outside:
            rewrite(t, inner._read(), name)
        return True

    def refuses_memory(self, t: Tensor, new: Tensor, name: str) -> str | None:
        """See Interpreter."""
        own = self.owns(t), self.owns(new)
        if True not in own:
            with self.outside:
                return None if self.outside.level is None else self.outside.level.refuses_memory(t, new, name)
        if name == "data":
            return "mutating directly with `.data` inside functorch transform is not allowed."
        return None if own[0] else CAPTURED.format("set_.source_Tensor")

    def view_made(self, t: Any, out: Any, links: tuple[Link, ...], strides: tuple[int, ...], offset: int) -> None:
        """See Interpreter."""
        if self.outside.level is not None and not self.owns(t):
            with self.outside:
                self.outside.level.view_made(t, out, links, strides, offset)

    def call(self, bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
        """An operation on Values of which one is of this level: its results, and its Signature here."""
        sig = signature(bound, tuple([v.aval if type(v) is Value else type(v) for v in values]))
        if not self.open:
            return self._lifted(self._after(bound, values), sig.avals), sig
        given = [self._below(v) for v in values]
        with self.outside:
            found = apply(bound, given)
        return self._lifted(found, sig.avals), sig

    def _after(self, bound: Any, values: tuple[Any, ...]) -> Any:
        """An operation on what has outlived the level: on what it held."""
        given = [v.array.tensor if type(v) is Value and isinstance(v.array, Held) and v.array.level is self else self._below(v) for v in values]
        return apply(bound, given)

    def _lifted(self, found: Any, avals: Sequence[Aval]) -> Any:
        if type(found) is tuple:
            return tuple([constant(Held(self, t), aval) for t, aval in zip(found, avals, strict=True)])
        return constant(Held(self, found), avals[0])
