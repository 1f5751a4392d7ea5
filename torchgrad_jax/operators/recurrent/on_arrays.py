"""What `steps.py` says, of NumPy arrays, and forms of layers by it: the formulas of a layer are the same ones, of another kind of arrays.

They call what the plans of their jaxprs call, in the same order. A layer is traced in 2 to 12 ms, and again for each length of its sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_products import multiplying
from torchgrad_jax.declaration.vjp import ByName
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.cost import product
from torchgrad_jax.runtime.baseline.elementwise import squashing
from torchgrad_jax.runtime.baseline.reducing import summing
from torchgrad_jax.runtime.operation import stand_in

Array = np.ndarray
# What a turn takes in nanoseconds, and each of the sums of its gates; and which part of a product XLA takes for it in a loop.
_TURN, _EACH, _BY_XLA = 10_000.0, 1.5, 0.15
# In so many programs a plan gains what its trace takes.
_OFTEN = 60


# ---------------------------------------------------------------------- parts of formulas


def affine(x: Array, weight: Array, bias: Array | None) -> Array:
    """See `steps`."""
    made = _rows(x, weight, True)
    return made if bias is None else made + bias


def _rows(x: Array, weight: Array, turned: bool) -> Array:
    made = multiplying(False, turned, x.dtype)(x.reshape(-1, x.shape[-1]), weight)
    return made.reshape(*x.shape[:-1], made.shape[-1])


def there(batch_sizes: Array, batch: int) -> Array:
    """See `steps`."""
    return np.arange(batch)[None, :, None] < batch_sizes[:, None, None]


def chosen(present: Array, new: Array, old: Any) -> Array:
    """See `steps`."""
    return np.where(present, new, old if type(old) is np.ndarray else new.dtype.type(old))


def before(states: Array, start: Array, reverse: bool) -> Array:
    """See `steps`."""
    return np.concatenate([states[1:], start[None]] if reverse else [start[None], states[:-1]])


def parts(x: Array, count: int) -> list[Array]:
    """See `steps`."""
    width = x.shape[-1] // count
    return [x[..., i * width : (i + 1) * width] for i in range(count)]


def stacked(arrays: Sequence[Array]) -> Array:
    """See `steps`."""
    return np.stack(arrays, -2)


def joined(arrays: Sequence[Array]) -> Array:
    """See `steps`."""
    return np.concatenate(arrays, -1)


def sigmoid_of(x: Array) -> Array:
    """See `steps`."""
    return squashing("logistic", x.dtype)(np.ascontiguousarray(x))


def tanh_of(x: Array) -> Array:
    """See `steps`."""
    return squashing("tanh", x.dtype)(np.ascontiguousarray(x))


def gates(sums: Array) -> tuple[Array, Array, Array, Array]:
    """See `steps`. A function of all sums takes less than three of parts of them."""
    i, f, _, o = parts(sigmoid_of(sums), 4)
    return i, f, tanh_of(parts(sums, 4)[2]), o


def positive(x: Array) -> Array:
    """See `steps`."""
    return np.maximum(x, x.dtype.type(0))


def of_weights(of_gates: Array, x: Array) -> Array:
    """See `steps`."""
    rows, columns = (a.reshape(-1, a.shape[-1]) for a in (of_gates, x))
    return multiplying(True, False, x.dtype)(rows, columns)


def back(of_gates: Array, weight: Array) -> Array:
    """See `steps`."""
    return _rows(of_gates, weight, False)


def zeros(like: Array) -> Array:
    """See `steps`."""
    return np.zeros(like.shape, like.dtype)


def added_up(of_gates: Array) -> Array:
    """See `steps`."""
    return summing((0, 1), of_gates.dtype)(of_gates)


def over_time(step: Callable[..., Any], start: Any, each: Any, reverse: bool) -> tuple[Any, Any]:
    """See `steps`."""
    rows = [repeat(None) if x is None else x[::-1] if reverse else x for x in (each if type(each) is tuple else (each,))]
    state, made = start, []
    for now in zip(*rows, strict=False):
        state, one = step(state, now if type(each) is tuple else now[0])
        made.append(one)
    if reverse:
        made.reverse()
    if type(made[0]) is not tuple:
        return state, np.array(made)
    return state, tuple([None if each[0] is None else np.array(each) for each in zip(*made, strict=True)])


# ---------------------------------------------------------------------- forms


def _are_alike(x: Array, *others: Any) -> bool:
    """Whether all arrays that there are, but for the sizes of batches, have one dtype, and there is something to compute."""
    arrays = [x, *[a for a in others if a is not None and not (a.ndim == 1 and a.dtype.kind == "i")]]
    return x.dtype.char in "fd" and all([a.dtype == x.dtype and a.size > 0 for a in arrays])


def _products(x: Array, weight0: Array, weight1: Array) -> float:
    (times, batch, features), sums = x.shape, weight0.shape[0]
    return product(1, times * batch, features, sums, x.dtype) + times * product(1, batch, weight1.shape[1], sums, x.dtype)


def _besides(x: Array, weight0: Array, weight1: Array, alike: float) -> float:
    """What a layer takes besides the part of its products that XLA takes as well."""
    return (1 - alike) * _products(x, weight0, weight1) + x.shape[0] * (_TURN + _EACH * x.shape[1] * weight0.shape[0])


def layer(function: Callable[..., tuple[Array, ...]], shapes: Callable[..., Sequence[tuple[int, ...]]], alike: float = _BY_XLA) -> Forms:
    """The form of a layer by its formula. shapes: of the results. alike: which part of the products XLA takes."""

    def result(x: Array, weight0: Array, *rest: Any, **statics: Any) -> Any:
        if not _are_alike(x, weight0, *rest):
            return None
        return tuple([stand_in(shape, x.dtype) for shape in shapes(x, weight0, *rest, **statics)])

    def takes(x: Array, weight0: Array, weight1: Array, *_: Array) -> float:
        return alike * _products(x, weight0, weight1)

    def fused(x: Array, weight0: Array, weight1: Array, *_: Array) -> float:
        return _besides(x, weight0, weight1, alike)

    return Forms(function, result, planned=True, often=_OFTEN, takes=takes, fused=fused)


def layer_grads(formula: Callable[..., dict[str, Any]], results: int, alike: float = _BY_XLA) -> ByName:
    """The forms of the gradients of a layer's operands by their formula, whose first arguments are the gradients of so many results. alike: see
    `layer`."""
    needs = formula.__code__.co_varnames[results : formula.__code__.co_argcount]

    def forms(wanted: tuple[str, ...]) -> Forms:
        def function(grads: Sequence[Any], avals: Any, saved: dict[str, Any], **statics: Any) -> Any:
            given = {**dict.fromkeys(needs), **statics, **saved}
            found = formula(*grads, *[given[name] for name in needs])
            return found[wanted[0]] if len(wanted) == 1 else tuple([found[name] for name in wanted])

        def result(grads: Sequence[Any], avals: Sequence[Any], saved: dict[str, Any], **statics: Any) -> Any:
            if not {"input", "weight0", "weight1"} <= saved.keys() or not _are_alike(saved["input"], *saved.values(), *grads):
                return None
            made = [stand_in(aval.shape, aval.dtype) for aval in avals]
            return made[0] if len(made) == 1 else tuple(made)

        def operands(saved: dict[str, Any]) -> tuple[Array, Array, Array]:
            return saved["input"], saved["weight0"], saved["weight1"]

        def takes(grads: Sequence[Any], saved: dict[str, Any]) -> float:
            return 2 * alike * _products(*operands(saved))

        def fused(grads: Sequence[Any], saved: dict[str, Any]) -> float:
            return (1 - alike) * _products(*operands(saved)) + _besides(*operands(saved), alike)

        return Forms(function, result, planned=True, often=_OFTEN, takes=takes, fused=fused)

    return ByName(forms)
