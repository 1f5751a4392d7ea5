"""``python -m compat_suite.benchmarks COMMAND [options]``, with speed, everyday, operators, memory, checkpointing, profiling, loop, changing,
loading, import, cold or all for COMMAND: see ``--help`` of each.

Run it on an idle machine and read the ratios of one run. Exit status 1: something was wrong, broke a promise or failed.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from compat_suite.benchmarks import changing, checkpointing, cold, import_time, loading, loop, memory, operators, profiling, speed
from compat_suite.benchmarks.backends import BACKENDS, DEVICES, available
from compat_suite.benchmarks.everyday import driver as everyday
from compat_suite.benchmarks.report import surroundings, warn_if_busy

BENCHMARKS: dict[str, Any] = {
    "speed": speed, "everyday": everyday, "operators": operators, "memory": memory, "checkpointing": checkpointing, "profiling": profiling,
    "loop": loop, "changing": changing, "loading": loading, "import": import_time, "cold": cold,
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="python -m compat_suite.benchmarks", description=__doc__)
    commands = found.add_subparsers(dest="command", required=True, metavar="|".join([*BENCHMARKS, "all"]))
    for name, module in BENCHMARKS.items():
        command = commands.add_parser(name, help=module.__doc__.splitlines()[0], description=module.__doc__)
        _add_common(command)
        module.add_arguments(command)
    everything = commands.add_parser("all", help="all of them, one after the other")
    _add_common(everything)
    for module in BENCHMARKS.values():
        module.add_arguments(everything)
    return found


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--backends", default=",".join(BACKENDS), help="comma-separated (default: %(default)s)")
    command.add_argument("--device", choices=DEVICES, default="cpu")
    command.add_argument("--out", type=Path, help="a file for the Markdown report")
    command.add_argument("--quick", action="store_true", help="tiny settings: tells whether all works, not how fast")
    command.add_argument("--timeout", type=float, default=3600.0, help="seconds for one process (default: %(default)g)")


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status."""
    options = parser().parse_args(arguments)
    options.backends = available(options.backends.split(","))
    chosen = BENCHMARKS if options.command == "all" else {options.command: BENCHMARKS[options.command]}
    warn_if_busy()
    parts, problems = [surroundings(options.device) + "\n"], []
    for module in chosen.values():
        if options.quick:
            module.quick(options)
        report = module.run(options)
        print(report.text, flush=True)
        parts.append(report.text)
        problems += report.problems
    if problems:
        parts.append("## Problems\n\n" + "\n".join(f"- {problem}" for problem in problems) + "\n")
        print(parts[-1])
    if options.out:
        options.out.write_text("\n".join(parts))
    return 1 if problems else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the measured process is ended as well
    sys.exit(main())
