"""Measures how far the operators agree with PyTorch's operator database: ``python -m compat_suite --help``.

``python -m compat_suite fuzz --help`` is about random programs, ``python -m compat_suite faults --help`` about interrupts and the like,
``python -m compat_suite compositions --help`` about random transforms of random functions, ``python -m compat_suite optimizers --help`` about
optimizers, ``modules`` about modules, ``distributions`` about distributions, and ``python -m compat_suite.saved_files --help`` about damaged
files of `torch.save`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from compat_suite.processes import in_batches, in_processes
from compat_suite.reporting import BATCH, report, report_differences, tiers

HERE = Path(__file__).parent
# Compiling dominates: what another process compiled is found on disk.
QUICK = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1", "TORCHGRAD_JAX_EXECUTION": "eager"}
UNOPTIMIZED = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"

# Where the other commands are.
COMMANDS = {
    "faults": "compat_suite.faults.command", "fuzz": "compat_suite.fuzz.command", "transforms": "compat_suite.transforms.command",
    "compositions": "compat_suite.compositions", "modules": "compat_suite.modules", "optimizers": "compat_suite.optimizers",
    "distributions": "compat_suite.distributions",
}  # fmt: skip


def options() -> argparse.Namespace:
    """The command line."""
    if importlib.util.find_spec("torch") is None:
        sys.exit("the database is PyTorch's own: install PyTorch and expecttest, or see python -m compat_suite.self_check, which needs neither")
    from compat_suite.agreement import CHECKS
    from compat_suite.database import DTYPES

    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("names", nargs="*", help="operators of PyTorch's database; none: all of the tiers")
    found.add_argument("--tier", type=int, choices=[1, 2], help="only operators of this tier")
    found.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES)
    found.add_argument("--checks", nargs="+", default=list(CHECKS), choices=CHECKS)
    found.add_argument("--samples", type=int, default=24, help="of each operator and dtype at most; 0: all")
    found.add_argument("--jobs", type=int, default=2)
    found.add_argument("--write", action="store_true", help="write the tables of docs/operators")
    found.add_argument("--json", type=Path, help="where to write all counts")
    found.add_argument("--cache", default=str(Path.home() / ".cache" / "torchgrad_jax_suite"), help="where compiled operations are kept")
    found.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    chosen = found.parse_args()
    if chosen.write and (chosen.names or chosen.tier or set(chosen.dtypes) != set(DTYPES) or set(chosen.checks) != set(CHECKS)):
        found.error("--write is for the whole table: all operators, dtypes and checks")
    if chosen.names and not chosen.in_process:
        from compat_suite.database import entries

        if unknown := set(chosen.names) - entries().keys():
            found.error(f"not in PyTorch's operator database: {', '.join(sorted(unknown))}")
    return chosen


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """The counts of some operators, in this process."""
    from compat_suite.agreement import agreement, applies
    from compat_suite.database import entries

    known, found = entries(), {}
    for name in chosen.names:
        entry = known[name]
        for check in chosen.checks:
            for dtype in ["float32"] if check.startswith("error") else [d for d in chosen.dtypes if d in entry.dtypes()]:
                if applies(entry, check, dtype):
                    count = agreement(entry, check, dtype, chosen.samples)
                    found[f"{name} {check} {dtype}"] = [count.agree, count.samples, count.differences]
    return found


def measure_in_processes(chosen: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """The counts of many operators: so many compiled programs do not fit one process."""
    more = ["--in-process", "--samples", str(chosen.samples), "--dtypes", *chosen.dtypes, "--checks", *chosen.checks]
    variables = {**QUICK, "JAX_COMPILATION_CACHE_DIR": chosen.cache, "XLA_FLAGS": UNOPTIMIZED}
    found: dict[str, Any] = {}
    for ended in in_processes(in_batches(names, BATCH), chosen.jobs, lambda batch: ["-m", "compat_suite", *batch, *more], variables):
        part = ended.found if ended.found is not None else {f"{ended.batch[0]} value float32": [0, 1, [f"the process ended with {ended.status}"]]}
        report_differences(part)
        found |= part
    return found


def main() -> None:
    """Measure, report."""
    command = COMMANDS.get("".join(sys.argv[1:2]))
    if command is not None:
        sys.exit(importlib.import_module(command).main(sys.argv[2:]))
    chosen = options()
    if chosen.in_process:
        chosen.json.write_text(json.dumps(measure(chosen)))
        return
    tier_of = tiers()
    names = chosen.names or [n for n, t in tier_of.items() if chosen.tier in (None, t)]
    found = measure_in_processes(chosen, names)
    report(found, names, tier_of)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=0))
    if chosen.write:
        from compat_suite import operators

        (operators.DOCS / operators.MEASURED).write_text(operators.measured(found, tier_of, chosen.samples), encoding="utf-8")
        operators.main(["--try"])
    sys.exit(any(agree < samples for agree, samples, _ in found.values()))


if __name__ == "__main__":
    main()
