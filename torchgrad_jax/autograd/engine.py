"""The engine: walks the graph from the outputs to the leaves, later operations first.

Every edge leads to a node made earlier, so nodes in the descending order of their sequence numbers are ready when their turn
comes: the order in which PyTorch's ready queue hands them out. An AccumulateGrad runs as soon as its last gradient is in.
Where that does not say it all (hooks on several leaves, graphs made by several threads), the order is the ready queue's own.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torchgrad_jax.autograd import tape
from torchgrad_jax.autograd.hooks import call_tensor_hooks, check_returned_none, laid_out, node_post_hooks, node_pre_hooks
from torchgrad_jax.autograd.interrupted import Undo, grad_before_write
from torchgrad_jax.autograd.sparse_gradients import gradient, with_sparse
from torchgrad_jax.autograd.walk import leading_to, ordered_nodes, queue_order, run_nodes
from torchgrad_jax.core.anomaly import watch_of
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.fields import Extra
from torchgrad_jax.core.history import REPEATED, repeats
from torchgrad_jax.core.hot import record2
from torchgrad_jax.core.level import meet
from torchgrad_jax.core.made import fresh, wrap
from torchgrad_jax.core.node import AccumulateGrad, Calculus, Edge, Node
from torchgrad_jax.core.op_node import unpack_all
from torchgrad_jax.core.order import lay_out
from torchgrad_jax.core.saved import reset_hooks
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import overwrite
from torchgrad_jax.declaration.memory_order import dense_order, strides_in
from torchgrad_jax.declaration.operator import ARRAY
from torchgrad_jax.memory.sparse_content import SparseContent, is_sparse
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.elsewhere import Elsewhere
from torchgrad_jax.runtime.recorder import TURNED, Recorder, call_values, per_thread
from torchgrad_jax.runtime.recording.interrupts import from_outside
from torchgrad_jax.runtime.user_code import warn_once
from torchgrad_jax.runtime.value import Value

# Of passes that run inside each other, each of them some ten Python frames deep.
DEPTH_OF_A_THREAD = 30


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

    captures: the edges whose gradients are wanted; only nodes that lead to one run. With `accumulate` their own nodes run too, so that a
    leaf's gradient goes into its `.grad`; without it no leaf is touched and the gradients are returned, one for each capture (None: not reached).
    """
    rec = per_thread.recorder
    outer: GraphTask | None = rec.flags.task
    watch = rec.flags.watch
    task = (GraphTask if watch is None else watch.task)(create_graph, retain_graph, captures, accumulate)
    if outer is not None:
        task.depth = outer.depth + 1
        if task.depth % DEPTH_OF_A_THREAD == 0:
            return _on_a_fresh_stack(rec, lambda: _run_task(rec, task, roots, grads, outer))
    return _run_task(rec, task, roots, grads, outer)


def _run_task(rec: Recorder, task: GraphTask, roots: Sequence[Edge], grads: Sequence[Tensor], outer: GraphTask | None) -> list[Tensor | None]:
    before, level = (rec.grad_enabled, outer, list(rec.flags.packing)), (rec.level, rec.rare)
    task.roots = roots
    try:
        try:
            rec.flags.task, rec.grad_enabled = task, task.calculus.records and not rec.inference
            found = task.replay(roots, grads)
            if found is None:
                found = task.run(roots, grads)
            for callback in task.callbacks:  # one may add another
                callback()
            if outer is not None:  # if the pass that it is part of is taken back, so is it
                outer.undo.grads += task.undo.grads
        except BaseException as error:
            if not isinstance(error, Exception) or from_outside(error):
                rec.flags.packing[:] = before[2]  # which `rare` counts
                rec.level, rec.rare = level
                task.undo.take_back()
            raise
        finally:
            _leave(rec, *before)
    finally:
        if rec.flags.task is task:  # an interrupt has come while it was left
            _leave(rec, *before)
    if not (task.calculus.tensors or outer is not None):
        rec.turned |= TURNED
    return found


def _leave(rec: Recorder, grad_enabled: bool, outer: GraphTask | None, hooks: list[Any]) -> None:
    rec.grad_enabled = grad_enabled
    if hooks or rec.flags.packing:
        reset_hooks(rec, hooks)
    rec.flags.task = outer  # last: until then it has not been left


def _on_a_fresh_stack(rec: Recorder, call: Callable[[], Any]) -> Any:
    """Run in a new thread that takes over this one's recorder: backward passes within backward passes may be many, Python's stack is not deep."""
    outcome: list[Any] = []

    def target() -> None:
        per_thread.recorder, rec.thread = rec, threading.get_ident()
        try:
            outcome.append(call())
        except BaseException as error:  # noqa: B036 - raised again in the thread that waits
            outcome.append(error)

    here = rec.thread
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    rec.thread = here
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


class GraphTask:
    """One backward pass.

    id: its number, counted over the process. depth: how many passes it runs inside of. callbacks: what is called at its end. needed: the nodes
    that run because they lead to a captured edge (None: all run). received: the gradients that the node which runs was given. notes: what others
    keep for as long as the pass runs. evaluates: what runs a node, where somebody watches. watch: what anomaly mode does as the pass runs; None while
    it is off.
    """

    _ids = itertools.count()
    evaluates: Callable[[Node, list[Any]], Any] | None = None

    def __init__(self, create_graph: bool, retain_graph: bool, captures: Sequence[Edge] | None, accumulate: bool) -> None:
        self.id, self.depth = next(GraphTask._ids), 0
        self.callbacks: list[Callable[[], Any]] = []
        self.undo: Undo = Undo()
        self.notes: dict[Any, Any] = {}
        self.received: Sequence[Any] = ()
        self.retain_graph, self.accumulate = retain_graph, accumulate
        rec = per_thread.recorder
        self.watch = watch_of(rec) if rec.rare or modes.anomaly else None
        if create_graph or rec.level is not None:
            self.calculus = Calculus(rec, apply, _add_tensors, unpack_all, True, create_graph)
        else:
            self.calculus = Calculus(rec, call_values, _add_values, unpack_all, False)
        self.captures = captures
        self.captured: dict[Edge, Any] = {}
        self.wanted: dict[Node, list[int]] = {}
        for node, nr in captures or ():
            self.wanted.setdefault(node, []).append(nr)
        self.own = False  # whether each gradient is a Value that nobody else has
        self.roots: Sequence[Edge] = ()
        self.executed: set[Node] | None = None
        self.needed: set[Node] | None = None
        self.buffers: dict[Node, list[Any]] = {}
        self.missing: dict[Node, int] = {}
        # Where the pass begins: hooks of these tensors are called even if nothing that is asked for comes after them.
        self.begins: set[Node] = set()

    def executes(self, node: Node) -> bool:
        """Whether this pass runs `node`, or takes the gradient that arrives at it. RuntimeError for a leaf whose gradient is only taken."""
        if node in self.wanted and type(node) is AccumulateGrad and not self.accumulate:
            raise RuntimeError(
                "A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). This is currently not supported."
            )
        if self.executed is None:
            order = queue_order(self.roots, None)
            self.executed = set(order) if self.captures is None else leading_to(order, self.wanted.keys()) | self.wanted.keys()
        return node in self.executed

    def replay(self, roots: Sequence[Edge], grads: Sequence[Tensor]) -> list[Tensor | None] | None:
        """Run the pass as one operation, if the graph is one that was walked before. None if it is not."""
        calculus = self.calculus
        if calculus.tensors or modes.execution == "eager":
            return None
        values = [g._read() for g in grads]
        print_ = tape.fingerprint(roots, values, self.captures, self.accumulate)
        found = None if print_ is None else tape.find(print_, calculus.recorder.rolling)
        if found is None:
            return None
        assert print_ is not None
        if found is True:
            found = rehearse(print_, roots, values, self.captures, self.accumulate)
            tape.keep(print_, found)
        outs = calculus.call(found, tuple(print_.operands))
        self.own = True
        nodes = list(print_.index)
        try:
            for (i, nr), grad in zip(found.targets, outs if type(outs) is tuple else (outs,), strict=True):
                node = nodes[i]
                if type(node) is AccumulateGrad:
                    extra = node.variable._extra
                    if self.captures is None and extra is not None and not (extra.hooks or extra.post_hooks or node.hooks):
                        accumulate_grad(calculus, node.variable, grad, self.undo, self.own)
                    else:
                        self.buffers[node] = [grad]
                        self._accumulate(node)
                else:
                    self.captured[node, nr] = grad
        except Exception as error:
            if not (self.retain_graph or from_outside(error)):  # what would have run before is freed
                for k in found.runs[: found.ran[found.targets.index((i, nr))]]:
                    nodes[k].release()
            raise
        if not self.retain_graph:
            self.undo.rest = [nodes[i] for i in found.runs]
            tape.release(self.undo.rest)
        return self._results()

    def run(self, roots: Sequence[Edge], grads: Sequence[Tensor]) -> list[Tensor | None]:
        """Run the pass node by node."""
        watch = self.watch
        if watch is None:
            return self._run(roots, grads)
        try:
            return self._run(roots, grads)
        except Exception:
            watch.failed()
            raise
        finally:
            watch.ends()

    def _run(self, roots: Sequence[Edge], grads: Sequence[Tensor]) -> list[Tensor | None]:
        order, calculus, missing = self._arrange(roots), self.calculus, self.missing
        for (node, nr), grad in zip(roots, grads, strict=True):
            self._put(node, nr, grad if calculus.tensors else grad._read())
        for node, _ in roots:
            if node in missing and missing[node] == 0 and node in self.buffers:
                self._accumulate(node)
        run_nodes(self, self.walk(order))
        return self._results()

    def walk(self, order: Sequence[Node]) -> Iterable[Node]:
        """The nodes one after the other."""
        return order

    def _results(self) -> list[Tensor | None]:
        if self.captures is None:
            return []
        return [None if g is None else self._as_tensor(g) for g in map(self.captured.get, self.captures)]

    def _arrange(self, roots: Sequence[Edge]) -> Sequence[Node]:
        """The nodes in the order in which they run; the leaves with them where their order can be seen, else apart in `missing`, which has the
        number of gradients that each waits for."""
        order, ordered = ordered_nodes(roots, self.missing)
        if not ordered:
            order = [node for node in queue_order(roots, None) if type(node) is not AccumulateGrad]
        if self.captures is not None:
            self.begins = {node for node, _ in roots}
            self.needed = leading_to(order, self.wanted.keys())
            self.calculus.needed = self.needed | self.wanted.keys()
            if self.accumulate:
                self.needed = self.calculus.needed
        if ordered and not self._sees_leaves():
            return order
        self.missing.clear()
        return queue_order(roots, None if self.needed is None else self.needed | self.wanted.keys())

    def _sees_leaves(self) -> bool:
        """Whether hooks on several leaves see which comes first."""
        hooked = 0
        for node in self.missing:
            assert isinstance(node, AccumulateGrad)
            extra = node.variable._extra
            hooked += bool(node.hooks is not None or (extra is not None and (extra.hooks or extra.post_hooks)))
        return hooked > 1

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
        assert isinstance(node, AccumulateGrad)
        received, extra = self.buffers.pop(node, None), node.variable._extra
        if received is None:
            if node.hooks is None and (extra is None or not (extra.hooks or extra.post_hooks)):
                return
            received = [None]  # of which hooks are told
        if self.watch is not None:
            self.watch.begins(node)
        grad = received[0]
        wanted = self.captures is None or node in self.wanted
        if extra is not None and extra.hooks and (wanted or node in self.begins):
            grad = call_tensor_hooks(self.calculus, extra.hooks, grad)
        if not wanted:
            return
        if node in self.wanted and not self.accumulate:
            if grad is not None:
                self.captured[node, 0] = grad
            return
        if node.hooks is not None:
            grad = node_pre_hooks(self.calculus, node, [grad])[0]
        if grad is not None:
            accumulate_grad(self.calculus, node.variable, grad, self.undo)
        if extra is None:
            extra = node.variable._extra
        if extra is not None and extra.post_hooks:
            for hook in list(extra.post_hooks.values()):
                check_returned_none(hook(node.variable), node.variable)
        if node.hooks is not None and node.hooks.post:
            node_post_hooks(self.calculus, node, (), [grad])

    def _as_tensor(self, grad: Any) -> Tensor:
        if self.calculus.tensors:
            return grad
        rec = self.calculus.recorder
        # Two inputs may share one gradient Value: each result is a tensor of its own.
        value: Value = grad if self.own else rec.alias(grad)
        return gradient(rec, value) if type(value.array) is SparseContent else fresh(rec, value)


class _Ran(Undo):
    """Notes the nodes that were to be freed, in that order."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []

    def free(self, node: Node, epoch: Any) -> None:
        """See Undo."""
        self.nodes.append(node)


class _Rehearsal(GraphTask):
    """A pass that only notes which nodes run, and which gradients arrive where after how many of them."""

    def __init__(self, captures: Sequence[Edge] | None, accumulate: bool) -> None:
        super().__init__(False, False, captures, accumulate)
        self.undo = _Ran()
        self.reached: list[tuple[Edge, Any]] = []
        self.ran: list[int] = []

    def _reach(self, edge: Edge, grad: Any) -> None:
        assert isinstance(self.undo, _Ran)
        self.reached.append((edge, grad))
        self.ran.append(len(self.undo.nodes))

    def _sees_leaves(self) -> bool:
        return True  # hooks may be registered later

    def _accumulate(self, node: Node) -> None:
        received = self.buffers.pop(node, None)
        if received is not None and (self.captures is None or node in self.wanted):
            self._reach((node, 0), received[0])

    def _capture(self, node: Node, received: list[Any]) -> None:
        for nr in self.wanted[node]:
            if nr < len(received) and received[nr] is not None:
                self._reach((node, nr), received[nr])

    def _results(self) -> list[Tensor | None]:
        return []


def rehearsed(
    scratch: tape.PassRecorder, roots: Sequence[Edge], grads: Sequence[Tensor], captures: Sequence[Edge] | None, accumulate: bool,
    placed: dict[Node, Any] | None,
) -> _Rehearsal:  # fmt: skip
    """A pass whose operations are recorded on `scratch` alone. placed: see Calculus."""
    pass_ = _Rehearsal(captures, accumulate)
    pass_.calculus = Calculus(scratch, scratch.call, lambda a, b: record2(scratch, ADD, a, b), unpack_all, False)
    pass_.calculus.placed = placed
    pass_.run(roots, grads)
    return pass_


def rehearse(
    print_: tape.Fingerprint, roots: Sequence[Edge], grads: Sequence[Value], captures: Sequence[Edge] | None, accumulate: bool = False
) -> tape.Tape:
    """The pass over a graph as one operation."""
    scratch = tape.PassRecorder(per_thread.recorder)
    pass_ = rehearsed(scratch, roots, [wrap(g) for g in grads], captures, accumulate, tape.placed(print_, roots))
    assert isinstance(pass_.undo, _Ran)
    made = tape.Tape(scratch, pass_.reached, print_.operands, print_.index, pass_.undo.nodes, pass_.ran)
    scratch.close()
    return made


class ExecutionEngine:
    """The engine as an object, as PyTorch shows it: `Variable._execution_engine`."""

    def queue_callback(self, callback: Callable[[], Any]) -> None:
        """Call `callback` at the end of the backward pass that runs in this thread. RuntimeError outside of one."""
        task: GraphTask | None = per_thread.recorder.flags.task
        if task is None:
            raise RuntimeError("Final callbacks can only be installed during backward pass.")
        task.callbacks.append(callback)


def accumulate_grad(calculus: Any, leaf: Tensor, grad: Any, undo: Undo | None = None, own: bool = False) -> None:
    """Add `grad` to the leaf's `.grad`: in place while no graph of it is made, by a new tensor under `create_graph`. own: it is a Value that nobody
    else has. RuntimeError where it is a leaf no more."""
    variable: Any = leaf
    if (variable._node if variable._view is None else leaf._present_node()) is not None:
        raise RuntimeError("leaf variable has been moved into the graph interior")
    if not variable._rg:  # it was asked not to require a gradient since
        return
    # On one line: an interrupt between two would leave it locked.
    with _accumulating: _add_grad(calculus, leaf, grad, undo, own)  # noqa: E701  # fmt: skip


def _add_grad(calculus: Any, leaf: Tensor, grad: Any, undo: Undo | None, own: bool) -> None:
    if calculus.recorder.level is not None:
        meet(leaf, "read")
    variable: Any = leaf
    if variable._extra is None:
        variable._extra = Extra()
    extra: Any = variable._extra
    old = extra.grad
    if undo is not None:
        undo.grads.append((extra, None, None, 0) if old is None else grad_before_write(extra, old))
    if calculus.tensors and not calculus.records:  # no tangent goes into `.grad`
        grad = grad._read()
    value: Value = grad._value if calculus.records else grad
    if type(value.array) is SparseContent or (old is not None and type(old._value.array) is SparseContent):
        extra.grad = with_sparse(calculus, old, grad)
    elif calculus.records:
        extra.grad = _in_order_of(leaf, apply(COPY, (wrap(grad._read()), grad))) if old is None else old + grad
    elif old is None:
        first = fresh(calculus.recorder, grad if own else calculus.recorder.alias(grad))
        extra.grad = first if variable._view is None else _in_order_of(leaf, first, taken=True)
        if variable._view is None:
            return
    else:
        if old._view is not None and repeats(old._view, old._aval):
            raise RuntimeError(REPEATED)
        overwrite(old, record2(calculus.recorder, ADD, old._read(), grad))
    made = extra.grad
    if old is not None and made is not None and not is_sparse(made._value) and (variable._view is not None or made._view is not None):
        _tell_of_layout(leaf, made)


def call_node(node: Node, *grads: Any) -> Any:
    """The gradients of the inputs, given those of the outputs: a tensor, or a tuple laid out as `next_functions`. No hook is called. The graph is
    extended if one is being recorded.

    TypeError for another number of gradients, RuntimeError where the graph was freed.
    """
    expected = len(node.output_avals)
    if len(grads) != expected:
        raise TypeError(f"expected {expected} arguments, got {len(grads)} instead")
    calculus = Calculus(per_thread.recorder, apply, _add_tensors, unpack_all, True)
    if isinstance(node, AccumulateGrad):
        if grads[0] is not None:
            accumulate_grad(calculus, node.variable, grads[0])
        return ()
    outs = node.run(calculus, list(grads)) if any(g is not None for g in grads) else (None,) * len(node.next)
    laid, _ = laid_out(calculus, node, outs, grads)
    return laid[0] if len(laid) == 1 else tuple(laid)


def _in_order_of(variable: Tensor, grad: Tensor, taken: bool = False) -> Tensor:
    """A first gradient lies in memory as its leaf does, or row-major where the leaf's elements overlap or leave gaps. One that is taken as it came
    stays so where that is not enforced."""
    view = variable._view
    if view is None or variable.is_contiguous() or (taken and not per_thread.recorder.flags.grad_layout):
        return grad
    order = dense_order(variable._aval.shape, view.strides)
    return grad if order is None else lay_out(grad, order)


def _tell_of_layout(variable: Tensor, grad: Tensor) -> None:
    """Warn once of a gradient that lies in memory otherwise than a first one would."""
    shape, strides = variable._aval.shape, variable.stride()
    expected = strides_in(shape, dense_order(shape, strides) or tuple(range(len(shape))))
    if variable._aval.size and any(n != 1 and a != b for n, a, b in zip(shape, grad.stride(), expected, strict=True)):
        warn_once(
            "grad and param do not obey the gradient layout contract. This is not an error, but may impair performance.",
            f"\ngrad.sizes() = {list(shape)}, strides() = {list(grad.stride())}\nparam.sizes() = {list(shape)}, strides() = {list(strides)}",
        )


# Passes of several threads may reach one leaf.
_accumulating = threading.Lock()


# ---------------------------------------------------------------------- computing on Values and on Tensors

ADD = registry["add"].bind((ARRAY, ARRAY))
COPY = registry["copy"].bind((ARRAY, ARRAY))


def _add_values(a: Value, b: Value) -> Value:
    try:
        return record2(per_thread.recorder, ADD, a, b)
    except Elsewhere:
        return call_values(ADD, (a, b))


def _add_tensors(a: Tensor, b: Tensor) -> Tensor:
    return apply(ADD, (a, b))
