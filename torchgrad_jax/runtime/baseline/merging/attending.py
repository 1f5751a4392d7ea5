"""Attention by hand: products of matrices with a softmax between them, carried out by the loop that is there for attention
(`native/attending.pxd`), a block of queries at a time. To the bit what its steps give, of queries that are one block.

    scores = query @ key.T, may be multiplied or divided by a number, and then masked: filled with a number, or a mask added
    weights = softmax(scores), may be multiplied by numbers that drop some; output = weights @ value

    of_weights = grad @ value.T, by these numbers; of_scores = softmax_grad(of_weights, weights), 0 where they were filled, and by the number
    of_query = of_scores @ key; of_key = of_scores.T @ query; of_value = weights.T @ grad
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.runtime.baseline import lanes
from torchgrad_jax.runtime.baseline.attention import AS_THEY_ARE, DIVIDED, FILLED, KEPT, SAFE, ByHand, how_of_heads
from torchgrad_jax.runtime.baseline.carrying import RESHAPED, ROWS, TURNED, Batches, Loop, Product
from torchgrad_jax.runtime.baseline.chains import NUMBERS, Fact
from torchgrad_jax.runtime.baseline.loops import SAFE_SOFTMAX, SOFTMAX, SOFTMAX_GRAD
from torchgrad_jax.runtime.baseline.merging.steps import Call
from torchgrad_jax.runtime.baseline.places import Assignable, Moved
from torchgrad_jax.runtime.native import handlers


class _Matrices(NamedTuple):
    """A slot of matrices, and whether their transposes are meant."""

    slot: int
    turned: bool


class _Scaled(NamedTuple):
    """What is done to scores: the number that they are multiplied with, or divided by; the mask, and what it fills; what weights are multiplied with.
    What is told of them."""

    scale: int | None = None
    mask: int | None = None
    fill: int | None = None
    told: int = 0
    drop: int | None = None


class _Found(NamedTuple):
    """The steps that are attention, or its gradient: query, key, value and, of the gradient, the output's and the weights. results: which matrices of
    theirs the loop makes."""

    steps: set[int]
    given: list[_Matrices]
    scaled: _Scaled
    results: list[_Matrices]
    weights: int


def with_attention(
    steps: Sequence[Assignable], facts: dict[int, Fact], same: Mapping[int, int], constants: Mapping[int, Any], outputs: Sequence[int]
) -> list[Assignable] | None:
    """The steps with attention, and its gradient, as one each. None where there is none. same: slots that are what others are, by their steps."""
    loops = [i for i, step in enumerate(steps) if type(step.function) is Loop and step.function.of == ROWS]
    if not loops or not handlers.vector_bits():
        return None
    program, known = _Program(steps, facts, same, constants, outputs), len(facts)
    for i in loops:
        of, *_, inner = steps[i].function.how.tolist()
        if inner != 1 or of not in (SOFTMAX, SAFE_SOFTMAX, SOFTMAX_GRAD):
            continue
        found = program.backward(i) if of == SOFTMAX_GRAD else program.forward(i, SAFE if of == SAFE_SOFTMAX else 0)
        if found is not None:
            program.replace(i, found)
    return program.in_order() if len(facts) > known else None


def _turned(dims: int) -> tuple[int, ...]:
    """The order of dimensions in which matrices are transposed."""
    return (*range(dims - 2), dims - 1, dims - 2)


class _Program:
    """A program's steps, of which slots are known by the steps that make and read them."""

    def __init__(
        self, steps: Sequence[Assignable], facts: dict[int, Fact], same: Mapping[int, int], constants: Mapping[int, Any], outputs: Sequence[int]
    ) -> None:
        self.steps, self.facts, self.same, self.constants, self.outputs = list(steps), facts, same, constants, {*outputs}
        self.made = {slot: i for i, step in enumerate(steps) for slot in step.results}
        self.read: dict[int, list[int]] = defaultdict(list)
        self.instead: dict[int, list[Assignable]] = {}  # what stands where a step did, by its place
        self.dropped: set[int] = set()  # weights multiplied by what drops: the loop does that itself
        for i, step in enumerate(steps):
            for slot in dict.fromkeys(step.operands):
                self.read[slot].append(i)

    # ---------------------------------------------------------------------- what is read

    def looks(self, i: int) -> bool:
        """Whether a step gives the matrices that it is given, in one or two dimensions before theirs."""
        step = self.steps[i]
        if len(step.results) != 1 or len(step.operands) != 1:
            return False
        given, made = self.facts[step.operands[0]].shape, self.facts[step.results[0]].shape
        moves = self.same.get(step.results[0]) == step.operands[0] or (type(step.function) is Moved and step.function.kind == RESHAPED)
        return moves and given[-2:] == made[-2:] and {len(given), len(made)} <= {3, 4}

    def root(self, slot: int) -> int:
        """What a slot looks at."""
        while slot in self.made and self.looks(self.made[slot]):
            slot = self.steps[self.made[slot]].operands[0]
        return slot

    def readers(self, slot: int) -> list[int]:
        """The steps that read a slot, also by looking at it. None of one that is an output: nobody knows who reads that."""
        found = []
        for i in self.read[slot]:
            more = self.readers(self.steps[i].results[0]) if self.looks(i) else [i]
            if not more:
                return []
            found += more
        return [] if slot in self.outputs else found

    def product(self, i: int) -> tuple[_Matrices, _Matrices] | None:
        """The operands of a step that multiplies matrices of float32, a batch of them."""
        function, operands = self.steps[i].function, self.steps[i].operands
        if type(function) is Batches:
            function = function.product
        of = self.facts[self.steps[i].results[0]]
        if type(function) is not Product or len(operands) != 2 or len(of.shape) != 3 or of.letter != "f":
            return None
        left, right = map(self.root, operands)
        return _Matrices(left, function.turned), _Matrices(right, function.other)

    def number(self, slot: int) -> bool:
        """Whether a slot is one number of float32."""
        return self.facts[slot].shape == () and self.facts[slot].letter == "f"

    def by_a_number(self, i: int, slot: int) -> _Scaled | None:
        """How a step multiplies or divides a slot."""
        function, operands = self.steps[i].function, self.steps[i].operands
        if function is np.multiply and slot in operands:
            other = operands[operands[0] == slot]
            return _Scaled(other) if self.number(other) else None
        if function is np.true_divide and operands[0] == slot and self.number(operands[1]):
            return _Scaled(operands[1], told=DIVIDED)
        return None

    def filled(self, i: int, slot: int) -> _Scaled | None:
        """How a step fills a slot."""
        operands = self.steps[i].operands
        if NUMBERS.get(self.steps[i].function) != lanes.SELECT or slot not in operands[1:]:
            return None
        mask, no, yes = operands
        fill = yes if slot == no else no
        return _Scaled(None, mask, fill, FILLED if slot == no else KEPT) if self.number(fill) and self.facts[mask].letter == "?" else None

    def scored(self, slot: int, after: int, scaled: _Scaled) -> tuple[int, _Scaled, set[int]] | None:
        """The product whose scores a slot holds, which the step `after` alone reads; what has been done to them, and the steps that did it."""
        slot = self.root(slot)
        i = self.made.get(slot, -1)
        if i < 0 or self.readers(slot) != [after]:
            return None
        if self.product(i) is not None:
            return i, scaled, {i}
        for operand in self.steps[i].operands:
            if self.facts[operand].shape != self.facts[slot].shape or scaled.scale is not None:
                continue
            done, more = self.by_a_number(i, operand), None
            if done is not None:
                more = scaled._replace(scale=done.scale, told=scaled.told | done.told)
            elif scaled.mask is None:
                more = self.filled(i, operand) or self.masked(i, operand)
                more = more and more._replace(told=more.told | scaled.told)
            found = None if more is None else self.scored(operand, i, more)
            if found is not None:
                return *found[:2], found[2] | {i}
        return None

    def masked(self, i: int, slot: int) -> _Scaled | None:
        """How a step adds a mask to a slot."""
        operands = self.steps[i].operands
        if self.steps[i].function is not np.add or slot not in operands:
            return None
        mask = operands[operands[0] == slot]
        return _Scaled(None, mask) if mask != slot and self.facts[mask].letter == "f" else None

    # ---------------------------------------------------------------------- what is found

    def forward(self, i: int, told: int) -> _Found | None:
        """The attention whose weights a step makes. told: of them."""
        (given,), (weights,) = self.steps[i].operands, self.steps[i].results
        scored = self.scored(given, i, _Scaled(told=told)) if self.facts[weights].letter == "f" else None
        scores = None if scored is None else self.product(scored[0])
        if scored is None or scores is None:
            return None
        query, key = scores[0], _Matrices(scores[1].slot, not scores[1].turned)
        for by, drop in [(weights, None), *self.drops(weights)]:
            for j in self.known_readers(by):
                product = self.product(j)
                if product is not None and product[0] == (by, False) and product[1].slot not in (by, weights):
                    self.dropped |= {by} - {weights}
                    made = [_Matrices(self.steps[j].results[0], False)]
                    return _Found({i, j, *scored[2]}, [query, key, product[1]], scored[1]._replace(drop=drop), made, weights)
        return None

    def drops(self, weights: int) -> list[tuple[int, int]]:
        """What weights are multiplied by numbers for each of them, and by which ones."""
        return [(self.steps[j].results[0], other) for j in self.known_readers(weights) if (other := self.times(j, weights)) is not None]

    def times(self, i: int, slot: int) -> int | None:
        """By which array of the same shape a step multiplies what looks at a slot."""
        step = self.steps[i]
        if step.function is not np.multiply or len({self.facts[one] for one in (*step.operands, *step.results)}) != 1:
            return None
        roots = [self.root(one) for one in step.operands]
        return roots[roots[0] == slot] if roots.count(slot) == 1 else None

    def known_readers(self, slot: int) -> list[int]:
        """The steps that read a slot, whoever else does."""
        return [j for i in self.read[slot] for j in (self.known_readers(self.steps[i].results[0]) if self.looks(i) else [i])]

    def backward(self, i: int) -> _Found | None:
        """The gradient of attention whose scores' gradient a step makes."""
        of_weights, weights = map(self.root, self.steps[i].operands)
        first, of_dropped, done = self.product_of_weights(of_weights, i)
        product = self.product(first) if first >= 0 else None
        if product is None:
            return None
        drop = None if of_dropped is None else self.times(self.made[of_weights], of_dropped)
        by = weights if drop is None else next((made for made, other in self.drops(weights) if other == drop), -1)
        grad, value = product[0], _Matrices(product[1].slot, not product[1].turned)
        of_scores, scaled = self.steps[i].results[0], _Scaled(drop=drop)
        readers = self.readers(of_scores)
        while len(readers) == 1 and (more := self.scaled_back(readers[0], scaled)) is not None:
            of_scores, scaled, done = self.steps[readers[0]].results[0], more, {*done, readers[0]}
            readers = self.readers(of_scores)
        last = self.of_both(of_scores, readers)
        if last is None or by < 0:
            return None
        for j in self.known_readers(by):
            found = self.product(j)
            if found is None:
                continue
            for one, other, turned in (found[0], found[1], False), (found[1], found[0], True):
                # weights.T @ grad, or grad.T @ weights
                if one == (by, not turned) and other == (grad.slot, grad.turned != turned):
                    self.dropped |= {by} - {weights}
                    results = [*last[1], _Matrices(self.steps[j].results[0], turned)]
                    return _Found({*done, *readers, j}, [grad, *last[0], value], scaled, results, weights)
        return None

    def product_of_weights(self, of_weights: int, after: int) -> tuple[int, int | None, set[int]]:
        """The step, or -1, whose product the gradient of weights is, which the step `after` alone reads; or the product's slot, if that is multiplied
        by what dropped some; and the steps."""
        i = self.made.get(of_weights, -1)
        if i < 0 or self.readers(of_weights) != [after]:
            return -1, None, set()
        if self.product(i) is not None:
            return i, None, {after, i}
        for slot in map(self.root, self.steps[i].operands) if self.steps[i].function is np.multiply else ():
            j = self.made.get(slot, -1)
            if j >= 0 and self.times(i, slot) is not None and self.readers(slot) == [i] and self.product(j) is not None:
                return j, slot, {after, i, j}
        return -1, None, set()

    def scaled_back(self, i: int, scaled: _Scaled) -> _Scaled | None:
        """What is done to scores' gradients where a step does more: fills with 0 what had been filled, or multiplies with or divides by a number."""
        for slot in self.steps[i].operands:
            if self.facts[slot].shape != self.facts[self.steps[i].results[0]].shape:
                continue
            more = self.by_a_number(i, slot)
            if more is not None and scaled.scale is None:
                return scaled._replace(scale=more.scale, told=scaled.told | more.told)
            more = self.filled(i, slot)
            zero = None if more is None or more.fill is None else self.constants.get(more.fill)
            if more is not None and zero is not None and zero == 0 and scaled.mask is None:
                return scaled._replace(mask=more.mask, told=scaled.told | more.told)
        return None

    def of_both(self, of_scores: int, readers: Sequence[int]) -> tuple[list[_Matrices], list[_Matrices]] | None:
        """Of the two products that read scores' gradients: query and key, and their gradients."""
        if len(readers) != 2:
            return None
        of: dict[str, tuple[_Matrices, _Matrices]] = {}
        for i in readers:
            found, made = self.product(i), self.steps[i].results[0]
            if found is None:
                return None
            for one, other, turned in (found[0], found[1], False), (found[1], found[0], True):
                # of_scores @ key or key.T @ of_scores.T; of_scores.T @ query or query.T @ of_scores
                if one.slot == of_scores and other.slot != of_scores:
                    which = "query" if one.turned != turned else "key"
                    of[which] = _Matrices(other.slot, other.turned != turned), _Matrices(made, turned)
        if of.keys() != {"query", "key"}:
            return None
        return [of["query"][0], of["key"][0]], [of["key"][1], of["query"][1]]

    # ---------------------------------------------------------------------- what is done instead

    def new(self, shape: tuple[int, ...]) -> int:
        """A slot for an array of float32."""
        slot = max(self.facts) + 1
        self.facts[slot] = Fact(shape, "f", math.prod(shape), True)
        return slot

    def shape(self, of: _Matrices) -> tuple[int, ...]:
        """That of what is meant."""
        shape = self.facts[of.slot].shape
        return (*shape[:-2], shape[-1], shape[-2]) if of.turned else shape

    def as_heads(self, of: _Matrices, lead: tuple[int, ...], onto: list[Assignable]) -> int:
        """Matrices as those of samples' heads, by steps that are appended."""
        slot, shape = of.slot, self.shape(of)
        turns = self.steps[self.made[slot]] if slot in self.made else None
        if of.turned and turns is not None and type(turns.function) is Moved and turns.function.how == _turned(len(shape)):
            return self.as_heads(_Matrices(self.root(turns.operands[0]), False), lead, onto)
        if of.turned:
            slot = self.new(shape)
            onto.append(Call(Moved(TURNED, _turned(len(shape))), [of.slot], [slot]))
        if len(shape) == 3:
            slot, whole = self.new((*lead, *shape[-2:])), slot
            onto.append(Call(Moved(RESHAPED, (*lead, *shape[-2:])), [whole], [slot]))
        return slot

    def replace(self, i: int, found: _Found) -> None:
        """Let what has been found be done at a step's place, if samples and heads are the same everywhere."""
        weights = self.facts[found.weights].shape
        lead = self.lead(found)
        if lead is None or self.instead.keys() & found.steps:
            return
        new: list[Assignable] = []
        given = [self.as_heads(of, lead, new) for of in found.given]
        shapes = [self.facts[slot].shape for slot in given]
        back, scaled = len(given) == 4, found.scaled
        if back:
            given.append(self.as_heads(_Matrices(found.weights, False), lead, new))
        made = [self.new(shapes[n + back] if back else shapes[0]) for n in range(len(found.results))]
        told = scaled.told | AS_THEY_ARE
        function = ByHand(
            how_of_heads(shapes[back], shapes[back + 1], told), back, scaled.scale is not None, scaled.fill is not None, scaled.drop is not None
        )
        given += [slot for slot in (scaled.scale, scaled.fill, scaled.drop) if slot is not None]
        if scaled.mask is not None:
            given.append(self.as_mask(scaled.mask, new))
        whole = [] if back else [self.new((*lead, *weights[-2:]))]
        new.append(Call(function, given, [*made, *whole]))
        if whole:
            new.append(Call(Moved(RESHAPED, weights), whole, [found.weights]))
        for slot, of in zip(made, found.results, strict=True):
            self.give(slot, of, new)
        self.instead.update(dict.fromkeys(found.steps, list[Assignable]()))
        self.instead[i] = new

    def lead(self, found: _Found) -> tuple[int, ...] | None:
        """How many samples and heads what has been found is of. None where its parts differ in that, or something is not as the loop has it."""
        shapes = [self.shape(of) for of in found.given]
        *of_all, scores = *shapes, self.facts[found.weights].shape
        leads = {shape[:-2] for shape in (*of_all, scores) if len(shape) == 4}
        counts = {math.prod(shape[:-2]) for shape in (*of_all, scores)}
        if len(leads) > 1 or len(counts) > 1 or len({shape[-1] for shape in shapes}) > 1 or 0 in [self.facts[of.slot].size for of in found.given]:
            return None
        lead = (leads or {(1, counts.pop())}).pop()
        if found.scaled.drop is not None and self.facts[found.scaled.drop].size != math.prod((*lead, *scores[-2:])):
            return None
        if found.scaled.mask is not None:
            mask, whole = self.facts[found.scaled.mask].shape, (*lead, *scores[-2:])
            if len(mask) > 4 or any([n not in (1, size) for n, size in zip(mask[::-1], whole[::-1], strict=False)]):
                return None
        return lead

    def as_mask(self, mask: int, onto: list[Assignable]) -> int:
        """A mask as one of four dimensions."""
        shape = self.facts[mask].shape
        if len(shape) == 4:
            return mask
        slot = self.new((1,) * (4 - len(shape)) + shape)
        onto.append(Call(Moved(RESHAPED, self.facts[slot].shape), [mask], [slot]))
        return slot

    def give(self, slot: int, of: _Matrices, onto: list[Assignable]) -> None:
        """Let those who read matrices read what the loop has made, as heads where they look at them so: then none are copied."""
        if of.turned:
            shape = self.facts[slot].shape
            turned = self.new((*shape[:-2], shape[-1], shape[-2]))
            onto.append(Call(Moved(TURNED, _turned(4)), [slot], [turned]))
            slot = turned
        for i in self.read[of.slot]:
            step = self.steps[i]
            if i not in self.instead and self.looks(i) and self.facts[step.results[0]].shape == self.facts[slot].shape:
                self.instead[i] = [Call(step.function, [slot], step.results)]
        onto.append(Call(Moved(RESHAPED, self.facts[of.slot].shape), [slot], [of.slot]))

    def in_order(self) -> list[Assignable] | None:
        """The steps, each after those that make what it reads, without what nobody reads of those that only look. None if they cannot be, as where
        values are made of weights."""
        steps = [step for i, one in enumerate(self.steps) for step in self.instead.get(i, [one])]
        missing = {slot for step in steps for slot in step.results}
        waiting: dict[int, list[Assignable]] = defaultdict(list)
        found: list[Assignable] = []
        for step in steps:
            next_ones = deque([step])
            while next_ones:
                one = next_ones.popleft()
                lacks = next((slot for slot in one.operands if slot in missing), None)
                if lacks is not None:
                    waiting[lacks].append(one)
                    continue
                found.append(one)
                missing.difference_update(one.results)
                for slot in one.results:
                    next_ones += waiting.pop(slot, ())
        if missing:
            return None
        read, kept = {*self.outputs}, list[Assignable]()
        for step in reversed(found):
            looks = type(step.function) is Moved or step.results[0] in self.same or step.results[0] in self.dropped
            if not looks or not read.isdisjoint(step.results):
                read.update(step.operands)
                kept.append(step)
        return kept[::-1]
