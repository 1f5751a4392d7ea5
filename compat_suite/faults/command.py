"""Injects faults into training steps and says what they cost.

``python -m compat_suite faults [--stride N]``: an interrupt, and an allocation failure, at every line of the library that a step runs; interrupts in
transforms, and exceptions at the lines of functions that are transformed; an exception in every kind of hook; threads that die. After each, what a
user sees must be what stands between two statements, and training must go on.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections import Counter

import torchgrad_jax
from compat_suite.faults.functions import FUNCTIONS, OURS
from compat_suite.faults.hooks import KINDS, left
from compat_suite.faults.lines import search as search_lines
from compat_suite.faults.search import Loss, search, search_transforms
from compat_suite.faults.threads import look_at_a_dead_threads_tensors
from compat_suite.faults.transforms import TRACED, TRANSFORMS

# Where memory is allocated: the lines that run programs.
ALLOCATING = (
    "runtime/interpreted.py", "runtime/program.py", "runtime/compiling/compiled.py", "runtime/baseline/places.py", "runtime/baseline/plan.py",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """The command. 1 where something was lost."""
    parser = argparse.ArgumentParser("python -m compat_suite faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stride", type=int, default=1, help="only at every so manieth line")
    parser.add_argument("--warm", type=int, nargs="*", default=[0, 2], help="how many steps run before the one that is tried")
    chosen = parser.parse_args(arguments)
    lost = 0
    for title, error, files in (("interrupts", KeyboardInterrupt, ()), ("allocation failures", MemoryError, ALLOCATING)):
        for warm in chosen.warm:
            counts, losses = Counter[bool](), list[Loss]()
            for outcome in search(error, files, chosen.stride, warm):
                counts[outcome is None] += 1
                if outcome is not None:
                    losses.append(outcome)
            print(f"{title}, after {warm} steps: {sum(counts.values())} injected, {counts[False]} lost something")
            for loss in losses[:20]:
                print(f"  {loss.program}, statement {loss.statement}, at {loss.place}: {loss.what[:300]}")
            lost += counts[False]
    lost += _transforms(4 * chosen.stride) + _exceptions(2 * chosen.stride) + _hooks()
    dead = [number for number in range(20) if not look_at_a_dead_threads_tensors(number)]
    print(f"threads that died: 20, {len(dead)} lost something")
    return int(bool(lost or dead))


def _transforms(stride: int) -> int:
    """Interrupts in transforms: before, while, and after they are remembered."""
    lost = 0
    for warm in (0, 1, 2):
        outcomes = list(search_transforms(KeyboardInterrupt, warm, stride))
        losses = [loss for loss in outcomes if loss is not None]
        print(f"interrupts in transforms, after {warm} calls: {len(outcomes)} injected, {len(losses)} lost something")
        for loss in losses[:20]:
            print(f"  {loss.program}, statement {loss.statement}, at {loss.place}: {loss.what[:300]}")
        lost += len(losses)
    return lost


def _exceptions(stride: int) -> int:
    """Exceptions at the lines of functions that are transformed."""
    reference = None
    if importlib.util.find_spec("torch") is not None:
        import torch as reference
    count, differing = 0, []
    for function in (*FUNCTIONS, *OURS):
        for i, transform in enumerate((*TRANSFORMS, *TRACED)):
            for outcome in search_lines(function, transform, reference, 1 + i % stride, stride):
                count += 1
                if outcome is not None:
                    differing.append(outcome)
    print(f"exceptions in functions that are transformed: {count}, {len(differing)} leave what they should not")
    for found in differing[:20]:
        print(f"  {found.function}, {found.transform}, line {found.line}: {found.what[:300]}")
    return len(differing)


def _hooks() -> int:
    if importlib.util.find_spec("torch") is None:
        print("exceptions in hooks: not compared, PyTorch is not installed")
        return 0
    import torch

    differing = []
    for kind in KINDS:
        for at in (1, 2, 3):
            ours, theirs = left(torchgrad_jax, kind, at), left(torch, kind, at)
            if ours != theirs:
                differing.append((kind, at, ours, theirs))
    print(f"exceptions in hooks: {3 * len(KINDS)}, {len(differing)} leave something else than in PyTorch")
    for kind, at, ours, theirs in differing:
        print(f"  {kind}, call {at}:\n    {ours}\n    PyTorch: {theirs}")
    return len(differing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
