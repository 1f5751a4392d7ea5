"""The plain recurrent layer (Elman 1990): h = tanh(input @ weight0.T + weight2 + h @ weight1.T + weight3), or relu of it."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.declaration.converting import wide
from torchgrad_jax.declaration.operator import Together, op
from torchgrad_jax.operators.activation import clamp_types
from torchgrad_jax.operators.recurrent import on_arrays, steps


def _check(
    input: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx: Any, batch_sizes: Any = None, nonlinearity: str = "", **statics: Any
) -> None:  # fmt: skip
    steps.check_sizes(input, weight0, weight1, weight2, weight3, hx, integers=nonlinearity == "relu")
    if hx.shape[1] != weight0.shape[0]:
        raise RuntimeError(f"weight_ih first dim must be 1 * hidden_size = {hx.shape[1]}, but got {weight0.shape[0]}")
    if nonlinearity == "relu":
        clamp_types("relu")(input)


def _gradients(
    grad0: Any, grad1: Any, input: Any, weight0: Any, weight1: Any, hx: Any, batch_sizes: Any, result0: Any, nonlinearity: Any, reverse: Any
) -> dict[str, Any]:  # fmt: skip
    present, weight1, states = steps.there(batch_sizes, input.shape[1]), wide(weight1), wide(result0)
    slopes = 1 - states * states if nonlinearity == "tanh" else (states > 0).astype(states.dtype)
    slopes = steps.chosen(present, slopes, 0).conj()

    def step(state: Any, now: Any) -> Any:
        slope, present, of_state = now
        dh = steps.plus(state, of_state)
        sums = dh * slope
        earlier = steps.back(sums, weight1)
        return steps.plus(earlier, steps.unchanged(present, dh)), sums

    each = slopes, present, None if grad0 is None else wide(grad0)
    of_hx, sums = steps.over_time(step, steps.nothing(wide(hx), grad1), each, not reverse)
    bias = steps.added_up(sums)
    return {
        "input": steps.back(sums, weight0), "hx": of_hx, "weight0": steps.of_weights(sums, input),
        "weight1": steps.of_weights(sums, steps.before(result0, hx, reverse)), "weight2": bias, "weight3": bias,
    }  # fmt: skip


def _rnn(
    x: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx: Any, batch_sizes: Any, nonlinearity: str, reverse: bool
) -> tuple[Any, Any]:  # fmt: skip
    """All states and the last one of one direction."""

    def step(h: Any, now: Any) -> Any:
        of_input, present = now
        sums = of_input + steps.affine(h, weight1, weight3)
        made = steps.chosen(present, steps.tanh_of(sums) if nonlinearity == "tanh" else steps.positive(sums), h)
        return made, made

    last, states = steps.over_time(step, hx, (steps.affine(x, weight0, weight2), steps.there(batch_sizes, x.shape[1])), reverse)
    return states, last


def _results(
    x: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hx: Any, batch_sizes: Any, nonlinearity: str, reverse: bool
) -> Any:  # fmt: skip
    return (*x.shape[:2], hx.shape[1]), hx.shape


_OPERANDS = ("input", "weight0", "weight1", "weight2", "weight3", "hx")

op("rnn_layer(Tensor input, Tensor weight0, Tensor weight1, Tensor? weight2, Tensor? weight3, Tensor hx, Tensor? batch_sizes, str nonlinearity, "
   "bool reverse)", method=False, toplevel=False, results=("result0", "result1"), validate=_check,
   node=lambda nonlinearity, reverse: f"Rnn{nonlinearity.capitalize()}LayerBackward0",
   grads={name: Together(_gradients, name) for name in _OPERANDS}, numpy=on_arrays.layer(_rnn, _results),
   numpy_grads=on_arrays.layer_grads(_gradients, 2))(_rnn)  # fmt: skip
