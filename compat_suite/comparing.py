"""The command line of what compares with PyTorch name by name: optimizers, modules, distributions."""

from __future__ import annotations

import argparse
import importlib.util
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compat_suite.reporting import report_differences, report_share


class Comparison(NamedTuple):
    """What is compared. measure: of names (none: all), dtypes, checks and, where `samples`, how many of each at most, the counts by "name check
    dtype". known: the names that there are, None where others are passed over. by_name: whether each name's share is told."""

    command: str
    what: str
    doc: str | None
    dtypes: Sequence[str]
    checks: Sequence[str]
    measure: Callable[..., dict[str, Any]]
    samples: bool = False
    known: Sequence[str] | None = None
    by_name: bool = False


def compare(comparison: Comparison, arguments: list[str]) -> int:
    """Measure, report. Returns 1 where something differs."""
    chosen = options(comparison, arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        more = [chosen.samples] if comparison.samples else []
        found = comparison.measure(chosen.names, chosen.dtypes, chosen.checks, *more)
    if not found:
        print(f"{' '.join(chosen.names)}: nothing is compared that is called so")
        return 1
    report_differences(found)
    for place in (0, 1) if comparison.by_name else (1,):
        for part in dict.fromkeys(key.split(" ")[place] for key in found):
            report_share(part, [row for key, row in found.items() if key.split(" ")[place] == part])
    report_share("all", found.values())
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=0))
    return int(any(agree < count for agree, count, _ in found.values()))


def options(comparison: Comparison, arguments: list[str]) -> argparse.Namespace:
    """What the command line says. It ends the process where PyTorch is missing, or a name unknown."""
    parser = argparse.ArgumentParser(
        prog=f"python -m compat_suite {comparison.command}", description=comparison.doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"{comparison.what}; none: all")
    parser.add_argument("--dtypes", nargs="+", default=list(comparison.dtypes), choices=comparison.dtypes)
    parser.add_argument("--checks", nargs="+", default=list(comparison.checks), choices=comparison.checks)
    if comparison.samples:
        parser.add_argument("--samples", type=int, default=0, help="of each name and dtype at most; 0: all")
    parser.add_argument("--json", type=Path, help="where to write all counts")
    if importlib.util.find_spec("torch") is None:
        parser.error("this compares with PyTorch: install it, and expecttest")
    chosen = parser.parse_args(arguments)
    if comparison.known is not None and (unknown := set(chosen.names) - set(comparison.known)):
        parser.error(f"there are no {', '.join(sorted(unknown))}")
    return chosen
