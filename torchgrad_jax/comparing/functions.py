"""`torchgrad_jax.testing.compare`: the same function in every way there is, held against a reference."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torchgrad_jax.comparing import ways
from torchgrad_jax.comparing.derivatives import ORDERS, derive
from torchgrad_jax.comparing.figures import Distance, Figures, as_rounded, distance, tolerance
from torchgrad_jax.comparing.investigating import Investigation, investigate
from torchgrad_jax.comparing.noting import Notes, Noting, Probe

PACKAGE = "torchgrad_jax"


@dataclasses.dataclass
class Row:
    """One result of one way against the reference's.

    way: "fused", "jit" and the like. what: such as ``value of output 0``. sample: of which of the generated inputs. distance: how far it is from
    the reference's. agrees: whether that is no more than rounding.
    """

    way: str
    what: str
    sample: int
    distance: Distance
    agrees: bool


@dataclasses.dataclass
class Comparison:
    """What `compare` found.

    agrees: whether nothing differs beyond rounding. reference: what the others were held against: "pytorch", "jax" or "eager". rows: each result of
    each way. operator: the first operator that differs, where PyTorch was there to ask, with its line; None where nothing differs, or no operator
    by itself. samples: how many inputs.
    """

    reference: str
    rows: list[Row]
    samples: int = 1
    operator: Investigation | None = None

    @property
    def agrees(self) -> bool:
        """Whether nothing differs beyond rounding."""
        return all(row.agrees for row in self.rows)

    def __bool__(self) -> bool:
        return self.agrees

    def data(self) -> dict[str, Any]:
        """All of it as dicts, lists, strings and numbers, as `torchgrad-jax diff --json` prints it."""
        rows = [{**dataclasses.asdict(row), "distance": str(row.distance)} | _numbers(row.distance) for row in self.rows]
        operator = None if self.operator is None else self.operator.data()
        return {"agrees": self.agrees, "reference": self.reference, "samples": self.samples, "rows": rows, "operator": operator}

    def __str__(self) -> str:
        lines = [f"against {self.reference}" + (f", {self.samples} inputs" if self.samples > 1 else "")]
        worst: dict[tuple[str, str], Row] = {}
        for row in self.rows:
            held = worst.setdefault((row.way, row.what), row)
            if (row.agrees, -row.distance.relative) < (held.agrees, -held.distance.relative):
                worst[row.way, row.what] = row
        width = max((len(what) for _, what in worst), default=0)
        lines += [f"  {row.way:8s} {row.what:{width}s}  {'' if row.agrees else 'DIFFERS: '}{row.distance}" for row in worst.values()]
        if self.agrees:
            lines.append("No difference beyond rounding.")
        elif self.operator is None:
            lines.append("Which operator differs is told where PyTorch is installed.")
        elif self.operator.difference is None:
            lines.append("No operator by itself differs from PyTorch's beyond rounding: they are put together differently, or rounding has grown.")
        else:
            lines.append(f"The first operator that differs is {self.operator.difference}")
        return "\n".join(lines)


def _numbers(apart: Distance) -> dict[str, float | None]:
    return {name: value if np.isfinite(value) else None for name, value in zip(("absolute", "relative", "ulp"), _figures(apart), strict=True)}


def _figures(apart: Distance) -> tuple[float, float, float]:
    return apart.absolute, apart.relative, apart.ulp


def compare(
    function: Callable[..., Any],
    *inputs: Any,
    jax: Callable[..., Any] | None = None,
    shapes: Sequence[Sequence[int]] | None = None,
    dtype: str | Sequence[str] = "float32",
    samples: int = 4,
    seed: int = 0,
    second: bool = True,
    rtol: float | None = None,
    pytorch: bool | None = None,
    save: str | Path | None = None,
) -> Comparison:
    """Compute the same function by this package (eagerly, fused, and by `jit`), by PyTorch where it is installed, and by plain JAX where its function
    is given, and compare values, gradients and second derivatives.

    `function` takes tensors, of any shape and dtype, and returns a tensor or containers of tensors. It is made of operators and methods alone, or its
    first parameter is called `torch` and is given the library. `jax` takes JAX's arrays in their place.

    `inputs` are tensors of either library, arrays or Python's numbers. Without any, `samples` times random ones of `shapes` are made, of `dtype` (a
    name, or one for each shape), by `seed`: ordinary numbers, whole ones with zeros and ties among them, large ones, small ones. Random numbers that
    the function draws begin at `seed` too; JAX has others.

    Derivatives are those of a random combination of the outputs, the second ones (unless `second` is False) of such a combination of the first. Two
    results differ if a dtype or a shape does, if NaN or infinity is elsewhere, or if an element is off by more than `rtol` times the largest one
    (by default 3e-5 in float32, 1e-9 in float64, 1e-2 in float16, 6e-2 in bfloat16; 0 for integers).

    The reference is PyTorch, else plain JAX, else this package run eagerly. Where something differs from PyTorch, the first operator that does is
    searched, each being computed anew on the same operands, and its call is written to `save`, for ``torchgrad-jax diff --replay``.

    pytorch: True if it must be there (ImportError where it is not), False to leave it out.

    TypeError for a function that belongs to a library, or neither inputs nor shapes, or both; what the function raises passes.
    """
    order = 2 if second else 1
    made = _inputs(inputs, shapes, dtype, samples, seed)
    for_library = ways.with_library(function)
    package, other = importlib.import_module(PACKAGE), pytorch_or_none(pytorch)
    found = []
    for given in made:
        outcomes = {} if other is None else {ways.PYTORCH: ways.computed(other, for_library(other), given, order, seed)}
        if jax is not None:
            outcomes[ways.JAX] = ways.through_jax(jax, given, order)
        found.append({**outcomes, **ways.ours(package, for_library(package), given, order, seed)})
    comparison = judged(found, rtol)
    if not comparison.agrees:
        if jax is not None and comparison.reference == ways.JAX:
            plain = jax
            excuse(comparison, found, lambda n: exact(lambda wide: ways.through_jax(plain, wide, order), made[n]))
        else:
            torch = package if other is None else other
            excuse(comparison, found, lambda n: exact(lambda wide: ways.computed(torch, for_library(torch), wide, order, seed), made[n]))
    if comparison.reference == ways.PYTORCH and not comparison.agrees:
        sample = next(row.sample for row in comparison.rows if not row.agrees)
        with tempfile.TemporaryDirectory() as folder:
            sides = [_side(torch, for_library(torch), made[sample], order, seed) for torch in (package, other)]
            comparison.operator = kept(investigate(sides[0], sides[1], Path(folder)), save)
    return comparison


def _inputs(inputs: Sequence[Any], shapes: Any, dtype: Any, samples: int, seed: int) -> list[list[ways.Input]]:
    if (shapes is None) == (not inputs):
        raise TypeError("compare takes either inputs or shapes= of inputs to be made")
    if shapes is None:
        return [[ways.input_of(x) for x in inputs]]
    if samples < 1:
        raise ValueError(f"samples must be positive, but got {samples}")
    return [ways.generated(shapes, dtypes_for(shapes, dtype), seed, n) for n in range(samples)]


def dtypes_for(shapes: Sequence[Any], dtype: str | Sequence[str]) -> list[str]:
    """A dtype's name for each shape. ValueError for another number of them, or a name that is none."""
    names = [dtype] * len(shapes) if isinstance(dtype, str) else [str(d).removeprefix("torch.") for d in dtype]
    if len(names) == 1:
        names = names * len(shapes)
    if len(names) != len(shapes):
        raise ValueError(f"{len(shapes)} shapes but {len(names)} dtypes")
    for name in names:
        if name not in _DTYPES:
            raise ValueError(f"{name!r} is none of the dtypes that inputs are made of: {', '.join(_DTYPES)}")
    return names


_DTYPES = (
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int8", "int16", "int32", "int64", "uint8", "bool",
)  # fmt: skip


def pytorch_or_none(wanted: bool | None = None) -> Any:
    """PyTorch, None where it is not installed or not wanted. ImportError where it must be there and is not."""
    if wanted is False:
        return None
    # Where `import torch` means this package, PyTorch is out of reach.
    spec = importlib.util.find_spec("torch")
    origin = None if spec is None else spec.origin
    if origin is None:
        if wanted:
            raise ImportError("PyTorch is not installed, or `import torch` means torchgrad_jax in this process")
        return None
    return importlib.import_module("torch")


def _side(torch: Any, function: Callable[..., Any], inputs: Sequence[ways.Input], order: int, seed: int) -> Callable[[Probe | None], Notes]:
    def noted(probe: Probe | None) -> Notes:
        return noted_function(torch, function, inputs, order, seed, probe)

    return noted


def noted_function(torch: Any, function: Callable[..., Any], inputs: Sequence[ways.Input], order: int, seed: int, probe: Probe | None) -> Notes:
    """The notes of a function with its derivatives; as many of them as there are."""
    for n in range(order, -1, -1):
        torch.manual_seed(seed)
        leaves = ways.tensors_of(torch, inputs, n > 0)
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        try:
            with Noting(torch, probe=probe) as noting:
                derive(torch, lambda: function(*leaves), tensors, n)  # noqa: B023 - called at once
            return noting.notes
        except (RuntimeError, NotImplementedError):
            if n == 0:
                raise
    raise AssertionError("unreachable")


def kept(found: Investigation, save: str | Path | None) -> Investigation:
    """The same with the call of the operator that differs written to `save`, if that is a path."""
    difference = found.difference
    if difference is not None and difference.file:
        if save is None:
            difference.file = ""
        else:
            Path(save).write_bytes(Path(difference.file).read_bytes())
            difference.file = str(save)
    return found


# ---------------------------------------------------------------------- outcomes against each other


def exact(compute: Callable[[list[ways.Input]], ways.Outcome], inputs: Sequence[ways.Input]) -> ways.Outcome | None:
    """What `compute` gives in wider dtypes; None where there are none, or it cannot be computed in them."""
    wide = ways.widened(inputs)
    try:
        return None if wide is None else compute(wide)
    except (RuntimeError, TypeError, NotImplementedError, ValueError):
        return None


def excuse(comparison: Comparison, found: Sequence[Mapping[str, ways.Outcome]], wider: Callable[[int], ways.Outcome | None]) -> None:
    """Let rows agree that are off as the reference itself is by rounding: see `as_rounded`. wider: what a sample gives in wider dtypes."""
    outcomes: dict[int, ways.Outcome | None] = {}
    for row in comparison.rows:
        if row.agrees or row.distance.what:
            continue
        if row.sample not in outcomes:
            outcomes[row.sample] = wider(row.sample)
        best = outcomes[row.sample]
        order, _, number = row.what.partition(" of ")
        place = int(number.split()[-1])
        if best is None or place >= len(best.results.get(order, ())) or best.results[order][place] is None:
            continue
        held = [found[row.sample][way].results[order][place] for way in (row.way, comparison.reference)]
        if all(one is not None for one in held):
            row.agrees = as_rounded(held[0][1], held[1][1], best.results[order][place][1])


def judged(found: Sequence[Mapping[str, ways.Outcome]], rtol: float | None = None) -> Comparison:
    """The outcomes by way of each of several inputs, each held against the first way."""
    reference = next(iter(found[0]))
    rows = []
    for sample, outcomes in enumerate(found):
        for way, outcome in outcomes.items():
            if way != reference:
                rows += _rows(way, sample, outcome, outcomes[reference], rtol)
    return Comparison(reference, rows, len(found))


def _rows(way: str, sample: int, outcome: ways.Outcome, reference: ways.Outcome, rtol: float | None) -> list[Row]:
    rows = []
    for order in ORDERS:
        mine, its = outcome.results.get(order), reference.results.get(order)
        if its is None and mine is None:
            continue
        if its is None or mine is None:
            error = (outcome if mine is None else reference).errors.get(order)
            if error is not None and not (its is None and way == ways.JAX):
                where = "raises" if mine is None else "the reference raises"
                rows.append(Row(way, order, sample, Distance(f"{where} {error}"), False))
            continue
        of = "of output" if order == ORDERS[0] else "of input"
        if len(mine) != len(its):
            rows.append(Row(way, order, sample, Distance(f"{len(mine)} instead of {len(its)}"), False))
            continue
        for n, (a, b) in enumerate(zip(mine, its, strict=True)):
            if a is not None or b is not None:
                apart = _apart(a, b, order, way)
                rows.append(Row(way, f"{order} {of} {n}", sample, apart, apart.is_rounding(_tolerance(apart, rtol))))
    return rows


def _tolerance(apart: Distance, rtol: float | None) -> float:
    default = tolerance(apart.dtype, chain=True)
    return default if rtol is None or not default else rtol


def _apart(a: Any, b: Any, order: str, way: str) -> Distance:
    if a is None or b is None:
        other: Any = a if b is None else b
        if order != ORDERS[0] and not other[1].any():  # no gradient is one of zeros
            return Distance(dtype=other[0])
        return Distance(f"{'none' if a is None else 'some'} instead of {'none' if b is None else 'some'}")
    if way == ways.JAX and a[0] != b[0]:
        # JAX has no integers of 64 bits unless asked, and no numbers of Python's among results.
        a = (b[0], np.asarray(a[1]).astype(np.asarray(b[1]).dtype)) if np.asarray(a[1]).dtype.kind == np.asarray(b[1]).dtype.kind else a
    figures = [Figures(x[0], tuple(x[1].shape), x[1].reshape(-1)) for x in (a, b)]
    return distance(*figures)
