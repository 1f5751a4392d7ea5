"""What the profiler costs: the time of a training step of a small perceptron with a profile on and without, and by operation.

For torchgrad_jax in both modes: operations one by one, as a profile runs them, and programs, as ``profile(fused=True)`` shows them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from compat_suite.benchmarks.backends import LABELS, namespace
from compat_suite.benchmarks.processes import in_fresh_process
from compat_suite.benchmarks.report import Report, duration, table

RATE = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``profiling``."""
    parser.add_argument("--profiled-layers", type=int, default=6)
    parser.add_argument("--profiled-width", type=int, default=32)
    parser.add_argument("--profiled-steps", type=int, default=40)


def quick(options: argparse.Namespace) -> None:
    """Make the options so small that only errors can be seen."""
    options.profiled_layers, options.profiled_steps = 2, 3


# ---------------------------------------------------------------------- in the measured process


def measure(backend: str, device: str, layers: int, width: int, steps: int) -> Iterator[dict[str, Any]]:
    """Seconds of a step without a profile and with one, how many events a step has, and seconds that it takes to make one of them afterwards."""
    T = namespace(backend)
    options: dict[str, Any] = {"fused": True} if backend == "fused" else {}
    random = np.random.default_rng(0)
    ws = [T.tensor(random.standard_normal((width, width)).astype(np.float32) * 0.1, requires_grad=True) for _ in range(layers)]
    x = T.tensor(random.standard_normal((8, width)).astype(np.float32))

    def step() -> float:
        h = x
        for w in ws:
            h = (h @ w).tanh()
        loss = (h * h).sum()
        loss.backward()
        with T.no_grad():
            for w in ws:
                w.sub_(w.grad * RATE)
                w.grad = None
        return loss.item()

    profile = T.autograd.profiler.profile
    for _ in range(max(3, steps // 4)):
        step()
    with profile(**options):
        step()
    times: dict[bool, list[float]] = {False: [], True: []}
    events, gathered = 0, 0.0
    for _ in range(5):
        times[False].append(_timed(step, steps))
        with profile(**options) as p:
            times[True].append(_timed(step, steps))
        start = time.perf_counter()
        events = len(p.function_events)
        gathered = (time.perf_counter() - start) / max(events, 1)
    yield {"off": min(times[False]), "on": min(times[True]), "events": events / steps, "gathered": gathered}


def _timed(step: Any, steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - start) / steps


# ---------------------------------------------------------------------- in the driver


def run(options: argparse.Namespace) -> Report:
    """Measure and tabulate."""
    rows, problems = [], []
    sizes = {"layers": options.profiled_layers, "width": options.profiled_width, "steps": options.profiled_steps}
    for backend in [b for b in options.backends if b != "jax"]:
        outcome = in_fresh_process("profiling", "measure", backend, options.device, options.timeout, **sizes)
        label = LABELS[backend] + (", `fused=True`" if backend == "fused" else "")
        if outcome.error or not outcome.results:
            problems.append(f"profiling, {label}: {outcome.error}")
            continue
        (r,) = outcome.results
        apiece = (r["on"] - r["off"]) / max(r["events"], 1)
        rows.append([
            label, duration(r["off"]), duration(r["on"]), f"{r['on'] / r['off']:.2f}", f"{r['events']:.0f}",
            duration(apiece) if apiece > 0 else "nothing", duration(r["gathered"]),
        ])  # fmt: skip
    header = ["", "step without", "with a profile", "ratio", "events", "cost of an event", "made afterwards"]
    text = (
        f"## What the profiler costs\n\nA perceptron of {sizes['layers']} layers of width {sizes['width']}, batch 8.\n\n" + table(header, rows) + "\n"
    )
    return Report(text, problems)
