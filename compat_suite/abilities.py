"""What operators can do here, found out by trying: whether results have gradients and tangents, and whether they can be mapped over."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torchgrad_jax as tj
from compat_suite.transforms.case import Case, others, tensor
from compat_suite.transforms.sources import Database, Records
from torchgrad_jax.autograd import forward_ad

TRIED = 4  # calls of an operator and dtype at most: some have nothing to differentiate


@dataclass
class Abilities:
    """Whether some call of an operator has a gradient, a tangent (forward mode), and can be mapped by `vmap`."""

    gradient: bool = False
    forward: bool = False
    vmap: bool = False

    def __or__(self, other: Abilities) -> Abilities:
        return Abilities(self.gradient or other.gradient, self.forward or other.forward, self.vmap or other.vmap)


def _gradient(case: Case, leaf: int) -> bool:
    given = [tensor(case.arrays[i]) for i in case.leaves]
    x = given[leaf].requires_grad_()
    results = [t for t in case.differentiated(given) if t.requires_grad]
    return bool(results) and tj.autograd.grad(results, x, [tj.ones_like(t) for t in results], allow_unused=True)[0] is not None


def _forward(case: Case, leaf: int) -> bool:
    given = [tensor(case.arrays[i]) for i in case.leaves]
    with forward_ad.dual_level():
        given[leaf] = forward_ad.make_dual(given[leaf], tj.ones_like(given[leaf]))
        return any(forward_ad.unpack_dual(t).tangent is not None for t in case.differentiated(given))


def _vmap(case: Case, operands: Sequence[int]) -> bool:
    given = [tensor(a) for a in case.arrays]
    batch = [tj.stack([tensor(part) for part in others(a, 2)]) if i in operands else given[i] for i, a in enumerate(case.arrays)]
    dims = tuple(0 if i in operands else None for i in range(len(given)))
    return bool(tj.func.vmap(lambda *parts: tuple(case.unseeded(*parts)), dims, randomness="different")(*batch))


def _any(question: Callable[[Case, Any], bool], case: Case, choices: Iterable[Any]) -> bool:
    for choice in choices:
        with contextlib.suppress(Exception):  # whatever it is, this call cannot
            if question(case, choice):
                return True
    return False


def of_case(case: Case) -> Abilities:
    """What one call can do, with respect to one of its operands at least."""
    leaves, operands = range(len(case.leaves)), range(len(case.arrays))
    mapped = [[0], operands] if any(a.size > 1 for a in case.arrays) else []
    return Abilities(_any(_gradient, case, leaves), _any(_forward, case, leaves), _any(_vmap, case, mapped))


def _cases(source: Database | Records, name: str) -> Iterator[Case]:
    for derivatives in (True, False):
        dtypes = source.dtypes(name, derivatives)
        for dtype in [d for d in ("float64", "int64", "bool", *dtypes) if d in dtypes][:1]:
            yield from source.cases(name, dtype, "transpose" if derivatives else "vmap", TRIED)


def of(name: str, sources: list[Database | Records]) -> Abilities | None:
    """What an operator can do in the calls that the sources have of it by this name; None where there are none."""
    found = None
    for source in [s for s in sources if name in s.names()]:
        # An operator of the database may not be here. Old names warn.
        with warnings.catch_warnings(), contextlib.suppress(LookupError):
            warnings.simplefilter("ignore")
            for case in _cases(source, name):
                found = (found or Abilities()) | of_case(case)
    return found
