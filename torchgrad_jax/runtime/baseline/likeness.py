"""Whether two jaxprs differ in shapes alone, so that a plan without shapes that serves one serves the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from torchgrad_jax.runtime.baseline.inlining import called, name_of, opened

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

# Parameters that are nothing but a shape, and those that say nothing about what is computed.
_SHAPES = {"shape", "new_sizes"}
_IRRELEVANT = {"sharding", "out_sharding", "name", "weak_type", "memory_space"}


def same_plan(a: ClosedJaxpr, b: ClosedJaxpr) -> bool:
    """Whether both have the same primitives, wiring, literals, dtypes, ranks, and parameters other than shapes."""
    return _same_inner(a, b)


def _paired(mine: Any, others: Any, places: dict[Any, Any]) -> bool:
    """Note the variables of both at the same places. False where their dtypes or ranks differ."""
    if len(mine) != len(others) or not all([_alike(x.aval, y.aval) for x, y in zip(mine, others, strict=True)]):
        return False
    for x, y in zip(mine, others, strict=True):
        places["a", x] = places["b", y] = ("place", len(places))
    return True


def _alike(a: Any, b: Any) -> bool:
    return getattr(a, "dtype", None) == getattr(b, "dtype", None) and getattr(a, "ndim", None) == getattr(b, "ndim", None)


def _same(a: Any, consts: Any, b: Any, other_consts: Any, places: dict[Any, Any]) -> tuple[Any, Any]:
    """What the results of two open jaxprs are; (None, None) where the jaxprs differ. `places` has their inputs."""
    different = (None, None)
    if len(a.eqns) != len(b.eqns) or len(consts) != len(other_consts):
        return different
    for side, jaxpr, values in (("a", a, consts), ("b", b, other_consts)):
        places.update({(side, v): _value(np.asarray(c)) for v, c in zip(jaxpr.constvars, values, strict=True)})
    for e, f in zip(a.eqns, b.eqns, strict=True):
        mine, others = _read("a", e.invars, places), _read("b", f.invars, places)
        if e.primitive is not f.primitive or mine != others or not all([_alike(x.aval, y.aval) for x, y in zip(e.outvars, f.outvars, strict=True)]):
            return different
        inner, other = called(e), called(f)
        if inner is None or other is None:
            whole = name_of(e) != e.primitive.name and name_of(e) == name_of(f)
            if not (whole or _same_params(e.params, f.params)) or not _paired(e.outvars, f.outvars, places):
                return different
            continue
        places.update({("a", v): p for v, p in zip(inner[0].invars, mine, strict=True)})
        places.update({("b", v): p for v, p in zip(other[0].invars, others, strict=True)})
        outs, other_outs = _same(*inner, *other, places)
        if outs is None:
            return different
        places.update({("a", v): p for v, p in zip(e.outvars, outs, strict=True)})
        places.update({("b", v): p for v, p in zip(f.outvars, other_outs, strict=True)})
    return _read("a", a.outvars, places), _read("b", b.outvars, places)


def _read(side: str, atoms: Any, places: dict[Any, Any]) -> list[Any]:
    return [_value(np.asarray(v.val, v.aval.dtype)) if hasattr(v, "val") else places[side, v] for v in atoms]


def _value(array: np.ndarray) -> tuple[Any, ...]:
    return ("value", array.dtype, array.shape, array.tobytes())


def _same_params(a: dict[str, Any], b: dict[str, Any]) -> bool:
    for name in a.keys() | b.keys():
        if name in _IRRELEVANT:
            continue
        x, y = a.get(name), b.get(name)
        if x is None or y is None:
            if x is not y:
                return False
        elif name in _SHAPES:
            if len(x) != len(y):
                return False
        elif hasattr(x, "eqns") or hasattr(getattr(x, "jaxpr", None), "eqns"):
            if not _same_inner(x, y):
                return False
        elif isinstance(x, (tuple, list)) and any([hasattr(getattr(v, "jaxpr", v), "eqns") for v in x]):
            if len(x) != len(y) or not all([_same_inner(v, w) for v, w in zip(x, y, strict=True)]):
                return False
        elif x != y:
            return False
    return True


def _same_inner(a: Any, b: Any) -> bool:
    (mine, consts), (others, other_consts) = opened(a), opened(b)
    places: dict[Any, Any] = {}
    if not _paired(mine.invars, others.invars, places):
        return False
    outs, other_outs = _same(mine, consts, others, other_consts, places)
    return outs is not None and outs == other_outs
