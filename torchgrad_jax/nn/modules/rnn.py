"""Recurrent networks: RNN, LSTM, GRU, and the cells that are one step of them."""

from __future__ import annotations

import math
import numbers
import weakref
from typing import Any

import torchgrad_jax.nn.init as init
from torchgrad_jax.calling.overrides import guarded
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn import recurrent
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.packing import batch_of
from torchgrad_jax.nn.parameter import empty, zeros
from torchgrad_jax.nn.utils.rnn import PackedSequence
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

# `torch.lstm` and its kin, of which modes and subclasses of Tensor are asked.
_functions: Any = guarded("torch", {
    name: getattr(recurrent, name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
})  # fmt: skip
# How many gates the weights of each kind of layer are for.
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _spread(module: Module, hidden_size: int) -> None:
    bound = 1.0 / math.sqrt(hidden_size) if hidden_size > 0 else 0
    for weight in module.parameters():
        init.uniform_(weight, -bound, bound)


def _check_arguments(input_size: Any, hidden_size: Any, num_layers: Any, bias: Any, batch_first: Any, dropout: Any, proj_size: Any) -> None:
    """TypeError, ValueError for what no layer can be made of, in PyTorch's order."""
    if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or isinstance(dropout, bool):  # type: ignore[operator] - a number
        raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
    if dropout > 0 and num_layers == 1:  # type: ignore[operator] - a number
        warn_user(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater than 1, but got "
            f"dropout={dropout} and num_layers={num_layers}",
            UserWarning,
        )
    for name, value, kind in (
        ("bias", bias, bool), ("batch_first", batch_first, bool), ("input_size", input_size, int), ("hidden_size", hidden_size, int),
    ):  # fmt: skip
        if not isinstance(value, kind):
            raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if value <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")


class RNNBase(Module):
    """Layers of a recurrent network. mode: LSTM, GRU, RNN_TANH or RNN_RELU; the other arguments and the parameters are those of RNN, LSTM and GRU.
    TypeError, ValueError for arguments of which no network can be made."""

    __constants__ = ["mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size"]

    _flat_weights: list[Any]

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.mode, self.input_size, self.hidden_size, self.num_layers, self.bias = mode, input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional, self.proj_size = batch_first, float(dropout), bidirectional, proj_size
        self._flat_weight_refs: list[Any] = []
        _check_arguments(input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size)
        if mode not in _GATES:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse") if bidirectional else ("",):
                self._all_weights.append(self._rnn_make_weights(layer, suffix, device, dtype))
        self._flat_weights_names = [name for names in self._all_weights for name in names]
        self._init_flat_weights()
        self.reset_parameters()

    def _rnn_make_weights(self, layer: int, suffix: str, device: Any, dtype: Any) -> list[str]:
        """Register the parameters of one direction of a layer. Returns their names."""
        gates, state = _GATES[self.mode] * self.hidden_size, self.proj_size or self.hidden_size
        below = state * (2 if self.bidirectional else 1) if layer else self.input_size
        shapes: dict[str, Any] = {"weight_ih": (gates, below), "weight_hh": (gates, state)}
        if self.bias:
            shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
        if self.proj_size > 0:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        for name, shape in shapes.items():
            setattr(self, f"{name}_l{layer}{suffix}", Parameter(empty(shape, device=device, dtype=dtype)))
        return [f"{name}_l{layer}{suffix}" for name in shapes]

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        _spread(self, self.hidden_size)

    # ------------------------------------------------------------------ the weights in order

    def _init_flat_weights(self) -> None:
        self._flat_weights = [getattr(self, name, None) for name in self._flat_weights_names]
        self._flat_weight_refs = [None if w is None else weakref.ref(w) for w in self._flat_weights]

    def _weights_have_changed(self) -> bool:
        """Whether an attribute is another tensor than the one that was put into the list."""
        parameters, own = self._parameters, self.__dict__
        for name, known in zip(self._flat_weights_names, self._flat_weight_refs, strict=True):
            weight = parameters.get(name)
            if weight is None or name in own:  # a parametrization's, or what functional calls put in its place
                weight = getattr(self, name, None)
            if weight is not None and known is not None and known() is not weight:
                return True
        return False

    def _update_flat_weights(self) -> None:
        if self._weights_have_changed():
            self._init_flat_weights()

    def flatten_parameters(self) -> None:
        """Does nothing: XLA lays memory out itself."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each direction of each layer."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_flat_weights_names", ()) and "_flat_weights" in self.__dict__:
            self._flat_weights[self._flat_weights_names.index(name)] = value
        super().__setattr__(name, value)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self._init_flat_weights()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_flat_weight_refs"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._init_flat_weights()

    # ------------------------------------------------------------------ checks

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """ValueError, RuntimeError for an input of another dtype, rank or width."""
        given, weight = input._aval, self._flat_weights[0]
        if given.dtype != weight._aval.dtype and per_thread.recorder.flags.casting is None:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). Convert input: input.to({weight.dtype}), or convert "
                f"model: model.to({input.dtype})"
            )
        expected = 3 if batch_sizes is None else 2
        if given.ndim != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {given.ndim}")
        if self.input_size != given.shape[-1]:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {given.shape[-1]}")

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The size of the states for an input."""
        batch = input._aval.shape[0 if self.batch_first else 1] if batch_sizes is None else batch_of(batch_sizes)
        return self._rnn_states, batch, self.proj_size or self.hidden_size

    @property
    def _rnn_states(self) -> int:
        return self.num_layers * (2 if self.bidirectional else 1)

    def check_hidden_size(self, hx: Tensor, expected_hidden_size: tuple[int, int, int], msg: str = "Expected hidden size {}, got {}") -> None:
        """RuntimeError for states of another size."""
        if hx._aval.shape != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """ValueError, RuntimeError for input or states that do not fit."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The states with the sequences of the batch in another order."""
        return hx if permutation is None else hx.index_select(1, permutation)

    def extra_repr(self) -> str:
        """See Module."""
        shown = [f"{self.input_size}, {self.hidden_size}"]
        for name, default in (("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0), ("bidirectional", False)):
            value = getattr(self, name)
            if (value is not default) if isinstance(default, bool) else value != default:
                shown.append(f"{name}={value}")
        return ", ".join(shown)

    # ------------------------------------------------------------------ calling

    _rnn_rank_said = "D"

    def _rnn_run(self, input: Any, hx: Any) -> tuple[Any, Any]:
        """What `forward` of the classes below gives."""
        self._update_flat_weights()
        if isinstance(input, PackedSequence):
            return self._rnn_run_packed(input, hx)
        rank, dim = input.dim(), 0 if self.batch_first else 1
        if rank not in (2, 3):
            raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {rank}{self._rnn_rank_said} instead")
        batched = rank == 3
        if not batched:
            input = input.unsqueeze(dim)
        hx = self._rnn_zeros(input, input._aval.shape[dim]) if hx is None else self._rnn_with_batch(hx, batched)
        self.check_forward_args(input, hx, None)
        output, *last = self._rnn_call(input, hx, self._flat_weights, *self._rnn_options(), self.batch_first)
        return (output, self._rnn_hidden(last)) if batched else (output.squeeze(dim), self._rnn_hidden([t.squeeze(1) for t in last]))

    def _rnn_run_packed(self, packed: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        data, batch_sizes, order, inverse = packed
        hx = self._rnn_zeros(data, batch_of(batch_sizes)) if hx is None else self.permute_hidden(hx, order)
        self._rnn_check_packed(data, hx, batch_sizes)
        output, *last = self._rnn_call(data, batch_sizes, hx, self._flat_weights, *self._rnn_options())
        return PackedSequence(output, batch_sizes, order, inverse), self.permute_hidden(self._rnn_hidden(last), inverse)

    def _rnn_call(self, *arguments: Any) -> Any:
        return _functions[self.mode.lower()](*arguments)

    def _rnn_options(self) -> tuple[Any, ...]:
        return self.bias, self.num_layers, self.dropout, self.training, self.bidirectional

    def _rnn_zeros(self, input: Tensor, batch: int) -> Any:
        """The states to begin with where none are given."""
        return self._rnn_no_states(input, batch, self.hidden_size)

    def _rnn_no_states(self, input: Tensor, batch: int, width: int) -> Tensor:
        return zeros(self._rnn_states, batch, width, dtype=input.dtype, device=input.device)

    def _rnn_with_batch(self, hx: Any, batched: bool) -> Any:
        """The states that are given, which have a batch where the input has one. RuntimeError where they do not."""
        if hx.dim() != (3 if batched else 2):
            kind, rank = ("batched 3-D", 3) if batched else ("unbatched 2-D", 2)
            raise RuntimeError(f"For {kind} input, hx should also be {rank}-D but got {hx.dim()}-D tensor")
        return hx if batched else hx.unsqueeze(1)

    def _rnn_hidden(self, last: list[Tensor]) -> Any:
        return last[0]

    def _rnn_check_packed(self, data: Tensor, hx: Any, batch_sizes: Tensor) -> None:
        self.check_forward_args(data, hx, batch_sizes)


class _OfOneState(RNNBase):
    """A network whose state is one tensor."""

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Tensor]:
        """The last layer's states at all times, and the last states of all layers.

        input: (time, batch, input_size), with `batch_first` (batch, time, input_size), or (time, input_size) without a batch; or a PackedSequence,
        and so is the output then. hx: the states to begin with, (layers * directions, batch, hidden_size); zeros by default.
        """
        return self._rnn_run(input, hx)


_NO_PROJECTION = "proj_size argument is only supported for LSTM, not RNN or GRU"


class RNN(_OfOneState):
    """Layers of plain recurrent networks (Elman 1990): h = tanh(input @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh), or relu of it.

    ``RNN(input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False, dropout=0.0, bidirectional=False)``. dropout: of
    what each layer but the last gives, in training. Parameters: weight_ih_l0 (hidden_size, input_size), weight_hh_l0 (hidden_size, hidden_size),
    bias_ih_l0, bias_hh_l0, and so on for each layer, those of the other direction with `_reverse`. ValueError for an unknown nonlinearity.
    """

    _rnn_rank_said = "D tensor"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError(_NO_PROJECTION)
        if len(args) > 3:
            nonlinearity, args = args[3], (*args[:3], *args[4:])
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        self.__dict__["nonlinearity"] = nonlinearity
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)


class GRU(_OfOneState):
    """Layers of gated recurrent units (Cho et al. 2014):

        r, z = sigmoid(of_input[0] + of_h[0]), sigmoid(of_input[1] + of_h[1]);  n = tanh(of_input[2] + r * of_h[2]);  h = (1 - z) * n + z * h

    of_input = input @ weight_ih.T + bias_ih and of_h = h @ weight_hh.T + bias_hh in three parts. Arguments as of RNN without `nonlinearity`; weights
    have 3 * hidden_size rows.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError(_NO_PROJECTION)
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """Layers of long short-term memory (Hochreiter and Schmidhuber 1997):

        i, f, g, o = input @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh, in four parts
        c = sigmoid(f) * c + sigmoid(i) * tanh(g);  h = sigmoid(o) * tanh(c)

    Arguments as of RNN without `nonlinearity`; weights have 4 * hidden_size rows. proj_size: the states are h @ weight_hr_l0.T, of so many features
    (Sak et al. 2014).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The size of the cells for an input."""
        return *self.get_expected_hidden_size(input, batch_sizes)[:2], self.hidden_size

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """ValueError, RuntimeError for input, states or cells that do not fit."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden[0], self.get_expected_hidden_size(input, batch_sizes), "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], self.get_expected_cell_size(input, batch_sizes), "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """States and cells with the sequences of the batch in another order."""
        return hx if permutation is None else (hx[0].index_select(1, permutation), hx[1].index_select(1, permutation))

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        """The last layer's states at all times, and the last states and cells of all layers.

        input: as of RNN. hx: the pair of states, (layers * directions, batch, proj_size or hidden_size), and cells, (layers * directions, batch,
        hidden_size), to begin with; zeros by default.
        """
        return self._rnn_run(input, hx)

    def _rnn_zeros(self, input: Tensor, batch: int) -> Any:
        cells = self._rnn_no_states(input, batch, self.hidden_size)
        return self._rnn_no_states(input, batch, self.proj_size) if self.proj_size else cells, cells

    def _rnn_with_batch(self, hx: Any, batched: bool) -> Any:
        kind, rank = ("batched 3-D", 3) if batched else ("unbatched 2-D", 2)
        if hx[0].dim() != rank or hx[1].dim() != rank:
            ranks = f"({hx[0].dim()}-D, {hx[1].dim()}-D)"
            raise RuntimeError(f"For {kind} input, hx and cx should also be {rank}-D but got {ranks} tensors")
        return hx if batched else (hx[0].unsqueeze(1), hx[1].unsqueeze(1))

    def _rnn_hidden(self, last: list[Tensor]) -> Any:
        return tuple(last)

    def _rnn_check_packed(self, data: Tensor, hx: Any, batch_sizes: Tensor) -> None:
        """Nothing: what does not fit is `torch.lstm`'s to refuse, as in PyTorch."""


# ---------------------------------------------------------------------- cells


class RNNCellBase(Module):
    """What is one step of a recurrent network. weight_ih: (num_chunks * hidden_size, input_size); weight_hh: (num_chunks * hidden_size, hidden_size);
    bias_ih, bias_hh: (num_chunks * hidden_size,) or None."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        for name, shape in {"weight_ih": (num_chunks * hidden_size, input_size), "weight_hh": (num_chunks * hidden_size, hidden_size)}.items():
            setattr(self, name, Parameter(empty(shape, device=device, dtype=dtype)))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(num_chunks * hidden_size, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights anew."""
        _spread(self, self.hidden_size)

    def _cell_weights(self) -> tuple[Any, ...]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _cell_expect_rank(self, x: Tensor, what: str) -> None:
        if x.dim() not in (1, 2):
            raise ValueError(f"{self._get_name()}: Expected {what} to be 1D or 2D, got {x.dim()}D instead")

    def _cell_step(self, name: str, input: Any, hx: Any) -> Any:
        """The next state, where that is one tensor."""
        self._cell_expect_rank(input, "input")
        if hx is not None:
            self._cell_expect_rank(hx, "hidden")
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
        if hx is None:
            hx = zeros(input.size(0), self.hidden_size, dtype=input.dtype, device=input.device)
        elif not batched:
            hx = hx.unsqueeze(0)
        made = _functions[name](input, hx, *self._cell_weights())
        return made if batched else made.squeeze(0)

    def extra_repr(self) -> str:
        """See Module."""
        shown = [f"{self.input_size}, {self.hidden_size}"]
        shown += [f"bias={self.bias}"] if self.bias is not True else []
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return ", ".join(shown + ([f"nonlinearity={nonlinearity}"] if nonlinearity != "tanh" else []))


class RNNCell(RNNCellBase):
    """One step of a plain recurrent network: tanh, or relu, of input @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None, dtype: Any = None
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, num_chunks=1, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state, of (batch, input_size) and (batch, hidden_size), or both without a batch. `hx` is zeros by default. ValueError,
        RuntimeError where sizes do not fit."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._cell_step(f"rnn_{self.nonlinearity}_cell", input, hx)


class GRUCell(RNNCellBase):
    """One step of gated recurrent units: see GRU."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3, device=device, dtype=dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state: as of RNNCell."""
        return self._cell_step("gru_cell", input, hx)


class LSTMCell(RNNCellBase):
    """One step of an LSTM: see LSTM."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4, device=device, dtype=dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The next state and cell, of (batch, input_size) and a pair of (batch, hidden_size), or all without a batch. ValueError, RuntimeError where
        sizes do not fit."""
        self._cell_expect_rank(input, "input")
        if hx is not None:
            for i, state in enumerate(hx):
                self._cell_expect_rank(state, f"hx[{i}]")
        batched, given = input.dim() == 2, hx
        if not batched:
            input = input.unsqueeze(0)
        if given is None:
            none = zeros(input.size(0), self.hidden_size, dtype=input.dtype, device=input.device)
            given = none, none
        elif not batched:
            given = given[0].unsqueeze(0), given[1].unsqueeze(0)
        h, c = _functions["lstm_cell"](input, given, *self._cell_weights())
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))
