"""`DataLoader` with workers: how long a pass through a dataset takes, with new workers and with ones that last, and its first batch.

Datasets: NumPy arrays with a label; a tensor, indexed and changed by operations of the library, one of which is left to chance; whole tensors.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compat_suite.benchmarks.backends import LABELS, namespace
from compat_suite.benchmarks.processes import in_fresh_process
from compat_suite.benchmarks.report import Report, duration, table

DATASETS = ("arrays", "tensors", "whole")
SHAPE = (3, 32, 32)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``loading``."""
    parser.add_argument("--datasets", default=",".join(DATASETS), metavar="NAMES", help="comma-separated (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=8_192)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--passes", type=int, default=5)


def quick(options: argparse.Namespace) -> None:
    """Make the options so small that only errors and wrong results can be seen."""
    options.samples, options.passes = 200, 2


# ---------------------------------------------------------------------- in the measured process


def measure(backend: str, device: str, name: str, samples: int, batch_size: int, workers: int, passes: int) -> Iterator[dict[str, Any]]:
    """The seconds of a pass and of its first batch, with new workers each time and with lasting ones, and a sum of what came."""
    T = namespace(backend)
    T.manual_seed(0)
    dataset = _MAKERS[name](T, samples)
    found: dict[str, Any] = {"sum": 0.0}
    for lasting in (False, True):
        loader = T.utils.data.DataLoader(dataset, batch_size, shuffle=True, num_workers=workers, persistent_workers=lasting)
        times = [_pass(loader, found) for _ in range(passes)]
        key = "lasting" if lasting else "new"
        found[f"{key} first"], found[key] = [statistics.median(t) for t in zip(*times[lasting:] or times, strict=True)]
    yield found


def _pass(loader: Any, found: dict[str, Any]) -> tuple[float, float]:
    start = time.perf_counter()
    first = 0.0
    for x, y in loader:
        found["sum"] += float(x[0, 0, 0, 0]) + float(y[-1])
        first = first or time.perf_counter() - start
    return first, time.perf_counter() - start


def _data(samples: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(0)
    return chance.standard_normal((samples, *SHAPE), np.float32), chance.integers(0, 10, samples)


def _arrays(T: Any, samples: int) -> Any:
    images, labels = _data(samples)

    class Arrays(T.utils.data.Dataset):
        def __len__(self) -> int:
            return samples

        def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
            return images[i], int(labels[i])

    return Arrays()


def _tensors(T: Any, samples: int) -> Any:
    images, labels = [T.tensor(a) for a in _data(samples)]

    class Tensors(T.utils.data.Dataset):
        def __len__(self) -> int:
            return samples

        def __getitem__(self, i: int) -> tuple[Any, Any]:
            x = (images[i] - 0.5) / 0.25
            return x.flip(-1) if T.rand(()).item() < 0.5 else x, labels[i]

    return Tensors()


def _whole(T: Any, samples: int) -> Any:
    return T.utils.data.TensorDataset(*[T.tensor(a) for a in _data(samples)])


_MAKERS: dict[str, Callable[..., Any]] = dict(zip(DATASETS, (_arrays, _tensors, _whole), strict=True))


# ---------------------------------------------------------------------- in the driver


def run(options: argparse.Namespace) -> Report:
    """Measure and tabulate."""
    rows: list[list[str]] = []
    problems: list[str] = []
    for name in options.datasets.split(","):
        if name not in DATASETS:
            raise ValueError(f"no dataset {name!r}; there are {', '.join(DATASETS)}")
        _measure_all(name, options, rows, problems)
    header = ["dataset and backend", "a pass, new workers", "its first batch", "a pass, lasting workers", "its first batch"]
    about = f"{options.samples} samples in batches of {options.batch_size} by {options.workers} workers; in brackets, PyTorch's time by ours."
    return Report(f"## DataLoader\n\n{about}\n\n{table(header, rows)}\n", problems)


def _measure_all(name: str, options: argparse.Namespace, rows: list[list[str]], problems: list[str]) -> None:
    reference: dict[str, Any] | None = None
    settings = {key: getattr(options, key) for key in ("samples", "batch_size", "workers", "passes")}
    for backend in [backend for backend in options.backends if backend in ("torch", "fused")]:
        outcome = in_fresh_process("loading", "measure", backend, options.device, options.timeout, name=name, **settings)
        what = f"loading, {name}, {LABELS[backend]}"
        if outcome.error:
            problems.append(f"{what}: {outcome.error}")
            continue
        (found,) = outcome.results
        if backend == "torch":
            reference = found
        elif reference is not None and not abs(found["sum"] - reference["sum"]) <= 1e-3 * max(1.0, abs(reference["sum"])):
            problems.append(f"{what}: the batches sum up to {found['sum']:g}, not {reference['sum']:g}")
        row = [f"{name}, {LABELS[backend]}"]
        for key in ("new", "new first", "lasting", "lasting first"):
            row.append(duration(found[key]) + ("" if reference in (None, found) else f" ({reference[key] / found[key]:.2f})"))
        rows.append(row)
