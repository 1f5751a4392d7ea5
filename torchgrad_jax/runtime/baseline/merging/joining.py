"""Gradients of attention that are only put next to each other, as those of queries, keys and values are that one product makes: they are written
there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.attention import AttentionGrad, ByHand, SideBySide
from torchgrad_jax.runtime.baseline.carrying import RESHAPED, TURNED
from torchgrad_jax.runtime.baseline.chains import Fact
from torchgrad_jax.runtime.baseline.merging.steps import Call
from torchgrad_jax.runtime.baseline.places import Assignable, Moved

# Up to which float32 counts.
_COUNTED = 1 << 24


def with_gradients_joined(steps: Sequence[Assignable], facts: Mapping[int, Fact], outputs: Sequence[int]) -> Sequence[Assignable]:
    """The steps with attention's gradients and what joins them, which alone reads them, as one."""
    gradients = {slot: i for i, step in enumerate(steps) for slot in step.results if _is_gradient(step.function)}
    if not gradients:
        return steps
    made = {step.results[0]: step for step in steps if type(step.function) is Moved}
    readers = Counter([*outputs, *[slot for step in steps for slot in step.operands]])
    found: list[Assignable | None] = [*steps]
    for j, step in enumerate(steps):
        if len(step.operands) < 2 or len(step.results) != 1:
            continue
        ways = [_way(slot, made, gradients, readers) for slot in step.operands]
        known = [way for way in ways if way is not None]
        if len({root for root, _ in known}) != len(ways) or len({gradients[root] for root, _ in known}) > 1:
            continue
        i = gradients[known[0][0]]
        joined = _joined(step, steps[i], known, facts) if found[i] is steps[i] else None
        if joined is not None:
            found[i], found[j] = Call(joined, steps[i].operands, [*steps[i].results, step.results[0]]), None
    return _read([step for step in found if step is not None], outputs)


def _read(steps: Sequence[Assignable], outputs: Sequence[int]) -> list[Assignable]:
    """The steps without those that only look at something that nobody reads."""
    readers = Counter([*outputs, *[slot for step in steps for slot in step.operands]])
    kept: list[Assignable] = []
    for step in reversed(steps):
        if type(step.function) is Moved and not readers[step.results[0]]:
            readers[step.operands[0]] -= 1
        else:
            kept.append(step)
    return kept[::-1]


def _is_gradient(function: Any) -> bool:
    return type(function) is AttentionGrad or (type(function) is ByHand and function.back)


def _way(
    slot: int, made: Mapping[int, Assignable], gradients: Mapping[int, int], readers: Mapping[int, int]
) -> tuple[int, list[tuple[Moved, int]]] | None:
    """The gradient that a slot looks at, and by which moves of which slots, the last one first, if nothing else reads any of them."""
    moves: list[tuple[Moved, int]] = []
    while readers[slot] == 1:
        if slot in gradients:
            return slot, moves
        if slot not in made:
            break
        moves.append((made[slot].function, made[slot].operands[0]))
        slot = made[slot].operands[0]
    return None


def _joined(step: Assignable, of: Assignable, ways: Sequence[tuple[int, list[tuple[Moved, int]]]], facts: Mapping[int, Fact]) -> SideBySide | None:
    """What makes gradients within the array that a step puts them together to, if that is all it does."""
    shape, dim = facts[step.results[0]].shape, _along(step, facts)
    if dim is None:
        return None
    parts: list[tuple[tuple[slice, ...], list[Moved]] | None] = [None] * len(of.results)
    probe, begin = np.empty(shape, np.float32), 0
    for slot, (root, moves) in zip(step.operands, ways, strict=True):
        end = begin + facts[slot].shape[dim]
        index, back = (*(slice(None),) * dim, slice(begin, end)), [_undone(move, facts[before].shape) for move, before in moves]
        part = SideBySide.part(probe, index, back)
        if not np.shares_memory(part, probe) or part.shape != facts[root].shape or part.strides[-1] != part.itemsize:
            return None
        parts[of.results.index(root)], begin = (index, back), end
    return SideBySide(of.function, shape, parts)


def _undone(move: Moved, shape: tuple[int, ...]) -> Moved:
    """What gives back an array of such a shape that has been moved."""
    if move.kind == RESHAPED:
        return Moved(RESHAPED, shape)
    return Moved(TURNED, tuple(np.argsort(move.how).tolist()))


def _along(step: Assignable, facts: Mapping[int, Fact]) -> int | None:
    """The dimension along which a step puts its operands next to each other, which it is asked by numbers. None if it does something else."""
    shapes, (result,) = [facts[slot].shape for slot in step.operands], step.results
    whole = facts[result].shape
    sizes = [math.prod(shape) for shape in shapes]
    if sum(sizes) != facts[result].size or sum(sizes) > _COUNTED or {len(shape) for shape in shapes} != {len(whole)} or not facts[result].contiguous:
        return None
    differing = [d for d, n in enumerate(whole) if n != shapes[0][d]]
    if len(differing) != 1:
        return None
    (dim,) = differing
    probes = [np.arange(end - n, end, dtype=np.float32).reshape(shape) for n, end, shape in zip(sizes, np.cumsum(sizes), shapes, strict=True)]
    made = step.function(*probes)
    if type(made) is not np.ndarray or made.dtype != np.float32 or made.shape != whole:
        return None
    return dim if np.array_equal(made, np.concatenate(probes, dim)) else None
