"""What is kept of programs, and how much of it: what was not used for long is let go, and made again when it is met again.

Three things pile up where structures never come back: Steps, under a kilobyte each with their programs; Signatures, 4 to 10 KB each with their
traces and derivatives; and executables, a megabyte and more. A fourth does where they come back, but are many that begin alike, as a generation of
each length: they share Steps, and have the interpreter's calls each for itself, half a kilobyte a call. Each has a bound of its own. Time is counted
in programs met for the first time, so that a loop which makes nothing new lets nothing go, and no clock takes part: the same script lets go of the
same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

# How many may be kept; beyond it the half that was used last stays.
MOST_STEPS, MOST_SIGNATURES, MOST_CALLS = 50_000, 10_000, 200_000
# How much may be kept of executables, in operations, each of which takes 25 KB; an executable is so many more. Beyond SOFT those are let go that were
# not used while AGE new programs were met, beyond HARD the one that was not used for longest.
SOFT, HARD, AGE = 4_000, 20_000, 64
EXECUTABLE = 16

# How many programs were met for the first time.
now = 0
# How many there are, and at how many Steps they are looked through: 0 once there are too many Signatures, or calls of the interpreter's.
steps, step_limit = 0, MOST_STEPS
signatures, signature_limit = 0, MOST_SIGNATURES
calls, call_limit = 0, MOST_CALLS
# Called with the Signatures that programs are still made of, when Steps were let go, and when the others are to be forgotten. Those return how many
# there are then.
after_steps: list[Callable[[set[Any]], object]] = []
after_signatures: list[Callable[[set[Any]], int]] = []

_owners: list[weakref.ref[Any]] = []


class Memo(dict[Any, Any]):
    """What was worked out once and can be again, within microseconds: emptied when there is too much of it."""

    __slots__ = ()

    def keep(self, key: Any, value: Any) -> Any:
        """Add what was worked out. Returns it."""
        if len(self) >= 4096:
            self.clear()
        self[key] = value
        return value


def new_signature() -> None:
    """Take note that there is one more Signature."""
    global signatures, step_limit
    signatures += 1
    if signatures > signature_limit:
        step_limit = 0


def new_calls(count: int) -> None:
    """Take note that a program has so many calls of the interpreter's, ready to be made."""
    global calls, step_limit
    calls += count
    if calls > call_limit:
        step_limit = 0


def executables() -> list[Any]:
    """Those who have an executable, in the order in which these were compiled."""
    return [owner for reference in list(_owners) if (owner := reference()) is not None and owner.executable]


def compiled(owner: Any, operations: int) -> None:
    """Take note that `owner` has an executable now, which others may have to make room for. Its `executable` says for how much it counts, 0 for
    none, its `used` when it was last run, and `let_go` is called to let go of it."""
    count, others = len(_owners), [one for one in executables() if one is not owner]
    _owners[:count] = [weakref.ref(one) for one in others]  # another thread may have added one behind
    _owners.append(weakref.ref(owner))
    owner.executable, owner.used = EXECUTABLE + operations, now
    total = sum([one.executable for one in others]) + owner.executable
    for one in sorted(others, key=lambda one: one.used):
        if total <= SOFT or (total <= HARD and now - one.used <= AGE):
            break
        total -= one.executable
        one.let_go()
