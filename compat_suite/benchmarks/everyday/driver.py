"""Time per step of small programs that people write, each backend in a process of its own, as ratios to PyTorch eager.

Measured like `speed`, and for longer, as such programs run. The first losses must equal PyTorch's (where it is not installed: the first backend's),
or the table says WRONG.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from compat_suite.benchmarks.backends import namespace
from compat_suite.benchmarks.everyday import PROGRAMS
from compat_suite.benchmarks.processes import in_fresh_process
from compat_suite.benchmarks.report import Report
from compat_suite.benchmarks.speed import LOSSES, Found, collect, one_by_one, tables, timed

QUICK = "gan,eval_loop,embedding_text,vmap_jac,kmeans"  # one of each family
TITLE = "## Programs that people write\n\n"
LEFT_OUT = "Left out: they are for PyTorch and torchgrad_jax on the CPU, where random numbers are the same.\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``everyday``."""
    parser.add_argument("--everyday-programs", default=",".join(PROGRAMS), metavar="NAMES", help="comma-separated (default: all)")
    parser.add_argument("--everyday-rounds", type=int, default=2)
    parser.add_argument("--everyday-seconds", type=float, default=3.0, help="of timing for each program, backend and round")


def quick(options: argparse.Namespace) -> None:
    """Make the options so small that only errors and wrong results can be seen."""
    options.everyday_rounds, options.everyday_seconds = 1, 0.0
    if options.everyday_programs == ",".join(PROGRAMS):
        options.everyday_programs = QUICK


# ---------------------------------------------------------------------- in the measured process


def measure(backend: str, device: str, names: list[str], seconds: float) -> Iterator[dict[str, Any]]:
    """For each program: seconds per step, the first losses and the seconds that they took. No gradients: a program keeps them to itself."""
    T = namespace(backend)
    return one_by_one(names, lambda name: {**timed(PROGRAMS[name](T), 1, seconds), "gradients": []})


# ---------------------------------------------------------------------- in the driver


def run(options: argparse.Namespace) -> Report:
    """Measure and tabulate."""
    names = options.everyday_programs.split(",")
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        raise ValueError(f"no program {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    backends = [backend for backend in options.backends if backend != "jax"]
    if options.device != "cpu" or not backends:
        return Report(TITLE + LEFT_OUT, [])
    found, problems = {}, {}
    for _ in range(options.everyday_rounds):
        for backend in backends:
            given = {"names": names, "seconds": options.everyday_seconds}
            outcome = in_fresh_process("everyday.driver", "measure", backend, options.device, options.timeout, **given)
            collect("everyday", backend, outcome, found, problems)
    text, wrong = tabulate(names, backends, found)
    return Report(text, [*problems, *wrong])


def tabulate(names: list[str], backends: list[str], found: Found) -> tuple[str, list[str]]:
    """Markdown of the times with their ratios and of the first steps' times, and what is wrong."""
    times, first_steps, problems = tables("everyday", "program", names, backends, found)
    text = (
        f"{TITLE}Time per step; in brackets, how many times faster than PyTorch eager.\n\n"
        f"{times}\n\n"
        f"The first {LOSSES} steps, compilation included.\n\n"
        f"{first_steps}\n"
    )
    return text, problems
