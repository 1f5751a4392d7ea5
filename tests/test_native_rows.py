"""Softmax and standardization of rows by loops of C's: what they are of double precision, interpreted and compiled, and whatever transforms them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.runtime.compiling.foreign import ROWS, knows

F = torch.nn.functional
pytestmark = [pytest.mark.operators, pytest.mark.skipif(not knows(ROWS), reason="the core in pure Python")]


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype("f")


def softmax(x):
    return F.softmax(x, -1)


def log_softmax(x):
    return F.log_softmax(x, -1)


def layer_norm(x, weight=None, bias=None):
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def softmax_of_columns(x):
    return F.softmax(x[..., None] * torch.arange(1.0, 3, dtype=x.dtype), -2)


def log_softmax_of_columns(x):
    return F.log_softmax(x[..., None] * torch.linspace(-1, 1, 70, dtype=x.dtype), -2)


def running_sums(x):
    return x.cumsum(-1) * x


CASES = {
    "softmax": (softmax, 0), "log_softmax": (log_softmax, 0), "softmax of columns": (softmax_of_columns, 0),
    "log_softmax of columns": (log_softmax_of_columns, 0), "running sums": (running_sums, 0),
    "plain layer": (layer_norm, 0),
    "weighed": (layer_norm, 1),
    "shifted": (layer_norm, 2),
}  # fmt: skip


def results(function, arrays, dtype):
    """The result, and all gradients."""
    tensors = [torch.tensor(array, dtype=dtype, requires_grad=True) for array in arrays]
    y = function(*tensors)
    (y * torch.tensor(numbers(*y.shape, seed=7), dtype=dtype)).sum().backward()
    return [t.detach().numpy() for t in (y, *[t.grad for t in tensors])]


@settings(max_examples=60, deadline=None)
@given(
    case=st.sampled_from(sorted(CASES)), lead=st.lists(st.integers(1, 7), max_size=3), length=st.integers(2, 200),
    scale=st.sampled_from([0.01, 1, 30]), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_rows(case, lead, length, scale, seed):
    function, parameters = CASES[case]
    arrays = [scale * numbers(*lead, length, seed=seed), *[numbers(length, seed=seed + 1 + i) for i in range(parameters)]]
    for found, wanted in zip(results(function, arrays, torch.float32), results(function, arrays, torch.float64), strict=True):
        assert found.dtype == np.float32 and found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * max(1, np.abs(wanted).max()))


def test_dimensions_that_are_standardized_together():
    x, weight, bias = numbers(4, 1, 3, 5), numbers(1, 3, 5, seed=1), numbers(1, 3, 5, seed=2)

    def function(x, weight, bias):
        return F.layer_norm(x, (1, 3, 5), weight, bias)

    for found, wanted in zip(results(function, [x, weight, bias], torch.float32), results(function, [x, weight, bias], torch.float64), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    _, mean, rstd = call("native_layer_norm", torch.tensor(x), (1, 3, 5), torch.tensor(weight), torch.tensor(bias), 1e-5)
    assert mean.shape == rstd.shape == (4, 1, 1, 1)
    np.testing.assert_allclose(mean.numpy().ravel(), x.reshape(4, 15).mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rstd.numpy().ravel(), 1 / np.sqrt(x.reshape(4, 15).var(1) + 1e-5), rtol=1e-5)


@pytest.mark.parametrize("row", [[1, np.nan, 2], [-np.inf] * 3, [np.inf, 1, 2], [-np.inf, 0, 1]])
@pytest.mark.parametrize("times", [1, 40])
def test_what_is_not_finite(row, times):
    x = np.array(row * times, "f")
    for function in (softmax, log_softmax, softmax_of_columns, layer_norm):
        found, wanted = (function(torch.tensor(x, dtype=dtype)).numpy() for dtype in (torch.float32, torch.float64))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.parametrize("shape", [(300, 200), (8, 30)])
def test_both_tiers_and_many_threads(case, shape):
    function, parameters = CASES[case]
    arrays = [numbers(*shape), *[numbers(shape[-1], seed=i) for i in range(parameters)]]
    first = results(function, arrays, torch.float32)
    compiled = torch.jit(lambda *tensors: results_of(function, tensors))
    for _ in range(3):
        last = compiled(*[torch.tensor(array) for array in arrays])
    for found, wanted in zip(last, first, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-5)


def results_of(function, tensors):
    """As `results`, of tensors, within a function that is compiled."""
    y, pull = torch.func.vjp(function, *tensors)
    return y, *pull(torch.tensor(numbers(*y.shape, seed=7)))


@pytest.mark.parametrize("case", sorted(CASES))
def test_derivatives_of_every_kind(case):
    function, parameters = CASES[case]
    tensors = [torch.tensor(numbers(3, 6)), *[torch.tensor(numbers(6, seed=i)) for i in range(parameters)]]
    same = [t.double() for t in tensors]
    places = tuple(range(len(tensors)))

    def cubed(*tensors):
        return (function(*tensors) ** 3).sum()

    def twice(*tensors):
        return sum(g.pow(2).sum() for g in torch.func.grad(cubed, places)(*tensors))

    for one in (cubed, twice):
        for found, wanted in zip(torch.func.grad(one, places)(*tensors), torch.func.grad(one, places)(*same), strict=True):
            assert found.dtype == torch.float32 and torch.allclose(found.double(), wanted, rtol=1e-3, atol=1e-3)
    tangents = [torch.func.jvp(cubed, tuple(ts), tuple(torch.ones_like(t) for t in ts))[1] for ts in (tensors, same)]
    assert torch.allclose(tangents[0].double(), tangents[1], rtol=1e-3, atol=1e-3)
    mapped = torch.vmap(function, in_dims=(0,) + (None,) * parameters)(*tensors)
    assert torch.allclose(mapped, function(*tensors), atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 4, 4, 4), (2, 5, 23), (8, 16, 30, 30)])
def test_channels(shape):
    arrays = [3 + 2 * numbers(*shape), numbers(shape[1], seed=1), numbers(shape[1], seed=2)]
    running = {dtype: (torch.zeros(shape[1], dtype=dtype), torch.ones(shape[1], dtype=dtype)) for dtype in (torch.float32, torch.float64)}

    def function(x, weight, bias):
        return F.batch_norm(x, *running[x.dtype], weight, bias, training=True)

    for found, wanted in zip(results(function, arrays, torch.float32), results(function, arrays, torch.float64), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * max(1, np.abs(wanted).max()))
    for found, wanted in zip(*running.values(), strict=True):
        assert torch.allclose(found.double(), wanted, rtol=1e-5)
    compiled = torch.jit(lambda *tensors: results_of(function, tensors))
    for _ in range(3):
        last = compiled(*[torch.tensor(array) for array in arrays])
    for found, wanted in zip(last, results(function, arrays, torch.float32), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_second_derivatives_of_channels():
    tensors = [torch.tensor(numbers(2, 3, 4, 4)), torch.tensor(numbers(3, seed=1)), torch.tensor(numbers(3, seed=2))]

    def twice(*tensors):
        def cubed(*tensors):
            return (F.batch_norm(tensors[0], None, None, *tensors[1:], training=True) ** 3).sum()

        return sum(g.pow(2).sum() for g in torch.func.grad(cubed, (0, 1, 2))(*tensors))

    found, wanted = (torch.func.grad(twice, (0, 1, 2))(*ts) for ts in (tensors, [t.double() for t in tensors]))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one.double(), other, rtol=1e-3, atol=1e-2)


def test_a_gradient_of_the_mean_alone():
    x, same = (torch.tensor(numbers(3, 8), dtype=dtype, requires_grad=True) for dtype in (torch.float32, torch.float64))
    for t in (x, same):
        _, mean, rstd = call("native_layer_norm", t, (8,), None, None, 1e-5)
        (mean.sum() + rstd.pow(2).sum()).backward()
    assert torch.allclose(x.grad.double(), same.grad, rtol=1e-4, atol=1e-5)


def test_jax_gets_what_it_can_export():
    """A foreign function is known in this process alone."""
    function = torch.to_jax(lambda x: F.layer_norm(F.softmax(x, -1), (300,)))
    x = numbers(200, 300)
    exported = jax.export.export(jax.jit(function))(x)
    np.testing.assert_allclose(exported.call(x), F.layer_norm(F.softmax(torch.tensor(x), -1), (300,)).numpy(), rtol=1e-3, atol=1e-3)
    assert "torchgrad_jax_rows" not in exported.mlir_module()
