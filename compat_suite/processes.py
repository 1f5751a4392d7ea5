"""Work in processes of its own, which so many compiled programs need: each does a batch and writes what it has found as JSON."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """A process that was given a batch. found: what it wrote, None where it ended before; status: its exit status."""

    batch: list[str]
    found: Any
    status: int


def in_batches(names: Sequence[str], size: int) -> list[list[str]]:
    """The names in lists of this size."""
    return [list(names[i : i + size]) for i in range(0, len(names), size)]


def in_processes(
    batches: Sequence[list[str]],
    jobs: int,
    arguments: Callable[[list[str]], list[str]],
    variables: Mapping[str, str] | None = None,
    silent: bool = False,
) -> Iterator[Ended]:
    """Do the batches, `jobs` at a time; those that ended a process are done again in halves, down to the one name that does.

    arguments: of ``python`` for a batch; to these is added ``--json`` with the path to write to. variables: added to the environment. silent: whether
    standard output is dropped.
    """
    waiting, numbers = list(batches), itertools.count()
    running: list[tuple[subprocess.Popen[bytes], Path, list[str]]] = []
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < jobs:
                batch, path = waiting.pop(0), Path(folder) / f"{next(numbers)}.json"
                command = [sys.executable, *arguments(batch), "--json", str(path)]
                output = subprocess.DEVNULL if silent else None
                running.append((subprocess.Popen(command, env={**os.environ, **(variables or {})}, stdout=output), path, batch))
            ended = next((r for r in running if r[0].poll() is not None), None)
            if ended is None:
                time.sleep(0.1)
                continue
            running.remove(ended)
            process, path, batch = ended
            if not path.exists() and len(batch) > 1:
                waiting += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
            else:
                yield Ended(batch, json.loads(path.read_text()) if path.exists() else None, process.returncode)
