"""A pytest plugin that says what `clock.run` says: seconds after the imports, and the outcome of each test.

The tested package is imported here, before the clock starts; its name is in the environment variable `COLD_PACKAGE`.
"""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path
from typing import Any

import clock
import torch  # noqa: F401 - so that its import is not part of the time

importlib.import_module(os.environ["COLD_PACKAGE"])

_SEVERITY = ("passed", "skipped", "failed")  # a test has the worst outcome of its phases and subtests
_outcomes: dict[str, str] = {}
_start = time.perf_counter()


def pytest_runtest_logreport(report: Any) -> None:
    """Note the worst outcome so far of a test."""
    # pytest leaves the file out of the names of tests that are outside its root directory.
    name = f"{Path(report.location[0]).name}::{report.nodeid.partition('::')[2]}"
    _outcomes[name] = max(_outcomes.get(name, "passed"), report.outcome, key=_SEVERITY.index)


def pytest_unconfigure() -> None:
    """Nothing captures output any more."""
    clock.say({"seconds": time.perf_counter() - _start, "tests": _outcomes})
