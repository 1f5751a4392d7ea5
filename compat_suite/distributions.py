"""Measures how far the distributions agree with PyTorch's: `python -m compat_suite distributions`.

Every distribution with its documented parameters (compat_suite/distribution_cases.py): samples under one seed, densities, moments, distribution
functions, entropies, all with their gradients; expansion, what is printed; divergences of all pairs; transforms and constraints; refusals.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from compat_suite.comparing import Comparison, compare
from compat_suite.counting import Count, Difference
from compat_suite.distribution_cases import CASES, CONSTRAINTS, TEXTS, TRANSFORMS

DTYPES = ("float32", "float64")
_OURS, _THEIRS = "torchgrad_jax", "torch"
# Through these samples PyTorch's gradients are approximations, off by up to some 1e-3 (float32: 1e-2); ours are exact to rounding.
IMPLICIT = {"Beta", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT", "Wishart", "Independent"}
IMPLICIT_TOLERANCE = {"float32": 50.0, "float64": 5e4}
# Differences of logarithms of gamma functions nearly cancel in float32: either library is within the tolerance of what is computed in float64, on
# other sides of it.
CANCELLING = {"Beta": 2.0}


class Side:
    """One library: the names in expressions, and the leaves that these make."""

    def __init__(self, library: str, dtype: str) -> None:
        self.m = importlib.import_module(library)
        self.dtype = getattr(self.m, dtype)
        self.leaves: list[Any] = []
        d = importlib.import_module(f"{library}.distributions")
        self.names = {name: getattr(d, name) for name in (*d.__all__, "kl")}
        self.names.update(
            torch=self.m, T=d.transforms, C=d.constraints, U=importlib.import_module(f"{library}.distributions.utils"), t=self.leaf, i=self.m.tensor
        )

    def leaf(self, numbers: Any) -> Any:
        """A tensor that requires a gradient."""
        self.leaves.append(self.m.tensor(numbers, dtype=self.dtype, requires_grad=True))
        return self.leaves[-1]

    def plain(self, numbers: Any) -> Any:
        """A tensor as programs write it."""
        return self.m.tensor(numbers)

    def made(self, expression: str) -> Any:
        """What an expression is, with leaves of its own."""
        self.leaves.clear()
        return eval(expression, dict(self.names))

    def gradients(self, result: Any) -> list[Any]:
        """The gradients of a weighted sum of a result for the leaves."""
        if not getattr(result, "requires_grad", False):
            return []
        weights = (self.m.arange(result.numel(), dtype=result.dtype) * 0.3 + 0.5).reshape(result.shape)
        total = self.m.where(self.m.isfinite(result), result, 0.0) * weights
        wanted = [leaf for leaf in self.leaves if leaf.requires_grad]
        return list(self.m.autograd.grad(total.sum(), wanted, allow_unused=True))


@contextmanager
def default_dtype(library: str, dtype: str) -> Iterator[None]:
    """Numbers, which are parameters too, have this dtype."""
    m = importlib.import_module(library)
    m.set_default_dtype(getattr(m, dtype))
    try:
        yield
    finally:
        m.set_default_dtype(m.float32)


def tried(function: Callable[[], Any]) -> Any:
    """What a function returns, or the class and the text of what it raises, with its warnings, as PyTorch would name them."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = function()
        except Exception as error:
            found = f"{type(error).__name__}: {error}".replace("torchgrad_jax", "torch")
    said = [f"{w.category.__name__}: {w.message}".replace("torchgrad_jax", "torch") for w in told if "torch" not in w.category.__module__]
    return [found, said] if said else found


# ---------------------------------------------------------------------- what is done in either library


class Case:
    """An expression, and values to ask it about: PyTorch's samples."""

    def __init__(self, name: str, expression: str, dtype: str) -> None:
        self.name, self.expression, self.dtype = name, expression, dtype
        torch = importlib.import_module(_THEIRS)
        torch.manual_seed(7)
        with torch.no_grad(), default_dtype(_THEIRS, dtype), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.value = Side(_THEIRS, dtype).made(expression).sample((4,)).numpy()

    def values(self, side: Side) -> Any:
        """The samples; a leaf where they are real numbers."""
        found = side.m.tensor(self.value)
        if found.is_floating_point():
            found.requires_grad_()
            side.leaves.append(found)
        return found


def _samples(side: Side, case: Case) -> Any:
    d = side.made(case.expression)
    side.m.manual_seed(3)
    found = [d.sample(), d.sample((3, 2)), d.sample([8])]
    if d.has_rsample:
        found.append(d.rsample((9,)).detach())
    return [*found, side.m.rand(2)]


def _gradients(side: Side, case: Case) -> Any:
    d = side.made(case.expression)
    side.m.manual_seed(3)
    return side.gradients(d.rsample((3,)))


def _density(side: Side, case: Case) -> Any:
    d = side.made(case.expression)
    value = case.values(side)
    found = d.log_prob(value)
    return [found.detach(), side.gradients(found), tried(lambda: d.enumerate_support()), tried(lambda: d.enumerate_support(expand=False))]


def _detached(x: Any) -> Any:
    return x.detach() if hasattr(x, "detach") else x


def _moments(side: Side, case: Case) -> Any:
    found = []
    for name in ("mean", "mode", "variance", "stddev"):
        d = side.made(case.expression)
        value = tried(lambda d=d, name=name: getattr(d, name))
        found.append([_detached(value), side.gradients(value) if name != "mode" else []])
    return found


def _cdf(side: Side, case: Case) -> Any:
    found = []
    for name in ("cdf", "icdf"):
        d = side.made(case.expression)
        points = case.values(side) if name == "cdf" else side.leaf([[0.05], [0.3], [0.5], [0.999]])
        value = tried(lambda d=d, name=name, points=points: getattr(d, name)(points))
        found.append([_detached(value), side.gradients(value)])
    return found


def _entropy(side: Side, case: Case) -> Any:
    d = side.made(case.expression)
    found = tried(d.entropy)
    return [_detached(found), side.gradients(found), _detached(tried(d.perplexity))]


def _text(side: Side, case: Case) -> Any:
    d = side.made(case.expression)
    about = [repr(d), str(d.batch_shape), str(d.event_shape), d.has_rsample, d.has_enumerate_support, tried(lambda: repr(d.support))]
    return [*about, tried(lambda: repr(d.arg_constraints)), repr(type(d).support) if "Property" in repr(type(d).support) else ""]


def _expand(side: Side, case: Case) -> Any:
    d = side.made(case.expression)
    wider = d.expand((2, *d.batch_shape))
    side.m.manual_seed(3)
    value = wider.sample((2,))
    found = wider.log_prob(case.values(side)[:2])  # not of its own sample, whose rounding a density may make much of
    return [
        repr(wider),
        type(wider).__name__,
        str(wider.batch_shape),
        value,
        found.detach(),
        side.gradients(found),
        _detached(tried(lambda: wider.mean)),
    ]


RUNS: dict[str, Callable[[Side, Case], Any]] = {
    "samples": _samples, "gradients": _gradients, "density": _density, "moments": _moments, "cdf": _cdf, "entropy": _entropy, "text": _text,
    "expand": _expand,
}  # fmt: skip
CHECKS = (*RUNS, "kl", "transforms", "constraints", "errors")


def _divergence(side: Side, p: str, q: str) -> Any:
    made = side.made(f"({p}, {q})")
    found = tried(lambda: side.names["kl_divergence"](*made))
    return [_detached(found), side.gradients(found)]


def _transform(side: Side, transform: str, given: str) -> Any:
    made, x = side.made(f"({transform}, {given})")
    x = x if x.is_leaf else x.detach().requires_grad_()
    y = tried(lambda: made(x))
    back = tried(lambda: made.inv(y.detach()))
    jacobian = tried(lambda: made.log_abs_det_jacobian(x, made(x)))
    facts = [repr(made), *(tried(lambda n=n: repr(getattr(made, n))) for n in ("domain", "codomain", "bijective", "sign", "event_dim"))]
    shapes = [tried(lambda: str(tuple(made.forward_shape(x.shape)))), tried(lambda: str(tuple(made.inverse_shape(y.shape))))]
    again = tried(lambda: made.with_cache(1)(x))
    parts = [[_detached(v), side.gradients(v)] for v in (y, back, jacobian)]
    return [parts, facts, shapes, _detached(again), made == made, repr(made.inv), made.inv.inv == made]


def _constraint(side: Side, constraint: str, given: str) -> Any:
    made, x = side.made(f"({constraint}, {given})")
    found = [repr(made), made.is_discrete, made.event_dim, made.check(x)]
    for registry in ("biject_to", "transform_to"):
        transform = tried(lambda registry=registry: side.names[registry](made))
        found.append(transform if isinstance(transform, str) else [repr(transform), tried(lambda t=transform: t(x).detach())])
    return found


def _told(side: Side, expression: str) -> Any:
    side.names["t"] = side.plain
    side.m.manual_seed(0)
    return tried(lambda: repr(side.made(expression)).replace("torchgrad_jax", "torch"))


# ---------------------------------------------------------------------- comparing


def _difference(run: Callable[[Side], Any], dtype: str, what: str, tolerance: float = 1.0) -> str | None:
    """What differs, in words; None where nothing does."""
    from compat_suite.agreement import same

    found = []
    for library in (_OURS, _THEIRS):
        with default_dtype(library, dtype):
            found.append(tried(lambda library=library: run(Side(library, dtype))))
    try:
        same(found[0], found[1], "result", tolerance)
    except Difference as difference:
        return f"{difference} <- {what}"
    return None


def _tolerance(name: str, check: str, dtype: str) -> float:
    if check == "gradients" and name in IMPLICIT:
        return IMPLICIT_TOLERANCE[dtype]
    return CANCELLING.get(name, 1.0) if dtype == "float32" else 1.0


def _pairs() -> Iterator[tuple[str, str, str]]:
    for p, settings in CASES.items():
        for q, others in CASES.items():
            if p == q:
                yield from ((p, a, b) for a in settings for b in settings)
            else:
                yield p, settings[0], others[0]
                yield p, settings[-1], others[-1]


def _of_distributions(names: list[str], check: str, dtype: str) -> Iterator[tuple[str, str | None]]:
    for name, settings in CASES.items():
        if names and name not in names:
            continue
        for expression in settings:
            case = Case(name, expression, dtype)
            # PyTorch writes to a mask that the gradient of Wishart's samples needs: it has none.
            if check == "gradients" and (name == "Wishart" or not Side(_THEIRS, dtype).made(expression).has_rsample):
                continue
            yield name, _difference(lambda side, case=case: RUNS[check](side, case), dtype, expression, _tolerance(name, check, dtype))


def _differences(names: list[str], check: str, dtype: str) -> Iterator[tuple[str, str | None]]:
    """For each sample of a check what it is of, and what differs."""
    if check in RUNS:
        yield from _of_distributions(names, check, dtype)
    elif check == "kl":
        for name, p, q in _pairs():
            if not names or name in names:
                yield name, _difference(lambda side, p=p, q=q: _divergence(side, p, q), dtype, f"{p}, {q}")
    elif check == "errors":
        for expression in TEXTS if dtype == "float32" and not names else ():
            yield "texts", _difference(lambda side, e=expression: _told(side, e), dtype, expression)
    elif not names:
        run = _transform if check == "transforms" else _constraint
        for first, given in TRANSFORMS if check == "transforms" else CONSTRAINTS:
            difference = _difference(lambda side, a=first, b=given: run(side, a, b), dtype, f"{first}, {given}")
            yield first.partition("(")[0].replace(".", "_"), difference


def measure(names: list[str], dtypes: list[str], checks: list[str]) -> dict[str, Any]:
    """The counts, by distribution, check and dtype."""
    counts: dict[str, Count] = {}
    for check in checks:
        for dtype in dtypes:
            for name, difference in _differences(names, check, dtype):
                counts.setdefault(f"{name} {check} {dtype}", Count()).add(difference)
    return {key: [count.agree, count.samples, count.differences] for key, count in counts.items()}


def main(arguments: list[str]) -> int:
    """Measure, report. Returns 1 where something differs."""
    return compare(Comparison("distributions", "distributions", __doc__, DTYPES, CHECKS, measure, known=list(CASES)), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
