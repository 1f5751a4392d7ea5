"""The backward pass of a Lifted: found by walking the graph of its first run with gradients that stand for any, and recorded as one operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.autograd.engine import run_backward
from torchgrad_jax.core.anomaly import Fault, first_of, note_node
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.messages import FREED_MESSAGE, modified_message
from torchgrad_jax.core.node import AccumulateGrad, Calculus, Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.finding import CONTENT, Lifted
from torchgrad_jax.lifting.tracing import Refusal, TraceRecorder, TracingError, abandon
from torchgrad_jax.memory.filled import full_value
from torchgrad_jax.memory.storage import outdated, present
from torchgrad_jax.runtime.operation import ArgSpec, Expansion, Signature
from torchgrad_jax.runtime.recorder import CHECK_NAN, Recorder, call_values, per_thread
from torchgrad_jax.runtime.recording.step import Step
from torchgrad_jax.runtime.value import Aval, Value, watches

KEPT = "this tensor was made while the backward pass of a compiled function was traced: a hook has kept it, where it has no value"


class Backward:
    """The backward pass of a Lifted: a BoundOp. Operands: what it needs of the forward run, the gradients of the outputs, tensors from outside that
    hooks read, and numbers. residuals: slots of the forward program; owners: of each, whose memory it was saved of, as `Lifted.whose` has it;
    outside: those tensors; numbers: those; reached: which of the targets get a gradient, one for each result; paths: to each of them, from which of
    the outputs, as bits. faults: what may be found to be wrong; one more result then says which of them is, counted from 1."""

    __slots__ = (
        "name", "device", "signatures", "differentiable", "residuals", "owners", "outside", "constants", "numbers", "reached", "paths", "avals",
        "faults", "_expansion", "_specs",
    )  # fmt: skip

    def __init__(self, lifted: Lifted, rec: TraceRecorder, given: Sequence[Value], grads: Sequence[Value | None], paths: Sequence[int]) -> None:
        self.name, self.device, self.differentiable = "CompiledFunctionBackward", None, False
        self.signatures: dict[tuple[ArgSpec, ...], Signature] = {}
        self.avals = [g.aval for g in given]
        epoch = rec.epoch
        self.reached = [i for i, g in enumerate(grads) if g is not None]
        self.paths = [paths[i] for i in self.reached]
        made = [g for g in grads if g is not None]
        self.faults = [fault for _, fault in rec.suspects]
        if rec.suspects:
            made.append(first_of([value for value, _ in rec.suspects]))
        results = [g.slot if g.epoch is epoch else rec.enter(g) for g in made]
        leaves = list(epoch.leaves.values())
        slots = [_forward_slot(lifted, v) for v in leaves]
        self.residuals = list(dict.fromkeys([s for s in slots if s is not None]))
        whose = {s: lifted.whose.get(v.counter or v) for v, s in zip(leaves, slots, strict=True) if s is not None}
        self.owners = [whose[s] for s in self.residuals]
        place = {s: i for i, s in enumerate(self.residuals)}
        place_of_given = {v: len(self.residuals) + i for i, v in enumerate(given)}
        self.outside: list[Tensor] = []
        self.constants: list[Value] = []
        rest: list[tuple[int, Any]] = []
        operands: list[int] = []
        for v, slot in zip(leaves, slots, strict=True):
            if slot is not None:
                operands.append(place[slot])
            elif v in place_of_given:
                operands.append(place_of_given[v])
            else:
                operands.append(-1)
                rest.append((len(operands) - 1, v))
        at = len(self.residuals) + len(given)
        for where, v in rest:
            met = rec.owners.get(v)
            if met is not None and met.tensor._content() is v:
                operands[where] = at + len(self.outside)
                self.outside.append(met.tensor)
        for where, v in rest:
            if operands[where] < 0:
                if v not in rec.constants:
                    raise Refusal("its backward pass reads what cannot be followed")
                operands[where] = at + len(self.outside) + len(self.constants)
                self.constants.append(v)
        at += len(self.outside) + len(self.constants)
        steps = _steps_to(epoch.step)
        self.numbers: list[Any] = []
        places: list[int] = []
        for step in steps:
            for number in step.numbers:
                places.append(at + len(self.numbers))
                self.numbers.append(epoch.numbers[number])
        avals = tuple([g.aval for g in made])
        self._expansion = Expansion(steps, operands, places, results, avals)
        checked = any(s.signature.check is not None for s in steps)
        values = [_aval_of(lifted, s) for s in self.residuals]
        self._specs = None if checked else (
            *values, *self.avals, *[t._aval for t in self.outside], *[v.aval for v in self.constants], *map(type, self.numbers)
        )  # fmt: skip

    def expand(self, specs: tuple[ArgSpec, ...]) -> Expansion | None:
        """The operations that the pass is made of."""
        return self._expansion if specs == self._specs else None

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""
        steps, operands, number_places, results, _ = self._expansion

        def backward(*arrays: Any) -> tuple[Any, ...]:
            env = {-1 - i: arrays[p] for i, p in enumerate(operands)}
            numbers = iter(number_places)
            for step in steps:
                outs = step.signature.function(*[env[a] if type(a) is int else arrays[next(numbers)] for a in step.args])
                for i, out in enumerate(outs[: step.end - step.slot]):
                    env[step.slot + i] = out
            return tuple([env[slot] for slot in results])

        return backward

    def check(self, specs: Sequence[ArgSpec]) -> None:
        """Backward operations check nothing of their own."""

    def wrong(self, answer: Value) -> Fault | None:
        """What has first been found to be wrong, if anything; nothing where JAX itself transforms, which has no answer."""
        found = answer.everything()
        return None if found is None or not found.any() else self.faults[int(found[found > 0].min()) - 1]


def _aval_of(lifted: Lifted, slot: int) -> Aval:
    if slot < 0:
        return lifted.leaf_avals[-1 - slot]
    step: Any = lifted.step
    while not (step.signature is not None and step.slot <= slot < step.end):
        step = step.parent
    return step.signature.avals[slot - step.slot]


def _forward_slot(lifted: Lifted, value: Value) -> int | None:
    return value.slot if value.epoch is lifted.epoch else lifted.slots.get(value)


def _steps_to(step: Step | None) -> list[Step]:
    found = []
    while step is not None and step.signature is not None:
        found.append(step)
        step = step.parent
    return found[::-1]


class CompiledFunctionBackward(Node):
    """The node of a call of a compiled function."""

    __slots__ = ("backward", "saved")
    backward: Backward
    saved: tuple[Value, ...] | None

    def __init__(self, backward: Backward, saved: tuple[Value, ...], edges: tuple[Any, ...], rec: Recorder) -> None:
        self.backward, self.saved, self.next, self.seq, self.hooks = backward, saved, edges, rec.sequence, None
        rec.sequence += 1
        if rec.rare:
            note_node(rec, self)

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return tuple(self.backward.avals)

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        if self.saved is None:
            raise RuntimeError(FREED_MESSAGE)
        if calculus.records:
            raise RuntimeError(
                "torch.compile with aot_autograd does not currently support double backward: take the inner gradient within the compiled function, "
                "or call the function without jit where its gradient is differentiated"
            )
        saved = [v if v.counter is None else present(v) for v in self.saved]
        for v in saved:
            if outdated(v):
                raise RuntimeError(modified_message(v, "", 0))
        backward = self.backward
        given, came = [], 0
        for i, aval in enumerate(backward.avals):
            g = grads[i] if i < len(grads) else None
            came |= (g is not None) << i
            given.append(full_value(aval.shape, 0, aval.dtype, aval.device) if g is None else g._read() if calculus.tensors else g)
        outside = [t._content() for t in backward.outside]
        outs = call_values(backward, (*saved, *given, *outside, *backward.constants, *backward.numbers))
        found = outs if type(outs) is tuple else (outs,)
        if backward.faults:
            *found, answer = found
            if calculus.recorder.rare & CHECK_NAN and (which := backward.wrong(answer)) is not None:
                raise which.error()
        return tuple([None if not path & came else wrap(v) if calculus.tensors else v for v, path in zip(found, backward.paths, strict=True)])

    def own(self, owners: Sequence[tuple[int, Tensor]]) -> None:
        """Let what was saved be outdated by writes to tensors that were results of the call, or that it was given. owners: by which it was saved."""
        saved = self.saved
        assert saved is not None
        for i, t in owners:
            value: Any = saved[i]
            if t._storage is None and t._aval is value.aval:
                t._value = value
            else:
                counter = t._shared().counter
                value.counter, value.version = counter, counter.version

    def release(self) -> None:
        """See Node."""
        self.saved = None

    def content(self) -> Any:
        """See Node."""
        return self.saved

    def put_back(self, content: Any) -> None:
        """See Node."""
        self.saved = content


class Freed(Node):
    """The node of a result whose graph the function itself has gone through and freed. It has the avals of the results."""

    __slots__ = ("avals",)

    def __init__(self, avals: tuple[Aval, ...], rec: Recorder) -> None:
        self.avals, self.next, self.seq, self.hooks = avals, (), rec.sequence, None
        rec.sequence += 1

    def name(self) -> str:
        """See Node."""
        return CompiledFunctionBackward.__name__

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return self.avals

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        raise RuntimeError(FREED_MESSAGE)


class _IsFreed(Exception):
    """A graph was freed."""


def backward_of(lifted: Lifted) -> tuple[Backward | None, list[int]]:
    """The backward pass of a Lifted whose first run was just made, and which of its roots it is of: the graphs of others were freed. Refusal where
    it cannot be traced."""
    every = list(range(len(lifted.roots)))
    try:
        return _traced(lifted, every), every
    except _IsFreed:
        living = [i for i in every if len(every) > 1 and _is_there(lifted, i)]
        return (_traced(lifted, living) if living else None), living


def _is_there(lifted: Lifted, root: int) -> bool:
    try:
        _traced(lifted, [root])
    except _IsFreed:
        return False
    return True


def _traced(lifted: Lifted, which: list[int]) -> Backward:
    roots = [lifted.roots[i] for i in which]
    outer = per_thread.recorder
    rec = TraceRecorder(outer, True, lifted)
    given = []
    for t in roots:
        v = Value()
        v.aval, v.array, v.slot, v.epoch, v.counter, v.version = t._aval, None, 0, None, None, 0
        given.append(v)
    rec.symbols.update(given)
    edges: list[Any] = [(node, 0) for _, node in lifted.targets]
    extras = [node.variable._extra for _, node in lifted.targets if type(node) is AccumulateGrad]
    hooks = [(e, e.hooks) for e in extras if e is not None and e.hooks]
    try:
        return _pulled(lifted, [t._edge() for t in roots], rec, given, hooks, edges)
    except BaseException:  # an interrupt may have come while it was left
        _leave(rec, outer, hooks)
        raise


def _pulled(lifted: Lifted, roots: list[Any], rec: TraceRecorder, given: list[Value], hooks: list[tuple[Any, Any]], edges: list[Any]) -> Backward:
    outer = per_thread.recorder
    try:
        per_thread.recorder = rec
        watches.append(rec)
        for extra, _ in hooks:  # they see the gradient when it arrives outside
            extra.hooks = None
        found = run_backward(roots, [wrap(v) for v in given], retain_graph=True, create_graph=False, captures=edges, accumulate=False)
        _refuse_changes(rec)
        return Backward(lifted, rec, given, [None if g is None else g._content() for g in found], _paths(roots, edges))
    except TracingError as error:
        raise Refusal(f"in its backward pass {error}") from None
    except RuntimeError as error:
        if str(error) != FREED_MESSAGE:
            raise Refusal(f"its backward pass fails: {error}") from None
        raise _IsFreed from None
    finally:
        _leave(rec, outer, hooks)


def _paths(roots: Sequence[Any], edges: Sequence[Any]) -> list[int]:
    """From which of the roots a graph leads to each edge, as bits."""
    order: list[Node] = []
    seen: set[Node] = set()
    waiting = [(node, False) for node, _ in roots]
    while waiting:
        node, left = waiting.pop()
        if left:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            waiting += [(target, False) for target, _ in node.next if target is not None]
    paths = dict.fromkeys(order, 0)
    for i, (node, _) in enumerate(roots):
        paths[node] |= 1 << i
    for node in reversed(order):
        for target, _ in node.next:
            if target is not None:
                paths[target] |= paths[node]
    return [paths.get(node, 0) for node, _ in edges]


def _leave(rec: TraceRecorder, outer: Recorder, hooks: list[tuple[Any, Any]]) -> None:
    for extra, own in hooks:
        extra.hooks = own
    outer.sequence = rec.sequence
    abandon(rec, outer, KEPT)


def _refuse_changes(rec: TraceRecorder) -> None:
    rec.check_random()
    if rec.draws:
        raise Refusal("its backward pass draws random numbers")
    for met in rec.mets.values():
        if met.storage.peek() is not met.value or (met.tensor._extra is not None and met.tensor._extra.grad is not met.grad):
            raise Refusal("its backward pass changes a tensor from outside")


def node_maker(lifted: Lifted, backward: Backward) -> tuple[list[int], Callable[..., Node], list[tuple[int, bool, int]]]:
    """The slots that a call has to return beside its results, what makes the node of a call of its tensors, their Values, and those arrays, and which
    of what that saves was saved of whose memory, as `Lifted.whose` has it."""
    asked: list[int] = []
    sources: list[tuple[bool, int, Aval]] = []
    for slot in backward.residuals:
        kind, at = lifted.inputs[-1 - slot] if slot < 0 else ("", 0)
        if kind is CONTENT:
            sources.append((True, at, _aval_of(lifted, slot)))
        else:
            sources.append((False, len(asked), _aval_of(lifted, slot)))
            asked.append(slot)
    targets = [lifted.targets[i][0] for i in backward.reached]

    def make(rec: Recorder, tensors: list[Tensor], values: list[Value], arrays: Sequence[Any]) -> Node:
        saved = []
        for own, at, aval in sources:
            if own:
                saved.append(values[at])
            else:
                v = Value()
                v.aval, v.array, v.slot, v.epoch, v.counter, v.version = aval, arrays[at], 0, None, None, 0
                saved.append(v)
        return CompiledFunctionBackward(backward, tuple(saved), tuple([tensors[i]._edge() for i in targets]), rec)

    owned = [(i, *owner) for i, ((own, _, _), owner) in enumerate(zip(sources, backward.owners, strict=True)) if owner and not own]
    return asked, make, owned
