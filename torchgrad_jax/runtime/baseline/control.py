"""Branches, loops, and functions with rules of their own: each body is a plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.cost import CHEAP
from torchgrad_jax.runtime.baseline.inlining import opened
from torchgrad_jax.runtime.baseline.merging import Merged, Part
from torchgrad_jax.runtime.baseline.plan import Plan
from torchgrad_jax.runtime.baseline.rules import Constant, Costed, Unknown, rule

# Nanoseconds of one turn of a loop besides its body; how often a loop is taken to turn if nothing tells.
_TURN, _TURNS = 1500.0, 100


@rule("platform_index")
def _platform_index(eqn: Any) -> Any:
    for i, names in enumerate(eqn.params["platforms"]):
        if names is None or "cpu" in names:
            return Constant(np.array(i, eqn.outvars[0].aval.dtype))
    raise Unknown("platform")


def _turned(plan: Plan) -> Merged:
    """The body of a loop, for the arrays of each turn, which are of the same shapes: after its first turn it has chains."""
    names = [("read", i) for i in range(len(plan.inputs))]
    made = [("made", i) for i in range(len(plan.outputs))]
    return Merged([Part(plan, names, made)], names, made)


@rule("cond")
def _cond(eqn: Any) -> Any:
    branches = [Plan(b) for b in eqn.params["branches"]]
    last = len(branches) - 1

    def run(which: Any, *arrays: Any) -> Any:
        return branches[min(max(int(which), 0), last)](*arrays)

    return Costed(run, min([b.cost for b in branches]))  # the dear one is for what is seldom, such as the details of an error


@rule("while")
def _while(eqn: Any) -> Any:
    p = eqn.params
    goes_on, plan = Plan(p["cond_jaxpr"]), Plan(p["body_jaxpr"])
    body = _turned(plan)
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]

    def run(*arrays: Any) -> Any:
        asked, given, state = arrays[:first], arrays[first:second], list(arrays[second:])
        while goes_on(*asked, *state)[0]:
            state = body([*given, *state])
        return state

    def run_apart(*arrays: Any) -> Any:
        """The loops of a batch, of which each ends by itself."""
        asked, given, state = arrays[:first], arrays[first:second], list(arrays[second:])
        while (going := goes_on(*asked, *state)[0]).any():
            turned = body([*given, *state])
            state = [np.where(going.reshape(going.shape + (1,) * (new.ndim - going.ndim)), new, old) for new, old in zip(turned, state, strict=True)]
        return state

    return Costed(run_apart if opened(p["cond_jaxpr"])[0].outvars[0].aval.shape else run, _TURNS * (_TURN + goes_on.cost + plan.cost))


_FOLDS = {"add": np.add, "mul": np.multiply}


@rule("scan")
def _scan(eqn: Any) -> Any:
    p = eqn.params
    plan, length, inner = Plan(p["jaxpr"]), p["length"], p["jaxpr"].jaxpr
    body = _turned(plan)
    # What is read or made row by row has a dimension more outside. (Versions of JAX tell the counts in ways of their own.)
    rows_read = sum([v.aval.ndim > w.aval.ndim for v, w in zip(eqn.invars, inner.invars, strict=True)])
    rows_made = sum([v.aval.ndim > w.aval.ndim for v, w in zip(eqn.outvars, inner.outvars, strict=True)])
    carried = len(eqn.invars) - rows_read
    constants = carried - (len(eqn.outvars) - rows_made)
    collected = [(v.aval.shape, v.aval.dtype) for v in eqn.outvars[len(eqn.outvars) - rows_made :]]
    order = range(length - 1, -1, -1) if p["reverse"] else range(length)
    folded = _folded(inner) if len(eqn.invars) == len(eqn.outvars) == 2 and carried == rows_read == 1 else None
    if folded is not None:
        return Costed(_fold(folded, p["reverse"], collected[0][1]), _TURN + 3 * CHEAP * 2 * eqn.invars[1].aval.size)

    def run(*arrays: Any) -> Any:
        given, carry, rows = arrays[:constants], list(arrays[constants:carried]), arrays[carried:]
        found = [np.empty(*one) for one in collected]
        for i in order:
            outs = body([*given, *carry, *[x[i] for x in rows]])
            carry = outs[: len(carry)]
            for into, out in zip(found, outs[len(carry) :], strict=True):
                into[i] = out
        return [*carry, *found]

    return Costed(run, length * (_TURN + plan.cost))


def _folded(body: Any) -> np.ufunc | None:
    """The ufunc by which a loop makes its carry of itself and of the turn's row, if that is all it does and each turn's carry is what it collects."""
    carry, row = body.invars
    made: dict[Any, Any] = {}
    for eqn in body.eqns[:-1] if body.eqns and body.eqns[-1].primitive.name == "convert_element_type" else body.eqns:
        if eqn.primitive.name == "convert_element_type" and eqn.invars[0] is row:
            row = eqn.outvars[0]
        elif eqn.primitive.name in _FOLDS and not made and eqn.invars[0] is carry and eqn.invars[1] is row:
            made[eqn.outvars[0]] = _FOLDS[eqn.primitive.name]
        else:
            return None
    after, collected = body.outvars
    last = body.eqns[-1] if body.eqns else None
    same = collected is after or (last is not None and collected is last.outvars[0] and last.invars[0] is after)
    return made.get(after) if same and not hasattr(after, "val") and after.aval.dtype.kind in "iuf" else None


def _fold(ufunc: np.ufunc, reverse: bool, dtype: np.dtype) -> Any:
    def run(start: Any, rows: Any) -> Any:
        whole = np.concatenate([start[None], (rows[::-1] if reverse else rows).astype(start.dtype)])
        every = ufunc.accumulate(whole, 0, whole.dtype)
        found = every[:0:-1] if reverse else every[1:]
        return [every[-1], found.astype(dtype)]

    return run
