"""Several plans as one list of calls: a program that is interpreted again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.runtime.baseline import blocks
from torchgrad_jax.runtime.baseline.carrying import RESHAPED, TURNED, Added, Batches, Product, Spread, carry_out
from torchgrad_jax.runtime.baseline.chains import Fact, chained, fact, what_is_chained
from torchgrad_jax.runtime.baseline.copying import LEAST
from torchgrad_jax.runtime.baseline.cost import of_chains
from torchgrad_jax.runtime.baseline.form import NumPyForm
from torchgrad_jax.runtime.baseline.loops import Attention, AttentionGrad
from torchgrad_jax.runtime.baseline.places import Assignable, Moved, assigned, split
from torchgrad_jax.runtime.baseline.plan import FOLDED_BYTES, Plan

# What reads arrays where they lie, in whichever order that is.
_READING_STRIDES = frozenset((Product, Batches, Attention, AttentionGrad))
# Rows or columns that are multiplied as vectors, or by dot products.
_FEW = 8


class Part(NamedTuple):
    """One plan, or any function that returns a list of results, at its place: the names of what it reads and of what it makes."""

    plan: Plan | NumPyForm | Callable[..., Any]
    operands: Sequence[Hashable]
    results: Sequence[Hashable]


class _Call(NamedTuple):
    function: Any
    operands: list[int]
    results: list[int]
    fresh: bool = False
    overwriting: Mapping[int, Any] = MappingProxyType({})


class Merged:
    """Parts carried out in order. Called with the arrays of `inputs`, it returns those of `outputs`, both names. drops: see `assigned`.

    final: whether a run has shown of which shapes everything is, as it will be for ever. ready: then, what that makes of the parts: the calls, the
    template, whose first places are the inputs', and the places of the outputs. size: how many calls it is, each chain by itself; costs: what
    the chains take.

    A part by itself costs 2 us beside its steps: its list of values, its operands and its results. Here a step is all there is.
    """

    __slots__ = ("_inputs", "_steps", "_constants", "_results", "_drops", "ready", "final", "size", "costs")

    def __init__(self, parts: Sequence[Part], inputs: Sequence[Hashable], outputs: Sequence[Hashable], drops: bool = False) -> None:
        slots: dict[Hashable, int] = {name: i for i, name in enumerate(inputs)}
        steps: list[Assignable] = []
        constants: dict[int, Any] = {}
        free = len(inputs)
        for part in parts:
            if isinstance(part.plan, Plan):
                free = _insert(part, part.plan, slots, steps, constants, free)
                continue
            made = list(range(free, free + len(part.results)))
            free += len(made)
            reads = [slots[name] for name in part.operands]
            slots.update(zip(part.results, made, strict=True))
            if isinstance(part.plan, NumPyForm) and part.plan.steps is not None:
                for (function, places), slot in zip(part.plan.steps, made, strict=True):
                    fresh = type(function) is not Spread or function.fresh
                    steps.append(_Call(function, [reads[p] for p in places], [slot], fresh))
            elif isinstance(part.plan, NumPyForm) and part.plan.single and not reads and (array := part.plan.function()).nbytes <= FOLDED_BYTES:
                constants[made[0]] = array
            elif isinstance(part.plan, NumPyForm) and part.plan.single:
                steps.append(_Call(part.plan.function, reads, made, part.plan.fresh, part.plan.overwriting))
            else:
                steps.append(_Call(part.plan if len(made) != 1 else _only(part.plan), reads, made))
        self._inputs, self._constants, self._drops = len(inputs), constants, drops
        self._results = [slots[name] for name in outputs]
        self._steps: Sequence[Assignable] = _without_repetition(steps, constants, set(self._results))
        self.final = False
        if not blocks.by_numbers:  # there are no chains
            self._assign(self._steps)

    def _assign(self, steps: Sequence[Assignable]) -> None:
        self.size = sum([len(step.function.chains) if type(step.function) is blocks.Together else 1 for step in steps])
        self.costs = of_chains(what_is_chained(steps))
        self.ready = assigned(steps, range(self._inputs), self._constants, self._results, self._drops)
        self.final, self._steps = True, ()

    def __call__(self, arrays: list[Any]) -> list[Any]:
        """Empties `arrays`, so that each can be dropped after its last use."""
        if not self.final:
            return self._watched(arrays)
        calls, template, outputs = self.ready
        values = template.copy()
        values[: self._inputs] = arrays
        arrays.clear()
        carry_out(calls, values)
        return [values[i] for i in outputs]

    def _watched(self, arrays: list[Any]) -> list[Any]:
        """Run step by step, and see of which shapes and dtypes everything is. From now on there are chains."""
        steps = self._steps
        if self.final:  # another thread has seen it meanwhile
            return self(arrays)
        facts: dict[int, Fact] = {slot: fact(array) for slot, array in self._constants.items()}
        facts.update(enumerate(map(fact, arrays)))
        views: dict[int, Any] = {}  # what looks at its one operand otherwise
        last = {slot: i for i, step in enumerate(steps) for slot in step.operands}
        last.update(dict.fromkeys(self._results, len(steps)))
        values = {**self._constants, **dict(enumerate(arrays))}
        arrays.clear()
        for i, step in enumerate(steps):
            made = step.function(*[values[slot] for slot in step.operands])
            for slot, array in zip(step.results, [made] if len(step.results) == 1 else made, strict=True):
                facts[slot] = fact(array)
                values[slot] = array
            if len(step.operands) == len(step.results) == 1 and _looks_at(made, values[step.operands[0]]):
                views[i] = made.dtype
            for slot in (*step.operands, *step.results):
                if last.get(slot, i) == i:
                    values.pop(slot, None)
        results = [values[slot] for slot in self._results]
        steps, views = _where_they_lie(steps, views, facts, self._results)
        steps = _the_right_way_round(_directly(steps, views, facts, self._results), facts, self._results)
        steps = _with_sums(_with_biases(steps, facts, self._results), facts, self._results)
        self._assign(chained(steps, facts, self._results))
        return results


def _looks_at(made: Any, array: Any) -> bool:
    """Whether an array is a view of another one's elements."""
    if type(made) is not np.ndarray or type(array) is not np.ndarray or made is array or made.dtype != array.dtype:
        return False
    base = made.base
    return base is not None and (base is array or base is array.base)


def _where_they_lie(
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
            found += [_Call(Moved(RESHAPED, parts[0]), [source], [between]), _Call(Moved(TURNED, parts[1]), [between], [slot])]
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


def _directly(steps: Sequence[Assignable], views: Mapping[int, Any], facts: Mapping[int, Fact], outputs: Sequence[int]) -> list[Assignable]:
    """The steps with those of `views`, by their places, as `Moved` ones where they are such: one that gives all elements in their order, maybe by
    way of others, in the place of all of these, and none that gives them as they are; products read what is copied to be in one batch, before it is.
    views: with the dtypes."""
    found: list[Assignable] = []
    same: dict[int, int] = {}  # what a slot is as it is
    whole: dict[int, int] = {}  # what all the elements of a slot are in their order
    batches: dict[int, int] = {}  # and what they are as matrices, where their batch is in one dimension for a product
    for i, step in enumerate(steps):
        if not same.keys().isdisjoint(step.operands):
            step = _Call(step.function, [same.get(slot, slot) for slot in step.operands], step.results, step.fresh, step.overwriting)
        if not batches.keys().isdisjoint(step.operands) and type(step.function) is Product and len(step.operands) == 2:
            left, right = [facts[slot].shape for slot in step.operands]
            step = _Call(Batches(step.function, left, right), [batches.get(slot, slot) for slot in step.operands], step.results, step.fresh)
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
                step = _Call(move, [slot], step.results)
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


def _the_right_way_round(steps: Sequence[Assignable], facts: dict[int, Fact], outputs: Sequence[int]) -> list[Assignable]:
    """The steps where, in the place of two matrices' product of which only the transpose is read, as of a linear layer's weights' gradient, that is
    multiplied: it lies in one piece then, as the weights do, and is not copied for what reads both. Not of few rows or columns, which loops for
    vectors may sum otherwise; tiles give the same bits (`native/tiling.pxd`), BLAS may not."""
    readers = Counter([*outputs, *[slot for step in steps for slot in step.operands]])
    alone = [s for s in steps if type(s.function) is Product and len(s.operands) == 2]
    products = {s.results[0]: s for s in alone if readers[s.results[0]] == 1 and min(facts[s.results[0]].shape) > _FEW}
    found: dict[int, Assignable] = {}
    for step in steps:
        found[step.results[0]] = step
        moved, (slot, *_) = step.function, (*step.operands, -1)
        if type(moved) is Moved and moved.kind == TURNED and moved.how == (1, 0) and slot in products:
            (result,), product = step.results, products[slot]
            del found[slot]
            found[result] = _Call(product.function.transposed(), product.operands[::-1], [result], True)
            facts[result] = facts[result]._replace(contiguous=True)
    return list(found.values())


def _with_biases(steps: Sequence[Assignable], facts: Mapping[int, Fact], outputs: Sequence[int]) -> list[Assignable]:
    """The steps with a product and the addition of a vector to its rows as one, also where these are looked at as of more dimensions before."""
    readers = Counter([*outputs, *[slot for step in steps for slot in step.operands]])
    alone = [s for s in steps if type(s.function) is Product and len(s.operands) == 2]
    products = {s.results[0]: s for s in alone if readers[s.results[0]] == 1}
    found: dict[int, Assignable] = {}
    looks: dict[int, Assignable] = {}  # what looks at a product otherwise, by its result
    for step in steps:
        found[step.results[0]] = step
        if type(step.function) is Moved and step.function.kind == RESHAPED and step.operands[0] in products and readers[step.results[0]] == 1:
            looks[step.results[0]] = step
        if step.function is not np.add or len(step.operands) != 2:
            continue
        for slot, bias in (step.operands, step.operands[::-1]):
            made, added, result = facts[slot], facts[bias], facts[step.results[0]]
            fits = added.contiguous and added.shape == made.shape[-1:] and added.letter == made.letter and result.shape == made.shape
            if not fits or (slot not in products and slot not in looks):
                continue
            look = looks.get(slot)
            product = products[slot if look is None else look.operands[0]]
            if look is not None and facts[product.results[0]].shape[-1:] != made.shape[-1:]:
                continue
            for done in {slot, product.results[0], step.results[0]}:  # what is there now stands here, where the vector is known
                del found[done]
            results = step.results if look is None else product.results
            found[results[0]] = _Call(product.function, [*product.operands, bias], results, True)
            if look is not None:
                found[step.results[0]] = _Call(look.function, results, step.results)
            break
    return list(found.values())


def _with_sums(steps: Sequence[Assignable], facts: Mapping[int, Fact], outputs: Sequence[int]) -> list[Assignable]:
    """The steps with a product and its addition to a sum of others, which nobody else reads, as one, as gradients of a weight that is used again and
    again: the product is never written."""
    readers = Counter([*outputs, *[slot for step in steps for slot in step.operands]])
    found: dict[int, Assignable] = {}
    sums: dict[int, int] = {}  # products, and sums of them, by their slots, and in which order they come
    for step in steps:
        (result, *_), kind = step.results, type(step.function)
        if step.function is np.add and len(step.operands) == 2 and sums.keys() >= set(step.operands):
            onto, slot = sorted(step.operands, key=lambda slot: (type(found[slot].function) is Product, sums[slot]))
            one = found[slot]
            if type(one.function) is Product and onto != slot and facts[onto] == facts[slot]:
                del found[slot]
                added = Added(one.function)
                step = _Call(added, [*one.operands, onto], step.results, True, {2: added.into})
                kind = Added
        found[result] = step
        if (kind is Product and len(step.operands) == 2) or kind is Added:
            fact = facts[result]
            if readers[result] == 1 and len(fact.shape) == 2 and fact.contiguous and fact.letter in "fd" and min(fact.shape) > _FEW:
                sums[result] = len(sums)
    return list(found.values())


def _without_repetition(steps: Sequence[Assignable], constants: dict[int, Any], outputs: set[int]) -> list[Assignable]:
    """The steps without those that do what another has done, such as the conversion of a number for each of many parameters. Outputs stay arrays of
    their own."""
    numbers: dict[Any, int] = {}
    same = {slot: numbers.setdefault((a.dtype, a.shape, a.tobytes()), slot) for slot, a in constants.items() if a.size == 1}
    known: dict[tuple[Any, ...], int] = {}
    kept: list[Assignable] = []
    for step in steps:
        operands = [same.get(slot, slot) for slot in step.operands]
        if len(step.results) == 1 and step.results[0] not in outputs:
            first = known.setdefault((id(step.function), *operands), step.results[0])
            if first != step.results[0]:
                same[step.results[0]] = first
                continue
        kept.append(step if operands == step.operands else _Call(step.function, operands, step.results, step.fresh, step.overwriting))
    return kept


def _insert(part: Part, plan: Plan, slots: dict[Hashable, int], steps: list[Assignable], constants: dict[int, Any], free: int) -> int:
    """Append the steps of a plan. Returns the next slot that is free."""
    own = {slot: slots[name] for slot, name in zip(plan.inputs, part.operands, strict=True)}
    for slot, value in plan.constants.items():
        own[slot] = free
        constants[free] = value
        free += 1
    for step in plan.steps:
        for slot in step.results:
            own[slot] = free
            free += 1
        reads, made = [own[s] for s in step.operands], [own[s] for s in step.results]
        steps.append(_Call(step.function, reads, made, step.fresh, step.overwriting))
    for slot, name in zip(plan.outputs, part.results, strict=True):
        slots[name] = own[slot]
    return free


def _only(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: function(*arrays)[0]
