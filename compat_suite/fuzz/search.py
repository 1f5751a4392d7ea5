"""One random program: written, run with both libraries side by side, and compared as it goes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import nullcontext
from enum import IntEnum
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torchgrad_jax
from compat_suite.fuzz.author import FEW, Author
from compat_suite.fuzz.comparison import TOLERANCES, Difference, difference, equal
from compat_suite.fuzz.observation import Seen
from compat_suite.fuzz.programs import Raised, Run
from compat_suite.fuzz.statements import LEAVES, STATEMENTS

# How much the leaves of a program may be wrong without changing what is compared, if rounding is no matter in it.
NUDGES = {"float64": 1e-12, "float32": 1e-6}
ROUNDED = {"exp", "log", "sin", "cos", "tanh", "sigmoid", "atan2", "pow", "log1p", "logsumexp", "softmax", "log_softmax"}
# Where a 0 may have either sign: of two zeros either is the larger, and a sum begins with 0 or with its first element.
UNSIGNED = {"maximum", "minimum", "max", "min", "amax", "amin", "clamp", "clamp_min", "clamp_max", "sum", "mean"}
COMPARED = {"eq", "ne", "lt", "le", "gt", "ge"}


class Look(IntEnum):
    """What is looked at after a step: looking computes what is pending, and makes the nodes of views anew."""

    NOTHING = 0
    GRAPH = 1
    VALUES = 2


class Step(NamedTuple):
    """A statement, and what is looked at after it."""

    statement: str
    look: Look


class Pair:
    """A program in both libraries."""

    def __init__(self, excluded: Iterable[str], theirs: Run | None = None) -> None:
        self.ours, self.theirs = Run(torchgrad_jax), theirs or Run(torch)
        self.tolerance, self.second = 0.0, "second faults" in excluded

    def compare(self, statement: str, raised: Raised, expected: Raised, look: Look) -> Difference | None:
        """What differs after a statement."""
        found = difference([Seen(statement, raised, None)], [Seen(statement, expected, None)], self.tolerance, self.second)
        if found is None and look:
            theirs = Seen(statement, self.theirs.calls, self.theirs.observe(look is Look.VALUES))
            try:
                ours = Seen(statement, self.ours.calls, self.ours.observe(look is Look.VALUES))
            except Exception as error:
                return Difference(statement, None, "raised when looked at", f"{type(error).__name__}: {error}", None)
            if any(state["dtype"] != "torch.float64" for state in (theirs.state or {}).values()):  # what is computed of them is no better in float64
                self.tolerance = TOLERANCES["torch.float32"]
            found = difference([ours], [theirs], self.tolerance)
            return None if found is not None and "INTERNAL ASSERT" in str(found.theirs) else found  # a bug of PyTorch's own
        return found

    def end(self) -> Difference | None:
        """What differs in the end."""
        return self.compare("the end", None, None, Look.VALUES)

    def close(self) -> None:
        """Let go of the program's tensors: its functions and its namespace refer to each other."""
        for run in (self.ours, self.theirs):
            run.space.clear()


def senseless(expected: Raised) -> bool:
    """Whether PyTorch met a bug of its own, after which its tensors are not to be relied on; or a name that there is not."""
    return expected is not None and (expected[0] in ("NameError", "UnboundLocalError") or "INTERNAL ASSERT" in expected[1])


def generate(
    seed: int, excluded: Iterable[str], shapes: frozenset[tuple[int, ...]] = FEW, dtypes: list[str] | None = None
) -> tuple[list[Step], Difference | None]:
    """A random program, up to what differs first. For the rest see `Author`."""
    chance = random.Random(seed)
    author = Author(lambda choices: chance.choice(list(choices)), excluded, shapes, dtypes)
    looks = chance.choice([[Look.NOTHING], [Look.GRAPH], [Look.VALUES], [Look.NOTHING, Look.NOTHING, Look.GRAPH, Look.VALUES]])
    pair, steps = Pair(excluded, author.run), []
    length = chance.randint(5, 30)
    for _ in range(3 * length):
        if len(steps) == length:
            break
        written = chance.choice(LEAVES if len(steps) < 2 or not author.run.tensors() else STATEMENTS)(author)
        line = None if written is None else author.line(written)
        if line is None:
            continue
        statement, expected = line
        if senseless(expected):
            return steps, None
        steps.append(Step(statement, chance.choice(looks)))
        found = pair.compare(statement, pair.ours.do(statement), expected, steps[-1].look)
        if found:
            return steps, found
    found = pair.end()
    pair.close()
    return steps, found


def replay(steps: list[Step], excluded: Iterable[str]) -> Difference | None:
    """What differs first in a program; None where nothing does, or where it is no program."""
    pair = Pair(excluded)
    for statement, look in steps:
        raised, expected = pair.ours.do(statement), pair.theirs.do(statement)
        if senseless(expected):
            return None
        found = pair.compare(statement, raised, expected, look)
        if found:
            return found
    return pair.end()


def unstable(steps: list[Step], found: Difference) -> bool:
    """Whether PyTorch itself comes to something else where leaves or functions are wrong in their last digits: rounding decides then."""
    seen = []
    down = {dtype: -by for dtype, by in NUDGES.items()}
    for nudges, mode in ((None, nullcontext()), (NUDGES, nullcontext()), (down, nullcontext()), (None, _Rounded())):
        run = Run(torch, nudges)
        raised = None
        with mode:
            for statement, _ in steps:
                raised = run.do(statement)
                if statement == found.statement:
                    break
        state = run.observe()
        seen.append(state.get(found.name, {}).get(found.what) if found.name else [raised, list(run.calls), sorted(state)])
    return not all(equal(seen[0], other) for other in seen[1:])


class _Rounded(TorchDispatchMode):
    """The results of functions that libraries round differently are wrong, relatively, by `NUDGES`: a leaf's cancel where it is compared with itself,
    and integers have none. A 0 has the other sign where that is a matter of the order (`UNSIGNED`), and what is almost equal compares otherwise."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = func.__name__.partition(".")[0].strip("_")
        if name in UNSIGNED and isinstance(made, torch.Tensor):
            return made.copy_(torch.where(made == 0, -made, made)) if made.is_floating_point() else made
        if name in COMPARED and any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in args[:2]):
            a, b = [torch.as_tensor(x, dtype=torch.float64) for x in args[:2]]
            size = torch.maximum(a.abs(), b.abs()).clamp_min(0.01)  # what is near to 0 may be what a difference has left
            return made.logical_xor_(((a - b).abs() <= 10 * NUDGES["float32"] * size) & (a != b))
        if name in ROUNDED and made.is_floating_point():
            places = torch.arange(made.numel(), dtype=made.dtype).reshape(made.shape)
            made.mul_(1 + NUDGES.get(str(made.dtype)[6:], 0.0) * (places * 5 % 6 - 2.5))
        return made


def differs(steps: list[Step], excluded: Iterable[str]) -> Difference | None:
    """What differs in a program, where rounding does not decide."""
    found = replay(steps, excluded)
    return None if found is None or unstable(steps, found) else found
