"""`import torchgrad_jax` against `import jax`, in pairs of fresh processes, with Python's bytecode caches and without.

Also whether importing torchgrad_jax started a JAX backend, which must wait for the first computation.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

from compat_suite.benchmarks.processes import ROOT
from compat_suite.benchmarks.report import Report, duration, table

MODULES = ("jax", "torchgrad_jax")

_IMPORT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"

# JAX takes this option only before a backend is started.
_STARTED = """
import torchgrad_jax, jax
try:
    jax.config.update("jax_num_cpu_devices", 2)
    print("no")
except RuntimeError:
    print("yes")
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``import``."""
    parser.add_argument("--pairs", type=int, default=10)


def quick(options: argparse.Namespace) -> None:
    """Make the options so small that only errors can be seen."""
    options.pairs = 1


def run(options: argparse.Namespace) -> Report:
    """Measure and tabulate."""
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for module in MODULES:
            _seconds(module, cache, writes=True)
        rows.append(_row("with bytecode caches", _pairs(options.pairs, cache)))
    with tempfile.TemporaryDirectory() as empty:
        rows.append(_row("without", _pairs(options.pairs, empty)))
    started = _python(_STARTED, {})
    problems = [] if started == "no" else ["import: importing torchgrad_jax starts a JAX backend"]
    header = ["", "import jax", "import torchgrad_jax", "torchgrad_jax's own part", "ratio"]
    text = f"## Import time\n\nMedians of {options.pairs} pairs of fresh processes.\n\n{table(header, rows)}\n\n"
    return Report(text + f"A JAX backend was started by the import: {started}.\n", problems)


def _pairs(count: int, cache: str) -> list[tuple[float, ...]]:
    return [tuple(_seconds(module, cache) for module in MODULES) for _ in range(count)]


def _row(name: str, pairs: list[tuple[float, ...]]) -> list[str]:
    medians = [statistics.median(times) for times in zip(*pairs, strict=True)]
    own = statistics.median(b - a for a, b in pairs)
    ratio = statistics.median(b / a for a, b in pairs)
    return [name, *map(duration, medians), f"{own * 1e3:.0f} ms", f"{ratio:.2f}"]


def _seconds(module: str, cache: str, writes: bool = False) -> float:
    variables = {"PYTHONPYCACHEPREFIX": cache}
    if not writes:
        variables["PYTHONDONTWRITEBYTECODE"] = "1"
    return float(_python(_IMPORT.format(module), variables))


def _python(code: str, variables: dict[str, str]) -> str:
    """What a fresh process prints."""
    given = {name: text for name, text in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")}
    given["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), given.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, "-c", code], env=given | variables, capture_output=True, text=True, check=True).stdout.strip()
