"""``python -m compat_suite transforms``: how many calls of each operator every transform is right of."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import warnings
from pathlib import Path
from typing import Any

from compat_suite.counting import Count, Difference, NotApplicable
from compat_suite.processes import in_batches, in_processes
from compat_suite.reporting import BATCH, report, report_differences, tiers
from compat_suite.transforms.case import Case
from compat_suite.transforms.checks import CHECKS, DERIVATIVES

DTYPES = ("float64", "complex128", "int64", "bool")
MORE = ("float32",)


def options(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    found = argparse.ArgumentParser("python -m compat_suite transforms", description=__doc__)
    found.add_argument("--ops", nargs="+", default=[], help="operators; none: all of the tiers")
    found.add_argument("--tier", type=int, choices=[1, 2], help="only operators of this tier")
    found.add_argument("--checks", nargs="+", default=list(CHECKS), choices=list(CHECKS))
    found.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=(*DTYPES, *MORE))
    found.add_argument("--samples", type=int, default=4, help="of each operator and dtype at most; 0: all")
    found.add_argument("--records", action="store_true", help="the suite's own samples, be PyTorch installed")
    found.add_argument("--jobs", type=int, default=1)
    found.add_argument("--json", type=Path, help="where to write all counts")
    found.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    chosen = found.parse_args(arguments)
    chosen.records = chosen.records or importlib.util.find_spec("torch") is None
    if chosen.ops and not chosen.in_process and (unknown := set(chosen.ops) - set(source(chosen.records).names())):
        found.error(f"no samples of {', '.join(sorted(unknown))}")
    return chosen


def source(records: bool) -> Any:
    """Where the samples are from."""
    from compat_suite.transforms import sources

    return sources.Records() if records else sources.Database()


def count(source: Any, name: str, check: str, dtype: str, most: int) -> Count:
    """How many samples of an operator agree."""
    found = Count()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in source.cases(name, dtype, check, most):
            try:
                CHECKS[check](case)
                found.add(None)
            except NotApplicable:
                continue
            except Difference as difference:
                found.add(f"{difference}{_told(case)}")
            except Exception as error:
                found.add(f"{type(error).__name__}: {error}{_told(case)}")
    return found


def _told(case: Case) -> str:
    return " <- " + ", ".join(f"{a.dtype}{list(a.shape)}" for a in case.arrays)[:160]


def measure(chosen: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """The counts of some operators, in this process."""
    given, found = source(chosen.records), {}
    for name in names:
        for check in chosen.checks:
            for dtype in chosen.dtypes if given.applies(name, check) else ():
                derivatives = check in DERIVATIVES
                if dtype in given.dtypes(name, derivatives) and not (derivatives and dtype in ("int64", "bool")):
                    one = count(given, name, check, dtype, chosen.samples)
                    found[f"{name} {check} {dtype}"] = [one.agree, one.samples, one.differences]
    return found


def measure_in_processes(chosen: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """The counts of many operators: so many compiled programs do not fit one process."""
    more = ["--in-process", "--samples", str(chosen.samples), "--checks", *chosen.checks, "--dtypes", *chosen.dtypes]
    more += ["--records"] * chosen.records
    found: dict[str, Any] = {}
    for ended in in_processes(in_batches(names, BATCH), chosen.jobs, lambda batch: ["-m", "compat_suite", "transforms", "--ops", *batch, *more]):
        part = ended.found if ended.found is not None else {f"{ended.batch[0]} vmap float64": [0, 1, [f"the process ended with {ended.status}"]]}
        report_differences(part)
        found |= part
    return found


def main(arguments: list[str]) -> None:
    """Measure, report."""
    chosen = options(arguments)
    if chosen.in_process:
        chosen.json.write_text(json.dumps(measure(chosen, chosen.ops)))
        return
    tier_of = tiers()
    names = chosen.ops or [n for n, t in tier_of.items() if chosen.tier in (None, t)]
    found = measure_in_processes(chosen, names)
    report(found, names, tier_of)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=0))
    sys.exit(any(agree < samples for agree, samples, _ in found.values()))
