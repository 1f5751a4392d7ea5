"""Several plans as one list of calls: a program that is interpreted again and again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from torchgrad_jax.runtime.baseline.carrying import carry_out
from torchgrad_jax.runtime.baseline.form import NumPyForm
from torchgrad_jax.runtime.baseline.places import assigned
from torchgrad_jax.runtime.baseline.plan import Plan


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

    calls, template, outputs: what that makes of them; the inputs come first in the template.

    A part by itself costs 2 us beside its steps: its list of values, its operands and its results. Here a step is all there is.
    """

    __slots__ = ("_inputs", "calls", "template", "outputs")

    def __init__(self, parts: Sequence[Part], inputs: Sequence[Hashable], outputs: Sequence[Hashable], drops: bool = False) -> None:
        slots: dict[Hashable, int] = {name: i for i, name in enumerate(inputs)}
        steps: list[_Call] = []
        constants: dict[int, Any] = {}
        free = len(inputs)
        for part in parts:
            if isinstance(part.plan, Plan):
                free = _insert(part, part.plan, slots, steps, constants, free)
                continue
            made = list(range(free, free + len(part.results)))
            free += len(made)
            reads = [slots[name] for name in part.operands]
            if isinstance(part.plan, NumPyForm) and part.plan.single:
                steps.append(_Call(part.plan.function, reads, made, part.plan.fresh, part.plan.overwriting))
            else:
                steps.append(_Call(part.plan if len(made) != 1 else _only(part.plan), reads, made))
            slots.update(zip(part.results, made, strict=True))
        self._inputs = len(inputs)
        places = assigned(steps, range(len(inputs)), constants, [slots[name] for name in outputs], drops)
        self.calls, self.template, self.outputs = places

    def __call__(self, arrays: list[Any]) -> list[Any]:
        """Empties `arrays`, so that each can be dropped after its last use."""
        values = self.template.copy()
        values[: self._inputs] = arrays
        arrays.clear()
        carry_out(self.calls, values)
        return [values[i] for i in self.outputs]


def _insert(part: Part, plan: Plan, slots: dict[Hashable, int], steps: list[_Call], constants: dict[int, Any], free: int) -> int:
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
