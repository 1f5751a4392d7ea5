"""What moves elements and computes nothing. Views where NumPy has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.copying import joined, reshaped, written
from torchgrad_jax.runtime.baseline.cost import VIEW
from torchgrad_jax.runtime.baseline.rules import AnySizes, Broadcast, Constant, Same, Unknown, rule


def _free(eqn: Any) -> float:
    return VIEW


@rule("stop_gradient", "copy", "copy_p", "name", "pvary", "sharding_constraint", "optimization_barrier", elementwise=True)
def _identity(eqn: Any) -> Any:
    return Same(tuple(range(len(eqn.invars))))


@rule("broadcast_in_dim")
def _broadcast_in_dim(eqn: Any) -> Any:
    if len(eqn.invars) > 1:
        raise Unknown("a shape that is an operand")
    return Broadcast(tuple(eqn.params["broadcast_dimensions"]))


@rule("reshape", "squeeze", "expand_dims")
def _reshape(eqn: Any) -> Any:
    if len(eqn.invars) > 1:
        raise Unknown("a shape that is an operand")
    own, shape = eqn.invars[0].aval.shape, tuple(eqn.outvars[0].aval.shape)
    order = eqn.params.get("dimensions") if eqn.primitive.name == "reshape" else None
    if order is not None and tuple(order) != tuple(range(len(own))):
        return lambda x: reshaped(x.transpose(order), shape)
    if own == shape:
        return Same()
    index = _of_ones(own, shape)
    return (lambda x: reshaped(x, shape)) if index is None else AnySizes(lambda x: x[index])


def _of_ones(own: Sequence[int], shape: Sequence[int]) -> tuple[Any, ...] | None:
    """The index that takes away and puts in dimensions of size 1; None where it takes more to come from one shape to the other."""
    if [n for n in own if n != 1] != [n for n in shape if n != 1]:
        return None
    index: list[Any] = []
    left = list(own)
    for n in shape:
        while left and left[0] == 1 != n:
            index.append(0)
            left.pop(0)
        if n == 1 and not (left and left[0] == 1):
            index.append(None)
        else:
            index.append(slice(None))
            left.pop(0)
    return tuple(index) + (0,) * len(left)


@rule("transpose", cost=_free)
def _transpose(eqn: Any) -> Any:
    permutation = tuple(eqn.params["permutation"])
    return Same() if permutation == tuple(range(len(permutation))) else AnySizes(lambda x: x.transpose(permutation))


@rule("rev", cost=_free)
def _rev(eqn: Any) -> Any:
    dimensions = eqn.params["dimensions"]
    index = tuple([slice(None, None, -1) if d in dimensions else slice(None) for d in range(eqn.invars[0].aval.ndim)])
    return AnySizes(lambda x: x[index])


@rule("slice", cost=_free)
def _slice(eqn: Any) -> Any:
    starts, limits, strides = eqn.params["start_indices"], eqn.params["limit_indices"], eqn.params["strides"]
    if eqn.invars[0].aval.shape == eqn.outvars[0].aval.shape:
        return Same()
    index = tuple(map(slice, starts, limits, strides or (1,) * len(starts)))
    return lambda x: x[index]


@rule("split", cost=_free)
def _split(eqn: Any) -> Any:
    before, cuts, at = (slice(None),) * eqn.params["axis"], [], 0
    for size in eqn.params["sizes"]:
        cuts.append((*before, slice(at, at + size)))
        at += size
    return lambda x: [x[cut] for cut in cuts]


@rule("concatenate")
def _concatenate(eqn: Any) -> Any:
    axis = eqn.params["dimension"]
    return Same() if len(eqn.invars) == 1 else AnySizes(lambda *arrays: joined(arrays, axis))


@rule("stack")
def _stack(eqn: Any) -> Any:
    axis, shape, dtype = eqn.params["axis"], eqn.outvars[0].aval.shape, eqn.outvars[0].aval.dtype
    before = (slice(None),) * axis

    def stack(*arrays: Any) -> Any:
        found = np.empty(shape, dtype)
        for i, array in enumerate(arrays):  # half the time of `np.stack` where the arrays are small
            written(found[(*before, i, ...)], array)
        return found

    return stack


@rule("unstack", cost=_free)
def _unstack(eqn: Any) -> Any:
    before = (slice(None),) * eqn.params["axis"]
    indices = [(*before, i) for i in range(len(eqn.outvars))]
    return lambda x: [x[i] for i in indices]


@rule("tile")
def _tile(eqn: Any) -> Any:
    reps = tuple(eqn.params["reps"])
    return lambda x: np.tile(x, reps)


Slices = tuple[slice, ...]


def places_of_padding(sizes: Sequence[int], config: Sequence[tuple[int, int, int]], totals: Sequence[int]) -> tuple[Slices, Slices]:
    """Where in the result of a padding (low, high, interior) elements come to lie, and which they are. Negative padding cuts off."""
    into, of = [], []
    for size, (low, _, interior), total in zip(sizes, config, totals, strict=True):
        step = interior + 1
        first = max(0, -(low // step))  # the first element at a place that is not negative
        count = max(0, min(size - first, -((low + first * step - total) // step)))
        into.append(slice(low + first * step, low + (first + count) * step, step) if count else slice(0, 0))
        of.append(slice(first, first + count))
    return tuple(into), tuple(of)


@rule("pad")
def _pad(eqn: Any) -> Any:
    shape, dtype = eqn.outvars[0].aval.shape, eqn.outvars[0].aval.dtype
    into, of = places_of_padding(eqn.invars[0].aval.shape, eqn.params["padding_config"], shape)

    def pad(x: Any, value: Any) -> Any:
        found = np.empty(shape, dtype)
        found[...] = value
        written(found[into], x[of])
        return found

    return pad


@rule("iota")
def _iota(eqn: Any) -> Any:
    if eqn.invars:
        raise Unknown("a shape that is an operand")
    shape, along, dtype = tuple(eqn.params["shape"]), eqn.params["dimension"], np.dtype(eqn.params["dtype"])
    if shape[along] > 1 << 22:
        raise Unknown("a large constant")
    line = np.arange(shape[along]).astype(dtype)
    # One line stands for all of them, as what is broadcast does: masks that are made of two are known beforehand.
    return Constant(line.reshape([-1 if d == along else 1 for d in range(len(shape))]))


@rule("empty2", "empty")
def _empty(eqn: Any) -> Any:
    aval = eqn.outvars[0].aval
    return Constant(np.broadcast_to(np.zeros((), aval.dtype), aval.shape))
