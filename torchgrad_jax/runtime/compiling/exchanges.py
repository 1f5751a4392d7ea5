"""Matrices that lie transposed between products of one program: BLAS reads and gives either, so that none is copied.

`x @ w.t()` and the gradient of `w` are two operations each: a product, and a view's. XLA makes one of them for products of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torchgrad_jax.runtime.compiling.foreign import knows_products
from torchgrad_jax.runtime.compiling.products import NONE, Exchanged, exchanges
from torchgrad_jax.runtime.compiling.transposed import permutation_of
from torchgrad_jax.runtime.device import CPU


class Exchange(NamedTuple):
    """How a call that multiplies matrices is made: of the arrays in the slots `args`, and what is `exchanged` of them and of its results."""

    args: tuple[Any, ...]
    exchanged: Exchanged


def exchanged_calls(calls: list[Any], outputs: list[int]) -> tuple[dict[int, Exchange], dict[int, int]]:
    """Calls that are made otherwise, by their slots; and slots that hold what another does."""
    views = {call.slot: call for call in calls if _exchanges(call.signature)}
    if not views or not knows_products():
        return {}, {}
    readers: dict[int, list[Any]] = {}
    for call in calls:
        for a in call.args:
            readers.setdefault(a, []).append(call)
    found: dict[int, Exchange] = {}
    same: dict[int, int] = {}
    given: set[int] = set(outputs)  # what is wanted as it is
    for call in calls:
        if call.slot in views:
            continue
        inputs = [i for i, a in enumerate(call.args) if a in views and a not in same]
        results = [i for i, slot in enumerate(range(call.slot, call.end)) if slot not in given and _are_views(readers.get(slot), views)]
        may = call.signature.exchangeable if inputs or results else NONE
        exchanged = Exchanged(frozenset(inputs) & may.inputs, frozenset(results) & may.outputs)
        if exchanged != NONE:
            args = tuple([views[a].args[0] if i in exchanged.inputs else a for i, a in enumerate(call.args)])
            found[call.slot] = Exchange(args, exchanged)
            same |= {view.slot: call.slot + i for i in exchanged.outputs for view in readers[call.slot + i]}
    return found, same


def _are_views(reading: list[Any] | None, views: dict[int, Any]) -> bool:
    return reading is not None and all([call.slot in views for call in reading])


def _exchanges(sig: Any) -> bool:
    permutation = permutation_of(sig)
    return permutation is not None and exchanges(permutation) and sig.avals[0].dtype.char in "fd" and sig.avals[0].device is CPU
