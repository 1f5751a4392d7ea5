"""What programs look at otherwise: once, where arrays lie, and not by way of copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.attention import Attention, AttentionGrad, ByHand
from torchgrad_jax.runtime.baseline.carrying import RESHAPED, TURNED, Batches, Product
from torchgrad_jax.runtime.baseline.chains import Fact
from torchgrad_jax.runtime.baseline.copying import LEAST
from torchgrad_jax.runtime.baseline.merging.steps import Call
from torchgrad_jax.runtime.baseline.places import Assignable, Moved, split

# What reads arrays where they lie, in whichever order that is.
_READING_STRIDES = frozenset((Product, Batches, Attention, AttentionGrad, ByHand))


def looks_at(made: Any, array: Any) -> bool:
    """Whether an array is a view of another one's elements."""
    if type(made) is not np.ndarray or type(array) is not np.ndarray or made is array or made.dtype != array.dtype:
        return False
    base = made.base
    return base is not None and (base is array or base is array.base)


def where_they_lie(
    steps: Sequence[Assignable], views: dict[int, Any], facts: dict[int, Fact], outputs: Sequence[int]
) -> tuple[Sequence[Assignable], dict[int, Any]]:
    """The steps, and which of them look at an array, where what is copied only to be looked at otherwise is looked at where it lies, if it can be: as
    heads of attention can whose samples and heads were one dimension for a while."""
    ways: dict[int, tuple[int, list[Moved]]] = {}  # of which copy a slot is a view, and what is done to what is copied
    readers = Counter([*outputs, *[slot for step in steps for slot in step.operands]])
    for i, step in enumerate(steps):
        if len(step.operands) != 1 or len(step.results) != 1:
            continue
        (slot,), (made,) = step.operands, step.results
        if i in views and slot in ways:
            move = _as_moved(step.function, facts[slot], views[i])
            if move is not None:
                ways[made] = ways[slot][0], [*ways[slot][1], move]
                readers[slot] -= 1
        elif i not in views and (move := _as_copied(step, facts)) is not None:
            ways[made] = made, [move]
    sources = {step.results[0]: step.operands[0] for step in steps if ways.get(step.results[0], (-1,))[0] == step.results[0]}
    ends = {slot: split(facts[sources[copied]].shape, moves) for slot, (copied, moves) in ways.items() if readers[slot]}
    kept = {ways[slot][0] for slot, parts in ends.items() if parts is None or ways[slot][0] == slot}
    kept.update([ways[slot][0] for slot in outputs if slot in ways])
    for step in steps:
        if step.results[0] not in ways and type(step.function) not in _READING_STRIDES:
            kept.update([ways[slot][0] for slot in step.operands if slot in ways])
    if kept >= sources.keys():
        return steps, views
    found: list[Assignable] = []
    looking: dict[int, Any] = {}
    for i, step in enumerate(steps):
        slot = step.results[0]
        if slot not in ways or ways[slot][0] in kept:
            looking.update({len(found): views[i]} if i in views else {})
            found.append(step)
        elif (parts := ends.get(slot)) is not None:
            source, between, of = sources[ways[slot][0]], max(facts) + 1, facts[slot]
            facts[between] = of._replace(shape=parts[0], contiguous=False)
            looking.update(dict.fromkeys((len(found), len(found) + 1), np.dtype(of.letter)))
            found += [Call(Moved(RESHAPED, parts[0]), [source], [between]), Call(Moved(TURNED, parts[1]), [between], [slot])]
            facts[slot] = of._replace(contiguous=False)
    return found, looking


def _as_copied(step: Assignable, facts: Mapping[int, Fact]) -> Moved | None:
    """What a step does that copies an array because it is not in one piece, to be of another shape. None for others."""
    given, made = facts[step.operands[0]], facts[step.results[0]]
    copies = not given.contiguous and made.contiguous and given.letter == made.letter and given.letter in "fd"
    if not copies or given.size != made.size or given.size < LEAST or given.shape == made.shape:
        return None
    move = _as_moved(step.function, given, given.letter)
    return move if move is not None and move.kind == RESHAPED and move.how == made.shape else None


def directly(steps: Sequence[Assignable], views: Mapping[int, Any], facts: Mapping[int, Fact], outputs: Sequence[int]) -> list[Assignable]:
    """The steps with those of `views`, by their places, as `Moved` ones where they are such: one that gives all elements in their order, maybe by
    way of others, in the place of all of these, and none that gives them as they are; products read what is copied to be in one batch, before it is.
    views: with the dtypes."""
    found: list[Assignable] = []
    same: dict[int, int] = {}  # what a slot is as it is
    whole: dict[int, int] = {}  # what all the elements of a slot are in their order
    batches: dict[int, int] = {}  # and what they are as matrices, where their batch is in one dimension for a product
    for i, step in enumerate(steps):
        if not same.keys().isdisjoint(step.operands):
            step = Call(step.function, [same.get(slot, slot) for slot in step.operands], step.results, step.fresh, step.overwriting)
        if not batches.keys().isdisjoint(step.operands) and type(step.function) is Product and len(step.operands) == 2:
            left, right = [facts[slot].shape for slot in step.operands]
            step = Call(Batches(step.function, left, right), [batches.get(slot, slot) for slot in step.operands], step.results, step.fresh)
        if i in views and facts[step.operands[0]].size:
            (slot,) = step.operands
            move = _as_moved(step.function, facts[slot], views[i])
            root = whole.get(slot, slot)
            if move is not None and move.kind == RESHAPED and facts[root].contiguous:
                slot = whole[step.results[0]] = root
                if facts[root].shape == move.how and step.results[0] not in outputs:
                    same[step.results[0]] = root
                    continue
            elif move is not None and move.kind == RESHAPED and facts[slot].size >= LEAST:  # a copy, by `reshaped`
                move = None
            if move is not None:
                step = Call(move, [slot], step.results)
        elif _makes_one_batch(step, facts):
            batches[step.results[0]] = step.operands[0]
        found.append(step)
    read, kept = {*outputs}, []
    for step in reversed(found):
        only_looks = type(step.function) is Moved or not batches.keys().isdisjoint(step.results)
        if not only_looks or not read.isdisjoint(step.results):
            read.update(step.operands)
            kept.append(step)
    return kept[::-1]


def _makes_one_batch(step: Assignable, facts: Mapping[int, Fact]) -> bool:
    """Whether a step copies matrices, to have the dimensions before their own as one."""
    if not len(step.operands) == len(step.results) == 1:
        return False
    given, made = facts[step.operands[0]], facts[step.results[0]]
    copies = not given.contiguous and made.contiguous and given.letter == made.letter and given.letter in "fd"
    if not copies or len(made.shape) != 3 or len(given.shape) < 4 or given.size != made.size or given.shape[-2:] != made.shape[-2:]:
        return False
    move = _as_moved(step.function, given, given.letter)
    return move is not None and move.kind == RESHAPED and move.how == made.shape


def _as_moved(function: Any, given: Fact, dtype: Any) -> Moved | None:
    """What a function of one array, of which it gives a view, does to any such array, if it is one of two things."""
    probe = np.empty(given.shape, dtype)
    seen = function(probe)
    if seen.base is not probe or seen.size != probe.size or seen.ctypes.data != probe.ctypes.data:
        return None
    if seen.flags.c_contiguous:
        return Moved(RESHAPED, seen.shape)
    places = {n: d for d, n in enumerate(probe.strides) if probe.shape[d] > 1}
    ones = iter([d for d, n in enumerate(probe.shape) if n == 1])
    order = tuple([next(ones, -1) if n == 1 else places.get(step, -1) for n, step in zip(seen.shape, seen.strides, strict=True)])
    return Moved(TURNED, order) if sorted(order) == list(range(probe.ndim)) else None
