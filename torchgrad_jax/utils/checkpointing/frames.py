"""The checkpoint without reentry: hooks on saved tensors that keep nothing, and recompute all of a region when the first is needed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from torchgrad_jax.autograd.grad_mode import enable_grad
from torchgrad_jax.autograd.graph import graph_task
from torchgrad_jax.autograd.saved_tensors import saved_tensors_hooks
from torchgrad_jax.core.duals import hold, passes, seen_tangent
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.order import arrange, plain
from torchgrad_jax.core.saved import readable, save
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.memory_order import result_layout
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval, Value
from torchgrad_jax.utils.checkpointing import errors
from torchgrad_jax.utils.checkpointing.behind import behind


class Inputs:
    """The arguments of a checkpointed function. Tensors are kept as a node keeps them: hooks that are active outside take them, so that a checkpoint
    within another keeps nothing, and a write to one before backward is an error."""

    __slots__ = ("args", "kwargs")

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.args = [_Kept(x) if isinstance(x, Tensor) else x for x in args]
        self.kwargs = {name: _Kept(x) if isinstance(x, Tensor) else x for name, x in kwargs.items()}

    def again(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments. RuntimeError where a tensor was written to since."""
        args = [x.again() if type(x) is _Kept else x for x in self.args]
        return args, {name: x.again() if type(x) is _Kept else x for name, x in self.kwargs.items()}


class _Kept:
    """A tensor. level: the dual level that was open; tangent: what it had there, which nobody else may hold. layout: how it lies in memory, where not
    row by row."""

    __slots__ = ("saved", "level", "tangent", "layout")

    def __init__(self, t: Tensor) -> None:
        rec = per_thread.recorder
        self.saved, self.level, self.tangent = save(rec, t, None, False, False), rec.flags.dual_level, seen_tangent(t)
        self.layout = None if plain(t) else result_layout(t._aval.shape, ((t._aval.shape, t._strides()),), True)

    def again(self) -> Tensor:
        found, rec = self.saved.tensor_for(None), per_thread.recorder
        if self.tangent is not None and passes(rec) and rec.flags.dual_level is self.level and seen_tangent(found) is None:
            hold(found, self.tangent)
        if self.layout is not None and found._storage is None:
            arrange(found, *self.layout)
        return found


# A tensor that was recomputed, if it has no gradient, and its content.
_Again = tuple[Tensor | None, Value]


class _Holder:
    """What a node holds in a saved tensor's place: which of its region's it is."""

    __slots__ = ("index", "__weakref__")

    def __init__(self, index: int) -> None:
        self.index = index


class StopRecomputation(Exception):
    """All that `frame` needs is recomputed."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame


class Frame:
    """One call of a checkpointed function.

    function: computes it again from `inputs`. around: makes the context of a recomputation. early_stop: whether a recomputation ends with the last
    tensor that is needed. checks: whether it is held against the forward pass. explained: makes of an error the one that is raised. holders: one for
    each tensor that the forward pass saved, for as long as a node has it; avals: what those were. complete: whether the forward pass is over. key:
    stands for it where it is not to be kept.
    """

    __slots__ = ("function", "inputs", "around", "early_stop", "checks", "explained", "holders", "avals", "complete", "key")

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Inputs,
        around: Callable[[], AbstractContextManager[Any]],
        early_stop: bool,
        checks: bool,
        explained: Callable[[errors.CheckpointError], Exception],
    ) -> None:
        self.function, self.inputs, self.around = function, inputs, around
        self.early_stop, self.checks, self.explained = early_stop, checks, explained
        self.holders: list[weakref.ref[_Holder]] = []
        self.avals: list[Aval] = []
        self.complete = False
        self.key = object()

    def pack(self, t: Tensor) -> _Holder:
        """Keep nothing of a tensor that is saved, but its place."""
        holder = _Holder(len(self.holders))
        self.holders.append(weakref.ref(holder))
        self.avals.append(t._aval)
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        """The tensor again. CheckpointError where the pass has had it before, or the recomputation is not like the forward pass."""
        kept = _where_kept()
        found = kept.get(self.key)
        try:
            if found is None:
                found = self._recompute()
                kept[self.key] = found
            if holder.index not in found:
                raise errors.used_already()
        except errors.CheckpointError as error:
            raise self.explained(error) from None
        t, value = found.pop(holder.index)
        # What has no gradient is the tensor itself, unless it was written to since.
        return t if t is not None and t._content() is value else wrap(readable(value))

    def _recompute(self) -> dict[int, _Again]:
        """Run the function again: what it saves, by place, as far as nodes still wait for it."""
        expected, found, again = len(self.holders), {}, []
        stops = self.early_stop or not self.complete

        def pack(t: Tensor) -> Tensor:
            place = len(again)
            if place >= expected:
                raise errors.too_many()
            again.append(t._aval)
            value = t._read()
            if self.holders[place]() is not None:
                found[place] = (None if t._rg else t, value)
            if stops and place + 1 == expected:
                raise StopRecomputation(self)
            return wrap(readable(value))

        task = graph_task()
        args, kwargs = self.inputs.again()
        waiting = behind(() if task is None else task.received, (*args, *kwargs.values()))
        try:
            with enable_grad(), saved_tensors_hooks(pack, _as_it_is), waiting, self.around():
                self.function(*args, **kwargs)
        except StopRecomputation as stop:
            if stop.frame is not self:
                raise
        self._check(again, expected)
        return found

    def _check(self, again: list[Aval], expected: int) -> None:
        if len(again) != expected:
            raise errors.another_number(expected, len(again))
        if self.checks:
            # Avals are one object where they are equal.
            differing = [
                (i, a, b) for i, (a, b) in enumerate(zip(self.avals, again, strict=False)) if a is not b and self.holders[i]() is not None
            ]  # fmt: skip
            if differing:
                raise errors.unlike(differing)


def _as_it_is(t: Tensor) -> Tensor:
    return t


class GraphExecGroup:
    """Within the block, what several backward passes over one checkpointed region need is recomputed once. They may not use the same saved tensor,
    that is not run through the same nodes. RuntimeError where blocks are nested. Of no meaning to the reentrant checkpoint."""

    _active: GraphExecGroup | None = None

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def __enter__(self) -> GraphExecGroup:
        if GraphExecGroup._active is not None:
            raise RuntimeError(f"GraphExecGroup contexts cannot be nested. Already inside group {GraphExecGroup._active}")
        GraphExecGroup._active = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        GraphExecGroup._active = None
        self._kept.clear()

    @classmethod
    def _get_current_group(cls) -> GraphExecGroup | None:
        return cls._active


def _where_kept() -> dict[Any, Any]:
    """What was recomputed and is still to be used, by frame: until the pass ends, or the group of passes; outside of both it is used once."""
    if GraphExecGroup._active is not None:
        return GraphExecGroup._active._kept
    task = graph_task()
    return {} if task is None else task.notes
