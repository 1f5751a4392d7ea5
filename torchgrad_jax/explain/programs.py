"""What is told of a program: what is in it, how it was run, and why it was new."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from torchgrad_jax.explain.data import New, Program
from torchgrad_jax.explain.places import Place
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.observing.differences import TAPE, Outline, difference, distance, name_of, shown
from torchgrad_jax.runtime.recorder import recorder, roots
from torchgrad_jax.runtime.recording.step import Step
from torchgrad_jax.runtime.tiers import INTERPRETED, by_xla, reason

STEPPED = "stepped"


class Met:
    """A program that was run while somebody watched: where it ends, which results were held, and what was spent on it."""

    def __init__(self, number: int, step: Step, alive: bytes, program: Any) -> None:
        self.number, self.step, self.alive, self.program = number, step, alive, program
        self.outline = Outline(steps_to(step))
        self.new: New | None = None
        self.tier = self.because = ""
        self._state: tuple[Any, ...] = ()
        self.by_xla: dict[str, str] = {}
        self.runs: Counter[str] = Counter()
        self.lines: Counter[Place] = Counter()
        self.compiled = 0
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def ran(self, seconds: float) -> None:
        """It has just been run once more."""
        self.tier = tier(self.program)
        if self._state != (state := (self.tier, *_modes())):
            self._state, self.because = state, reason(self.program)
            self.by_xla = by_xla(self.program) if self.tier == INTERPRETED else {}
        self.runs[self.tier] += 1
        self.seconds["running"] += seconds

    def data(self) -> Program:
        """What is told of it."""
        program = self.program
        if self._state[1:] == _modes():
            self.because = reason(program)
        return Program(
            self.number, dict(operators(program.calls)), _inputs(program), _results(program, self.outline), self.tier, self.because,
            self.by_xla, dict(self.runs), self.compiled, self.seconds["compiling"], self.seconds["running"], self.seconds["computing"],
            self.new, self._lines(),
        )  # fmt: skip

    def _lines(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for place, times in self.lines.items():
            found[str(place)] += times
        return dict(found)


def _modes() -> tuple[Any, ...]:
    """What the tier of a program and its reason depend on beside the program."""
    return modes.execution, modes.baseline, modes.deterministic, modes.same_tier_blocks, modes.without_xla


def tier(program: Any) -> str:
    """How a program that has just been run was run."""
    plans = modes.execution != "eager" and any(program.estimate.plans)
    found = INTERPRETED if modes.without_xla or modes.same_tier_blocks else program.tier
    return STEPPED if found == INTERPRETED and not plans and not modes.without_xla else found


def operators(calls: Any) -> Counter[str]:
    """How often each operator occurs among Calls or Steps."""
    return Counter(map(name_of, calls))


def steps_to(step: Step | None) -> list[Step]:
    """All Steps of the program that ends at `step`, inputs too, first to last."""
    found = []
    while step is not None and step.parent is not None:
        found.append(step)
        step = step.parent
    return found[::-1]


def pending() -> int:
    """How many operations this thread has recorded that were not run yet."""
    return len([s for s in steps_to(recorder().epoch.step) if s.signature is not None])


def known_programs(most: int) -> list[Met]:
    """Of the programs that are kept of all threads those that were run last, the latest at the end."""
    found, stack = [], list(roots.values())
    while stack:
        step = stack.pop()
        stack += step.following()
        found += [(program.form.used, step, alive, program) for (alive, _), program in list((step.programs or {}).items()) if program.seen]
    found.sort(key=lambda one: one[0])
    return [Met(0, step, alive, program) for _, step, alive, program in found[-most:]]


def _inputs(program: Any) -> list[str]:
    given = {-1 - a: spec for c in program.calls for a, spec in zip(c.args, c.signature.specs, strict=True) if type(a) is int and a < 0}
    return [shown(given[i]) for i in program.inputs if i in given]


def _results(program: Any, outline: Outline) -> list[str]:
    made = {s.slot + i: aval for s in outline.operations for i, aval in enumerate(s.signature.avals)}
    return [shown(made[slot]) for slot in program.slots if slot in made]


# ---------------------------------------------------------------------- why it was new


def why_new(found: Met, known: list[Met]) -> New:
    """In what a program that was not met before differs from the nearest of those that were."""
    nearest = min(reversed(known), key=lambda other: distance(other.outline, found.outline), default=None)
    if nearest is None or (unlike := distance(nearest.outline, found.outline)[0]) and 2 * unlike > found.outline.forward.total():
        return New("first", "nothing like it was known")
    differs = difference(nearest.outline, found.outline)
    if differs is not None and TAPE in found.outline.names and TAPE not in nearest.outline.names:
        text = "its backward pass was walked node by node, and is now recorded as one operation, as one that comes back is"
        return New("backward", text, line=differs.line, relative=nearest.number)
    if differs is not None:
        return New(differs.kind, differs.text, differs.was, differs.now, differs.operator, differs.line, nearest.number)
    if nearest.alive != found.alive:
        return _other_results(nearest, found)
    if nearest.program.donated != found.program.donated:
        return New("memory", "other inputs are referred to by nobody else, so that their memory may be given to results", relative=nearest.number)
    return New("let go", "it was known before and had been let go of", relative=nearest.number)


def _other_results(nearest: Met, found: Met) -> New:
    """The first result that is held by somebody where it was not, or the other way round."""
    slot = next(i for i, (a, b) in enumerate(zip(nearest.alive, found.alive, strict=True)) if a != b)
    place, operation = next((i, s) for i, s in enumerate(found.outline.operations) if s.slot <= slot < s.end)
    name, held = name_of(operation), bool(found.alive[slot])
    was, now = ("held by nobody", "still held") if held else ("still held", "held by nobody")
    text = f"the result of {name} (operation {place}) was {was} when the program ran, and is now {now}"
    return New("held results", text, was, now, name, getattr(operation, "line", ""), nearest.number)
