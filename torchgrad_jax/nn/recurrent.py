"""`torch.lstm`, `gru`, `rnn_tanh`, `rnn_relu`: layers of recurrent networks; `lstm_cell` and its kin: one step of one.

A layer's direction is one operator. Packed sequences of unequal lengths are padded before the first layer and packed after the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torchgrad_jax.calling.generate import function_of
from torchgrad_jax.calling.public import public
from torchgrad_jax.calling.recalled import recalling
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.dtypes import bfloat16, float32
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.shaping import cat, stack, unsafe_chunk
from torchgrad_jax.functions.views import contiguous, reshape, select, transpose, view
from torchgrad_jax.nn.dropout import dropout as drop
from torchgrad_jax.nn.linear import linear
from torchgrad_jax.nn.packing import Packing
from torchgrad_jax.operators import recurrent as ops_recurrent  # noqa: F401 - declares the operators used here
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.recorder import per_thread

# One direction of a layer: of the input, the states that it begins with, its weights and biases, the batch sizes of packed sequences, and whether it
# goes from the last time to the first. Gives its states at all times, and the last of each kind of state.
Layer = Callable[[Tensor, Sequence[Tensor], Sequence[Any], Tensor | None, bool], tuple[Tensor, Sequence[Tensor]]]


class _Options(NamedTuple):
    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool


# ---------------------------------------------------------------------- layers


def _lstm_layer(x: Tensor, states: Sequence[Tensor], weights: Sequence[Any], sizes: Tensor | None, reverse: bool) -> tuple[Tensor, Sequence[Tensor]]:
    *most, weight_hr = weights
    made: Any = call("lstm_layer", x, *most, *states, weight_hr, sizes, reverse)
    return made[0], made[1:3]


def _lstm_kernel(x: Tensor, states: Sequence[Tensor], weights: Sequence[Any], sizes: Tensor | None, reverse: bool) -> tuple[Tensor, Sequence[Tensor]]:
    """Where PyTorch has a kernel for a direction of a layer: of sequences of equal lengths, without projection, in some dtypes."""
    made: Any = call("mkldnn_rnn_layer", x, *weights[:-1], *states, reverse)
    return made[0], made[1:3]


def _gru_layer(x: Tensor, states: Sequence[Tensor], weights: Sequence[Any], sizes: Tensor | None, reverse: bool) -> tuple[Tensor, Sequence[Tensor]]:
    made: Any = call("gru_layer", x, *weights, *states, sizes, reverse)
    return made[0], made[1:2]


def _plain_layer(nonlinearity: str) -> Layer:
    def layer(x: Tensor, states: Sequence[Tensor], weights: Sequence[Any], sizes: Tensor | None, reverse: bool) -> tuple[Tensor, Sequence[Tensor]]:
        made: Any = call("rnn_layer", x, *weights, *states, sizes, nonlinearity, reverse)
        return made[0], made[1:]

    return layer


_tanh_layer, _relu_layer = _plain_layer("tanh"), _plain_layer("relu")


# ---------------------------------------------------------------------- stacks of them


def _weights(params: Sequence[Tensor], has_biases: bool, projected: bool | None) -> list[list[Any]]:
    """The weights and biases of each direction of each layer, None for biases that there are not. projected: for an LSTM, whether there is the
    weight of a projection."""
    size = (4 if has_biases else 2) + bool(projected)
    if len(params) % size:
        raise RuntimeError("got an incorrect number of RNN parameters")
    found = []
    for i in range(0, len(params), size):
        biases = params[i + 2 : i + 4] if has_biases else (None, None)
        last = [] if projected is None else [params[i + size - 1] if projected else None]
        found.append([*params[i : i + 2], *biases, *last])
    return found


def _check_counts(options: _Options, states: Sequence[Tensor], weights: Sequence[Any]) -> None:
    if options.bidirectional and (len(weights) % 2 or any(s._aval.shape[0] % 2 for s in states)):
        raise RuntimeError("Odd number of params or hiddens given to a bidirectional RNN")
    wanted = options.num_layers * (2 if options.bidirectional else 1)
    if any(s._aval.shape[0] != wanted for s in states):
        raise RuntimeError("Expected more hidden states in stacked_rnn")
    if len(weights) != wanted:
        raise RuntimeError("Expected more weights in stacked_rnn")


def _run(layer: Layer, x: Any, states: Sequence[Any], weights: list[list[Any]], options: _Options, packing: Packing | None) -> list[Tensor]:
    """The last layer's states at all times, (time, batch, features), and for each kind of state the last ones of all layers."""
    _check_counts(options, states, weights)
    if not x._aval.shape[0]:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    sizes = None if packing is None else packing.on(x)
    if layer is _lstm_layer and packing is None and x.dtype in (float32, bfloat16) and weights[0][-1] is None and x._aval.size:
        x, layer = contiguous(x), _lstm_kernel
    if layer not in (_tanh_layer, _relu_layer, _lstm_kernel) and per_thread.recorder.flags.casting is not None:
        x, weights = _as_states(x, states, weights)
    directions = (False, True) if options.bidirectional else (False,)
    last: list[list[Tensor]] = [[] for _ in states]
    for number in range(options.num_layers):
        outputs = []
        for reverse in directions:
            place = number * len(directions) + reverse
            output, ends = layer(x, [select(s, 0, place) for s in states], weights[place], sizes, reverse)
            outputs.append(output)
            for kind, end in zip(last, ends, strict=True):
                kind.append(end)
        x = cat(outputs, -1) if options.bidirectional else outputs[0]
        if options.train and options.dropout and number < options.num_layers - 1:
            x = _dropped(x, options.dropout, packing)
    return [x, *[stack(kind, 0) for kind in last]]


def _as_states(x: Any, states: Sequence[Any], weights: list[list[Any]]) -> tuple[Any, list[list[Any]]]:
    """Input and weights in the dtype of the states: PyTorch's results have it under autocast, where products alone are of lower precision."""
    dtype = states[0].dtype
    return cast(x, dtype), [[None if w is None else cast(w, dtype) for w in each] for each in weights]


def _dropped(x: Tensor, p: float, packing: Packing | None) -> Tensor:
    # What is drawn for packed sequences is drawn for their steps alone.
    return drop(x, p) if packing is None else packing.pad(drop(packing.pack(x), p))


def _padded(layer: Layer, x: Any, states: Sequence[Any], weights: list[list[Any]], options: _Options, batch_first: bool) -> tuple[Tensor, ...]:
    _expect_dimensions(x, 3)
    output, *last = _run(layer, transpose(x, 0, 1) if batch_first else x, states, weights, options, None)
    return transpose(output, 0, 1) if batch_first else output, *last


def _packed(layer: Layer, data: Any, batch_sizes: Tensor, states: Sequence[Any], weights: list[list[Any]], options: _Options) -> tuple[Tensor, ...]:
    _expect_dimensions(data, 2)
    packing = Packing.of(batch_sizes)
    rows, width = data._aval.shape
    if packing.is_even and sum(packing.sizes) == rows:
        output, *last = _run(layer, view(data, (len(packing.sizes), packing.batch, width)), states, weights, options, None)
        return reshape(output, (rows, output._aval.shape[2])), *last
    output, *last = _run(layer, packing.pad(data), states, weights, options, packing)
    return packing.pack(output), *last


def _expect_dimensions(x: Any, wanted: int) -> None:
    if x._aval.ndim != wanted:
        raise RuntimeError(f"input must have {wanted} dimensions, got {x._aval.ndim}")


# ---------------------------------------------------------------------- the functions


def _width_of(state: Tensor) -> int:
    """The size of dimension 2. IndexError in PyTorch's words, which `size` has, where there is none."""
    shape = state._aval.shape
    return shape[2] if len(shape) > 2 else state.size(2)


@public("torch")
def lstm(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Layers of an LSTM: ``lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)`` of padded sequences,
    ``lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)`` of packed ones.

    Returns the last layer's states at all times, and the last states and cells of all layers. RuntimeError where sizes or dtypes do not fit.
    """
    packed = isinstance(arguments[1], Tensor)
    hx, params, *options = arguments[2 if packed else 1 :]
    if len(hx) != 2:
        raise RuntimeError("lstm expects two hidden states")
    given = _Options(*options[:5])
    weights = _weights(params, given.has_biases, _width_of(hx[0]) != _width_of(hx[1]))
    if packed:
        return _packed(_lstm_layer, arguments[0], arguments[1], hx, weights, given)  # type: ignore[return-value] - three of them
    return _padded(_lstm_layer, arguments[0], hx, weights, given, options[5])  # type: ignore[return-value] - three of them


def _of_one_state(layer: Layer, arguments: tuple[Any, ...]) -> Any:
    packed = isinstance(arguments[2], Tensor)
    hx, params, *options = arguments[2 if packed else 1 :]
    given = _Options(*options[:5])
    weights = _weights(params, given.has_biases, None)
    if packed:
        return _packed(layer, arguments[0], arguments[1], [hx], weights, given)
    return _padded(layer, arguments[0], [hx], weights, given, options[5])


@public("torch")
def gru(*arguments: Any) -> tuple[Tensor, Tensor]:
    """Layers of gated recurrent units: ``gru(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)`` of padded
    sequences, ``gru(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)`` of packed ones.

    Returns the last layer's states at all times and the last states of all layers. RuntimeError where sizes or dtypes do not fit.
    """
    return _of_one_state(_gru_layer, arguments)


@public("torch")
def rnn_tanh(*arguments: Any) -> tuple[Tensor, Tensor]:
    """As `gru`, of layers whose next state is tanh of what input and state give."""
    return _of_one_state(_tanh_layer, arguments)


@public("torch")
def rnn_relu(*arguments: Any) -> tuple[Tensor, Tensor]:
    """As `gru`, of layers whose next state is relu of what input and state give."""
    return _of_one_state(_relu_layer, arguments)


# ---------------------------------------------------------------------- single steps


def _check_step(input: Any, states: Sequence[Any], w_ih: Any, w_hh: Any, chunks: int) -> None:
    """RuntimeError in PyTorch's words where sizes do not fit."""
    a, b, c = input._aval.shape, w_ih._aval.shape, w_hh._aval.shape
    state_shape = (a[0], c[1])
    if len(a) == 2 and a[1] == b[1] and b[0] == c[0] == chunks * c[1] and all([s._aval.shape == state_shape for s in states]):
        return
    if input.size(1) != w_ih.size(1):
        raise RuntimeError(f"input has inconsistent input_size: got {input.size(1)} expected {w_ih.size(1)}")
    hidden = w_hh.size(1)
    for i, state in enumerate(states):
        if input.size(0) != state.size(0):
            raise RuntimeError(f"Input batch size {input.size(0)} doesn't match hidden{i} batch size {state.size(0)}")
        if state.size(1) != hidden:
            raise RuntimeError(f"hidden{i} has inconsistent hidden_size: got {state.size(1)}, expected {hidden}")
    for name, weight in (("weight_ih", w_ih), ("weight_hh", w_hh)):
        if weight.size(0) != chunks * hidden:
            raise RuntimeError(f"{name} first dim must be {chunks} * hidden_size = {chunks * hidden}, but got {weight.size(0)}")


_tanh, _sigmoid = function_of(registry["tanh"]), function_of(registry["sigmoid"])
_chunk = recalling(unsafe_chunk)


@public("torch")
def lstm_cell(
    input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One step of an LSTM, of (batch, features): the state and the cell after it. RuntimeError where sizes do not fit."""
    if len(hx) != 2:
        raise RuntimeError("lstm_cell expects two hidden states")
    h, c = hx
    _check_step(input, hx, w_ih, w_hh, 4)
    i, f, g, o = _chunk(linear(input, w_ih, b_ih) + linear(h, w_hh, b_hh), 4, 1)
    i, f, g, o = _sigmoid(i), _sigmoid(f), _tanh(g), _sigmoid(o)
    cell = f * c + i * g
    return o * _tanh(cell), cell


@public("torch")
def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
    """One step of gated recurrent units, of (batch, features). RuntimeError where sizes do not fit."""
    _check_step(input, [hx], w_ih, w_hh, 3)
    of_input = _chunk(linear(input, w_ih, b_ih), 3, 1)
    of_state = _chunk(linear(hx, w_hh, b_hh), 3, 1)
    r = _sigmoid(of_state[0] + of_input[0])
    z = _sigmoid(of_state[1] + of_input[1])
    n = _tanh(of_input[2] + of_state[2] * r)
    return (hx - n) * z + n


def _plain_step(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> Tensor:
    _check_step(input, [hx], w_ih, w_hh, 1)
    return linear(input, w_ih, b_ih) + linear(hx, w_hh, b_hh)


@public("torch")
def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
    """tanh(input @ w_ih.T + b_ih + hx @ w_hh.T + b_hh), of (batch, features). RuntimeError where sizes do not fit."""
    return _tanh(_plain_step(input, hx, w_ih, w_hh, b_ih, b_hh))


@public("torch")
def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
    """relu(input @ w_ih.T + b_ih + hx @ w_hh.T + b_hh), of (batch, features). RuntimeError where sizes do not fit."""
    return call("relu", _plain_step(input, hx, w_ih, w_hh, b_ih, b_hh))
