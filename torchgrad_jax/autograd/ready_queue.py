"""The order in which PyTorch's engine takes nodes from its ready queue.

The queue is a binary heap of the nodes that have all their gradients, later sequence numbers first. Accumulators of leaves all have the highest
number, so which of several comes first depends on how the heap is kept: as the usual C++ library does it. Hooks on leaves make that order visible.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchgrad_jax.core.node import Edge, Node


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
