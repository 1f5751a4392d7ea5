"""How far the calling conventions agree with PyTorch's: ``python -m compat_suite.calls --help``."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from compat_suite.processes import in_batches, in_processes

BATCH = 60  # functions a process: what was compiled for so many stays small


def options() -> argparse.Namespace:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__)
    found.add_argument("names", nargs="*", help="functions as in the table of signatures: sum, Tensor.sum, linalg.norm; none: all")
    categories = ["keywords", "types", "out", "strides", "dtypes"]
    found.add_argument("--categories", nargs="+", default=categories, choices=categories)
    found.add_argument("--texts", action="store_true", help="count an error as equal only where its first line is equal too")
    found.add_argument("--jobs", type=int, default=1)
    found.add_argument("--most", type=int, default=3, help="differences of a function and category that are listed; 0: all")
    found.add_argument("--json", type=Path, help="where to write all differences")
    found.add_argument("--table", type=Path, help="only write the table of PyTorch's signatures that the package keeps")
    found.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    return found.parse_args()


def shown(value: Any, strides: bool) -> Any:
    """What of a result is compared: classes, and of tensors dtype and shape (and strides)."""
    if hasattr(value, "is_floating_point") and hasattr(value, "stride"):
        found = [str(value.dtype), list(value.shape)]
        return found + ([list(value.stride())] if strides else [])
    if isinstance(value, (list, tuple)):
        return [type(value).__name__.rpartition(".")[2], *(shown(v, strides) for v in value)]
    return type(value).__name__


def outcome(library: Any, text: str, strides: bool) -> tuple[Any, str]:
    """What a call gives: its result as it is compared, or the class of the error; and the error's first line."""
    from compat_suite.calls.operands import Operands

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return shown(eval(text, {}, Operands(library)), strides), ""
    except Exception as error:
        return f"raises {type(error).__name__}", (str(error).splitlines() or [""])[0]


def compared(name: str, categories: list[str], texts: bool) -> dict[str, list[Any]]:
    """For each category how many calls agree, how many there are, and those that differ."""
    import torch

    import torchgrad_jax as tj
    from compat_suite.calls.cases import base_call, calls_of, parsed
    from compat_suite.calls.signatures import signatures_of

    namespace, _, short = name.rpartition(".")
    bases = [base for line in signatures_of(namespace + "." * bool(namespace), short) if (base := base_call(parsed(line))) is not None]
    found: dict[str, list[Any]] = {"no call": [0, 0, []]} if not bases else {}
    for category in categories:
        row: list[Any] = found.setdefault(category, [0, 0, []])
        for text in dict.fromkeys(t for base in bases for t in calls_of(base, category)):
            (theirs, said), (ours, says) = outcome(torch, text, category == "strides"), outcome(tj, text, category == "strides")
            row[1] += 1
            if theirs == ours and (not texts or said == says):
                row[0] += 1
            else:
                row[2].append([text, f"{ours} {says}".strip(), f"{theirs} {said}".strip()])
    return found


def measure(chosen: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """`compared` of many functions, in processes of their own: a call that ends the process loses only its batch."""
    found: dict[str, Any] = {}
    more = ["--in-process", "--categories", *chosen.categories, *["--texts"] * chosen.texts]
    batches, variables = in_batches(names, BATCH), {"OMP_NUM_THREADS": "1"}
    for ended in in_processes(batches, chosen.jobs, lambda batch: ["-m", "compat_suite.calls", *batch, *more], variables, silent=True):
        crashed = {ended.batch[0]: {"ended": [0, 1, [[ended.batch[0], f"the process ended with {ended.status}", ""]]]}}
        found |= crashed if ended.found is None else ended.found
    return found


def report(found: dict[str, Any], most: int) -> bool:
    """Print what differs and how much agrees; whether all does."""
    total: dict[str, list[int]] = {}
    for name, rows in found.items():
        for category, (agree, count, differences) in rows.items():
            row = total.setdefault(category, [0, 0, 0, 0])
            row[0], row[1], row[2], row[3] = row[0] + agree, row[1] + count, row[2] + (agree == count), row[3] + 1
            kinds: dict[str, Any] = {}
            for d in differences:
                kinds.setdefault(re.sub(r"\d+", "", f"{d[1]} | {d[2]}"), d)
            listed = list(kinds.values())
            for text, ours, theirs in listed[: most or None]:
                print(f"{name} {category}: {text}\n    ours:    {ours[:200]}\n    PyTorch: {theirs[:200]}")
    print(f"{'category':<10} {'agree':>8} {'calls':>8} {'%':>7}   functions without a difference")
    for category, (agree, count, functions, of) in total.items():
        if count:
            print(f"{category:<10} {agree:>8} {count:>8} {100 * agree / count:>7.2f}   {functions} of {of}")
    if "no call" in total:
        print("no call found for: " + ", ".join(n for n, rows in found.items() if "no call" in rows))
    return all(agree == count for rows in found.values() for agree, count, _ in rows.values())


def main() -> None:
    """Measure, report."""
    chosen = options()
    if importlib.util.find_spec("torch") is None:
        sys.exit("the sweep asks PyTorch for its signatures and compares with it: install PyTorch")
    if chosen.in_process:
        found = {name: compared(name, chosen.categories, chosen.texts) for name in chosen.names}
        chosen.json.write_text(json.dumps(found))
        return
    from compat_suite.calls.signatures import NAMESPACES, shared_names

    if chosen.table:
        from compat_suite.calls.signatures import table

        chosen.table.write_text(table())
        return
    names = chosen.names or [namespace + name for namespace in NAMESPACES for name in shared_names(namespace)]
    found = measure(chosen, names)
    same = report(found, chosen.most)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=0))
    sys.exit(not same)


if __name__ == "__main__":
    main()
