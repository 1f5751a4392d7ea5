"""``first_steps.py NAME STEPS WARM``: a training loop from its first step on, the tensors it works on made within the time.

NAME is a module of `loops` or a workload of the speed benchmark. STEPS, comma-separated: after which steps to take the time.
WARM: how many steps to do after those, of which the median is taken.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Callable

import clock
import numpy as np
import torch

from compat_suite.benchmarks.backends import tensor_maker
from compat_suite.benchmarks.workloads import WORKLOADS

LOSSES = 10  # the first ones are compared; later ones carry the rounding of all steps before


def maker(name: str) -> Callable[[], Callable[[], float]]:
    """What makes the step: its imports are done, and data that are NumPy arrays are there."""
    if name not in WORKLOADS:
        return importlib.import_module(f"loops.{name}").make_step
    data = WORKLOADS[name].data(np.random.RandomState(0))
    return lambda: WORKLOADS[name].in_torch(torch, tensor_maker(torch, "cpu"), **data)


def main() -> None:
    """Time the loop that the command line names."""
    name, steps, warm = sys.argv[1], [int(n) for n in sys.argv[2].split(",")], int(sys.argv[3])
    make = maker(name)
    at, losses = {}, []
    start = time.perf_counter()
    step = make()
    for n in range(1, max(steps) + 1):
        loss = step()
        if n in steps:
            at[f"step {n}"] = time.perf_counter() - start
        if n <= LOSSES:
            losses.append(loss)
    seconds = time.perf_counter() - start
    if warm:
        at["warm step"] = statistics.median(_seconds(step) for _ in range(warm))
    clock.say({"seconds": seconds, "at": at, "numbers": {"losses": losses}})


def _seconds(step: Callable[[], float]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


main()
