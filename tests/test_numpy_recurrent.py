"""Recurrent layers on NumPy arrays: what their formulas give there, before their plans are made and after."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from test_numpy_forms import S
from test_numpy_rows import assert_is_the_plan, bound_to

import torchgrad_jax as torch
from torchgrad_jax.operators.recurrent import on_arrays
from torchgrad_jax.runtime import baseline_tier, execution_mode, operation
from torchgrad_jax.runtime.baseline import NumPyForm
from torchgrad_jax.runtime.recorder import recorder

pytestmark = pytest.mark.operators
RNN = torch.nn.utils.rnn


@pytest.fixture(autouse=True)
def fused():
    with execution_mode("fused"), baseline_tier(True):
        yield


@pytest.fixture
def traced(monkeypatch):
    """The names of what is traced."""
    names, trace = [], operation.trace
    monkeypatch.setattr(operation, "trace", lambda function, name, inputs: names.append(name) or trace(function, name, inputs))
    return names


# Of 4 times, 2 samples, 3 features and 5 states; the samples are of 4 and 2 times.
ENDS = np.array([2, 2, 1, 1])


def _calls(gates, *cells):
    """With biases and without, of equal lengths and of others, in both directions."""
    weights, biases, states = (S(5 * gates, 3), S(5 * gates, 5)), (S(5 * gates), S(5 * gates)), [S(2, 5) for _ in range(1 + len(cells))]
    return [(S(4, 2, 3), *weights, *biases, *states), (S(4, 2, 3), *weights, None, None, *states)]


CALLS = {
    "rnn_layer": [(*call, *rest) for call in _calls(1) for rest in ((None, "tanh", False), (ENDS, "relu", True))],
    "gru_layer": [(*call, *rest) for call in _calls(3) for rest in ((None, True), (ENDS, False))],
    "lstm_layer": [(*call, None, *rest) for call in _calls(4, "c") for rest in ((None, True), (ENDS, False))]
    + [(S(4, 2, 3), S(20, 3), S(20, 2), S(20), S(20), S(2, 2), S(2, 5), S(2, 5), ENDS, True)],
    "mkldnn_rnn_layer": [(*call, reverse) for call in _calls(4, "c") for reverse in (False, True)],
}


@pytest.mark.parametrize("name", CALLS)
def test_form_gives_what_the_plan_gives(name):
    for call in CALLS[name]:
        for dtype in (np.float32, np.float64):
            assert_is_the_plan(*bound_to(name, call, dtype))


LAYERS = {
    "LSTM": lambda: torch.nn.LSTM(3, 5, bidirectional=True),
    "projected": lambda: torch.nn.LSTM(3, 5, proj_size=2, bias=False),
    "GRU": lambda: torch.nn.GRU(3, 5, bidirectional=True, num_layers=2),
    "tanh": lambda: torch.nn.RNN(3, 5),
    "relu": lambda: torch.nn.RNN(3, 5, nonlinearity="relu", bidirectional=True),
}


def training(layer, dtype, packed, looked_at, lengths=(7, 5, 5, 2)):
    """A function of the gradients and the loss of a layer, where its states at all times are looked at, or its last ones, or both; from given first
    states."""
    torch.manual_seed(0)
    net = LAYERS[layer]().to(dtype)
    x = torch.randn(max(lengths), len(lengths), 3, dtype=dtype, requires_grad=True)

    def step():
        for leaf in (x, *net.parameters()):
            leaf.grad = None
        out, last = net(RNN.pack_padded_sequence(x, lengths) if packed else x)
        states = last if isinstance(last, tuple) else (last,)
        loss = torch.zeros((), dtype=dtype)
        if looked_at != "last":
            loss = loss + (out.data if packed else out).square().sum()
        if looked_at != "all":
            loss = loss + sum([(s * s).sum() for s in states])
        loss.backward()
        return [loss.item(), *[leaf.grad.numpy().copy() for leaf in (x, *net.parameters())]]

    return step


@pytest.mark.parametrize("looked_at", ["all", "last", "both"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_first_run_has_the_bits_of_later_ones_and_traces_no_layer(layer, dtype, packed, looked_at, traced):
    step = training(layer, dtype, packed, looked_at)
    first = step()
    assert not [name for name in traced if "layer" in name.lower()]
    for _ in range(12):
        last = step()
    assert [name for name in traced if "layer" in name.lower()]  # as one list of calls it is its plan
    for one, other in zip(first, last, strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_length_is_not_traced(traced):
    for length in range(3, 9):
        training("GRU", torch.float32, True, "last", (length, 2))()
        training("LSTM", torch.float32, False, "both", (length,) * 3)()
    assert not [name for name in traced if "layer" in name.lower()]


def test_in_half_precision_and_of_integers_there_is_no_form(traced):
    net = torch.nn.GRU(2, 3).to(torch.bfloat16)
    assert net(torch.ones(4, 1, 2, dtype=torch.bfloat16))[0].float().isfinite().all()
    assert "gru_layer" in traced


def test_a_layer_that_is_part_of_many_new_programs_becomes_its_plan():
    net, x, found = torch.nn.GRU(2, 3), torch.randn(11, 1, 2), set()
    for turn in range(on_arrays._OFTEN + 3):
        y = x
        for place in range(7):  # another program in each turn
            y = y.sin() if turn >> place & 1 else y.cos()
        out, _ = net(y)
        (sig,) = [v.signature for v in recorder().epoch.values.values() if v.signature.bop.name == "gru_layer"][:1]
        out.sum().item()
        found.add(type(sig._baseline) is NumPyForm)
    assert found == {True, False}


def test_functions_of_jax_are_taken_where_something_is_traced():
    net, x = torch.nn.LSTM(2, 3), torch.randn(4, 2, 2)
    expected = net(x)[0].detach().numpy()
    mapped = torch.vmap(lambda t: net(t.unsqueeze(1))[0].squeeze(1), 1, 1)(x)
    jitted = jax.jit(torch.to_jax(lambda t: net(t)[0]))(jnp.asarray(x.numpy()))
    np.testing.assert_allclose(mapped.detach().numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(np.asarray(jitted), expected, atol=1e-6)
