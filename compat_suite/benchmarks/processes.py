"""Run a measurement in a process of its own, with the environment of one backend, and collect what it yields.

The measurement is a generator function ``name(backend, device, **options)`` in a module of this package; what it yields are dicts of
JSON's types. A crash, an exception or a timeout is a result as well: it is reported beside what was yielded before it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from compat_suite.benchmarks.backends import environment

ROOT = Path(__file__).resolve().parents[2]
MARK = "result: "  # before each line of standard output that is ours


class Outcome(NamedTuple):
    """What a process yielded, and what ended it early, if anything did."""

    results: list[dict[str, Any]]
    error: str | None


def in_fresh_process(module: str, function: str, backend: str, device: str, timeout: float, **options: Any) -> Outcome:
    """Run ``compat_suite.benchmarks.<module>.<function>(backend, device, **options)`` and wait for it, `timeout` seconds at most."""
    command = [sys.executable, "-m", "compat_suite.benchmarks.processes", module, function, backend, device, json.dumps(options)]
    variables = environment(backend, device)
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), variables.get("PYTHONPATH")]))
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
            error = None
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate()
            error = f"stopped after {timeout:g} s"
        except BaseException:
            process.kill()
            raise
    results = [json.loads(line.removeprefix(MARK)) for line in out.splitlines() if line.startswith(MARK)]
    if error is None and process.returncode != 0:
        error = _reason(process.returncode, errors)
    return Outcome(results, error)


def _reason(code: int, errors: str) -> str:
    if code < 0:
        return f"ended by signal {-code}"
    lines = errors.strip().splitlines()
    return lines[-1][:300] if lines else f"exit status {code}"


def main() -> None:
    """The process's side."""
    module, function, backend, device, options = sys.argv[1:]
    measure = getattr(importlib.import_module(f"compat_suite.benchmarks.{module}"), function)
    for result in measure(backend, device, **json.loads(options)):
        print(MARK + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
