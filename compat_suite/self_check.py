"""Checks the operators against themselves and JAX, without PyTorch, by the records of `compat_suite.records`.

``python -m compat_suite.self_check [NAME...]`` prints a table. For each operator, dtype and sample: value: our result is that of the plain JAX
counterpart. gradient, second: first and second derivatives agree with finite differences. forward: the derivative in a direction (jvp) is
the transpose of backward's (vjp). The exit status says whether all agree.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from compat_suite.__main__ import BATCH, QUICK, UNOPTIMIZED, tiers

CHECKS = ("value", "gradient", "second", "forward")
# By check: the names of operators, with what each sample said (None: it agrees).
Found = dict[str, dict[str, list[str | None]]]


class Difference(Exception):
    """What differs, in words."""


# ---------------------------------------------------------------------- one sample


def _tensors(value: Any) -> list[Any]:
    import torchgrad_jax as tj

    if isinstance(value, tj.Tensor):
        return [value]
    if isinstance(value, list | tuple | dict):
        return [t for v in (value.values() if isinstance(value, dict) else value) for t in _tensors(v)]
    return []


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with each tensor in it changed."""
    import torchgrad_jax as tj

    if isinstance(value, tj.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(*(_mapped(v, change) for v in value)) if hasattr(value, "_fields") else type(value)(_mapped(v, change) for v in value)
    return {k: _mapped(v, change) for k, v in value.items()} if isinstance(value, dict) else value


def _differentiable(value: Any) -> list[Any]:
    return [t for t in _tensors(value) if t.is_floating_point() or t.is_complex()]


class Sample:
    """A call of a record, as a function of its leaves."""

    def __init__(self, record: Any, made: Any) -> None:
        from compat_suite.records import split

        self.record, self.function = record, record.call()
        self.arguments, self.keywords = split(made)
        self.leaves = [t for t in _tensors((self.arguments, self.keywords)) if t.requires_grad]
        self.leaves = list({id(t): t for t in self.leaves}.values())

    def call(self) -> Any:
        """Our result."""
        return self.function(*self.arguments, **self.keywords)

    def of_leaves(self, *leaves: Any) -> tuple[Any, ...]:
        """The differentiable results for other leaves."""
        other = {id(t): leaf for t, leaf in zip(self.leaves, leaves, strict=True)}
        arguments, keywords = _mapped((self.arguments, self.keywords), lambda t: other.get(id(t), t))
        return tuple(t for t in _differentiable(self.function(*arguments, **keywords)) if t.requires_grad or _is_dual(t))


def _is_dual(t: Any) -> bool:
    from torchgrad_jax.autograd import forward_ad

    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(t).tangent is not None


# ---------------------------------------------------------------------- the checks


def check_value(sample: Sample) -> None:
    """Shapes and values of plain JAX; and whether results require grad."""
    import jax
    import numpy as np
    from jax import numpy as jnp

    results = _differentiable(sample.call())
    wants = sample.record.derivatives != 0
    if sample.leaves and results and any(t.requires_grad for t in results) != wants:
        raise Difference(f"the result {'does not require' if wants else 'requires'} grad")
    if sample.record.jax is None:
        return
    with jax.enable_x64(True):
        arguments, keywords = _mapped((sample.arguments, sample.keywords), lambda t: jnp.asarray(t.detach().__jax_array__()))
        both = [_arrays(results) for results in (sample.call(), sample.record.jax(*arguments, **keywords))]
    for ours, theirs in zip(*both, strict=True):
        if ours.shape != theirs.shape:
            raise Difference(f"shape {ours.shape}, JAX {theirs.shape}")
        wide = np.complex128 if np.iscomplexobj(ours) or np.iscomplexobj(theirs) else np.float64
        near = 1e-8 * sample.record.tolerance if ours.dtype in (np.float64, np.complex128, np.int64, np.bool_) else 1e-2
        if not np.allclose(ours.astype(wide), theirs.astype(wide), rtol=near, atol=near, equal_nan=True):
            raise Difference(f"{ours.ravel()[:4]}, JAX {theirs.ravel()[:4]}")


def _arrays(value: Any) -> list[Any]:
    import numpy as np

    import torchgrad_jax as tj

    if isinstance(value, list | tuple):
        return [a for v in value for a in _arrays(v)]
    return [np.asarray(value.detach().__jax_array__() if isinstance(value, tj.Tensor) else value)]


def _numerically(check: str, sample: Sample) -> None:
    from torchgrad_jax import autograd
    from torchgrad_jax.autograd.checking.jacobians import GradcheckError

    slack = {"atol": 1e-5 * sample.record.tolerance, "fast_mode": True, "check_undefined_grad": False}
    try:
        getattr(autograd, check)(sample.of_leaves, sample.leaves, **slack)
    except GradcheckError as error:
        raise Difference(str(error)) from None


def check_gradient(sample: Sample) -> None:
    """Backward by finite differences, along a random direction."""
    _numerically("gradcheck", sample)


def check_second(sample: Sample) -> None:
    """Backward of backward likewise."""
    _numerically("gradgradcheck", sample)


def check_forward(sample: Sample) -> None:
    """<v, jvp(u)> = <vjp(v), u> for random directions of inputs and outputs."""
    import torchgrad_jax as tj
    from torchgrad_jax.autograd import forward_ad

    tj.manual_seed(0)
    directions = [tj.randn_like(t) for t in sample.leaves]
    outputs = sample.of_leaves(*sample.leaves)
    weights = [tj.randn_like(t) for t in outputs]
    backward = tj.autograd.grad(outputs, sample.leaves, weights, allow_unused=True)
    with forward_ad.dual_level():
        made = sample.of_leaves(*(forward_ad.make_dual(t.detach(), d) for t, d in zip(sample.leaves, directions, strict=True)))
        tangents = [forward_ad.unpack_dual(t).tangent for t in made]
    if len(tangents) != len(weights):
        raise Difference(f"{len(tangents)} results have tangents, {len(weights)} require grad")
    ahead, back = _inner(weights, tangents), _inner(backward, directions)
    if not abs(ahead - back) <= 1e-7 * sample.record.tolerance * (1 + abs(back)):
        raise Difference(f"<v, jvp(u)> = {ahead}, <vjp(v), u> = {back}")


def _inner(a: Any, b: Any) -> float:
    """The real inner product; what is missing is zero."""
    return sum((x.conj() * y).sum().real.item() for x, y in zip(a, b, strict=True) if x is not None and y is not None)


def _applies(check: str, sample: Sample) -> bool:
    record = sample.record
    if check == "value":
        return True
    if check == "forward" and not record.forward:
        return False
    return bool(sample.leaves) and (record.derivatives or 0) >= (2 if check == "second" else 1)


_RUN = {"value": check_value, "gradient": check_gradient, "second": check_second, "forward": check_forward}


# ---------------------------------------------------------------------- many


def _samples(record: Any, dtype: str) -> Iterator[Sample]:
    from compat_suite.records import Make

    for made in record.samples(Make(dtype)):
        yield Sample(record, made)


def check(names: list[str], checks: tuple[str, ...] = CHECKS) -> Found:
    """All checks of some operators, in this process."""
    from compat_suite.records import RECORDS

    found: Found = {c: {} for c in checks}
    for name in names:
        record = RECORDS[name]
        for dtype in record.dtypes:
            try:
                samples = list(_samples(record, dtype))
            except AttributeError as error:
                found[checks[0]].setdefault(name, []).append(f"missing: {error}")
                continue
            for sample in samples:
                for c in checks:
                    if _applies(c, sample):
                        found[c].setdefault(name, []).append(_said(c, sample, dtype))
    return found


def _said(check: str, sample: Sample, dtype: str) -> str | None:
    """What a check says of a sample; None: nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _RUN[check](sample)
    except Difference as difference:
        return f"{dtype} {_told(sample)}: {difference}"
    except Exception as error:
        return f"{dtype} {_told(sample)}: {type(error).__name__}: {str(error)[:200]}"
    return None


def _told(sample: Sample) -> str:
    shown = _mapped((sample.arguments, sample.keywords), lambda t: f"{str(t.dtype).rpartition('.')[2]}{list(t.shape)}")
    return str(shown)[:120]


def check_in_processes(names: list[str], checks: tuple[str, ...], jobs: int) -> Iterator[Found]:
    """The same in processes of a few operators each: so many compiled programs do not fit one."""
    cache = str(Path.home() / ".cache" / "torchgrad_jax_suite")
    os.environ.update({**QUICK, "JAX_COMPILATION_CACHE_DIR": cache, "XLA_FLAGS": UNOPTIMIZED})
    batches = [names[i : i + BATCH] for i in range(0, len(names), BATCH)]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        yield from pool.map(check, batches, [checks] * len(batches))


def report(parts: Iterable[Found], checks: tuple[str, ...], width: int) -> bool:
    """Print the table as it comes; whether everything agrees."""
    print(" " * width, *(f"{c:>9}" for c in checks))
    totals = {c: [0, 0, 0] for c in checks}
    for found in parts:
        for name in dict.fromkeys(name for rows in found.values() for name in rows):
            rows = [found[c].get(name) for c in checks]
            print(f"{name:{width}}", *(f"{'-' if r is None else f'{r.count(None)}/{len(r)}':>9}" for r in rows))
            for c, said in zip(checks, rows, strict=True):
                for text in [s for s in said or () if s is not None][:2]:
                    print(f"    {c}: {' '.join(text.split())[:260]}")
                if said is not None:
                    totals[c] = [a + b for a, b in zip(totals[c], (said.count(None), len(said), 1), strict=True)]
        sys.stdout.flush()
    for c, (agree, samples, operators) in totals.items():
        print(f"{c}: {agree} of {samples} samples of {operators} operators agree")
    return all(agree == samples for agree, samples, _ in totals.values())


def main() -> None:
    """Check, report."""
    from compat_suite.records import RECORDS

    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", help="operators that have a record; none: all")
    arguments.add_argument("--tier", type=int, choices=[1, 2], help="only operators of this tier")
    arguments.add_argument("--checks", nargs="+", default=list(CHECKS), choices=CHECKS)
    arguments.add_argument("--jobs", type=int, default=2)
    chosen = arguments.parse_args()
    unknown = [n for n in chosen.names if n not in RECORDS]
    if unknown:
        arguments.error(f"no record of {', '.join(unknown)}")
    tier_of = tiers()
    names = chosen.names or [n for n in RECORDS if chosen.tier in (None, tier_of.get(n))]
    checks = tuple(chosen.checks)
    sys.exit(not report(check_in_processes(names, checks, chosen.jobs), checks, max(map(len, names))))


if __name__ == "__main__":
    main()
