"""Letting go of Steps: of the programs that were not run for longest, until what is kept of the others is half of what may be kept. Where it is the
interpreter's calls that are too many, of those.

What is compiled has a bound of its own, and its Steps stay. Another thread may be recording at a Step that is cut off here: it goes on there, and
what it records is new the next time.
"""

from __future__ import annotations

import threading
from typing import Any

from torchgrad_jax.runtime import keeping
from torchgrad_jax.runtime.operation import Signature, expansion
from torchgrad_jax.runtime.recording.step import Step

_lock = threading.Lock()


def prune(roots: dict[Any, Step], current: Step | None) -> None:
    """Cut off what was not used for long of the trees of Steps. `current` is where something is pending."""
    if not _lock.locked():  # else it is under way in another thread, or what was let go of has made Python run other code
        # On one line: an interrupt between two would leave it locked.
        with _lock: _prune(roots, current)  # noqa: E701  # fmt: skip


def _prune(roots: dict[Any, Step], current: Step | None) -> None:
    forgets = keeping.signatures > keeping.signature_limit
    kept = _Kept(keeping.MOST_STEPS // 2, keeping.MOST_SIGNATURES // 2 if forgets else keeping.signatures)
    for root in list(roots.values()):
        kept.add(root)
    kept.add(current)
    ends = _by_use(list(roots.values()))
    for step in ends:
        if not kept.add(step):
            break
    _cut(kept.steps)
    _let_go_of_calls([step for step in ends if step in kept.steps])
    for forget in keeping.after_steps:
        forget(kept.signatures)
    if forgets:
        keeping.signatures = sum([forget(kept.signatures) for forget in keeping.after_signatures])
        keeping.signature_limit = max(keeping.MOST_SIGNATURES, 2 * keeping.signatures)
    keeping.steps = kept.count
    keeping.step_limit = max(keeping.MOST_STEPS, 2 * kept.count)


class _Kept:
    """The Steps that are kept, and the Signatures that these, and the parts of operations made of others, have. count: of Steps and parts."""

    def __init__(self, most_steps: int, most_signatures: int) -> None:
        self.most_steps, self.most_signatures = most_steps, most_signatures
        self.count = 0
        self.steps: set[Step] = set()
        self.signatures: set[Signature] = set()

    def add(self, step: Step | None) -> bool:
        """Keep the program that ends at `step`, however long it is. Returns whether there is room for more."""
        while step is not None and step not in self.steps:
            self.steps.add(step)
            self.count += 1
            if step.signature is not None:
                self._note(step.signature)
            step = step.parent
        return self.count < self.most_steps and len(self.signatures) <= self.most_signatures

    def _note(self, sig: Signature) -> None:
        if sig in self.signatures:
            return
        self.signatures.add(sig)
        known = expansion(sig.bop, sig.specs)
        for part in () if known is None else known.steps:
            self.count += 1
            self._note(part.signature)


def _let_go_of_calls(ends: list[Step]) -> None:
    """Count the interpreter's calls, and keep half of what may be kept of them if they are too many: those of the programs that were run last."""
    most = keeping.MOST_CALLS // 2 if keeping.calls > keeping.call_limit else keeping.calls
    count = 0
    for step in ends:
        for program in list((step.programs or {}).values()):
            interpreted = program.interpreted
            if interpreted is None or interpreted.merged is None:
                continue
            if count >= most:
                step.settled = program.interpreted = None
            else:
                count += len(interpreted.calls)
    keeping.calls, keeping.call_limit = count, max(keeping.MOST_CALLS, 2 * count)


def _by_use(stack: list[Step]) -> list[Step]:
    """The Steps at which programs end: first those of which something is compiled, then those that were run last."""
    found = []
    while stack:
        step = stack.pop()
        if step.programs:
            forms = [program.form for program in list(step.programs.values())]
            found.append((any(f.executable for f in forms), max([f.used for f in forms]), step))
        stack.extend(step.following())
    found.sort(key=lambda one: one[:2], reverse=True)
    return [step for _, _, step in found]


def _cut(kept: set[Step]) -> None:
    """Take apart what hangs on the Steps that are kept and is not: Steps and Programs refer to each other."""
    stack: list[Step] = []
    for step in kept:
        stack.extend(step.forget(kept))
    while stack:
        step = stack.pop()
        stack.extend(step.forget())
        step.programs = None
