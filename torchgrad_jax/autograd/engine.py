"""The engine: walks the graph from the outputs to the leaves, later operations first.

Every edge leads to a node made earlier, so nodes in the descending order of their sequence numbers are ready when their turn
comes: the order in which PyTorch's ready queue hands them out. An AccumulateGrad runs as soon as its last gradient is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from torchgrad_jax.autograd import tape
from torchgrad_jax.autograd.hooks import call_tensor_hooks, node_post_hooks, node_pre_hooks, tensor_pre_hooks
from torchgrad_jax.ops.declare import ARRAY, registry
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.recorder import per_thread, record2
from torchgrad_jax.runtime.value import Value
from torchgrad_jax.tensor.dispatch import apply, call_values, unpack_all
from torchgrad_jax.tensor.inplace import overwrite
from torchgrad_jax.tensor.node import Calculus, Edge, Node
from torchgrad_jax.tensor.tensor import AccumulateGrad, Tensor, wrap

_by_sequence = attrgetter("seq")


def run_backward(
    roots: Sequence[Edge],
    grads: Sequence[Tensor],
    *,
    retain_graph: bool,
    create_graph: bool,
    captures: Sequence[Edge] | None = None,
    accumulate: bool = True,
) -> list[Tensor | None]:
    """Push `grads` from `roots` through the graph.

    captures: the edges whose gradients are wanted; only nodes that lead to one run. With `accumulate` a captured leaf's gradient
    goes into its `.grad`, without it no leaf is touched and the gradients are returned, one for each capture (None: not reached).
    """
    rec = per_thread.recorder
    before = rec.grad_enabled
    nested = rec.flags.get("in_backward", False)
    rec.flags["in_backward"] = True
    rec.grad_enabled = create_graph
    try:
        task = _Task(create_graph, retain_graph, captures, accumulate)
        found = task.replay(roots, grads)
        if found is None:
            found = task.run(roots, grads)
    finally:
        rec.grad_enabled = before
        rec.flags["in_backward"] = nested
    if not (create_graph or nested):
        rec.turned = True
    return found


class _Task:
    """One backward pass."""

    def __init__(self, create_graph: bool, retain_graph: bool, captures: Sequence[Edge] | None, accumulate: bool) -> None:
        self.retain_graph, self.accumulate = retain_graph, accumulate
        rec = per_thread.recorder
        if create_graph:
            self.calculus = Calculus(rec, apply, _add_tensors, unpack_all, True)
        else:
            self.calculus = Calculus(rec, call_values, _add_values, unpack_all, False)
        self.captures = captures
        self.captured: dict[Edge, Any] = {}
        self.wanted: dict[Node, list[int]] = {}
        for node, nr in captures or ():
            self.wanted.setdefault(node, []).append(nr)
        self.buffers: dict[Node, list[Any]] = {}
        self.missing: dict[Node, int] = {}

    def replay(self, roots: Sequence[Edge], grads: Sequence[Tensor]) -> list[Tensor | None] | None:
        """Run the pass as one operation, if the graph is one that was walked before. None if it is not."""
        calculus = self.calculus
        if calculus.tensors or modes.execution == "eager":
            return None
        values = [g._read() for g in grads]
        print_ = tape.fingerprint(roots, values, self.captures, self.accumulate)
        found = None if print_ is None else tape.find(print_)
        if found is None:
            return None
        assert print_ is not None
        if found is True:
            found = self._make_tape(print_, roots, grads)
        outs = calculus.call(found, tuple(print_.operands))
        nodes = list(print_.index)
        for (i, nr), grad in zip(found.targets, outs if type(outs) is tuple else (outs,), strict=True):
            node = nodes[i]
            if type(node) is AccumulateGrad:
                extra = node.variable._extra
                if self.captures is None and extra is not None and not (extra.hooks or extra.post_hooks or node.hooks):
                    accumulate_grad(calculus, node.variable, grad)
                else:
                    self.buffers[node] = [grad]
                    self._accumulate(node)
            else:
                self.captured[node, nr] = grad
        if not self.retain_graph:
            for node in nodes:
                node.release()
        return self._results()

    def _make_tape(self, print_: tape.Fingerprint, roots: Sequence[Edge], grads: Sequence[Tensor]) -> tape.Tape:
        scratch = tape.ScratchRecorder(self.calculus.recorder)
        pass_ = _Rehearsal(False, True, self.captures, self.accumulate)
        pass_.calculus = Calculus(scratch, scratch.call, lambda a, b: record2(scratch, ADD, a, b), unpack_all, False)
        pass_.calculus.placed = tape.placed(print_, roots)
        pass_.run(roots, grads)
        made = tape.Tape(scratch, pass_.reached, print_.operands, print_.index)
        tape.keep(print_, made)
        scratch.close()
        return made

    def run(self, roots: Sequence[Edge], grads: Sequence[Tensor]) -> list[Tensor | None]:
        """Run the pass node by node."""
        order = self._order(roots)
        calculus, buffers, missing = self.calculus, self.buffers, self.missing
        retain, wanted = self.retain_graph, self.wanted
        needed = None if self.captures is None else _leading_to(order, set(wanted))
        for (node, nr), grad in zip(roots, grads, strict=True):
            self._put(node, nr, grad if calculus.tensors else grad._read())
        for node, _ in roots:
            if node in missing and missing[node] == 0 and node in buffers:
                self._accumulate(node)
        for node in order:
            received = buffers.pop(node, None) or [None]
            runs = needed is None or node in needed
            if node in wanted:
                # PyTorch takes the gradient of a node that must run as it comes in, of one that need not after its tensors' hooks.
                if node.hooks is not None and not runs:
                    received = tensor_pre_hooks(calculus, node, received)
                self._capture(node, received)
            if not runs:
                continue
            if node.hooks is not None:
                received = node_pre_hooks(calculus, node, tensor_pre_hooks(calculus, node, received))
            if received[0] is None and received.count(None) == len(received) and not node.runs_without_gradient:
                outs: tuple[Any, ...] = (None,) * len(node.next)
            else:
                outs = node.run(calculus, received)
            if node.hooks is not None and node.hooks.post:
                outs = node_post_hooks(calculus, node, outs, received)
            if not retain:
                node.release()
            for (target, nr), grad in zip(node.next, outs, strict=True):
                if grad is not None:
                    buffer = buffers.get(target)
                    if buffer is None and nr == 0:
                        buffers[target] = [grad]
                    else:
                        self._put(target, nr, grad)
                if target in missing:
                    missing[target] -= 1
                    if not missing[target]:
                        self._accumulate(target)
        return self._results()

    def _results(self) -> list[Tensor | None]:
        return [None if g is None else self._as_tensor(g) for g in (self.captured.get(e) for e in self.captures or ())]

    def _order(self, roots: Sequence[Edge]) -> list[Node]:
        """All nodes that can be reached, later ones first; leaves apart, with the number of gradients they wait for."""
        missing = self.missing
        seen: set[Node] = set()
        stack: list[Node] = []
        for node, _ in roots:
            if type(node) is AccumulateGrad:
                missing.setdefault(node, 0)
            elif node not in seen:
                seen.add(node)
                stack.append(node)
        order = []
        while stack:
            node = stack.pop()
            order.append(node)
            for target, _ in node.next:
                if type(target) is AccumulateGrad:
                    missing[target] = missing.get(target, 0) + 1
                elif target not in seen:
                    seen.add(target)
                    stack.append(target)
        order.sort(key=_by_sequence, reverse=True)
        return order

    def _put(self, node: Node, nr: int, grad: Any) -> None:
        buffer = self.buffers.get(node)
        if buffer is None:
            buffer = self.buffers[node] = [None] * (nr + 1)
        elif len(buffer) <= nr:
            buffer.extend([None] * (nr + 1 - len(buffer)))
        buffer[nr] = grad if buffer[nr] is None else self.calculus.add(buffer[nr], grad)

    def _capture(self, node: Node, received: list[Any]) -> None:
        for nr in self.wanted[node]:
            grad = received[nr] if nr < len(received) else None
            if grad is not None:
                self.captured[node, nr] = grad

    def _accumulate(self, node: Node) -> None:
        received = self.buffers.pop(node, None)
        if received is None:
            return
        assert isinstance(node, AccumulateGrad)
        if self.captures is not None and node not in self.wanted:
            return
        grad = received[0]
        extra = node.variable._extra
        if extra is not None and extra.hooks:
            grad = call_tensor_hooks(self.calculus, extra.hooks, grad)
        if node in self.wanted:
            self.captured[node, 0] = grad
            if not self.accumulate:
                return
        if node.hooks is not None:
            grad = node_pre_hooks(self.calculus, node, [grad])[0]
        accumulate_grad(self.calculus, node.variable, grad)
        if extra is None:
            extra = node.variable._extra
        if extra is not None and extra.post_hooks:
            for hook in list(extra.post_hooks.values()):
                hook(node.variable)
        if node.hooks is not None and node.hooks.post:
            node_post_hooks(self.calculus, node, (), [grad])

    def _as_tensor(self, grad: Any) -> Tensor:
        # Two inputs may share one gradient Value: each result is a tensor of its own.
        return grad if self.calculus.tensors else wrap(self.calculus.recorder.alias(grad))


class _Rehearsal(_Task):
    """A pass that only notes which gradients arrive where."""

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self.reached: list[tuple[Edge, Any]] = []

    def _accumulate(self, node: Node) -> None:
        received = self.buffers.pop(node, None)
        if received is not None and (self.captures is None or node in self.wanted):
            self.reached.append(((node, 0), received[0]))

    def _capture(self, node: Node, received: list[Any]) -> None:
        for nr in self.wanted[node]:
            if nr < len(received) and received[nr] is not None:
                self.reached.append(((node, nr), received[nr]))

    def _results(self) -> list[Tensor | None]:
        return []


def accumulate_grad(calculus: Calculus, variable: Tensor, grad: Any) -> None:
    """Add `grad` to the leaf's `.grad`: in place while no graph of it is made, by a new tensor under `create_graph`."""
    if not variable._rg:  # it was asked not to require a gradient since
        return
    extra = variable._own_extra()
    old = extra.grad
    if calculus.tensors:
        extra.grad = grad if old is None else old + grad
    elif old is None:
        extra.grad = wrap(calculus.recorder.alias(grad))
    else:
        overwrite(old, record2(calculus.recorder, ADD, old._read(), grad))


def _leading_to(order: list[Node], wanted: set[Node]) -> set[Node]:
    """The nodes that have a wanted one among their descendants."""
    found: set[Node] = set()
    for node in reversed(order):  # earlier nodes first: descendants are known
        for target, _ in node.next:
            if target in wanted or target in found:
                found.add(node)
                break
    return found


# ---------------------------------------------------------------------- computing on Values and on Tensors

ADD = registry["add"].bind((ARRAY, ARRAY))


def _add_values(a: Value, b: Value) -> Value:
    return record2(per_thread.recorder, ADD, a, b)


def _add_tensors(a: Tensor, b: Tensor) -> Tensor:
    return apply(ADD, (a, b))
