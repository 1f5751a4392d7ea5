"""What a call came to that was several operations, or one of what does not lie in rows, read off the program that is pending: see `learning.py`.

Nobody sees the tensors between them, so they are told by what is seen: the operations and their operands by the program, who follows whom by the
graph of the result. What is a view of something is made as one, so that a write to that is noticed where the view was saved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchgrad_jax.calling.entries import Part
from torchgrad_jax.core.dispatch import NO_PLAN
from torchgrad_jax.core.fields import edge_of, needs_grad
from torchgrad_jax.core.hot import Called
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.operator import BoundOperator
from torchgrad_jax.operators.views import stride_rules
from torchgrad_jax.runtime.recording.epoch import Epoch
from torchgrad_jax.runtime.recording.step import Step

# Of more operations a call is not recorded again.
MOST_PARTS = 16


def slots_of(epoch: Epoch, tensors: list[Any], singly: Iterable[int]) -> dict[int, int]:
    """By their slots, at which places tensors are; -1 where several have one content."""
    slots: dict[int, int] = {}
    for place in singly:
        value = tensors[place]._content()
        slot = value.slot if value.epoch is epoch else epoch.foreign.get(value)
        if slot is not None:
            slots[slot] = -1 if slot in slots else place
    return slots


def called_of(bound: Any, places: tuple[int, ...], numbers: tuple[Any, ...]) -> Called | None:
    """An operation of one tensor, or of two or of one and a number, as it is called; None for others."""
    of_two = len(places) == 2 and (places[1] >= 0 or type(numbers[0]) in (int, float))
    return Called(bound, bound.name, None, True) if places and places[0] >= 0 and (len(places) == 1 or of_two) else None


def parts_of(epoch: Epoch, before: Step, tensors: list[Any], singly: set[int], made: Any) -> tuple[Part, ...] | None:
    """The operations that were recorded since the Step `before`, each of `tensors` and of what others gave, the last of which gave what was made.
    None where it is not as simple as that."""
    steps = _recorded(epoch.step, before)
    if steps is None or not _is_of_the_last(epoch, steps, made):
        return None
    if any([step.numbers for step in steps]) and any([t._aval.size < 2 or t._aval.dtype.kind in "iub" for t in tensors]):
        return None  # which may have been asked for its elements
    slots = slots_of(epoch, tensors, singly)
    parts: list[Part] = []
    for step in steps:
        places = tuple([slots.get(arg, -2) if type(arg) is int else -1 for arg in step.args])
        if -2 in places or any([type(arg) is int and slots[arg] < 0 for arg in step.args]) or not places or places[0] < 0:
            return None
        numbers = tuple([epoch.numbers[place] for place in step.numbers])
        last = step is steps[-1]
        viewing = step.bop.operator.name in stride_rules and not (last and made._view is None)
        copies = step.bop.operator.keeps_order == "exactly"  # as it is laid out, or as the function was told
        if copies and not last and not _is_looked_at_in_rows(step.slot, steps):
            return None
        in_rows = not viewing and (last or copies)
        parts.append(Part(step.bop, places, numbers, called_of(step.bop, places, numbers), viewing, in_rows))
        slots[step.slot] = len(tensors) + len(parts) - 1
    if not singly.issubset({place for part in parts for place in part.places}) or not _is_graph_of(steps, parts, tensors, epoch, made):
        return None
    return tuple(parts)


def _recorded(step: Any, before: Step) -> list[Any] | None:
    """The operations between two Steps, of one result each and declared; None where there are more than a few, or others."""
    found: list[Any] = []
    while step is not before:
        if step is None or len(found) > MOST_PARTS:
            return None
        if step.signature is not None:
            bound = step.bop
            if not step.signature.single or not isinstance(bound, BoundOperator):
                return None
            if bound.operator.name in stride_rules and not bound.operator.by_strides:
                return None
            found.append(step)
        step = step.parent
    return found[::-1] if 0 < len(found) <= MOST_PARTS else None


def _is_of_the_last(epoch: Epoch, steps: list[Any], made: Any) -> bool:
    """Whether what was made is what the last operation gave, as it lies, and nothing was done to it."""
    last = steps[-1]
    if type(made) is not Tensor or made._extra is not None or made._value.epoch is not epoch or made._value.slot != last.slot:
        return False
    view = made._view
    if view is None:
        return made._storage is None
    looks = len(view.links)  # a view of what the operation before these gave
    if looks >= len(steps) or steps[-looks - 1].bop.operator.name in stride_rules:
        return False
    return all([link.read is step.bop for link, step in zip(view.links, steps[-looks:], strict=True)])


def _is_looked_at_in_rows(slot: int, steps: list[Any]) -> bool:
    """Whether all that reads a result gives it other dimensions, which only what is in row-major order has for the asking."""
    readers = [step for step in steps if slot in step.args]
    return bool(readers) and all([step.bop.operator.name == "_unsafe_view" for step in readers])


def _is_graph_of(steps: list[Any], parts: list[Part], tensors: list[Any], epoch: Epoch, made: Tensor) -> bool:
    """Whether the graph of what was made is what comes of the operations: else some of them were not followed."""
    follows = epoch.recorder.grad_enabled
    plans: list[Any] = [None] * len(tensors)
    flows = [follows and needs_grad(t) for t in tensors]
    for step, part in zip(steps, parts, strict=True):
        mask = sum([1 << i for i, place in enumerate(part.places) if place >= 0 and flows[place]])
        plan: Any = step.signature.plans.get(mask) if mask else NO_PLAN
        if plan is None:
            return False
        flows.append(plan is not NO_PLAN)
        plans.append(plan)
    if not flows[-1]:
        return not made._rg
    waiting = [(edge_of(made), len(plans) - 1)] if made._rg else []
    seen: set[int] = set()
    while waiting:
        (node, nr), place = waiting.pop()
        if place < len(tensors):
            expected = edge_of(tensors[place])
            if expected[0] is not node or expected[1] != nr:
                return False
        elif getattr(node, "plan", None) is not plans[place] or nr:
            return False
        elif place not in seen:
            seen.add(place)
            part = parts[place - len(tensors)]
            waiting += zip(node.next, [part.places[i] for i in plans[place].inputs], strict=True)
    return bool(seen)
