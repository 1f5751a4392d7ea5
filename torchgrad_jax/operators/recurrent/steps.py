"""What recurrent layers share: projections for all times at once, the loop over time, and sequences of unequal lengths.

Arrays over time are (time, batch, features). Where sequences are of unequal lengths the longest come first, `batch_sizes` says how many there are at
each time, and the others keep their state: so the state at the end is each sequence's own, in both directions.

A gradient goes through the loop the other way round, and the loop is all that it does there: what it multiplies by is made before for all times at
once, and so are the weights' gradients after it, of the gates' gradients that it leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import broadcast_shapes, is_half, where, wide, zeros_like
from torchgrad_jax.operators import activation
from torchgrad_jax.operators.kernels import loops
from torchgrad_jax.operators.linear import addmm_shapes
from torchgrad_jax.operators.matrix import PRECISION
from torchgrad_jax.operators.recurrent import on_arrays
from torchgrad_jax.runtime.value import Aval, aval_of


def check_sizes(input: Aval, weight0: Aval, weight1: Aval, weight2: Any, weight3: Any, *states: Any, integers: bool = False) -> None:
    """RuntimeError, as far as possible in the words of PyTorch's operators, where the operands of a layer do not fit each other. states: those to
    begin with, h first. integers: whether these are computed with as well."""
    time, batch, features = input.shape
    if any(state.ndim != 2 for state in states):
        raise RuntimeError(f"the states of a recurrent layer must have 3 dimensions, got {states[0].ndim + 1}")
    for rows, width, dtype, weight, bias in (
        (time * batch, features, input.dtype, weight0, weight2), (*states[0].shape, states[0].dtype, weight1, weight3),
    ):  # fmt: skip
        if weight.ndim != 2:
            raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {weight.ndim}D")
        added = aval_of((weight.shape[0],), weight.dtype) if bias is None else bias
        addmm_shapes(added, aval_of((rows, width), dtype), aval_of(weight.shape[::-1], weight.dtype))
    found, wanted = (states[0].shape[0], weight1.shape[0]), (batch, weight0.shape[0])
    if found != wanted and broadcast_shapes(found, wanted):  # which raises where they do not broadcast
        raise RuntimeError(f"output with shape {list(found)} doesn't match the broadcast shape {list(wanted)}")
    for state in states:
        if state.dtype != input.dtype:
            raise RuntimeError("all states of a recurrent layer must have the dtype of its input")
    if not integers and not dtypes.is_float(input.dtype):
        raise RuntimeError(f"result type Float can't be cast to the desired output type {dtypes.of(input.dtype).title}")


def check_projection(cells: tuple[int, int], weight: Aval, dtype: np.dtype) -> None:
    """RuntimeError where the states that a layer's cells give cannot be multiplied by a weight."""
    addmm_shapes(aval_of((weight.shape[0],), weight.dtype), aval_of(cells, dtype), aval_of(weight.shape[::-1], weight.dtype))


def _by_kind(of_jax: Callable[..., Any]) -> Callable[..., Any]:
    """A function of JAX's arrays, or where all are NumPy's, as in a form, that of the same name in `on_arrays`."""
    of_numpy = getattr(on_arrays, of_jax.__name__)

    @wraps(of_jax)
    def of_either(x: Any, *others: Any) -> Any:
        first = x[0] if type(x) is list else x
        return (of_numpy if type(first) is np.ndarray and not any([isinstance(o, jax.Array) for o in others]) else of_jax)(x, *others)

    return of_either


def _product(x: Any, weight: Any, contracted: int) -> Any:
    """x and a matrix multiplied along x's last dimension and one of the matrix's, half precision in float32."""
    rows = lax.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    wanted = np.float32 if is_half(x.dtype) else None
    made = lax.dot_general(rows, weight, (((1,), (contracted,)), ((), ())), precision=PRECISION, preferred_element_type=wanted)
    return lax.reshape(made, (*x.shape[:-1], weight.shape[1 - contracted]))


@_by_kind
def affine(x: Any, weight: Any, bias: Any) -> Any:
    """x @ weight.T + bias, rounded once."""
    made = _product(x, weight, 1)
    return (made if bias is None else made + bias.astype(made.dtype)).astype(x.dtype)


@_by_kind
def there(batch_sizes: Any, batch: int) -> Any:
    """(time, batch, 1): whether a sequence has not ended. None where all are of one length."""
    return None if batch_sizes is None else jnp.arange(batch)[None, :, None] < batch_sizes[:, None, None]


@_by_kind
def chosen(present: Any, new: Any, old: Any) -> Any:
    """`new` where sequences have not ended, else `old`."""
    return new if present is None else where(present, new, old)


def unchanged(present: Any, state: Any) -> Any:
    """A state where sequences have ended, else 0. None where all are of one length."""
    return None if present is None else chosen(present, zeros(state), state)


@_by_kind
def before(states: Any, start: Any, reverse: bool) -> Any:
    """The state that each step began with."""
    first, times = lax.expand_dims(start, (0,)), states.shape[0]
    rest = lax.slice_in_dim(states, 1, times) if reverse else lax.slice_in_dim(states, 0, times - 1)
    return lax.concatenate([rest, first] if reverse else [first, rest], 0)


def plus(x: Any, more: Any) -> Any:
    """The sum; `more` may be absent."""
    return x if more is None else x + more


@_by_kind
def parts(x: Any, count: int) -> list[Any]:
    """The features in equal parts."""
    return jnp.split(x, count, -1)


@_by_kind
def stacked(arrays: list[Any]) -> Any:
    """Arrays of features as one, (..., how many, features)."""
    return jnp.stack(arrays, -2)


@_by_kind
def joined(arrays: list[Any]) -> Any:
    """Arrays one after the other along the features."""
    return jnp.concatenate(arrays, -1)


@_by_kind
def sigmoid_of(x: Any) -> Any:
    """1 / (1 + exp(-x)), rounded once."""
    return activation.sigmoid_of(x)


@_by_kind
def tanh_of(x: Any) -> Any:
    """The hyperbolic tangent, rounded once."""
    return lax.tanh(wide(x)).astype(x.dtype)


@_by_kind
def gates(sums: Any) -> tuple[Any, Any, Any, Any]:
    """An LSTM's input gate, forget gate, what it takes in, and output gate, of their sums."""
    i, f, g, o = parts(sums, 4)
    return sigmoid_of(i), sigmoid_of(f), tanh_of(g), sigmoid_of(o)


@_by_kind
def positive(x: Any) -> Any:
    """x, or 0 where it is less."""
    return jnp.maximum(x, 0)


@_by_kind
def of_weights(of_gates: Any, x: Any) -> Any:
    """The gradient of the weights that x was multiplied by, all times taken together."""
    rows, columns = (lax.reshape(a, (a.shape[0] * a.shape[1], a.shape[2])) for a in (of_gates, wide(x).conj()))
    return lax.dot_general(rows, columns, (((0,), (0,)), ((), ())), precision=PRECISION)


@_by_kind
def back(of_gates: Any, weight: Any) -> Any:
    """The gradient of what was multiplied by the weights."""
    return _product(of_gates, wide(weight).conj(), 0)


@_by_kind
def added_up(of_gates: Any) -> Any:
    """The gradient of what was added at each step."""
    return lax.reduce_sum(of_gates, (0, 1))


@_by_kind
def zeros(like: Any) -> Any:
    """Zeros of an array's shape and dtype."""
    return zeros_like(like)


def nothing(like: Any, grad: Any) -> Any:
    """A state's gradient at the end of the loop: zeros where there is none."""
    return zeros(like) if grad is None else wide(grad)


def over_time(step: Callable[..., Any], start: Any, each: Any, reverse: bool) -> tuple[Any, Any]:
    """`lax.scan`. start: an array or a tuple of them; each: what has a row for each time, None for what is absent."""
    found = [x for given in (start, each) for x in (given if type(given) is tuple else (given,)) if x is not None]
    if all([type(x) is np.ndarray for x in found]):
        return on_arrays.over_time(step, start, each, reverse)
    return loops.scan(step, start, each, reverse=reverse)
