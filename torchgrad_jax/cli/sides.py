"""One side of a comparison in a process of its own: ``python -m torchgrad_jax.cli.sides pytorch|ours JOB`` does what the file JOB says.

A job is a dict: what to run (`script` with `arguments`, or `function` with `inputs` and so on), and where its results go (`out`).
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import pickle
import random
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from torchgrad_jax.cli import alias, run, workers
from torchgrad_jax.comparing import ways
from torchgrad_jax.comparing.functions import noted_function
from torchgrad_jax.comparing.noting import Limits, Notes, Noting, Probe, user_line_of

PYTORCH, OURS = "pytorch", "ours"
ABSENT = "PyTorch is not installed: there is nothing to compare with"


@dataclasses.dataclass
class Done:
    """What a process said. code: its exit status. error: the exception that its program raised, with its line, "" if none."""

    code: int
    output: str
    error: str = ""

    def told(self) -> str:
        """What it raised, or the end of what it printed."""
        return self.error or self.output[-2000:]


class Workshop:
    """Runs jobs in processes, with its files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._count = folder, 0

    def do(self, side: str, job: dict[str, Any]) -> tuple[Done, Path]:
        """Do a job; returns what the process said and the file of its results, which need not be there."""
        self._count += 1
        out, file = self.folder / f"out{self._count}", self.folder / f"job{self._count}"
        with open(file, "wb") as opened:
            pickle.dump({**job, "out": str(out)}, opened)
        code, output = self.process(side, file)
        told = Path(f"{out}.error")
        return Done(code, output, told.read_text() if told.exists() else ""), out

    def process(self, side: str, file: Path) -> tuple[int, str]:
        """Run this module for the job in a file; returns its exit status and what it printed."""
        command = [sys.executable, "-m", "torchgrad_jax.cli.sides", side, str(file)]
        done = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout


def environment() -> dict[str, str]:
    """What both sides are run in: what PyTorch would compile is run as it is written."""
    return {"PYTHONHASHSEED": "0", **os.environ, "TORCHDYNAMO_DISABLE": "1"}


def main() -> int:
    """Do the job that the command line names."""
    side, file = sys.argv[1:]
    with open(file, "rb") as opened:
        job = pickle.load(opened)
    torch = _library(side, job)
    _seed(torch, job["seed"])
    return _script(torch, job) if "script" in job else _function(torch, side, job)


def _library(side: str, job: dict[str, Any]) -> Any:
    """The library that `import torch` means from here on."""
    if side == PYTORCH:
        return importlib.import_module(alias.ALIAS)
    alias.install()
    workers.follow()
    return importlib.import_module(alias.ALIAS)


def _seed(torch: Any, seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def _probe(job: dict[str, Any]) -> Probe | None:
    return Probe(*job["probe"]) if job.get("probe") else None


def _script(torch: Any, job: dict[str, Any]) -> int:
    """Run a script as ``python`` would, noting it; what it raises is noted too."""
    path = os.path.abspath(job["script"])
    source = Path(path).read_bytes()
    sys.argv[:] = [job["script"], *job["arguments"]]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    noting, code = Noting(torch, Limits(kept=job["kept"]), _probe(job)), 0
    try:
        with noting:
            run.execute(source, path, path)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception as error:
        traceback.print_exc()
        Path(f"{job['out']}.error").write_text(f"{type(error).__name__}: {error}\n  at {user_line_of(error)}")
        code = 1
    noting.notes.save(job["out"])
    return code


def _function(torch: Any, side: str, job: dict[str, Any]) -> int:
    """Compute a function in the ways of this side, or note it."""
    sys.path.insert(0, os.getcwd())
    function = found(job["function"])
    if ways.takes_library(function):
        inner = function

        def function(*inputs: Any) -> Any:
            return inner(torch, *inputs)

    if job["noted"]:
        noted: Notes = noted_function(torch, function, job["inputs"][0], job["order"], job["seed"], _probe(job))
        noted.save(job["out"])
        return 0
    results = []
    for given in job["inputs"]:
        if side == PYTORCH:
            outcomes = {ways.PYTORCH: ways.computed(torch, function, given, job["order"], job["seed"])}
        else:
            outcomes = ways.ours(torch, function, given, job["order"], job["seed"])
            if job.get("jax"):
                outcomes = {ways.JAX: ways.through_jax(found(job["jax"]), given, job["order"]), **outcomes}
        results.append(outcomes)
    with open(job["out"], "wb") as opened:
        pickle.dump(results, opened)
    return 0


def found(name: str) -> Any:
    """The function ``module:function``, where a file ``path.py`` may be the module's name. ValueError where there is none."""
    module, _, dotted = name.rpartition(":")
    if not module or not dotted:
        raise ValueError(f"{name!r} does not name a function: module:function")
    if module.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(module)))
        module = Path(module).stem
    value: Any = importlib.import_module(module)
    for part in dotted.split("."):
        value = getattr(value, part)
    if not callable(value):
        raise ValueError(f"{name} is no function, but a {type(value).__name__}")
    return value


if __name__ == "__main__":
    sys.exit(main())
