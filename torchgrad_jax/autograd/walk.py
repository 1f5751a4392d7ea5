"""The walk of a backward pass: which nodes it comes to, in which order, and running one after the other.

Each operation of a graph goes through this once, so it is compiled where there is a compiler (`torchgrad_jax/_typed`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any

from torchgrad_jax.autograd.hooks import node_post_hooks, node_pre_hooks, tensor_pre_hooks
from torchgrad_jax.core.fields import OpNodeFields
from torchgrad_jax.core.node import AccumulateGrad, Edge, Node
from torchgrad_jax.core.op_node import run_operator

_by_sequence = attrgetter("seq")


def ordered_nodes(roots: Sequence[Edge], missing: dict[Node, int]) -> tuple[list[Any], bool]:
    """All nodes that can be reached, later ones first; leaves apart, in `missing`, with the number of gradients they wait for. And whether
    every edge leads to an earlier node, as it does unless several threads made the graph: they count for themselves."""
    seen: set[Any] = set()
    stack: list[Any] = []
    ordered = True
    for root, _ in roots:
        if type(root) is AccumulateGrad:
            missing.setdefault(root, 0)
        elif root not in seen:
            seen.add(root)
            stack.append(root)
    order = []
    while stack:
        node: Any = stack.pop()
        order.append(node)
        seq = node.seq
        for target, _ in node.next:
            if type(target) is AccumulateGrad:
                missing[target] = missing.get(target, 0) + 1
                continue
            later: Any = target
            if later.seq >= seq:
                ordered = False
            if target not in seen:
                seen.add(target)
                stack.append(target)
    order.sort(key=_by_sequence, reverse=True)
    return order, ordered


def leading_to(order: list[Node], wanted: Collection[Node]) -> set[Node]:
    """The nodes that have a wanted one among their descendants."""
    found: set[Node] = set()
    for node in reversed(order):  # earlier nodes first: descendants are known
        for target, _ in node.next:
            if target in wanted or target in found:
                found.add(node)
                break
    return found


def run_nodes(task: Any, nodes: Iterable[Any]) -> None:
    """Run the nodes one after the other, on the gradients that have arrived in the task's `buffers`."""
    calculus, buffers, missing, undo, watch = task.calculus, task.buffers, task.missing, task.undo, task.watch
    retain, wanted, needed, evaluates, rec = task.retain_graph, task.wanted, task.needed, task.evaluates, task.calculus.recorder
    for n in nodes:
        if type(n) is AccumulateGrad:  # only where the order of leaves matters
            task._accumulate(n)
            continue
        node: Any = n  # whose fields compiled code reads without asking Python
        if watch is not None:
            watch.begins(n)
        received = buffers.pop(node, None) or [None]
        hooks = node.hooks
        if hooks is None and needed is None and not wanted:
            runs = True
        else:
            runs = needed is None or node in needed
            received = _before_it_runs(task, n, received, runs)
        if not runs:
            continue
        if received[0] is None and received.count(None) == len(received) and not n.runs_without_gradient:
            outs: tuple[Any, ...] = (None,) * len(node.next)
        else:
            task.received = received
            if evaluates is not None:
                outs = evaluates(n, received)
            else:
                outs = run_operator(n, calculus, received) if isinstance(node, OpNodeFields) else n.run(calculus, received)
        if node.hooks is not None and node.hooks.post:
            outs = node_post_hooks(calculus, n, outs, received)
        if watch is not None:
            watch.gave(n, outs, calculus.needed)
        if not retain:
            undo.free(n, rec.epoch)
        edges = node.next
        if len(outs) != len(edges):
            raise ValueError(f"{n.name()} has given {len(outs)} gradients for {len(edges)} inputs")
        for i, grad in enumerate(outs):
            target, nr = edges[i]
            if grad is not None:
                if nr == 0 and target not in buffers:
                    buffers[target] = [grad]
                else:
                    task._put(target, nr, grad)
            if target in missing:
                left = missing[target] - 1
                missing[target] = left
                if not left:
                    task._accumulate(target)
                    if watch is not None:
                        watch.begins(n)


def _before_it_runs(task: Any, node: Node, received: list[Any], runs: bool) -> list[Any]:
    """Take the gradients of a node that are asked for, and call the hooks of what comes in: what it is run on, if it `runs`."""
    hooked = node.hooks is not None
    if node in task.wanted and not task.accumulate:
        # PyTorch takes the gradient of a node that must run as it comes in, of one that need not after its tensors' hooks.
        if hooked and not runs:
            received = tensor_pre_hooks(task.calculus, node, received)
        task._capture(node, received)
    elif not runs and node in task.begins and hooked:
        tensor_pre_hooks(task.calculus, node, received)
    if runs and node.hooks is not None:
        received = tensor_pre_hooks(task.calculus, node, received)
        if node.hooks.pre:
            received = node_pre_hooks(task.calculus, node, received)
    return received


# ---------------------------------------------------------------------- where sequence numbers do not tell the order
#
# PyTorch's ready queue is a binary heap of the nodes that have all their gradients, later sequence numbers first. Accumulators of leaves all have
# the highest number, so which of several comes first depends on how the heap is kept: as the usual C++ library does it. Hooks on leaves make that
# order visible.


class ReadyQueue:
    """A heap by sequence number with the sifting of ``std::priority_queue``."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[Node] = []

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, node: Node) -> None:
        """Add a node."""
        self._heap.append(node)
        self._rise(len(self._heap) - 1, node)

    def pop(self) -> Node:
        """Take the node of the highest sequence number."""
        heap = self._heap
        top, last = heap[0], heap.pop()
        count = len(heap)
        if not count:
            return top
        hole = child = 0
        while child < (count - 1) // 2:
            child = 2 * (child + 1)
            if heap[child].seq < heap[child - 1].seq:
                child -= 1
            heap[hole] = heap[child]
            hole = child
        if count % 2 == 0 and child == (count - 2) // 2:
            heap[hole] = heap[2 * child + 1]
            hole = 2 * child + 1
        self._rise(hole, last)
        return top

    def _rise(self, hole: int, node: Node) -> None:
        heap = self._heap
        while hole:
            parent = (hole - 1) // 2
            if heap[parent].seq >= node.seq:
                break
            heap[hole] = heap[parent]
            hole = parent
        heap[hole] = node


def queue_order(roots: Sequence[Edge], runs: set[Node] | None) -> list[Node]:
    """All nodes that can be reached from `roots`, leaves among them, in the order in which they run. runs: those that run at all; None: every one."""
    waiting = _dependencies(roots)
    queue = ReadyQueue()
    order: list[Node] = []
    _arrive(roots, waiting, queue, runs)
    while len(queue):
        node = queue.pop()
        order.append(node)
        _arrive(node.next, waiting, queue, runs)
    return order


def _dependencies(roots: Sequence[Edge]) -> dict[Node, int]:
    """How many edges lead to each node, those from outside among them."""
    waiting: dict[Node, int] = {}
    stack: list[Sequence[Edge]] = [roots]
    while stack:
        for target, _ in stack.pop():
            if target in waiting:
                waiting[target] += 1
            else:
                waiting[target] = 1
                stack.append(target.next)
    return waiting


def _arrive(edges: Sequence[Edge], waiting: dict[Node, int], queue: ReadyQueue, runs: set[Node] | None) -> None:
    for target, _ in edges:
        waiting[target] -= 1
        if not waiting[target] and (runs is None or target in runs):
            queue.push(target)
