"""What checkpoints save: peak memory and time of a training step of a deep perceptron with GELU, with and without a checkpoint around each layer.

For torchgrad_jax twice: of programs compiled by XLA, whose own account of their memory is shown too, and of interpreted ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compat_suite.benchmarks.backends import LABELS, OURS, namespace
from compat_suite.benchmarks.descent import jax_step, jax_update, torch_step
from compat_suite.benchmarks.processes import in_fresh_process
from compat_suite.benchmarks.report import Report, duration, mebibytes, table
from compat_suite.benchmarks.residency import peak_resident, resident

RATE = 0.01
TOLERANCE = 2e-3
# What a checkpointed step may take of a plain one's memory, by XLA's account.
MOST = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``checkpointing``."""
    parser.add_argument("--checkpointed-layers", type=int, default=24)
    parser.add_argument("--checkpointed-width", type=int, default=256)
    parser.add_argument("--checkpointed-batch", type=int, default=8192)
    parser.add_argument("--per-checkpoint", type=int, default=1, help="layers in each checkpoint (default: %(default)s)")


def quick(options: argparse.Namespace) -> None:
    """Make the options so small that only errors and wrong results can be seen."""
    options.checkpointed_layers, options.checkpointed_width, options.checkpointed_batch = 8, 64, 1024


# ---------------------------------------------------------------------- in the measured process


def measure(backend: str, device: str, tier: str, layers: int, width: int, batch: int, per: int, checkpointed: bool) -> Iterator[dict[str, Any]]:
    """The losses, the time of the last step, the memory before the data is made and at its peak, and what XLA says its largest program takes.
    tier: "xla" or "interpreted", of torchgrad_jax; elsewhere of no meaning."""
    prepare = _prepare_jax if backend == "jax" else _prepare_torch
    sizes: list[int] = []
    build = prepare(backend, tier, checkpointed, per, sizes)
    before = resident()
    random = np.random.default_rng(0)
    weights = [random.standard_normal((width, width), np.float32) * (1.5 / width) ** 0.5 for _ in range(layers)]
    step = build([w.astype(np.float32) for w in weights], random.standard_normal((batch, width), np.float32))
    losses, took = [], 0.0
    for _ in range(2 if tier == "interpreted" else 5):
        start = time.perf_counter()
        losses.append(step())
        took = time.perf_counter() - start
    counted = _counted(tier) if backend == "fused" else None
    yield {"losses": losses, "took": took, "before": before, "peak": peak_resident(), "program": max(sizes, default=None), "wrong_tier": counted}


def _counted(tier: str) -> str | None:
    """What is wrong if the steps did not run as `tier` says."""
    from torchgrad_jax.runtime import counters

    ran, interpreted = counters.snapshot()["ran"], counters.snapshot()["interpreted"]
    right = ran > 0 and interpreted == 0 if tier == "xla" else ran == 0 and interpreted > 0
    return None if right else f"{ran} programs compiled by XLA and {interpreted} interpreted ones ran"


def _watch(sizes: list[int]) -> None:
    """Put into `sizes` the bytes that each program of torchgrad_jax that is compiled from now on takes beside its arguments."""
    from torchgrad_jax.runtime import program

    compile_ = program.ahead_of_time

    def watched(function: Any, arguments: Any) -> Any:
        compiled = compile_(function, arguments)
        sizes.append(_beside_arguments(compiled))
        return compiled

    program.ahead_of_time = watched


def _beside_arguments(compiled: Any) -> int:
    told = compiled.memory_analysis()
    return told.temp_size_in_bytes + told.output_size_in_bytes


def _prepare_torch(backend: str, tier: str, checkpointed: bool, per: int, sizes: list[int]) -> Callable[..., Callable[[], float]]:
    T = namespace(backend)
    if backend == "torch":
        from torch.utils.checkpoint import checkpoint
    else:
        from torchgrad_jax.runtime import baseline_tier

        checkpoint = T.utils.checkpoint.checkpoint
        baseline_tier(tier != "xla")
        _watch(sizes)
    checkpoint(T.sin, T.ones((), requires_grad=True), use_reentrant=False).backward()  # what a first use loads

    def layers_of(ws: list[Any]) -> Callable[[Any], Any]:
        def run(h: Any) -> Any:
            for w in ws:
                h = T.nn.functional.gelu(h @ w)
            return h

        return run

    def build(weights: list[np.ndarray], batch: np.ndarray) -> Callable[[], float]:
        ws, x = [T.tensor(w, requires_grad=True) for w in weights], T.tensor(batch)
        blocks = [layers_of(ws[i : i + per]) for i in range(0, len(ws), per)]

        def forward() -> Any:
            h = x
            for block in blocks:
                h = checkpoint(block, h, use_reentrant=False) if checkpointed else block(h)
            return h

        return torch_step(T, ws, forward, RATE)

    return build


def _prepare_jax(backend: str, tier: str, checkpointed: bool, per: int, sizes: list[int]) -> Callable[..., Callable[[], float]]:
    import jax
    import jax.numpy as jnp

    def block(ws: Any, h: Any) -> Any:
        for w in ws:
            h = jax.nn.gelu(h @ w, approximate=False)
        return h

    def forward(ws: Any, h: Any) -> Any:
        run = jax.checkpoint(block) if checkpointed else block
        for i in range(0, len(ws), per):
            h = run(ws[i : i + per], h)
        return h

    def build(weights: list[np.ndarray], batch: np.ndarray) -> Callable[[], float]:
        state, x = [jnp.array(w) for w in weights], jnp.array(batch)
        compiled = jax.jit(jax_update(forward, RATE)).lower(state, x).compile()
        sizes.append(_beside_arguments(compiled))
        return jax_step(compiled, state, x)

    return build


# ---------------------------------------------------------------------- in the driver


def run(options: argparse.Namespace) -> Report:
    """Measure and tabulate."""
    sizes = {"layers": options.checkpointed_layers, "width": options.checkpointed_width, "batch": options.checkpointed_batch,
             "per": options.per_checkpoint}  # fmt: skip
    rows, problems, first = [], [], None
    for backend, tier in [(b, t) for b in options.backends for t in (("xla", "interpreted") if b == "fused" else ("xla",))]:
        label = LABELS[backend] + (f", {'by XLA' if tier == 'xla' else tier}" if backend == "fused" else "")
        pair = []
        for checkpointed in (False, True):
            outcome = in_fresh_process(
                "checkpointing", "measure", backend, options.device, options.timeout, tier=tier, checkpointed=checkpointed, **sizes
            )
            wrong = outcome.error or outcome.results[0]["wrong_tier"]
            if wrong:
                problems.append(f"checkpointing, {label}: {wrong}")
                break
            pair += outcome.results
        if len(pair) < 2:
            continue
        first = first or pair[0]
        for result in pair:
            if not all(abs(x - y) <= TOLERANCE * abs(y) for x, y in zip(result["losses"], first["losses"], strict=False)):
                problems.append(f"checkpointing, {label}: wrong losses {result['losses']}, not {first['losses']}")
        plain, saved = [{"added": r["peak"] - r["before"], **r} for r in pair]
        if backend in OURS and tier == "xla" and plain["program"] and backend == "fused" and saved["program"] > MOST * plain["program"]:
            problems.append(f"checkpointing, {label}: {saved['program']} bytes of {plain['program']} without checkpoints")
        rows.append([label, *[_both(plain[k], saved[k], mebibytes) for k in ("added", "program")], _both(plain["took"], saved["took"], duration)])
    header = ["backend", "peak resident less what was there before the data", "largest XLA program beside its arguments", "a step"]
    what = "a step of {layers} layers of {width}x{width}, batch {batch}, {per} to a checkpoint".format(**sizes)
    return Report(f"## Checkpoints\n\n{what}: without checkpoints, with them, and the ratio.\n\n{table(header, rows)}\n", problems)


def _both(plain: float | None, saved: float | None, shown: Callable[[float], str]) -> str:
    return "-" if not plain or saved is None else f"{shown(plain)}, {shown(saved)} ({saved / plain:.2f})"
