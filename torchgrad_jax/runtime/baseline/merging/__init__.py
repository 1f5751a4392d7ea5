"""Several plans as one list of calls: a program that is interpreted again and again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from torchgrad_jax.runtime.baseline import blocks
from torchgrad_jax.runtime.baseline.carrying import Spread, carry_out
from torchgrad_jax.runtime.baseline.chains import Fact, chained, fact, what_is_chained
from torchgrad_jax.runtime.baseline.cost import of_chains
from torchgrad_jax.runtime.baseline.form import NumPyForm
from torchgrad_jax.runtime.baseline.merging.attending import with_attention
from torchgrad_jax.runtime.baseline.merging.joining import with_gradients_joined
from torchgrad_jax.runtime.baseline.merging.looking import directly, looks_at, where_they_lie
from torchgrad_jax.runtime.baseline.merging.products import the_right_way_round, with_biases, with_rests, with_sums
from torchgrad_jax.runtime.baseline.merging.steps import Call
from torchgrad_jax.runtime.baseline.places import Assignable, assigned
from torchgrad_jax.runtime.baseline.plan import FOLDED_BYTES, Plan


class Part(NamedTuple):
    """One plan, or any function that returns a list of results, at its place: the names of what it reads and of what it makes."""

    plan: Plan | NumPyForm | Callable[..., Any]
    operands: Sequence[Hashable]
    results: Sequence[Hashable]


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
                free = _insert_steps(part.plan.steps, reads, made, steps, constants, free)
            elif isinstance(part.plan, NumPyForm) and part.plan.single and not reads and (array := part.plan.function()).nbytes <= FOLDED_BYTES:
                constants[made[0]] = array
            elif isinstance(part.plan, NumPyForm) and part.plan.single:
                steps.append(Call(part.plan.function, reads, made, part.plan.fresh, part.plan.overwriting))
            else:
                steps.append(Call(part.plan if len(made) != 1 else _only(part.plan), reads, made))
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
        """Run step by step, and see of which shapes and dtypes everything is. From now on there are chains, unless there is attention, as which some
        of the steps are carried out the next time, which shows how its results lie."""
        steps = self._steps
        if self.final:  # another thread has seen it meanwhile
            return self(arrays)
        facts: dict[int, Fact] = {slot: fact(array) for slot, array in self._constants.items()}
        facts.update(enumerate(map(fact, arrays)))
        views: dict[int, Any] = {}  # what looks at its one operand otherwise
        same: dict[int, int] = {}  # slots that are what their operands are
        last = {slot: i for i, step in enumerate(steps) for slot in step.operands}
        last.update(dict.fromkeys(self._results, len(steps)))
        values = {**self._constants, **dict(enumerate(arrays))}
        arrays.clear()
        for i, step in enumerate(steps):
            made = step.function(*[values[slot] for slot in step.operands])
            for slot, array in zip(step.results, [made] if len(step.results) == 1 else made, strict=True):
                facts[slot] = fact(array)
                values[slot] = array
            if len(step.operands) == len(step.results) == 1 and looks_at(made, values[step.operands[0]]):
                views[i] = made.dtype
            elif len(step.operands) == len(step.results) == 1 and made is values[step.operands[0]]:
                same[step.results[0]] = step.operands[0]
            for slot in (*step.operands, *step.results):
                if last.get(slot, i) == i:
                    values.pop(slot, None)
        results = [values[slot] for slot in self._results]
        steps, views = where_they_lie(steps, views, facts, self._results)
        steps = directly(steps, views, facts, self._results)
        attended = with_attention(steps, facts, same, self._constants, self._results)
        if attended is not None:
            self._steps = attended
            return results
        steps = the_right_way_round(with_gradients_joined(steps, facts, self._results), facts, self._results)
        steps = with_sums(with_biases(steps, facts, self._results), facts, self._results)
        steps = with_rests(steps, facts, self._results)
        self._assign(chained(steps, facts, self._results))
        return results


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
        kept.append(step if operands == step.operands else Call(step.function, operands, step.results, step.fresh, step.overwriting))
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
        steps.append(Call(step.function, reads, made, step.fresh, step.overwriting))
    for slot, name in zip(plan.outputs, part.results, strict=True):
        slots[name] = own[slot]
    return free


def _insert_steps(of: Sequence[Any], reads: list[int], made: list[int], steps: list[Assignable], constants: dict[int, Any], free: int) -> int:
    """Append the steps of a form, see `Forms`. Returns the next slot that is free."""
    counts = [rest[0] if rest else 1 for _, _, *rest in of]
    before = sum(counts) - len(made)
    own = [*range(free, free + before), *made]
    free += before
    first = 0
    for (function, places, *rest), count in zip(of, counts, strict=True):
        operands: list[int] = []
        for p in places:
            if isinstance(p, int):
                operands.append(reads[p] if p >= 0 else own[~p])
            else:
                constants[free] = p
                operands.append(free)
                free += 1
        fresh = rest[1] if len(rest) > 1 else count == 1 and (type(function) is not Spread or function.fresh)
        steps.append(Call(function, operands, own[first : first + count], fresh))
        first += count
    return free


def _only(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: function(*arrays)[0]
