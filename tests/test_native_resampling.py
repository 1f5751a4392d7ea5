"""Sums of a few elements along a dimension by a loop of C's: what they are of double precision, interpreted and compiled, and whatever transforms
them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.operators.resampling import Taps
from torchgrad_jax.runtime.baseline.loops import how_of_taps
from torchgrad_jax.runtime.compiling.foreign import TAPS, knows
from torchgrad_jax.runtime.native import handlers

F = torch.nn.functional
pytestmark = [pytest.mark.operators, pytest.mark.skipif(not knows(TAPS), reason="the core in pure Python")]


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype("f")


@settings(max_examples=80, deadline=None)
@given(
    lead=st.lists(st.integers(1, 5), max_size=2), n=st.integers(1, 9), after=st.lists(st.integers(1, 5), max_size=2), new=st.integers(1, 9),
    most=st.integers(1, 4), weighed=st.booleans(), partly=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_sums(lead, n, after, new, most, weighed, partly, seed):
    random = np.random.RandomState(seed)
    index, there = random.randint(0, n, (new, most)), random.random_sample((new, most)) < 0.7
    weight = random.standard_normal((new, most)) if weighed else None
    taps = Taps(index, weight, there if partly else None, n)
    x, axis = numbers(*lead, n, *after, seed=seed), len(lead)
    x[random.random_sample(x.shape) < 0.02] = np.inf
    out = np.full((*lead, new, *after), 7, "f")
    assert handlers.resample(x, out, how_of_taps(x, taps=taps, axis=axis))
    picked = np.take(x.astype(np.float64), index, axis) * (1 if weight is None else weight.reshape(new, most, *(1,) * len(after)))
    wanted = np.where(taps.there.reshape(new, most, *(1,) * len(after)), picked, 0) if partly else picked
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(out, wanted.sum(axis + 1), rtol=1e-5, atol=1e-5)


CASES = {
    "bilinear": lambda x: F.interpolate(x, size=(7, 11), mode="bilinear", align_corners=False),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "nearest": lambda x: F.interpolate(x, size=(3, 20)),
    "smaller": lambda x: F.interpolate(x, size=(4, 3), mode="bilinear", antialias=True),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (4, 5)),
    "reflected": lambda x: F.pad(x, (2, 1, 3, 2), mode="reflect"),
    "replicated": lambda x: F.pad(x, (2, 1, -1, 2), mode="replicate"),
    "circular": lambda x: F.pad(x, (2, 1, 3, -2), mode="circular"),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_results_and_derivatives_are_those_of_double_precision(case):
    function = CASES[case]
    x = torch.tensor(numbers(2, 3, 6, 8))
    same = x.double()

    def cubed(x):
        return (function(x) ** 3).sum()

    for one in (function, torch.func.grad(cubed), torch.func.grad(lambda x: torch.func.grad(cubed)(x).pow(2).sum())):
        found, wanted = one(x), one(same)
        assert found.dtype == torch.float32 and torch.allclose(found.double(), wanted, rtol=1e-3, atol=1e-3)
    found, wanted = (torch.func.jvp(cubed, (t,), (torch.ones_like(t),))[1] for t in (x, same))
    assert torch.allclose(found.double(), wanted, rtol=1e-4, atol=1e-3)
    assert torch.allclose(torch.vmap(function)(x[:, None]), torch.stack([function(one[None]) for one in x]), atol=1e-6)


@pytest.mark.parametrize("case", sorted(CASES))
def test_both_tiers_and_many_threads(case):
    x = torch.tensor(numbers(16, 8, 40, 40))
    compiled = torch.jit(lambda x: torch.func.vjp(CASES[case], x)[1](CASES[case](x))[0])
    interpreted = torch.func.vjp(CASES[case], x)[1](CASES[case](x))[0]
    for _ in range(3):
        assert torch.allclose(compiled(x), interpreted, rtol=1e-4, atol=1e-4)


def test_jax_gets_what_it_can_export():
    """A foreign function is known in this process alone."""
    x = numbers(1, 2, 5, 5)
    exported = jax.export.export(jax.jit(torch.to_jax(CASES["bilinear"])))(x)
    np.testing.assert_allclose(exported.call(x), CASES["bilinear"](torch.tensor(x)).numpy(), rtol=1e-5, atol=1e-5)
    assert "torchgrad_jax_taps" not in exported.mlir_module()
