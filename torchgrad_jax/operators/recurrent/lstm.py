"""The LSTM (Hochreiter and Schmidhuber 1997), with forget gates and, where there is `weight_hr`, with projected states (Sak et al. 2014).

    i, f, g, o = input @ weight0.T + weight2 + h @ weight1.T + weight3
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = sigmoid(o) * tanh(c), times weight_hr.T

Results: the states h, the last h and c; and for backward the sums that the gates are functions of, and the cells c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.declaration.converting import wide
from torchgrad_jax.declaration.operator import Together, op
from torchgrad_jax.operators.recurrent import on_arrays, steps
from torchgrad_jax.runtime.baseline.carrying import TIMES, Loop
from torchgrad_jax.runtime.baseline.loops import how_of_steps
from torchgrad_jax.runtime.compiling import primitives
from torchgrad_jax.runtime.compiling.foreign import LSTM, knows

_LAST_OF_FOUR = np.array([[False], [False], [False], [True]])


def _check(
    input: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx_: Any, cx_: Any, weight_hr: Any = None, batch_sizes: Any = None,
    **statics: Any,
) -> None:  # fmt: skip
    steps.check_sizes(input, weight0, weight1, weight2, weight3, hx_, cx_)
    cells = (input.shape[1], weight0.shape[0] // 4)
    for i, (state, width) in enumerate(((hx_, cells[1] if weight_hr is None else weight_hr.shape[0]), (cx_, cells[1]))):
        if state.shape != (cells[0], width):
            raise RuntimeError(f"Expected hidden[{i}] size {(cells[0], width)}, got {list(state.shape)}")
    if weight_hr is not None:
        steps.check_projection(cells, weight_hr, input.dtype)


def _turns(
    sums: Any, weight1: Any, hx_: Any, cx_: Any, weight3: Any = None, weight_hr: Any = None, present: Any = None, *, reverse: bool
) -> tuple[Any, ...]:
    """The loop over time, of what the inputs add to the sums."""

    def step(state: Any, now: Any) -> Any:
        (h, c), (of_input, present) = state, now
        sums = of_input + steps.affine(h, weight1, weight3)
        i, f, g, o = steps.gates(sums)
        cell = f * c + i * g
        made = o * steps.tanh_of(cell)
        made = made if weight_hr is None else steps.affine(made, weight_hr, None)
        h, c = steps.chosen(present, made, h), steps.chosen(present, cell, c)
        return (h, c), (h, sums, c)

    (h, c), (states, sums, cells) = steps.over_time(step, (hx_, cx_), (sums, present), reverse)
    return states, h, c, sums, cells


def _lstm(
    x: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx_: Any, cx_: Any, weight_hr: Any = None, batch_sizes: Any = None, *,
    reverse: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """All states, the last state and cell, the gates' sums and all cells of one direction."""
    return _turns(steps.affine(x, weight0, weight2), weight1, hx_, cx_, weight3, weight_hr, steps.there(batch_sizes, x.shape[1]), reverse=reverse)


def _gradients(
    grad0: Any, grad1: Any, grad2: Any, grad3: Any, grad4: Any, input: Any, weight0: Any, weight1: Any, hx_: Any, cx_: Any, result0: Any,
    result3: Any, result4: Any, reverse: Any, weight_hr: Any, batch_sizes: Any,
) -> dict[str, Any]:  # fmt: skip
    present = steps.there(batch_sizes, input.shape[1])
    weight1, cells, projected = wide(weight1), wide(result4), weight_hr is not None
    i, f, g, o = steps.gates(wide(result3))
    squashed = steps.tanh_of(cells)
    # What each of the first three sums does to c, and the last to h.
    slopes = steps.stacked([i * (1 - i) * g, f * (1 - f) * steps.before(cells, wide(cx_), reverse), i * (1 - g * g), o * (1 - o) * squashed])
    slopes = steps.chosen(None if present is None else present[..., None], slopes, 0).conj()
    of_cell = steps.chosen(present, o * (1 - squashed * squashed), 0).conj()
    kept = steps.chosen(present, f, 1).conj()
    given = [None if grad is None else wide(grad) for grad in (grad0, grad3, grad4)]

    def step(state: Any, now: Any) -> Any:
        (dh, dc), (slope, of_cell, kept, present, of_state, of_sums, of_c) = state, now
        dh = steps.plus(dh, of_state)
        of_output = steps.back(dh, weight_hr) if projected else dh
        dc = steps.plus(dc + of_output * of_cell, of_c)
        both = steps.chosen(_LAST_OF_FOUR, of_output[:, None], dc[:, None])
        sums = steps.plus((both * slope).reshape(dh.shape[0], 4 * dc.shape[1]), of_sums)
        earlier = steps.plus(steps.back(sums, weight1), steps.unchanged(present, dh))
        return (earlier, dc * kept), (sums, dh if projected else None)

    start = steps.nothing(wide(hx_), grad1), steps.nothing(wide(cx_), grad2)
    each = (slopes, of_cell, kept, present, *given)
    (of_h, of_c), (sums, states) = steps.over_time(step, start, each, not reverse)
    bias = steps.added_up(sums)
    return {
        "input": steps.back(sums, weight0), "hx_": of_h, "cx_": of_c, "weight0": steps.of_weights(sums, input),
        "weight1": steps.of_weights(sums, steps.before(result0, hx_, reverse)), "weight2": bias, "weight3": bias,
        "weight_hr": steps.of_weights(states, steps.chosen(present, o * squashed, 0)) if projected else None,
    }  # fmt: skip


# ---------------------------------------------------------------------- of single precision, by a loop of C's


def _turns_back(sums: Any, cells: Any, weight1: Any, cx_: Any, of_h: Any, of_c: Any, of_states: Any = None, *, reverse: bool) -> tuple[Any, ...]:
    """The gradient of `_turns` of sums alone: of the first state and cell, and of the sums."""
    i, f, g, o = steps.gates(sums)
    squashed = steps.tanh_of(cells)
    slopes = steps.stacked([i * (1 - i) * g, f * (1 - f) * steps.before(cells, cx_, reverse), i * (1 - g * g), o * (1 - o) * squashed])

    def step(state: Any, now: Any) -> Any:
        (dh, dc), (slope, of_cell, kept, of_state) = state, now
        dh = steps.plus(dh, of_state)
        dc = dc + dh * of_cell
        sums = (steps.chosen(_LAST_OF_FOUR, dh[:, None], dc[:, None]) * slope).reshape(dh.shape[0], 4 * dc.shape[1])
        return (steps.back(sums, weight1), dc * kept), sums

    (of_h, of_c), sums = steps.over_time(step, (of_h, of_c), (slopes, o * (1 - squashed * squashed), f, of_states), not reverse)
    return of_h, of_c, sums


def _shapes(sums: Any, weight1: Any, hx_: Any, cx_: Any, *, reverse: bool) -> list[tuple[int, ...]]:
    states = (*sums.shape[:2], hx_.shape[1])
    return [states, hx_.shape, cx_.shape, sums.shape, states]


def _shapes_back(sums: Any, cells: Any, weight1: Any, cx_: Any, *grads: Any, reverse: bool) -> list[tuple[int, ...]]:
    return [cx_.shape, cx_.shape, sums.shape]


_STEPS = primitives.primitive("lstm_steps", _turns, primitives.Loop(LSTM, how_of_steps, _shapes))
_STEPS_GRAD = primitives.primitive("lstm_steps_grad", _turns_back, primitives.Loop(LSTM, how_of_steps, _shapes_back))


def _has_loop(*arrays: Any) -> bool:
    known = knows if type(arrays[0]) is np.ndarray else primitives.has
    return all([x.dtype == np.float32 and x.size > 0 for x in arrays]) and known(LSTM)


def _by_loop(primitive: Any, shapes: Any, *operands: Any, reverse: bool) -> Any:
    if type(operands[0]) is not np.ndarray:
        return primitive.bind(*operands, reverse=reverse)
    return Loop(TIMES, how_of_steps(operands[0], reverse=reverse), [(shape, np.float32) for shape in shapes(*operands, reverse=reverse)])(*operands)


def _single(
    x: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx_: Any, cx_: Any, *, reverse: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """`_lstm` without projections, of sequences of equal length: by the loop of C's where it can be."""
    if not _has_loop(x, weight0, weight1, hx_, cx_):
        return _lstm(x, weight0, weight1, weight2, weight3, hx_, cx_, reverse=reverse)
    biases = [bias for bias in (weight2, weight3) if bias is not None]
    sums = steps.affine(x, weight0, sum(biases[1:], biases[0]) if biases else None)
    return tuple(_by_loop(_STEPS, _shapes, sums, weight1, hx_, cx_, reverse=bool(reverse)))


def _of_equal_lengths(
    grad0: Any, grad1: Any, grad2: Any, grad3: Any, grad4: Any, input: Any, weight0: Any, weight1: Any, hx_: Any, cx_: Any, result0: Any,
    result3: Any, result4: Any, reverse: Any,
) -> dict[str, Any]:  # fmt: skip
    given = [grad for grad in (grad0, grad1, grad2) if grad is not None]
    if grad3 is not None or grad4 is not None or not _has_loop(input, weight0, weight1, hx_, cx_, result3, result4, *given):
        return _gradients(grad0, grad1, grad2, grad3, grad4, input, weight0, weight1, hx_, cx_, result0, result3, result4, reverse, None, None)
    start = steps.nothing(hx_, grad1), steps.nothing(cx_, grad2)
    operands = [result3, result4, weight1, cx_, *start, *([] if grad0 is None else [grad0])]
    of_h, of_c, sums = _by_loop(_STEPS_GRAD, _shapes_back, *operands, reverse=bool(reverse))
    bias = steps.added_up(sums)
    return {
        "input": steps.back(sums, weight0), "hx_": of_h, "cx_": of_c, "weight0": steps.of_weights(sums, input),
        "weight1": steps.of_weights(sums, steps.before(result0, hx_, reverse)), "weight2": bias, "weight3": bias,
    }  # fmt: skip


def _results(
    x: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx_: Any, cx_: Any, weight_hr: Any = None, batch_sizes: Any = None, *,
    reverse: bool,
) -> Any:  # fmt: skip
    time, sums = x.shape[:2], weight0.shape[:1]
    return (*time, hx_.shape[1]), hx_.shape, cx_.shape, time + sums, (*time, cx_.shape[1])


_OPERANDS = ("input", "weight0", "weight1", "weight2", "weight3", "hx_", "cx_")
_SCHEMA = "(Tensor input, Tensor weight0, Tensor weight1, Tensor? weight2, Tensor? weight3, Tensor hx_, Tensor cx_"
_RESULTS = tuple(f"result{i}" for i in range(5))

# PyTorch has a kernel for single precision, without projections and for sequences of equal length, whose node this is.
op(f"mkldnn_rnn_layer{_SCHEMA}, bool reverse)", method=False, toplevel=False, results=_RESULTS, validate=_check, keeps=("weight2", "weight3"),
   grads={name: Together(_of_equal_lengths, name) for name in _OPERANDS},
   numpy=on_arrays.layer(_single, _results, 1.0), numpy_grads=on_arrays.layer_grads(_of_equal_lengths, 5, 1.0),
   attributes="reverse batch_first=False bidirectional=False num_layers=1 train=True")(_single)  # fmt: skip
op(f"lstm_layer{_SCHEMA}, Tensor? weight_hr, Tensor? batch_sizes, bool reverse)", method=False, toplevel=False, results=_RESULTS, validate=_check,
   grads={name: Together(_gradients, name) for name in (*_OPERANDS, "weight_hr")},
   numpy=on_arrays.layer(_lstm, _results), numpy_grads=on_arrays.layer_grads(_gradients, 5))(_lstm)  # fmt: skip
