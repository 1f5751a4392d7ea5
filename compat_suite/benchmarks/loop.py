"""Long loops: what grows, what is compiled again, and what a very deep graph costs.

steady: a small training loop whose loss nobody looks at and whose learning rate changes in every step. never_repeating: every
iteration has another structure. uncollected: training steps with the garbage collector off. deep_graph: a chain of a million nodes,
run backward and dropped, and dropped unused.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compat_suite.benchmarks.backends import LABELS, OURS, namespace, tensor_maker
from compat_suite.benchmarks.processes import Outcome, in_fresh_process
from compat_suite.benchmarks.report import Report, duration, mebibytes, table
from compat_suite.benchmarks.residency import live_arrays, peak_resident, resident
from compat_suite.benchmarks.speed import build as build_workload

BATCH, WIDTH, LAYERS = 32, 64, 3
COMPILED_BY = 3  # iterations after which a steady loop compiles nothing
STEADY_GROWTH = 16 << 20  # bytes that the second half of the steady loop may add
UNCOLLECTED = ("mlp_small", "mlp_adam", "pinn", "custom_function", "hooks", "inplace_views")
UNCOLLECTED_WARM_UP = 20
PARTS = ("steady", "never_repeating", "uncollected", "deep_graph")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``loop``."""
    parser.add_argument("--parts", default=",".join(PARTS), metavar="NAMES", help="comma-separated (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=10_000, help="of the steady loop")
    parser.add_argument("--structures", type=int, default=300, help="iterations of the loop that never repeats")
    parser.add_argument("--uncollected-steps", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=1_000_000, help="of the deep graph")


def quick(options: argparse.Namespace) -> None:
    """Make the options so small that only errors and broken promises can be seen."""
    options.iterations, options.structures, options.uncollected_steps, options.nodes = 200, 10, 30, 300


def _counters(backend: str) -> dict[str, int]:
    """The totals of torchgrad_jax's runtime; nothing for other backends."""
    if backend not in OURS:
        return {}
    from torchgrad_jax.runtime import counters

    return counters.snapshot()


# ---------------------------------------------------------------------- steady


def steady(backend: str, device: str, iterations: int) -> Iterator[dict[str, Any]]:
    """At checkpoints: memory, arrays, counters, time per iteration since the last one; at the end the loss."""
    random = np.random.RandomState(0)
    weights = [(random.randn(WIDTH, WIDTH) * 0.05).astype(np.float32) for _ in range(LAYERS)]
    x = random.randn(BATCH, WIDTH).astype(np.float32)
    step, loss = _steady_in_jax(weights, x) if backend == "jax" else _steady_in_torch(backend, device, weights, x)
    checkpoints = sorted({1, 2, 3, 10, 100, 1000, iterations // 2, iterations} & set(range(1, iterations + 1)))
    done = 0
    for checkpoint in checkpoints:
        start = time.perf_counter()
        for i in range(done, checkpoint):
            step(0.01 / (1 + i / iterations))
        seconds = (time.perf_counter() - start) / (checkpoint - done)
        done = checkpoint
        yield {
            "iteration": done,
            "seconds": seconds,
            "resident": resident(),
            "arrays": live_arrays(),
            "counters": _counters(backend),
        }
    start = time.perf_counter()
    final = loss()
    yield {"loss": final, "seconds": time.perf_counter() - start}


def _steady_in_torch(backend: str, device: str, weights: list[np.ndarray], x: np.ndarray) -> tuple[Callable[..., None], Callable[[], float]]:
    T = namespace(backend)
    make = tensor_maker(T, device)
    ws, batch = [make(w, True) for w in weights], make(x)
    loss: Any = None

    def step(rate: float) -> None:
        nonlocal loss
        h = batch
        for w in ws:
            h = T.tanh(h @ w)
        loss = (h**2).mean()
        loss.backward()
        with T.no_grad():
            for w in ws:
                w.sub_(w.grad * rate)
                w.grad = None

    return step, lambda: loss.item()


def _steady_in_jax(weights: list[np.ndarray], x: np.ndarray) -> tuple[Callable[..., None], Callable[[], float]]:
    import jax
    import jax.numpy as jnp

    ws, batch, loss = [jnp.asarray(w) for w in weights], jnp.asarray(x), None

    def loss_of(ws, x):
        h = x
        for w in ws:
            h = jnp.tanh(h @ w)
        return (h**2).mean()

    @jax.jit
    def update(ws, x, rate):
        loss, grads = jax.value_and_grad(loss_of)(ws, x)
        return [w - g * rate for w, g in zip(ws, grads, strict=True)], loss

    def step(rate: float) -> None:
        nonlocal ws, loss
        ws, loss = update(ws, batch, rate)

    return step, lambda: float(loss)  # type: ignore[arg-type]


def _report_steady(options: argparse.Namespace) -> Report:
    text, problems, losses = "### Steady loop\n", [], {}
    for backend, outcome in _outcomes("steady", options.backends, options, iterations=options.iterations):
        problems += _failure("steady", backend, outcome)
        checkpoints = [r for r in outcome.results if "iteration" in r]
        if not outcome.error:
            losses[backend] = outcome.results[-1]["loss"]
        names = [name for name in ("compiled", "compiled_ops", "ran", "stepped") if checkpoints and name in checkpoints[0]["counters"]]
        rows = [
            [
                str(r["iteration"]),
                duration(r["seconds"]),
                mebibytes(r["resident"]),
                "-" if r["arrays"] is None else str(r["arrays"]),
                *(str(r["counters"][name]) for name in names),
            ]
            for r in checkpoints
        ]
        header = ["iteration", "time per iteration", "resident", "JAX arrays", *names]
        text += f"\n{LABELS[backend]}\n\n{table(header, rows)}\n"
        if not outcome.error:
            problems += _steady_problems(backend, checkpoints)
    return Report(text, problems + _unequal("steady", losses, 1e-2))


def _steady_problems(backend: str, checkpoints: list[dict[str, Any]]) -> list[str]:
    at = {r["iteration"]: r for r in checkpoints}
    last, middle = checkpoints[-1], checkpoints[-2]
    problems = []
    if backend in OURS and COMPILED_BY in at:
        for name in ("compiled", "compiled_ops"):
            before, after = at[COMPILED_BY]["counters"][name], last["counters"][name]
            if after != before:
                iterations = f"iteration {COMPILED_BY} to {last['iteration']}"
                problems.append(f"steady, {LABELS[backend]}: {name} rose from {before} to {after}, {iterations}")
    if last["arrays"] is not None and last["arrays"] > middle["arrays"]:
        problems.append(f"steady, {LABELS[backend]}: JAX arrays rose from {middle['arrays']} to {last['arrays']} in the second half")
    if last["resident"] - middle["resident"] > STEADY_GROWTH:
        growth = mebibytes(last["resident"] - middle["resident"])
        problems.append(f"steady, {LABELS[backend]}: {growth} more resident after the second half")
    return problems


# ---------------------------------------------------------------------- a structure that never repeats


def never_repeating(backend: str, device: str, structures: int) -> Iterator[dict[str, Any]]:
    """Seconds per iteration in both halves, the loss and the memory."""
    T = namespace(backend)
    make = tensor_maker(T, device)
    random = np.random.RandomState(0)
    x, w = make(random.randn(WIDTH, WIDTH).astype(np.float32), True), make((random.randn(WIDTH, WIDTH) * 0.1).astype(np.float32))
    operations: list[Callable[[Any], Any]] = [T.tanh, T.sin, lambda y: y * w, lambda y: y + x, lambda y: y @ w]
    total = 0.0
    for half in np.array_split(np.arange(structures), 2):
        start = time.perf_counter()
        for _ in half:
            y = x
            for choice in random.randint(0, len(operations), random.randint(20, 60)):
                y = operations[choice](y)
            loss = (y**2).mean()
            loss.backward()
            total += loss.item() + x.grad.abs().sum().item()
            x.grad = None
        yield {
            "seconds": (time.perf_counter() - start) / max(1, len(half)),
            "loss": total,
            "resident": resident(),
            "counters": _counters(backend),
        }


def _report_never_repeating(options: argparse.Namespace) -> Report:
    backends = [backend for backend in options.backends if backend != "jax"]
    rows, problems, losses, seconds = [], [], {}, {}
    for backend, outcome in _outcomes("never_repeating", backends, options, structures=options.structures):
        problems += _failure("never_repeating", backend, outcome)
        if outcome.error:
            continue
        first, second = outcome.results
        losses[backend], seconds[backend] = second["loss"], second["seconds"]
        compiled = [str(second["counters"][name]) if second["counters"] else "-" for name in ("compiled", "compiled_ops")]
        grown = mebibytes(second["resident"] - first["resident"])
        rows.append([LABELS[backend], duration(first["seconds"]), duration(second["seconds"]), *compiled, grown])
    header = ["backend", "per iteration, first half", "second half", "compiled", "compiled_ops", "growth in the second half"]
    text = f"### A structure that never repeats, {options.structures} iterations\n\n{table(header, rows)}\n"
    if seconds.keys() >= set(OURS):
        text += f"\nSecond half, fused to eager: {seconds['fused'] / seconds['eager']:.2f} times the time per iteration.\n"
    return Report(text, problems + _unequal("never_repeating", losses, 5e-3))


# ---------------------------------------------------------------------- without the garbage collector


def uncollected(backend: str, device: str, steps: int) -> Iterator[dict[str, Any]]:
    """For each workload: how many Python objects, JAX arrays and bytes `steps` steps leave behind, and the commonest types."""
    for name in UNCOLLECTED:
        step = build_workload(name, backend, device)
        for _ in range(UNCOLLECTED_WARM_UP):
            step()
        gc.collect()
        gc.disable()
        before, arrays, bytes_before = _objects_by_type(), live_arrays(), resident()
        for _ in range(steps):
            step()
        after = _objects_by_type()
        grown = Counter({kind: after[kind] - before[kind] for kind in after}).most_common(3)
        gc.enable()
        yield {
            "name": name,
            "objects": after.total() - before.total(),
            "arrays": None if arrays is None else (live_arrays() or 0) - arrays,
            "resident": resident() - bytes_before,
            "types": [f"{kind} {count}" for kind, count in grown if count > 0],
        }


def _objects_by_type() -> Counter[str]:
    return Counter(type(o).__qualname__ for o in gc.get_objects())


def _report_uncollected(options: argparse.Namespace) -> Report:
    rows, problems, steps = [], [], options.uncollected_steps
    for backend, outcome in _outcomes("uncollected", options.backends, options, steps=steps):
        problems += _failure("uncollected", backend, outcome)
        for r in outcome.results:
            arrays = "-" if r["arrays"] is None else str(r["arrays"])
            rows.append([f"{r['name']}, {LABELS[backend]}", str(r["objects"]), arrays, mebibytes(r["resident"]), ", ".join(r["types"])])
            if backend in OURS and (r["objects"] > steps // 10 + 50 or r["arrays"] > 10):
                left = f"{r['objects']} objects and {r['arrays']} arrays"
                problems.append(f"uncollected, {r['name']}, {LABELS[backend]}: {left} left ({', '.join(r['types'])})")
    header = ["workload and backend", "objects", "JAX arrays", "resident", "commonest types"]
    return Report(f"### Left behind by {steps} steps with the garbage collector off\n\n{table(header, rows)}\n", problems)


# ---------------------------------------------------------------------- a very deep graph


def deep_graph(backend: str, device: str, nodes: int) -> Iterator[dict[str, Any]]:
    """Seconds to build, run backward and drop a chain of `nodes` nodes, then to build and drop one unused; with the collector off."""
    T = namespace(backend)
    x = tensor_maker(T, device)(np.ones(16, np.float32), True)
    (x * -1.0).sum().backward()
    x.grad = None
    before, arrays = resident(), live_arrays()
    gc.disable()
    lap = _Laps()
    y = x
    for _ in range(nodes):
        y = y * -1.0
    yield {"what": "build", "seconds": lap()}
    y.sum().backward()
    wrong = abs(x.grad.sum().item() - 16 * (-1) ** nodes)
    yield {"what": "backward", "seconds": lap()}
    x.grad = None
    lap()
    y = x
    yield {"what": "drop", "seconds": lap()}
    for _ in range(nodes):
        y = y * -1.0
    yield {"what": "build again", "seconds": lap()}
    y = x
    yield {"what": "drop unused", "seconds": lap()}
    left = None if arrays is None else (live_arrays() or 0) - arrays
    yield {"what": "end", "wrong": wrong, "peak": peak_resident() - before, "left": resident() - before, "arrays": left}


class _Laps:
    """Seconds since the last call."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def __call__(self) -> float:
        previous, self.last = self.last, time.perf_counter()
        return self.last - previous


def _report_deep_graph(options: argparse.Namespace) -> Report:
    stages = ("build", "backward", "drop", "build again", "drop unused")
    rows, problems = [], []
    backends = [backend for backend in options.backends if backend != "jax"]
    for backend, outcome in _outcomes("deep_graph", backends, options, nodes=options.nodes):
        problems += _failure("deep_graph", backend, outcome)
        results = {r["what"]: r for r in outcome.results}
        end = results.get("end")
        times = [duration(results[stage]["seconds"]) if stage in results else "-" for stage in stages]
        sizes = [mebibytes(end[key]) for key in ("peak", "left")] if end else ["-", "-"]
        rows.append([LABELS[backend], *times, *sizes])
        if end and end["wrong"]:
            problems.append(f"deep_graph, {LABELS[backend]}: the gradient is wrong by {end['wrong']:g}")
        if end and (end["arrays"] or 0) > 4:
            problems.append(f"deep_graph, {LABELS[backend]}: {end['arrays']} JAX arrays left")
    header = ["backend", *stages, "peak resident, added", "left at the end"]
    return Report(f"### A chain of {options.nodes} nodes, the garbage collector off\n\n{table(header, rows)}\n", problems)


# ---------------------------------------------------------------------- the driver


def run(options: argparse.Namespace) -> Report:
    """Measure and tabulate all parts that were asked for."""
    reports = {
        "steady": _report_steady,
        "never_repeating": _report_never_repeating,
        "uncollected": _report_uncollected,
        "deep_graph": _report_deep_graph,
    }
    chosen = options.parts.split(",")
    unknown = [name for name in chosen if name not in reports]
    if unknown:
        raise ValueError(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    found = [reports[name](options) for name in chosen]
    return Report("## Long loops\n\n" + "\n".join(r.text for r in found), list(itertools.chain.from_iterable(r.problems for r in found)))


def _outcomes(part: str, backends: list[str], options: argparse.Namespace, **arguments: int) -> Iterator[tuple[str, Outcome]]:
    for backend in backends:
        print(f"{part}: {LABELS[backend]}", file=sys.stderr, flush=True)
        yield backend, in_fresh_process("loop", part, backend, options.device, options.timeout, **arguments)


def _failure(part: str, backend: str, outcome: Outcome) -> list[str]:
    return [f"{part}, {LABELS[backend]}: {outcome.error}"] if outcome.error else []


def _unequal(part: str, losses: dict[str, float], tolerance: float) -> list[str]:
    """One sentence for each backend whose figure differs from the first's."""
    problems = []
    for backend, loss in losses.items():
        first, expected = next(iter(losses.items()))
        if not abs(loss - expected) <= tolerance * max(abs(expected), 1e-6):
            problems.append(f"{part}, {LABELS[backend]}: loss {loss:g}, but {expected:g} with {LABELS[first]}")
    return problems
