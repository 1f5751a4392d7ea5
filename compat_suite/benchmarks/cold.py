"""Whole processes from their start, nothing compiled beforehand: programs that use public packages unmodified, and the first steps of loops.

PyTorch runs ``python PROGRAM``, torchgrad_jax ``torchgrad-jax run PROGRAM``: the same file, the same printed numbers or passing
tests. Processes run one at a time, in an order that alternates, each in an empty working directory with an empty cache directory
and JAX's compilation cache off; Python's bytecode of installed modules is there. The time of the program itself begins after its
imports. A package that is not installed is left out.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import importlib.metadata
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from compat_suite.benchmarks.backends import LABELS, environment
from compat_suite.benchmarks.processes import ROOT
from compat_suite.benchmarks.programs.catalog import FOLDER, IMPORTS, LOOPS, NOTHING, PACKAGES, PROGRAMS, Program, loop
from compat_suite.benchmarks.programs.clock import MARK
from compat_suite.benchmarks.report import Report, duration, table

REFERENCE, OURS = "torch", "fused"
LAUNCHERS = {REFERENCE: (), OURS: ("-m", "torchgrad_jax.cli", "run")}
TOLERANCE = 1e-3  # of a number
SMALLEST = 1e-2  # numbers below this part of the largest beside them are compared as if they were as large
WHOLE, ITSELF = "whole process", "program"
QUICK = "mlp_small,mlp32"
INSTALL = "pip install " + " ".join(f"{name}=={version}" for name, version in PACKAGES.items())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``cold``. Among those of ``all``, ``--only`` is about another benchmark, and ``--rounds`` about both."""
    with contextlib.suppress(argparse.ArgumentError):
        parser.add_argument("--only", dest="programs", metavar="NAMES", help="programs and loops, comma-separated (default: all)")
    with contextlib.suppress(argparse.ArgumentError):
        parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most-steps", type=int, default=1000, help="of a loop (default: %(default)s)")
    parser.set_defaults(programs=",".join([*PROGRAMS, *LOOPS]))
    parser.epilog = f"The packages of the benchmark cold: {INSTALL}"


def quick(options: argparse.Namespace) -> None:
    """Make the options so small that only errors and wrong results can be seen."""
    options.rounds, options.most_steps = 1, 10
    if options.programs == ",".join([*PROGRAMS, *LOOPS]):
        options.programs = QUICK


# ---------------------------------------------------------------------- processes


class Run(NamedTuple):
    """One process: its seconds by the name of what took them, what it computed (``numbers`` or ``tests``), and what ended it early."""

    times: dict[str, float]
    result: dict[str, Any]
    error: str | None = None


def start(program: Program, backend: str, timeout: float) -> Run:
    """Run `program` in a fresh process and wait for it, `timeout` seconds at most."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, *LAUNCHERS[backend], *program.arguments]
        variables = environment(backend, "cpu") | {"XDG_CACHE_HOME": directory, "JAX_ENABLE_COMPILATION_CACHE": "false", **program.variables}
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), str(FOLDER), variables.get("PYTHONPATH")]))
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        begin = time.perf_counter()
        try:
            ended = subprocess.run(command, env=variables, cwd=directory, timeout=timeout, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            return Run({}, {}, f"stopped after {timeout:g} s")
        whole = time.perf_counter() - begin
    said = [json.loads(line.removeprefix(MARK)) for line in ended.stdout.splitlines() if line.startswith(MARK)]
    # pytest's exit status is 1 where tests fail, which is a result.
    if not said or (ended.returncode != 0 and "tests" not in said[0]):
        lines = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
        return Run({}, {}, lines[-1][:300] if lines else f"exit status {ended.returncode}")
    (result,) = said
    return Run({WHOLE: whole, ITSELF: result.pop("seconds"), **result.pop("at", {})}, result)


def prepare(programs: Iterable[Program], backends: Sequence[str], timeout: float) -> None:
    """Have Python's bytecode written as an installation does, that of tests too, which pytest compiles in its own way."""
    compileall.compile_dir(ROOT / "torchgrad_jax", quiet=2)
    for backend in backends:
        start(NOTHING, backend, timeout)
    for program in programs:
        if "--pyargs" in program.arguments:
            start(program._replace(arguments=(*program.arguments, "--collect-only")), backends[0], timeout)


def measure(programs: dict[str, Program], backends: list[str], rounds: int, timeout: float) -> dict[tuple[str, str], list[Run]]:
    """The runs of each program and backend. What failed is not run again."""
    found: dict[tuple[str, str], list[Run]] = {(name, backend): [] for name in programs for backend in backends}
    for number in range(rounds):
        for index, (name, program) in enumerate(programs.items()):
            for backend in backends if (number + index) % 2 == 0 else backends[::-1]:
                runs = found[name, backend]
                if not any(run.error for run in runs):
                    runs.append(start(program, backend, timeout))
    return found


# ---------------------------------------------------------------------- the choice of programs


def chosen(names: Sequence[str], most_steps: int) -> tuple[dict[str, Program], list[str]]:
    """The programs of these names that can run here, and a line for each package that is not there, or in another version."""
    unknown = [name for name in names if name not in PROGRAMS and name not in LOOPS]
    if unknown:
        raise ValueError(f"no program {', '.join(unknown)}; there are {', '.join([*PROGRAMS, *LOOPS])}")
    programs, remarks = {}, {}
    for name in names:
        program = loop(name, most_steps) if name in LOOPS else PROGRAMS[name]
        versions = {package: installed(package) for package in program.needs}
        for package, version in versions.items():
            if version is None:
                remarks[f"{name} is left out: {package} is not installed (pip install {package}=={PACKAGES[package]})"] = None
            elif version != PACKAGES[package]:
                remarks[f"{package} is of version {version}; the program is meant for {PACKAGES[package]}"] = None
        if None not in versions.values():
            programs[name] = program
    return programs, list(remarks)


def installed(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def run(options: argparse.Namespace) -> Report:
    """Measure and tabulate."""
    title = "## Cold processes\n\n"
    backends = [backend for backend in LAUNCHERS if backend in options.backends]
    if options.device != "cpu" or not backends:
        return Report(f"{title}Left out: it is about {' and '.join(LABELS[b] for b in LAUNCHERS)} on the CPU.\n", [])
    programs, remarks = chosen(options.programs.split(","), options.most_steps)
    for remark in remarks:
        print(f"cold: {remark}", file=sys.stderr)
    prepare(programs.values(), backends, options.timeout)
    found = measure({IMPORTS: NOTHING, **programs}, backends, options.rounds, options.timeout)
    text, problems = tabulate(found, backends)
    listed = "".join(f"- {remark}\n" for remark in remarks)
    return Report(title + text + (f"\n{listed}" if listed else ""), problems)


# ---------------------------------------------------------------------- tables


def tabulate(found: dict[tuple[str, str], list[Run]], backends: list[str]) -> tuple[str, list[str]]:
    """Markdown: programs, loops, the means of their ratios; and what is wrong."""
    problems: list[str] = []
    ratios: dict[str, dict[str, tuple[float, float]]] = {}
    programs, steps = [], []
    for name in dict.fromkeys(name for name, _ in found):
        runs = {backend: found[name, backend] for backend in backends}
        errors = {b: run.error for b in backends for run in runs[b] if run.error}
        problems += [f"cold, {name}, {LABELS[b]}: {error}" for b, error in errors.items()]
        good = [b for b in backends if b not in errors]
        verdict = "" if not errors else "error"
        if good == [REFERENCE, OURS]:
            verdict, wrong = compare(runs[OURS][-1].result, runs[REFERENCE][-1].result)
            problems += [f"cold, {name}: {sentence}" for sentence in wrong]
        measured = runs[good[0]][0].times if good else [WHOLE, ITSELF]
        cells = {what: _cells(runs, backends, good, what) for what in measured}
        if good == [REFERENCE, OURS] and name != IMPORTS:
            for what in measured:
                if not (name in LOOPS and what == ITSELF):
                    ratios.setdefault(what, {})[name] = _ratio(runs, what)
        if name in LOOPS:
            steps += [[name, what, *cells[what], verdict] for what in (*(w for w in measured if w not in (WHOLE, ITSELF)), WHOLE)]
        else:
            itself = ["-"] * len(cells[ITSELF]) if name == IMPORTS else cells[ITSELF]
            programs.append([name, *cells[WHOLE], *itself, verdict])
    header = [*(LABELS[b] for b in backends), "ratio"]
    text = f"The shortest time / the median of the rounds; ratio: {LABELS[OURS]} / {LABELS[REFERENCE]}.\n\n"
    if len(programs) > 1 or not steps:
        text += table(["program", *(f"whole, {h}" for h in header), *(f"itself, {h}" for h in header), "results"], programs) + "\n\n"
    if steps:
        text += f"From after the imports until a step of a loop is done.\n\n{table(['loop', 'until', *header, 'results'], steps)}\n\n"
    return text + _summary(ratios), problems


def _cells(runs: dict[str, list[Run]], backends: list[str], good: list[str], what: str) -> list[str]:
    """The times of each backend and their ratio."""
    cells = []
    for backend in backends:
        times = [run.times[what] for run in runs[backend]] if backend in good else []
        cells.append(f"{duration(min(times))} / {duration(statistics.median(times))}" if times else "-")
    return [*cells, "{:.2f} / {:.2f}".format(*_ratio(runs, what)) if good == [REFERENCE, OURS] else "-"]


def _ratio(runs: dict[str, list[Run]], what: str) -> tuple[float, float]:
    """Ours to PyTorch's: of the shortest times and of the medians."""
    ours, reference = ([run.times[what] for run in runs[backend]] for backend in (OURS, REFERENCE))
    return min(ours) / min(reference), statistics.median(ours) / statistics.median(reference)


def _summary(ratios: dict[str, dict[str, tuple[float, float]]]) -> str:
    """The geometric mean and the maximum of the ratios by what was timed."""
    rows = []
    for what, by_name in ratios.items():
        means = [math.exp(statistics.fmean(math.log(pair[i]) for pair in by_name.values())) for i in (0, 1)]
        worst = max(by_name, key=lambda name: by_name[name][0])
        rows.append([what, str(len(by_name)), "{:.2f} / {:.2f}".format(*means), f"{by_name[worst][0]:.2f} ({worst})"])
    return f"{table(['ratios', 'of', 'geometric mean', 'maximum'], rows)}\n" if rows else ""


# ---------------------------------------------------------------------- results


def compare(ours: dict[str, Any], reference: dict[str, Any]) -> tuple[str, list[str]]:
    """A word for the table, and a sentence for each number that differs and for the tests that only PyTorch passes."""
    if "tests" in reference:
        return _compare_tests(ours["tests"], reference["tests"])
    mine, theirs = ours["numbers"], reference["numbers"]
    wrong = [name for name in theirs if name not in mine or not equal(mine[name], theirs[name])]
    return ("WRONG", [f"{', '.join(wrong)}: not {LABELS[REFERENCE]}'s"]) if wrong else ("agree", [])


def _compare_tests(ours: dict[str, str], reference: dict[str, str]) -> tuple[str, list[str]]:
    passed, expected = ({test for test, outcome in tests.items() if outcome == "passed"} for tests in (ours, reference))
    missing, word = sorted(expected - passed), f"{len(passed)}, {LABELS[REFERENCE]} {len(expected)} pass"
    if not missing:
        return word, []
    return word, [f"{len(missing)} of {len(expected)} tests pass with {LABELS[REFERENCE]} alone: {', '.join(missing)}"]


def equal(number: Any, expected: Any) -> bool:
    """Whether numbers agree to `TOLERANCE`; not where one of them is NaN."""
    x, y = np.asarray(number, float), np.asarray(expected, float)
    if x.shape != y.shape:
        return False
    scale = np.maximum(abs(y), SMALLEST * abs(y).max(initial=0.0))
    return bool((abs(x - y) <= TOLERANCE * scale).all())
