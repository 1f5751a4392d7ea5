"""An exception at each line of a function that is transformed, and what it leaves: what PyTorch leaves, and nothing half done."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import torchgrad_jax
from compat_suite.faults.functions import FILE, OURS, world
from compat_suite.faults.modes import inside
from compat_suite.faults.search import close
from compat_suite.faults.transforms import TRACED, TRANSFORMS
from torchgrad_jax.lifting import remembered

# So often a call is repeated: from the third on it may be remembered.
CALLS = 3


class Stop(Exception):
    """What is thrown."""


class Lines:
    """Runs a call with `error` thrown when the `at`-th line of the user's in it is about to run (0: nowhere). seen: how many there were."""

    def __init__(self, error: Callable[[], BaseException] = Stop) -> None:
        self.error, self.seen = error, 0

    def __call__(self, call: Callable[[], Any], at: int = 0) -> Any:
        """What it gives, as Python's numbers, or the name of what it raises."""
        self.seen = 0
        before = sys.gettrace()

        reached: dict[FrameType, int] = {}

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            # The end of a `with` is an event at its first line: thrown there, Python would not call its __exit__.
            onwards, reached[frame] = frame.f_lineno >= reached.get(frame, 0), frame.f_lineno
            if event == "line" and onwards:
                self.seen += 1
                if self.seen == at:
                    sys.settrace(before)
                    raise self.error()
            return line

        sys.settrace(lambda frame, event, argument: line if frame.f_code.co_filename == FILE else None)
        try:
            return plain(call())
        except Exception as error:
            return type(error).__name__
        finally:
            sys.settrace(before)


def plain(found: Any) -> Any:
    """Results as lists of numbers."""
    if isinstance(found, (tuple, list)):
        return [plain(x) for x in found]
    return (found.detach() if hasattr(found, "detach") else found).tolist() if hasattr(found, "tolist") else found


NAMES = ("x", "w", "c", "d")
# Where a world's state has the tangent of jvp.
_TANGENT = 2 + NAMES.index("d")


def _tensors(v: Any) -> list[Any]:
    return [*(getattr(v, name) for name in NAMES), v.m.weight, v.m.count]


def state(t: Any, v: Any) -> list[Any]:
    """What can be seen of a world, of the modes, and of the random generator, which draws."""
    found: list[Any] = [t.is_grad_enabled(), t.is_inference_mode_enabled()]
    with t.inference_mode(False):
        for name, x in zip((*NAMES, "weight", "count"), _tensors(v), strict=True):
            grad = None if x.grad is None else (x.grad.tolist(), x.grad.requires_grad)
            # How often an argument was written to is not told: ours gets its content when the transform is left.
            version = bool(x._version) if name == "x" else x._version
            found.append((name, x.detach().tolist(), version, x.requires_grad, type(x.grad_fn).__name__, grad))
        return [*found, t.rand(2).tolist()]


def begin(t: Any, v: Any, contents: list[list[float]], seed: int) -> None:
    """Let a world be as it was, for another call."""
    t.set_grad_enabled(True)
    t.manual_seed(seed)
    with t.no_grad():
        for x, content in zip(_tensors(v), contents, strict=True):
            x.copy_(t.tensor(content))
            x.grad = None


def calls(t: Any, v: Any, call: Callable[[], Any], lines: Lines) -> list[Any]:
    """What calls one after the other give, each in the same world, and what they leave."""
    contents = [x.detach().tolist() for x in _tensors(world(t, "views"))]
    found = []
    for seed in range(CALLS):
        begin(t, v, contents, seed)
        found.append([lines(call), [x.detach().tolist() for x in _tensors(v)], None if v.w.grad is None else v.w.grad.tolist()])
    return found


class Difference(NamedTuple):
    """What an exception left: the function, the transform, the line and the call that it came in, and what is wrong."""

    function: str
    transform: str
    line: int
    what: str


def attempt(t: Any, function: str, made: Callable[[Any, Any], Any], at: int) -> tuple[Any, Any, list[Any], list[Any]]:
    """A world after a call of its transformed function that throws at a line; the call; and what is to be seen."""
    v = world(t, function)
    call = made(t, v)
    t.manual_seed(7)
    lines = Lines()
    outcome = lines(call, at)
    left = inside()
    found = state(t, v)
    t.set_grad_enabled(True)
    return v, call, [outcome if outcome == "Stop" or isinstance(outcome, str) else "ran", found], left


def search(function: str, transform: str, reference: Any = None, first: int = 1, stride: int = 1) -> Iterator[Difference | None]:
    """The outcome of an exception at each line, or every `stride`-th from `first` on. reference: PyTorch, to be compared with."""
    made = TRANSFORMS.get(transform) or TRACED[transform]
    t = torchgrad_jax
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        remembered._known.clear()
        v = world(t, function)
        expected = calls(t, v, made(t, v), Lines())
        v = world(t, function)
        lines = Lines()
        remembered._known.clear()
        t.manual_seed(7)
        before = inside()
        lines(made(t, v))
        for at in range(first, lines.seen + 1, stride):
            yield _compared(function, transform, made, at, reference, expected, before)


def _compared(function: str, transform: str, made: Any, at: int, reference: Any, expected: Any, before: list[Any]) -> Difference | None:
    t = torchgrad_jax
    remembered._known.clear()
    v, call, found, left = attempt(t, function, made, at)
    if left != before:
        return Difference(function, transform, at, f"left inside: {_first(left, before)}")
    if transform in TRACED:
        fresh = world(t, function)
        t.manual_seed(7)
        wanted = ["Stop", state(t, fresh)]
    elif reference is not None and function not in OURS:
        wanted = attempt(reference, function, made, at)[2]
        # Where PyTorch lets a mode that the function has set last beyond the transform, ours ends with it.
        wanted[1][:2] = [True, False] if found[1][:2] == [True, False] else wanted[1][:2]
        if transform == "jvp":  # where the argument is written to, PyTorch's writes to the tangent that it was given too
            wanted[1][_TANGENT] = state(t, world(t, function))[_TANGENT]
    else:
        wanted = found
    if found[0] == wanted[0] == "Stop" and not close(found, wanted):
        return Difference(function, transform, at, f"{_first(found, wanted)}")
    again = calls(t, v, call, Lines())
    if not close(again, expected):
        return Difference(function, transform, at, f"called again: {_first(again, expected)}")
    return None


def _first(found: Any, wanted: Any) -> str:
    if isinstance(found, (list, tuple)) and isinstance(wanted, (list, tuple)) and len(found) == len(wanted):
        return next((_first(a, b) for a, b in zip(found, wanted, strict=True) if not close(a, b)), "")
    return f"{found}, and not {wanted}"
