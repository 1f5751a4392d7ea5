"""Time per step of every workload, each backend in a process of its own, as ratios to PyTorch eager.

Rounds follow one another over all backends and the best time counts, of steps as fast as they become: `cold` measures the first ones. A step ends
with its loss on the host. The first losses and the gradients of the first step must equal PyTorch's (where it is not installed: the first
backend's), or the table says WRONG.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compat_suite.benchmarks.backends import LABELS, namespace, tensor_maker
from compat_suite.benchmarks.processes import Outcome, in_fresh_process
from compat_suite.benchmarks.report import Report, duration, table
from compat_suite.benchmarks.workloads import WORKLOADS
from compat_suite.benchmarks.workloads.workload import Step

LOSSES = 5
TOLERANCE = 2e-3
SMALLEST_LOSS = 1e-3  # losses closer to zero are compared as if they were this large
BLOCK = 0.02  # seconds that one timing takes at least, where steps are short
# Where steps got faster, or something was compiled within them, they are timed for as long again after that; a backend gets so many seconds at most.
FASTER, COMPILING, MOST_SECONDS = 0.9, 3.0, 30.0
MOST_STEPS = 200  # in one timing

Found = dict[tuple[str, str], dict[str, Any]]  # the best result by workload and backend


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``speed``."""
    parser.add_argument("--only", default=",".join(WORKLOADS), metavar="NAMES", help="workloads, comma-separated (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing for each workload, backend and round")


def quick(options: argparse.Namespace) -> None:
    """Make the options so small that only errors and wrong results can be seen."""
    options.rounds, options.seconds = 1, 0.0
    if options.only == ",".join(WORKLOADS):
        options.only = "chain16,mlp_small,mlp_adam,custom_function,hooks,inplace_views"


# ---------------------------------------------------------------------- in the measured process


def build(name: str, backend: str, device: str) -> Step:
    """The step of a workload on fresh data, the same for all backends."""
    workload = WORKLOADS[name]
    data = workload.data(np.random.RandomState(0))
    if backend == "jax":
        if workload.in_jax is None:
            raise NotImplementedError("no counterpart by hand")
        return workload.in_jax(**data)
    T = namespace(backend)
    return workload.in_torch(T, tensor_maker(T, device), **data)


def first_gradients(name: str, backend: str, device: str) -> list[float]:
    """The sums of the absolute gradients of the first step."""
    gradients: list[Any] = []
    build(name, backend, device)(gradients)
    return [float(abs(g).sum()) for g in gradients]


def measure(backend: str, device: str, names: list[str], seconds: float) -> Iterator[dict[str, Any]]:
    """For each workload: seconds per step, the first losses and gradients, and the seconds that they took."""

    def measure_one(name: str) -> dict[str, Any]:
        measured = timed(build(name, backend, device), WORKLOADS[name].cycle, seconds)
        return {**measured, "gradients": first_gradients(name, backend, device)}

    return one_by_one(names, measure_one)


def one_by_one(names: list[str], measure_one: Callable[[str], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What `measure_one` returns for each name, or its error."""
    for name in names:
        try:
            yield {"name": name, **measure_one(name)}
        except Exception as error:  # one workload's failure is its result
            text = str(error).strip().splitlines()
            yield {"name": name, "error": f"{type(error).__name__}: {text[0] if text else ''}"[:300]}


def timed(step: Step, cycle: int, seconds: float) -> dict[str, Any]:
    """Seconds per step, the first losses, and the seconds of the first steps."""
    start = time.perf_counter()
    losses = [step() for _ in range(max(LOSSES, cycle))]
    warm_up = time.perf_counter() - start
    return {"seconds": best_time(step, cycle, seconds), "warm_up": warm_up, "losses": losses[:LOSSES]}


def best_time(step: Callable[[], object], cycle: int, seconds: float) -> float:
    """The shortest time per step over at least three blocks of steps, each of whole cycles."""
    best, count, blocks, begun = math.inf, cycle, 0, time.perf_counter()
    end = begun + seconds
    while blocks < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(count):
            step()
        now = time.perf_counter()
        one = (now - start) / count
        if blocks and not FASTER * best <= one <= COMPILING * best:
            end = min(now + seconds, begun + MOST_SECONDS)
        best, blocks = min(best, one), blocks + 1
        count = max(1, min(MOST_STEPS // cycle, int(BLOCK / max(one, 1e-6) / cycle))) * cycle
    return best


# ---------------------------------------------------------------------- in the driver


def run(options: argparse.Namespace) -> Report:
    """Measure and tabulate."""
    names = options.only.split(",")
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        raise ValueError(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    found, problems = {}, {}
    for _ in range(options.rounds):
        for backend in options.backends:
            outcome = in_fresh_process("speed", "measure", backend, options.device, options.timeout, names=names, seconds=options.seconds)
            collect("speed", backend, outcome, found, problems)
    text, wrong = tabulate(names, options.backends, found)
    return Report(text, [*problems, *wrong])


def collect(benchmark: str, backend: str, outcome: Outcome, found: Found, problems: dict[str, None]) -> None:
    """Add what a process yielded to what was found before it, and to the problems what ended it early."""
    if outcome.error:
        problems[f"{benchmark}, {LABELS[backend]}: {outcome.error}"] = None
    for result in outcome.results:
        key = result["name"], backend
        found[key] = better(found.get(key), result)


def better(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """The faster of two results of one workload and backend; an error outlives both."""
    if old is None or "error" in new:
        return new
    if "error" in old:
        return old
    return min(old, new, key=lambda result: result["seconds"])


def equal_results(result: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether losses and gradients agree to `TOLERANCE`; not where one of them is NaN."""
    if len(result["gradients"]) != len(expected["gradients"]):
        return False
    losses = zip(result["losses"], expected["losses"], strict=True)
    gradients = zip(result["gradients"], expected["gradients"], strict=True)
    return all(abs(x - y) <= TOLERANCE * max(abs(y), SMALLEST_LOSS) for x, y in losses) and all(
        abs(x - y) <= TOLERANCE * abs(y) for x, y in gradients
    )


def tabulate(names: list[str], backends: list[str], found: Found) -> tuple[str, list[str]]:
    """Markdown of the times with their ratios and of the warm-up times, and what is wrong."""
    times, warm_up, problems = tables("speed", "workload", names, backends, found)
    text = (
        "## Speed\n\nTime per step; in brackets, how many times faster than PyTorch eager.\n\n"
        f"{times}\n\n"
        f"The first {LOSSES} steps (of a workload whose steps differ: the first cycle), compilation included.\n\n"
        f"{warm_up}\n"
    )
    return text, problems


def tables(benchmark: str, what: str, names: list[str], backends: list[str], found: Found) -> tuple[str, str, list[str]]:
    """The tables of the times and of the warm-up times of what is named, and what is wrong."""
    problems: list[str] = []
    speed_ups: dict[str, list[float]] = {backend: [] for backend in backends}
    rows, warm_up = [], []
    for name in names:
        results = {backend: found[name, backend] for backend in backends if (name, backend) in found}
        good = [backend for backend in results if "error" not in results[backend]]
        row = [name]
        for backend in backends:
            result = results.get(backend)
            if result is None:
                row.append("-")
            elif backend not in good:
                problems.append(f"{benchmark}, {name}, {LABELS[backend]}: {result['error']}")
                row.append("error")
            elif not equal_results(result, results[good[0]]):
                problems.append(f"{benchmark}, {name}, {LABELS[backend]}: results differ from {LABELS[good[0]]}'s")
                row.append("WRONG")
            else:
                row.append(duration(result["seconds"]))
                if backend != "torch" and "torch" in good:
                    ratio = results["torch"]["seconds"] / result["seconds"]
                    speed_ups[backend].append(ratio)
                    row[-1] += f" ({ratio:.2f}x)"
        rows.append(row)
        warm_up.append([name, *(duration(results[b]["warm_up"]) if b in good else "-" for b in backends)])
    means = [math.exp(sum(map(math.log, r)) / len(r)) if r else None for r in speed_ups.values()]
    if any(means):
        rows.append(["geometric mean", *("" if mean is None else f"({mean:.2f}x)" for mean in means)])
    header = [what, *(LABELS[backend] for backend in backends)]
    return table(header, rows), table(header, warm_up), problems
