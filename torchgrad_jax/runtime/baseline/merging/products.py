"""Products of matrices with what is done to them afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.carrying import RESHAPED, ROWS, TURNED, Added, Loop, Product
from torchgrad_jax.runtime.baseline.chains import NUMBERS, Fact
from torchgrad_jax.runtime.baseline.loops import LAYER_GRAD
from torchgrad_jax.runtime.baseline.merging.steps import Call
from torchgrad_jax.runtime.baseline.places import Assignable, Moved

# Rows or columns that are multiplied as vectors, or by dot products.
_FEW = 8
# From so many elements on it is worth a call of Python's not to write a product that is only added to something, and read it again.
_MANY = 1 << 12
# What `how` says of a loop over rows that adds something to what it makes.
_WITH_REST = 4


def the_right_way_round(steps: Sequence[Assignable], facts: dict[int, Fact], outputs: Sequence[int]) -> list[Assignable]:
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
            found[result] = Call(product.function.transposed(), product.operands[::-1], [result], True)
            facts[result] = facts[result]._replace(contiguous=True)
    return list(found.values())


def with_biases(steps: Sequence[Assignable], facts: Mapping[int, Fact], outputs: Sequence[int]) -> list[Assignable]:
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
            found[results[0]] = Call(product.function, [*product.operands, bias], results, True)
            if look is not None:
                found[step.results[0]] = Call(look.function, results, step.results)
            break
    return list(found.values())


def with_sums(steps: Sequence[Assignable], facts: Mapping[int, Fact], outputs: Sequence[int]) -> list[Assignable]:
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
                step = Call(added, [*one.operands, onto], step.results, True, {2: added.into})
                kind = Added
        found[result] = step
        if (kind is Product and len(step.operands) == 2) or kind is Added:
            fact = facts[result]
            if readers[result] == 1 and len(fact.shape) == 2 and fact.contiguous and fact.letter in "fd" and min(fact.shape) > _FEW:
                sums[result] = len(sums)
    return list(found.values())


def with_rests(steps: Sequence[Assignable], facts: Mapping[int, Fact], outputs: Sequence[int]) -> list[Assignable]:
    """The steps with a product, or the gradient of a layer's standardization, and its addition to something else as one, as residual connections
    have: what nobody else reads is never written. Not to what a chain computes, and might add in passing."""
    readers = Counter([*outputs, *[slot for step in steps for slot in step.operands]])
    place = {slot: i for i, step in enumerate(steps) for slot in step.results}
    found: dict[int, Assignable] = {}
    ends: dict[int, tuple[Assignable, Assignable | None]] = {}  # what may be added to, and how it is looked at
    by_chains: set[int] = set()
    for step in steps:
        result, fact = step.results[0], facts[step.results[0]]
        found[result] = step
        operands = sorted(step.operands, key=lambda slot: place.get(slot, -1)) if step.function is np.add and len(step.operands) == 2 else ()
        for other, slot in (operands, operands[::-1]) if operands else ():  # the later one first: what it is added to is there
            fits = slot in ends and slot != other and facts[other] == facts[slot] == fact and (readers[other] > 1 or other not in by_chains)
            if fits:
                one, look = ends[slot]
                for done in {slot, one.results[0], result}:
                    del found[done]
                made = step.results if look is None else one.results
                found[made[0]] = step = Call(_added(one.function), [*one.operands, other], made, True)
                if look is not None:
                    found[result] = step = Call(look.function, made, [result])
                break
        if NUMBERS.get(step.function) is not None:
            by_chains.add(result)
        if len(step.results) == 1 and readers[result] == 1 and fact.contiguous and fact.size >= _MANY and fact.letter in "fd":
            if _may_add(step.function, fact):
                ends[result] = step, None
            elif type(step.function) is Moved and step.function.kind == RESHAPED and ends.get(step.operands[0], (None, step))[1] is None:
                ends[result] = ends[step.operands[0]][0], step
    return list(found.values())


def _may_add(function: Any, fact: Fact) -> bool:
    """Whether a function, which makes such an array, can add something to it."""
    if type(function) is Product:
        return len(fact.shape) == 2
    return type(function) is Loop and function.of == ROWS and function.how[0] == LAYER_GRAD


def _added(function: Any) -> Added | Loop:
    """What such a function does, and then adds its last operand."""
    if type(function) is Product:
        return Added(function)
    how = function.how.copy()
    how[4] |= _WITH_REST
    return Loop(function.of, how, function.results)
