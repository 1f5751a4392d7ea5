"""What a profile, or ranges for another tool, sees of a thread: public calls, operations as they run, backward functions, the user's Functions.

Nothing of it is asked for while nobody watches. Calls are seen on the long way that every active mode makes calls take (`Recorder.rare`, and the
guards of `calling/overrides.py`), operations where each is run (the execution mode is `eager` meanwhile), and the engine makes another GraphTask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp

from torchgrad_jax.autograd.engine import GraphTask
from torchgrad_jax.calling.overrides import watch_calls, watch_calls_no_more
from torchgrad_jax.core.node import AccumulateGrad, Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.compiled import MISS, Compiled
from torchgrad_jax.profiler.naming import call_name, call_shapes, operation_name, shapes_of
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.device import CPU, put
from torchgrad_jax.runtime.execution import execution_mode
from torchgrad_jax.runtime.interpreted import alone
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.recording.epoch import running
from torchgrad_jax.runtime.structure import calls_to, operands
from torchgrad_jax.runtime.value import Value

FORWARD, BACKWARD, USER = 0, 1, 7  # PyTorch's numbers of scopes
EVALUATING = "autograd::engine::evaluate_function: "
_run_unwatched = running.run_pending
_call_unwatched = Compiled.call
_watching = threading.Lock()
_watchers = 0


class Watch:
    """Watches one thread, from `start` to `stop`. Subclasses say what becomes of what begins and ends.

    fused: whether programs are seen as they run in production; else every operation runs at once and by itself. shapes: whether the shapes of
    arguments are wanted. outer: who watched the thread before. compiling: whether an
    operation is being compiled.
    """

    def __init__(self, fused: bool = False, shapes: bool = False) -> None:
        self.fused, self.shapes = fused, shapes
        self.outer: Watch | None = None
        self.compiling = False
        self._mode: Any = None
        self._recorder: Any = None

    # ------------------------------------------------------------------ what subclasses do

    def begin(self, name: str, scope: int = FORWARD, sequence: int = -1, fwd_thread: int = 0, shapes: Any = (), inputs: Any = ()) -> Any:
        """Something begins; `end` is given what this returns. shapes, inputs: of tensors the shapes, of others the arguments themselves."""
        raise NotImplementedError

    def end(self, begun: Any) -> None:
        """It is over, whether it came to its end or not."""
        raise NotImplementedError

    def called(self, begun: Any, result: Any, given: Sequence[Any]) -> None:
        """A public call with the arguments `given` has returned `result`, or None where it raised."""
        self.end(begun)

    def ran(self, begun: Any, given: Sequence[Value], values: Sequence[Value], bound: Any) -> None:
        """An operation has run, with these operands and results."""
        self.end(begun)

    def program(self, begun: Any, how: str, steps: Callable[[], Sequence[Any]], reason: str) -> None:
        """A program has run: `how` says by which tier, "" if nothing has run after all; `steps` gives its operations."""
        self.end(begun)

    # ------------------------------------------------------------------ being there

    def start(self) -> None:
        """Watch the calling thread from here on. What is pending is run first."""
        global _watchers
        rec = self._recorder = per_thread.recorder
        if self.fused:
            rec.flush("mode")
        else:
            self._mode = execution_mode("eager")
        self.outer, rec.flags.watch = rec.flags.watch, self
        if not self.fused:
            watch_calls(rec)
        with _watching:
            _watchers += 1
            running.run_pending = _run_watched
            Compiled.call = _call_watched  # type: ignore[method-assign] - as `run_pending`: what nobody watches asks nothing

    def stop(self) -> None:
        """Watch no more."""
        global _watchers
        rec = self._recorder
        if self.fused:
            rec.flush("mode")
        if rec.flags.watch is self:
            rec.flags.watch = self.outer
        else:  # a watch that began later and is not over yet
            inner = rec.flags.watch
            while inner.outer is not self:
                inner = inner.outer
            inner.outer = self.outer
        with _watching:
            _watchers -= 1
            if not _watchers:
                running.run_pending = _run_unwatched
                Compiled.call = _call_unwatched  # type: ignore[method-assign]
        if not self.fused:
            watch_calls_no_more(rec)
            self._mode.__exit__(None, None, None)

    # ------------------------------------------------------------------ the sockets

    def calls(self, public: Any, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A public function is called."""
        name = call_name(public.name)
        if name is None or self.fused:
            return call()
        rec = per_thread.recorder
        shapes, inputs = call_shapes(public, args, kwargs) if self.shapes else ((), ())
        begun = self.begin(name, FORWARD, rec.sequence if rec.grad_enabled and public.by_type else -1, 0, shapes, inputs)
        result: Any = None
        try:
            result = call()
        finally:
            self.called(begun, result, (*args, *kwargs.values()))
        return result

    def function(self, cls: type, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        """The user's Function `cls` is applied."""
        rec = per_thread.recorder
        shapes = shapes_of([a for a in args if isinstance(a, Tensor)]) if self.shapes else ()
        begun = self.begin(cls.__name__, FORWARD, rec.sequence, 0, shapes)
        try:
            return call()
        finally:
            self.end(begun)

    def task(self, create_graph: bool, retain_graph: bool, captures: Any, accumulate: bool) -> GraphTask:
        """What runs a backward pass."""
        kind = GraphTask if self.fused else WatchedTask
        return kind(create_graph, retain_graph, captures, accumulate)

    def run(self, rec: Recorder, reason: str) -> None:
        """What is pending is run."""
        epoch, step = rec.epoch, rec.epoch.step
        alone = step.signature is not None and not self.fused and len(epoch.values) == step.end - step.slot
        if not alone:
            self._run_program(rec, reason)
            return
        sig: Any = step.signature
        given, values = tuple(epoch.leaves.values()), tuple(epoch.values.values())
        sequence = rec.sequence if rec.grad_enabled and getattr(sig.bop, "differentiable", False) else -1
        begun = self.begin(operation_name(sig.bop), FORWARD, sequence, 0, *shapes_of_operation(sig, self.shapes))
        if not sig.warm and not hasattr(sig.bop, "expand"):
            self._warm(epoch, step)
        try:
            _run_unwatched(rec, reason)
            for value in values:
                if isinstance(value.array, jax.Array):
                    value.array.block_until_ready()
        finally:
            self.ran(begun, given, values, sig.bop)

    def _warm(self, epoch: Any, step: Any) -> None:
        """Let an operation that was not compiled yet be compiled, and run once, apart from the run that counts."""
        begun, self.compiling = self.begin("xla::compile"), True
        try:
            with suppress(Exception):  # which the run that counts raises as well, where it belongs
                numbers = {a.dtype.kind: a for a in epoch.arrays_of_numbers()}
                env = {-1 - place: leaf.concrete() for place, leaf in epoch.leaves.items()}
                for out in alone(step.signature, operands(env, numbers, step)):
                    out.block_until_ready()
        finally:
            self.compiling = False
            self.end(begun)

    def _run_program(self, rec: Recorder, reason: str) -> None:
        where, step = rec.device, rec.epoch.step
        before = counters.ran, counters.interpreted, counters.stepped
        begun = self.begin("program")
        try:
            # A look is waited for: the program does not go to the other thread.
            _run_unwatched(rec, "look")
            if reason != "look":
                counters.reasons["look"] -= 1
                counters.reasons[reason] = counters.reasons.get(reason, 0) + 1
            wait_for(where)
        finally:
            after = counters.ran, counters.interpreted, counters.stepped
            which = [kind for kind, a, b in zip(("compiled", "interpreted", "stepped"), before, after, strict=True) if b > a]
            self.program(begun, which[0] if which else "", lambda: calls_to(step, range(step.end))[0], reason)


def shapes_of_operation(sig: Any, wanted: bool) -> tuple[Any, Any]:
    """The shapes of an operation's operands, one entry for each parameter of a declared operator."""
    if not wanted:
        return (), ()
    shapes = [[] if isinstance(s, type) else list(s.shape) for s in sig.specs]
    operator = getattr(sig.bop, "operator", None)
    if operator is not None:
        shapes += [[]] * (len(operator.schema.parameters) - len(shapes))
    return shapes, [None] * len(shapes)


def _run_watched(rec: Recorder, reason: str) -> None:
    watch = rec.flags.watch
    if watch is None or type(rec) is not Recorder:
        _run_unwatched(rec, reason)
    else:
        watch.run(rec, reason)


def _call_watched(entry: Compiled, rec: Recorder, arguments: list[Tensor]) -> Any:
    """`Compiled.call`: a function under `jit` is a program of its own."""
    watch = rec.flags.watch
    if watch is None:
        return _call_unwatched(entry, rec, arguments)
    begun, found = watch.begin("program"), MISS
    try:
        found = _call_unwatched(entry, rec, arguments)
        wait_for(entry.lifted.device)
    finally:
        watch.program(begun, "" if found is MISS else "jit", lambda: calls_to(entry.lifted.step, entry.wanted)[0], "call")
    return found


def wait_for(where: Any) -> None:
    """Wait until a device has done all that it was given."""
    if where is not CPU:
        (put(jnp.zeros(()), where) + 1).block_until_ready()


class WatchedTask(GraphTask):
    """A backward pass each of whose nodes is seen: as the engine evaluates it, and within that as it computes.

    A leaf whose gradients are all there is evaluated after the node that gave the last of them, as PyTorch's queue has it.
    """

    def __init__(self, create_graph: bool, retain_graph: bool, captures: Any, accumulate: bool) -> None:
        super().__init__(create_graph, retain_graph, captures, accumulate)
        self._leaves: list[Node] = []
        self.evaluates = self._computes

    def walk(self, order: Sequence[Node]) -> Any:
        """See GraphTask."""
        self._accumulate_leaves()
        for node in order:
            if type(node) is AccumulateGrad:
                yield node
            elif self.needed is None or node in self.needed:
                watch = per_thread.recorder.flags.watch
                begun = watch.begin(EVALUATING + node.name(), FORWARD, node._sequence_nr(), 1)
                try:
                    yield node
                finally:
                    watch.end(begun)
            else:
                yield node
            self._accumulate_leaves()

    def _computes(self, node: Node, received: list[Any]) -> Any:
        watch = per_thread.recorder.flags.watch
        shapes = shapes_of(received) if watch.shapes else ()
        begun = watch.begin(node.name(), BACKWARD, node._sequence_nr(), 1, shapes, [None] * len(shapes))
        try:
            return node.run(self.calculus, received)
        finally:
            watch.end(begun)

    def _accumulate(self, node: Node) -> None:
        self._leaves.append(node)

    def _accumulate_leaves(self) -> None:
        leaves, self._leaves = self._leaves, []
        for node in leaves:
            received = self.buffers.get(node)
            if received is None:
                continue
            watch = per_thread.recorder.flags.watch
            name, shapes = "torch::autograd::AccumulateGrad", shapes_of(received) if watch.shapes else ()
            evaluating = watch.begin(EVALUATING + name)
            computes = not self.wanted or self.accumulate
            begun = watch.begin(name, BACKWARD, -1, 0, shapes, [None] * len(shapes)) if computes else None
            try:
                super()._accumulate(node)
            finally:
                if computes:
                    watch.end(begun)
                watch.end(evaluating)


def current() -> Watch | None:
    """Who watches the calling thread."""
    return per_thread.recorder.flags.watch


def is_eager() -> bool:
    """Whether every operation runs at once."""
    return modes.execution == "eager"
