"""Memory of training loops that are other programs at each turn: random operators, depths, batch sizes, indices, or all of these."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from compat_suite.benchmarks.backends import LABELS, OURS, namespace
from compat_suite.benchmarks.processes import in_fresh_process
from compat_suite.benchmarks.report import Report, duration, mebibytes, table
from compat_suite.benchmarks.residency import resident

WIDTH = 16
LOOPS = ("operators", "depth", "batch", "indices", "everything")
GROWTH = 16 << 20  # bytes that the second half of a loop may add
LARGEST = 1.2  # times PyTorch's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``changing``."""
    parser.add_argument("--loops", default=",".join(LOOPS), metavar="NAMES", help="comma-separated (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=6_000)


def quick(options: argparse.Namespace) -> None:
    """Make the options so small that only errors and wrong results can be seen."""
    options.turns = 40


# ---------------------------------------------------------------------- in the measured process


def measure(backend: str, device: str, name: str, turns: int) -> Iterator[dict[str, Any]]:
    """The sum of the losses, the memory and the seconds of a turn, after each half."""
    T = namespace(backend)
    T.manual_seed(0)
    generator = random.Random(0)
    w = (T.randn(WIDTH, WIDTH) * 0.3).to(device).requires_grad_()
    b = T.zeros(WIDTH, device=device).requires_grad_()
    forward = _FORWARD[name]
    total = 0.0
    for half in (turns // 2, turns - turns // 2):
        start = time.perf_counter()
        for _ in range(half):
            loss = (forward(T, generator, w, b) ** 2).mean()
            loss.backward()
            with T.no_grad():
                for p in (w, b):
                    if p.grad is not None:
                        p -= 1e-4 * p.grad.clamp(-1, 1)
                        p.grad = None
            total += loss.item()
        yield {"loss": total, "resident": resident(), "seconds": (time.perf_counter() - start) / half}


def _operators(T: Any, w: Any, b: Any) -> list[Callable[[Any], Any]]:
    return [
        T.tanh, T.sin, T.sigmoid, T.relu, lambda y: y * 0.5, lambda y: y + b, lambda y: y @ w, lambda y: y - y.mean(), lambda y: y / (1 + y.abs()),
        lambda y: T.softmax(y, 1), lambda y: y.clamp(-2, 2), lambda y: y.cumsum(0), lambda y: y.t().contiguous().t(),
    ]  # fmt: skip


def _random_operators(T: Any, generator: random.Random, w: Any, b: Any, rows: int = 8, count: int = 10) -> Any:
    operators = _operators(T, w, b)
    y = T.ones(rows, WIDTH, device=w.device) * w[0]
    for _ in range(count):
        y = generator.choice(operators)(y)
    return y + b


def _random_depth(T: Any, generator: random.Random, w: Any, b: Any) -> Any:
    y = T.ones(8, WIDTH, device=w.device)
    for _ in range(generator.randint(1, 60)):
        y = T.tanh(y @ w)
    return y + b


def _random_batch(T: Any, generator: random.Random, w: Any, b: Any) -> Any:
    return T.tanh(T.ones(generator.randint(1, 200), WIDTH, device=w.device) @ w + b)


def _random_indices(T: Any, generator: random.Random, w: Any, b: Any) -> Any:
    start, length, first = generator.randint(0, WIDTH // 2), generator.randint(1, WIDTH // 2), generator.randint(0, 5)
    y = w[start : start + length]
    y = y.reshape(-1)[generator.sample(range(length * WIDTH), 3)]
    y = (0.1 * y) ** generator.randint(2, 40)
    y = (y.unsqueeze(1) * generator.random() + b).narrow(1, first, generator.randint(1, 8))
    return y.expand(generator.randint(2, 9), *y.shape)


def _random_everything(T: Any, generator: random.Random, w: Any, b: Any) -> Any:
    return _random_operators(T, generator, w, b, generator.randint(1, 500), generator.randint(1, 14))


_FORWARD: dict[str, Callable[..., Any]] = dict(
    zip(LOOPS, (_random_operators, _random_depth, _random_batch, _random_indices, _random_everything), strict=True)
)


# ---------------------------------------------------------------------- in the driver


def run(options: argparse.Namespace) -> Report:
    """Measure and tabulate."""
    rows: list[list[str]] = []
    problems: list[str] = []
    for name in options.loops.split(","):
        if name not in LOOPS:
            raise ValueError(f"no loop {name!r}; there are {', '.join(LOOPS)}")
        _measure_all(name, options, rows, problems)
    header = ["loop and backend", "a turn, second half", "resident after the first half", "at the end"]
    text = f"## Loops that change\n\n{options.turns} turns; in brackets, the ratio to PyTorch.\n\n{table(header, rows)}\n"
    return Report(text, problems)


def _measure_all(name: str, options: argparse.Namespace, rows: list[list[str]], problems: list[str]) -> None:
    reference: dict[str, Any] | None = None
    for backend in [backend for backend in options.backends if backend != "jax"]:
        outcome = in_fresh_process("changing", "measure", backend, options.device, options.timeout, name=name, turns=options.turns)
        what = f"changing, {name}, {LABELS[backend]}"
        if outcome.error:
            problems.append(f"{what}: {outcome.error}")
            continue
        first, last = outcome.results
        if backend == "torch":
            reference = last
        elif reference is not None and not abs(last["loss"] - reference["loss"]) <= 1e-2 * abs(reference["loss"]):
            problems.append(f"{what}: the losses are {last['loss']:g}, not {reference['loss']:g}")
        ratio = "" if reference is None or reference is last else f" ({last['resident'] / reference['resident']:.2f})"
        rows.append([f"{name}, {LABELS[backend]}", duration(last["seconds"]), mebibytes(first["resident"]), mebibytes(last["resident"]) + ratio])
        if backend in OURS and last["resident"] - first["resident"] > GROWTH:
            problems.append(f"{what}: {mebibytes(last['resident'] - first['resident'])} more resident after the second half")
        if backend == "fused" and reference is not None and last["resident"] > LARGEST * reference["resident"]:
            problems.append(f"{what}: {last['resident'] / reference['resident']:.2f} times PyTorch's memory")
