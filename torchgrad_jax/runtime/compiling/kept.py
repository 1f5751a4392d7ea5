"""What costs much to compute and is read more than once: sums at the end of long chains of element-wise operations, and gradients of windows.

XLA's CPU compiler puts element-wise operations into the loops of all that read them and computes them anew in each. A gradient that flows back
through the steps of a recurrence is a sum that several operations of its step read, and the sum of the step before: each of these loops then holds
the chain of all later steps (a GRU over 50 steps, forward and backward, on a busy machine: 10.2 ms, and 27 s of processor time to compile; 4.4 ms
and 9 s where one sum a step is kept in memory). The gradient of a max-pooling compares the elements of each window, and a batch norm before it reads
that gradient in five loops, each of which compared, and normalized what it compared, anew: 15 ms, 5 where it is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torchgrad_jax.runtime.baseline import Plan
from torchgrad_jax.runtime.device import CPU

# From how many element-wise primitives on a sum is kept: below, one loop of all is as fast. From 6 to 100 the GRU takes the same time to within 20 %.
LEAST_CHAIN = 16


def slots_to_keep(calls: list[Any], outputs: Sequence[int]) -> set[int]:
    """The slots of what those who read it should read from memory (`transposed.in_memory`; XLA removes a barrier before it fuses).

    Whoever recorded the sum: a sum of gradients is an addition like any other, and a long chain costs the same behind either.
    """
    readers = Counter([a for call in calls for a in set(call.args) if type(a) is int and a >= 0])
    readers.update([slot for slot in outputs if slot >= 0])
    chain: dict[int, int] = {}  # how many primitives whoever reads a slot computes with it
    found = set()
    for call in calls:
        size = _elementwise_size(call.signature)
        if size:
            size += sum([chain.get(a, 0) for a in call.args if type(a) is int])
            if size >= LEAST_CHAIN and readers[call.slot] > 1 and _is_sum(call.signature):
                found.add(call.slot)
                size = 0
            for slot in range(call.slot, call.end):
                chain[slot] = size
        elif getattr(call.signature.bop, "windows", False) and call.signature.avals[0].device is CPU:
            found.add(call.slot)
    return found


def _is_sum(sig: Any) -> bool:
    return sig.bop.name == "add" and sig.avals[0].dtype.kind == "f" and sig.avals[0].size > 0


def _elementwise_size(sig: Any) -> int:
    """How many element-wise primitives an operation is; 0 if it is anything else, or not XLA's CPU compiler's."""
    plan = sig.baseline
    return plan.size if type(plan) is Plan and plan.shape_free else 0
