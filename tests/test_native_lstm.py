"""The steps of an LSTM by a loop of C's: what jax.numpy says they are, interpreted and compiled, and whatever transforms them."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from tiers import in_both_tiers

import torchgrad_jax as torch
from torchgrad_jax.operators.recurrent import lstm
from torchgrad_jax.runtime._jax_compat import call_x64
from torchgrad_jax.runtime.baseline.loops import how_of_steps
from torchgrad_jax.runtime.compiling.foreign import LSTM, knows
from torchgrad_jax.runtime.native import handlers

pytestmark = [pytest.mark.operators, pytest.mark.skipif(not knows(LSTM), reason="the core in pure Python, or a processor without tiles")]


def numbers(shape, seed, scale=1.0):
    return (np.random.RandomState(seed).standard_normal(shape) * scale).astype("f")


def by_loop(given, shapes, reverse):
    made = [np.full(shape, 7, "f") for shape in shapes]
    assert handlers.recur(given, made, how_of_steps(*given, reverse=reverse))
    return made


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 2, 5), (7, 5, 33), (20, 17, 64), (4, 70, 130)])
def test_steps_and_their_gradient(sizes, reverse):
    times, batch, width = sizes
    sums, weight = numbers((times, batch, 4 * width), 0), numbers((4 * width, width), 1, width**-0.5)
    state, cell = numbers((batch, width), 2), numbers((batch, width), 3)
    shapes = [(times, batch, width), (batch, width), (batch, width), (times, batch, 4 * width), (times, batch, width)]
    made = by_loop([sums, weight, state, cell], shapes, reverse)
    for found, wanted in zip(made, call_x64(jax.jit(partial(lstm._turns, reverse=reverse)), sums, weight, state, cell), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    for of_states in ([], [numbers((times, batch, width), 6)]):
        given = [made[3], made[4], weight, cell, numbers((batch, width), 4), numbers((batch, width), 5), *of_states]
        found = by_loop(given, [(batch, width), (batch, width), sums.shape], reverse)
        for one, wanted in zip(found, call_x64(jax.jit(partial(lstm._turns_back, reverse=reverse)), *given), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-3, atol=1e-4)


def test_sequences_do_not_know_of_each_other():
    """So each has the same bits, however many there are and whichever thread takes them."""
    given = [numbers((40, 24, 4 * 48), 0), numbers((4 * 48, 48), 1, 0.1), numbers((24, 48), 2), numbers((24, 48), 3)]
    shapes = [(40, 24, 48), (24, 48), (24, 48), (40, 24, 4 * 48), (40, 24, 48)]
    whole = by_loop(given, shapes, False)
    assert all([all([(a == b).all() for a, b in zip(by_loop(given, shapes, False), whole, strict=True)]) for _ in range(5)])
    some = [np.ascontiguousarray(x) for x in (given[0][:, 5:9], given[1], given[2][5:9], given[3][5:9])]
    part = by_loop(some, [(40, 4, 48), (4, 48), (4, 48), (40, 4, 4 * 48), (40, 4, 48)], False)
    assert (part[0] == whole[0][:, 5:9]).all() and (part[4] == whole[4][:, 5:9]).all()


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return torch.nn.LSTM(3, 5, 2, bidirectional=True)


def test_both_tiers():
    torch.manual_seed(0)
    layer = torch.nn.LSTM(12, 24, 2, bidirectional=True)
    x = torch.tensor(numbers((20, 8, 12), 0), requires_grad=True)

    def step():
        x.grad = None
        states, (h, c) = layer(x)
        (states.square().sum() + h.sum() - c.sum()).backward()
        return states.detach().numpy(), x.grad.numpy()

    for a, b in zip(*in_both_tiers(step), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_derivatives_of_every_kind(layer):
    """Of double precision it goes by what jax.numpy says."""
    x, twin = torch.tensor(numbers((4, 2, 3), 0)), torch.nn.LSTM(3, 5, 2, bidirectional=True).double()
    twin.load_state_dict({name: p.double() for name, p in layer.state_dict().items()})

    def of(model):
        return lambda t: model(t)[0].square().sum()

    for transform in (torch.func.grad, torch.func.hessian, lambda f: lambda t: torch.func.jvp(f, (t,), (torch.ones_like(t),))[1]):
        found, wanted = transform(of(layer))(x), transform(of(twin))(x.double())
        assert found.dtype == torch.float32 and torch.allclose(found.double(), wanted, rtol=1e-3, atol=1e-4)
    mapped = torch.vmap(torch.func.grad(of(layer)))(torch.stack([x, x + 1]))
    assert torch.allclose(mapped[1], torch.func.grad(of(layer))(x + 1), atol=1e-5)
    loss = of(layer)(x.requires_grad_())
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    assert torch.isfinite(torch.autograd.grad(grad.square().sum(), x)[0]).all()


def test_what_is_no_number():
    layer = torch.nn.LSTM(2, 4)
    x = torch.ones(3, 3, 2)
    x[1, 1] = torch.nan
    found = layer(x)[0]
    assert torch.isfinite(found[:, [0, 2]]).all() and torch.isnan(found[1:, 1]).all() and torch.isfinite(found[0, 1]).all()
    assert torch.isfinite(layer(torch.full((2, 1, 2), 1e30))[0]).all()
