"""``torchgrad-jax scan``: what of torch a code base uses, and what of that is here."""

from __future__ import annotations

import argparse
import json
import os
import sys

from torchgrad_jax.cli.scanning.files import Skipped, Source, found, read
from torchgrad_jax.cli.scanning.meanings import Meanings
from torchgrad_jax.cli.scanning.report import MISSING, Report, gathered
from torchgrad_jax.cli.scanning.scopes import Scope, built, classes_of, defined_names
from torchgrad_jax.cli.scanning.uses import Reader, assigned_names

SCAN_USAGE = "torchgrad-jax scan [--json] [--all] [--fail-under PERCENT] PATH"
_DESCRIPTION = """List the names of torch that a file or folder uses, and which of them torchgrad_jax has.
Nothing of it is imported or run. Python files and notebooks are read; links and hidden folders are not followed."""
_EPILOG = "exit status: 0 when nothing is missing that is needed (or PERCENT of the names are here), 1 otherwise, 2 when there is nothing to read"


def scan(path: str) -> Report:
    """Read the code base at `path`, a file or a folder. FileNotFoundError where there is none."""
    if not os.path.lexists(path):
        raise FileNotFoundError(path)
    skipped: list[Skipped] = []
    sources: list[tuple[Source, Scope]] = []
    for one in found(path):
        if isinstance(one, Skipped):
            skipped.append(one)
            continue
        source = read(*one, skipped)
        if source is not None:
            try:
                sources.append((source, built(source.tree)))
            except RecursionError:
                skipped.append(Skipped(one[1], "nested too deeply"))
    meanings = Meanings(classes_of([module for _, module in sources]))
    own_names = defined_names([source.tree for source, _ in sources])
    assigned = {name for source, module in sources for name in assigned_names(source.tree, module, meanings)}
    uses, dynamic, files = [], [], []
    for source, module in sources:
        reader = Reader(source, module, meanings, own_names, assigned)
        try:
            reader.read()
        except RecursionError:
            skipped.append(Skipped(source.file, "nested too deeply"))
            continue
        files.append(source.file)
        uses += reader.uses
        dynamic += reader.dynamic
    return gathered(path, files, uses, skipped, dynamic)


def main(arguments: list[str]) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="torchgrad-jax scan", usage=SCAN_USAGE, description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", metavar="PATH", help="a file or a folder")
    parser.add_argument("--json", action="store_true", help="everything that was found, as JSON")
    parser.add_argument("--all", action="store_true", help="all places, not the first three of each name")
    parser.add_argument("--fail-under", type=_percentage, metavar="PERCENT", help="fail only when fewer of the names are here")
    options = parser.parse_args(arguments)
    try:
        report = scan(options.path)
    except FileNotFoundError:
        parser.error(f"{options.path}: no such file or folder")
    if options.json:
        print(json.dumps(report.data(), indent=2))
    else:
        print(report.text(everything=options.all))
    if not report.files:
        print("torchgrad-jax scan: nothing to read", file=sys.stderr)
        return 2
    if options.fail_under is not None:
        return int(report.share < options.fail_under)
    return int(bool(report.of(MISSING)))


def _percentage(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 100")
    return number
