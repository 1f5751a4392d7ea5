"""The search: an error at every line of a training step, and the state afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torchgrad_jax
from compat_suite.faults import programs
from compat_suite.faults.interrupts import Injected
from compat_suite.faults.modes import inside
from compat_suite.faults.programs import state
from torchgrad_jax.autograd.undisturbed import ThreadState
from torchgrad_jax.lifting import remembered
from torchgrad_jax.runtime.value import watches


class Loss(NamedTuple):
    """What an error left: the statement it arrived in, the line of the library, and what is wrong."""

    program: str
    statement: int
    place: str
    what: str


def close(a: Any, b: Any) -> bool:
    """Whether two states are the same but for the last digits of numbers, which depend on how a program is run."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= 1e-5 * max(abs(a), abs(b), 1e-2)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    return a == b


def run(statement: tuple[Any, bool], names: dict[str, Any], injected: Injected | None = None, at: int = 0) -> None:
    """Run one statement, with or without a fault."""
    code, grad_mode = statement
    with torchgrad_jax.set_grad_enabled(grad_mode):
        if injected is None:
            exec(code, names)
        else:
            injected(lambda: exec(code, names), at)


class Program:
    """A step run `warm` times without a fault, then once with one, then to its end and once more."""

    def __init__(self, name: str, warm: int, given: dict[str, Any] | None = None) -> None:
        self.name, self.warm, self.given = name, warm, given or {}
        transforms = name in programs.PROGRAMS_OF_TRANSFORMS
        self.setup = programs.SETUP + programs.SETUP_OF_TRANSFORMS * transforms
        self.code = programs.statements((programs.PROGRAMS_OF_TRANSFORMS if transforms else programs.PROGRAMS)[name])
        names = self.begin()
        self.states = [state(names)]
        for code in self.code:
            run(code, names)
            self.states.append(state(names))
        for code in self.code:
            run(code, names)
        self.end = state(names)

    def begin(self) -> dict[str, Any]:
        """The names of a program that is about to run the step that is tried."""
        names: dict[str, Any] = {"torch": torchgrad_jax, **self.given}
        remembered._known.clear()
        exec(self.setup, names)
        for _ in range(self.warm):
            for code in self.code:
                run(code, names)
        return names

    def count(self, injected: Injected, statement: int) -> int:
        """How many lines of the library a statement runs."""
        names = self.begin()
        for code in self.code[:statement]:
            run(code, names)
        run(self.code[statement], names, injected)
        return injected.lines

    def attempt(self, injected: Injected, statement: int, at: int) -> Loss | None:
        """Run the program with an error at a line; None where nothing is lost."""
        names = self.begin()
        for code in self.code[:statement]:
            run(code, names)
        before, kept = [*inside(), torchgrad_jax.is_grad_enabled()], ThreadState()
        run(self.code[statement], names, injected, at)
        place, left = injected.place, [*inside(), torchgrad_jax.is_grad_enabled()]
        if left != before:
            watches.clear()
            kept.put_back()
            return Loss(self.name, statement, place, f"left inside: {[pair for pair in zip(left, before, strict=True) if pair[0] != pair[1]]}")
        try:
            found = state(names)
            # Where there is no difference, the statement can be run again.
            done = not close(found, self.states[statement])
            if done and not close(found, self.states[statement + 1]):
                return Loss(self.name, statement, place, _difference(found, self.states[statement], self.states[statement + 1]))
            for code in [*self.code[statement + done :], *self.code]:
                run(code, names)
            found = state(names)
        except BaseException as error:  # noqa: B036 - what the library raises inside of itself is a loss too
            return Loss(self.name, statement, place, f"{type(error).__name__}: {error}")
        return None if close(found, self.end) else Loss(self.name, statement, place, "training ends otherwise: " + _difference(found, self.end))


def _difference(found: list[Any], *expected: list[Any]) -> str:
    for i, mine in enumerate(found):
        if not any(i < len(e) and close(mine, e[i]) for e in expected):
            return f"{mine} is not {' or '.join(str(e[i]) if i < len(e) else 'absent' for e in expected)}"
    return f"neither before nor after the statement: {[f[0] for f in found]}"


def search(error: Callable[[], BaseException], files: tuple[str, ...], stride: int, warm: int) -> Iterator[Loss | None]:
    """Each fault's outcome, at every `stride`-th line of each statement of each program."""
    for name in programs.PROGRAMS:
        program = Program(name, warm)
        injected = Injected(error, files)
        for statement in range(len(program.code)):
            lines = program.count(injected, statement)
            for at in range(1, lines + 1, stride):
                yield program.attempt(injected, statement, at)


# What opens levels and traces, and leaves them.
OF_TRANSFORMS = (
    "lifting/", "func/", "autograd/function", "autograd/forward", "autograd/passes.py", "autograd/grad_mode.py", "autograd/undisturbed.py",
    "autograd/saved_tensors.py", "checkpoint", "core/level.py", "core/duals.py", "core/through.py", "runtime/composite.py", "stateless.py",
)  # fmt: skip


def search_transforms(error: Callable[[], BaseException], warm: int, stride: int, chosen: tuple[str, ...] = OF_TRANSFORMS) -> Iterator[Loss | None]:
    """As `search`, for programs of transforms. An error where a line runs for the first time in a statement, and for the last: there are too many."""
    for name in programs.PROGRAMS_OF_TRANSFORMS:
        program = Program(name, warm)
        injected = Injected(error)
        for statement in range(len(program.code)):
            program.count(injected, statement)
            places = [when for (code, _), when in injected.places.items() if any(part in code.co_filename for part in chosen)]
            for at in sorted({at for when in places for at in (when[0], when[-1])})[::stride]:
                yield program.attempt(injected, statement, at)
