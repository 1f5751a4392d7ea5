"""``torchgrad-jax diff``: where a function, a script or a call gives something else here than in PyTorch."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import pickle
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchgrad_jax.cli.sides import ABSENT, OURS, PYTORCH, Done, Workshop
from torchgrad_jax.comparing import ways
from torchgrad_jax.comparing.calls import Call, NotKept
from torchgrad_jax.comparing.derivatives import ORDERS
from torchgrad_jax.comparing.figures import Figures, distance
from torchgrad_jax.comparing.finding import confirmed
from torchgrad_jax.comparing.functions import Comparison, dtypes_for, excuse, judged, kept
from torchgrad_jax.comparing.investigating import Investigation, Side, investigate
from torchgrad_jax.comparing.noting import Notes, Probe

DIFF_USAGE = "torchgrad-jax diff [options] (module:function | --script script.py [arguments ...] | --replay FILE)"
_DESCRIPTION = """Compute the same by torchgrad_jax and by PyTorch, and name the first operator that differs beyond rounding, with its line.

module:function  (or file.py:function) a function of tensors, with its derivatives, of random inputs: by torchgrad_jax eagerly, fused and by jit, by
                 PyTorch where it is installed, and by plain JAX where its function is given
--script         a script, which runs under either library (twice more where something differs), with all its results and gradients
--replay         a call that was written to a file"""
_EPILOG = "exit status: 0 no difference beyond rounding, 1 a difference, 2 what was asked could not be done"


class Failure(Exception):
    """What was asked cannot be done: its text says why."""


def diff(arguments: Sequence[str]) -> int:
    """Do what the command line says and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.replay:
            return _replay(options)
        if options.script:
            return _script(options)
        return _function(options)
    except Failure as failure:
        print(f"torchgrad-jax diff: {failure}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchgrad-jax diff", usage=DIFF_USAGE, description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("function", nargs="?", metavar="module:function", help="the function to compare")
    what.add_argument("--script", nargs=argparse.REMAINDER, metavar="script.py", help="the script to run, with its arguments")
    what.add_argument("--replay", metavar="FILE", help="the call to compute once more")
    parser.add_argument("--shapes", nargs="+", metavar="N,N", help="the shape of each input of a function, such as 3,4 (a 0-dim tensor: scalar)")
    parser.add_argument("--dtype", nargs="+", default=["float32"], help="its dtype: one for all inputs, or one for each")
    parser.add_argument("--samples", type=int, default=4, help="how many random inputs (4)")
    parser.add_argument("--seed", type=int, default=0, help="what random numbers begin with (0)")
    parser.add_argument("--second", action="store_true", help="compare second derivatives too")
    parser.add_argument("--rtol", type=float, help="how much of the largest element a result of a function may be off")
    parser.add_argument("--jax", metavar="module:function", help="the same function, of JAX's arrays")
    parser.add_argument("--values", type=int, default=4096, metavar="N", help="how many elements of each result of a script are compared (4096)")
    parser.add_argument(
        "--save", metavar="FILE", help="where the call that differs is written (torchgrad_jax_diff.npz)", default="torchgrad_jax_diff.npz"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    return parser


def _told(found: Comparison | Investigation, agrees: bool, as_json: bool) -> int:
    print(json.dumps({"agrees": agrees, **found.data()}, indent=1) if as_json else found)
    return 0 if agrees else 1


def _pytorch_is_there() -> bool:
    return importlib.util.find_spec("torch") is not None


# ---------------------------------------------------------------------- scripts


def _script(options: argparse.Namespace) -> int:
    script, *rest = options.script or [""]
    if not Path(script).is_file():
        raise Failure(f"can't open file {script!r}")
    if not _pytorch_is_there():
        raise Failure(ABSENT)
    job = {"script": script, "arguments": rest, "seed": options.seed, "kept": options.values}
    ended: dict[str, Done] = {}
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        sides = [_noting(workshop, side, job, ended) for side in (OURS, PYTORCH)]
        found = kept(investigate(sides[0], sides[1], Path(folder)), options.save)
    ours, theirs = ended[OURS], ended[PYTORCH]
    if ours.code and theirs.code and not found.compared:
        raise Failure(f"the script ended with status {theirs.code} under PyTorch: {theirs.told()}")
    ends = (("torchgrad_jax", ours), ("PyTorch", theirs))
    found.failed = tuple([f"The script ended with status {done.code} under {name}: {done.told()}" for name, done in ends if done.code])
    agrees = found.difference is None and ours.code == theirs.code and found.parted is None
    return _told(found, agrees, options.json)


def _noting(workshop: Workshop, side: str, job: dict[str, Any], ended: dict[str, Done]) -> Side:
    def noted(probe: Probe | None) -> Notes:
        again = {} if probe is None else {"probe": (str(probe.folder), probe.places, probe.checks)}
        done, out = workshop.do(side, {**job, **again})
        ended.setdefault(side, done)
        if not out.exists():
            raise Failure(f"running it under {side} failed:\n{done.output[-4000:]}")
        return Notes.load(out)

    return noted


# ---------------------------------------------------------------------- functions


def _function(options: argparse.Namespace) -> int:
    if not options.shapes:
        raise Failure("--shapes of the inputs are needed, such as --shapes 3,4 4 (for a 0-dim tensor: scalar)")
    try:
        shapes = [_shape(text) for text in options.shapes]
        dtypes = dtypes_for(shapes, options.dtype)
    except ValueError as error:
        raise Failure(str(error)) from None
    inputs = [ways.generated(shapes, dtypes, options.seed, n) for n in range(max(1, options.samples))]
    job = {
        "function": options.function,
        "inputs": inputs,
        "order": 2 if options.second else 1,
        "seed": options.seed,
        "noted": False,
        "jax": options.jax,
    }
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        reference = PYTORCH if _pytorch_is_there() else OURS
        mine = _computed(workshop, OURS, job)
        theirs = _computed(workshop, PYTORCH, job) if reference == PYTORCH else [{} for _ in inputs]
        found = [{**a, **b} for a, b in zip(theirs, mine, strict=True)]
        comparison = judged(found, options.rtol)
        if not comparison.agrees:
            excuse(comparison, found, lambda n: _widened(workshop, reference, job, n))
        if not comparison.agrees and reference == PYTORCH:
            sample = next(row.sample for row in comparison.rows if not row.agrees)
            noted = {**job, "inputs": [inputs[sample]], "noted": True}
            sides = [_noting(workshop, side, noted, {}) for side in (OURS, PYTORCH)]
            comparison.operator = kept(investigate(sides[0], sides[1], Path(folder)), options.save)
    return _told(comparison, comparison.agrees, options.json)


def _shape(text: str) -> tuple[int, ...]:
    if text in ("scalar", "()", ""):
        return ()
    try:
        return tuple(int(part) for part in text.strip("()[]").split(",") if part)
    except ValueError:
        raise ValueError(f"{text!r} is no shape such as 3,4") from None


def _computed(workshop: Workshop, side: str, job: dict[str, Any]) -> list[dict[str, ways.Outcome]]:
    done, out = workshop.do(side, job)
    if done.code or not out.exists():
        raise Failure(f"computing {job['function']} under {side} failed:\n{done.output[-4000:]}")
    with open(out, "rb") as opened:
        return pickle.load(opened)


def _widened(workshop: Workshop, reference: str, job: dict[str, Any], sample: int) -> ways.Outcome | None:
    wide = ways.widened(job["inputs"][sample])
    if wide is None:
        return None
    try:
        return next(iter(_computed(workshop, reference, {**job, "inputs": [wide]})[0].values()))
    except Failure:
        return None


# ---------------------------------------------------------------------- calls


def _replay(options: argparse.Namespace) -> int:
    """Compute a call by this package, and by PyTorch where it is installed, else hold it against what the file says that PyTorch gave."""
    try:
        call = Call.load(options.replay)
    except (OSError, ValueError) as error:
        raise Failure(str(error)) from None
    try:
        if _pytorch_is_there():
            call.compute(importlib.import_module("torch"))
        mine = call.run(importlib.import_module("torchgrad_jax"))
    except (NotKept, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        raise Failure(f"{call.told()} cannot be computed: {type(error).__name__}: {error}") from None
    differs = confirmed((mine, call.results, call.exact))
    rows = []
    for order in ORDERS:
        for n, (a, b) in enumerate(zip(mine.get(order, ()), call.results.get(order, ()), strict=False)):
            if a is not None and b is not None:
                apart = distance(*(Figures(x[0], tuple(x[1].shape), x[1].reshape(-1)) for x in (a, b)))
                rows.append((f"{order} {n}", str(apart)))
    if options.json:
        print(json.dumps({"agrees": differs is None, "call": call.told(), "line": call.line, "against": call.by, "rows": rows}, indent=1))
    else:
        print(f"{call.told()}\n    from {call.line}")
        print("\n".join(f"  {what:22s}{apart}" for what, apart in rows))
        print("No difference beyond rounding." if differs is None else f"It differs in its {differs[0]}: {differs[1]}")
    return 0 if differs is None else 1
