"""Peak memory of a training step: a deep perceptron with tanh, trained by SGD in place, each backend in a fresh process."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compat_suite.benchmarks.backends import LABELS, namespace, tensor_maker
from compat_suite.benchmarks.descent import jax_step, jax_update, torch_step
from compat_suite.benchmarks.processes import in_fresh_process
from compat_suite.benchmarks.report import Report, mebibytes, table
from compat_suite.benchmarks.residency import peak_resident, resident

RATE = 0.01
TOLERANCE = 2e-3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``memory``."""
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=4)


def quick(options: argparse.Namespace) -> None:
    """Make the options so small that only errors and wrong results can be seen."""
    options.width, options.batch = 256, 512


# ---------------------------------------------------------------------- in the measured process


def measure(backend: str, device: str, layers: int, width: int, batch: int, steps: int) -> Iterator[dict[str, Any]]:
    """The losses, and the memory before the data is made and at its peak."""
    prepare = _prepare_jax if backend == "jax" else _prepare_torch
    build = prepare(backend, device)
    before = resident()
    random = np.random.default_rng(0)

    def normal(rows: int, scale: float) -> np.ndarray:
        array = random.standard_normal((rows, width), np.float32)  # no float64 beside it
        array *= scale
        return array

    step = build((normal(width, width**-0.5) for _ in range(layers)), lambda: normal(batch, 1.0))
    losses = [step() for _ in range(steps)]
    yield {"losses": losses, "before": before, "peak": peak_resident(), "device_peak": _device_peak(backend) if device == "cuda" else None}


def _prepare_torch(backend: str, device: str) -> Callable[..., Callable[[], float]]:
    T = namespace(backend)
    make = tensor_maker(T, device)
    (make(np.ones((2, 2), np.float32), True) @ make(np.ones((2, 2), np.float32))).sum().backward()  # what a first use loads

    def build(weights: Iterator[np.ndarray], batch: Callable[[], np.ndarray]) -> Callable[[], float]:
        ws, x = [make(w, True) for w in weights], make(batch())

        def forward() -> Any:
            h = x
            for w in ws:
                h = T.tanh(h @ w)
            return h

        return torch_step(T, ws, forward, RATE)

    return build


def _prepare_jax(backend: str, device: str) -> Callable[..., Callable[[], float]]:
    import jax
    import jax.numpy as jnp

    jax.grad(lambda w: (w @ w).sum())(jnp.ones((2, 2)))

    def forward(ws: Any, h: Any) -> Any:
        for w in ws:
            h = jnp.tanh(h @ w)
        return h

    def build(weights: Iterator[np.ndarray], batch: Callable[[], np.ndarray]) -> Callable[[], float]:
        # Copied: JAX may otherwise use NumPy's memory, which it cannot give away.
        state, x = [jnp.array(w) for w in weights], jnp.array(batch())
        return jax_step(jax.jit(jax_update(forward, RATE), donate_argnums=0), state, x)

    return build


def _device_peak(backend: str) -> int | None:
    if backend == "torch":
        import torch

        return torch.cuda.max_memory_allocated()
    import jax

    return (jax.local_devices(backend="gpu")[0].memory_stats() or {}).get("peak_bytes_in_use")


# ---------------------------------------------------------------------- in the driver


def run(options: argparse.Namespace) -> Report:
    """Measure and tabulate."""
    sizes = {"layers": options.layers, "width": options.width, "batch": options.batch, "steps": options.steps}
    found, problems = {}, []
    for backend in options.backends:
        outcome = in_fresh_process("memory", "measure", backend, options.device, options.timeout, **sizes)
        if outcome.error:
            problems.append(f"memory, {LABELS[backend]}: {outcome.error}")
        else:
            (found[backend],) = outcome.results
    rows = []
    reference = found.get("torch")
    for backend, result in found.items():
        first = next(iter(found.values()))
        if not all(abs(x - y) <= TOLERANCE * abs(y) for x, y in zip(result["losses"], first["losses"], strict=True)):
            problems.append(f"memory, {LABELS[backend]}: wrong losses {result['losses']}, not {first['losses']}")
        rows.append([LABELS[backend], *(_cell(key, result, reference) for key in ("peak", "added", "device_peak"))])
    header = ["backend", "peak resident", "peak less what was there before the data", "peak on the device"]
    if options.device == "cpu":
        header, rows = header[:-1], [row[:-1] for row in rows]
    what = f"{options.steps} training steps of {options.layers} layers of {options.width}x{options.width}, batch {options.batch}"
    return Report(f"## Memory\n\n{what}; in brackets, the ratio to PyTorch.\n\n{table(header, rows)}\n", problems)


def _amount(key: str, result: dict[str, Any]) -> int | None:
    return result["peak"] - result["before"] if key == "added" else result[key]


def _cell(key: str, result: dict[str, Any], reference: dict[str, Any] | None) -> str:
    amount = _amount(key, result)
    if amount is None:
        return "-"
    base = reference and _amount(key, reference)
    return mebibytes(amount) + (f" ({amount / base:.2f})" if base and result is not reference else "")
