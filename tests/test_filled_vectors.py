"""Element-wise operations whose plan serves one length only: operands are filled up to one of a few; and scipy, imported when it has paid."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.runtime.baseline import NumPyForm
from torchgrad_jax.runtime.compiling.foreign import ALONG, knows
from torchgrad_jax.runtime.operation import Signature
from torchgrad_jax.runtime.vectors import filled_length

_SHAPES = [(), (1,), (16,), (17,), (3, 5), (2, 1, 9), (40, 30), (0, 2), (1025,)]


@pytest.mark.parametrize("shape", _SHAPES)
def test_common_divisors(shape):
    rng = np.random.default_rng(1)
    a, b = rng.integers(-60, 60, shape), rng.integers(-60, 60, shape[-1:])
    assert torch.gcd(torch.tensor(a), torch.tensor(b)).tolist() == np.gcd(a, b).tolist()
    assert torch.lcm(torch.tensor(a), torch.tensor(b)).tolist() == np.lcm(a, b).tolist()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 2**20))
def test_operands_that_broadcast(shape, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-99, 99, shape), rng.integers(-99, 99, [n if rng.integers(2) else 1 for n in shape])
    assert torch.gcd(torch.tensor(a), torch.tensor(b)).tolist() == np.gcd(a, b).tolist()


def test_a_new_size_is_not_traced(monkeypatch):
    def step(n):
        concentration = torch.linspace(0.5, 9, n).requires_grad_()
        torch.distributions.Gamma(concentration, 2.0).rsample().sum().backward()
        return torch.gcd(torch.arange(n), torch.tensor(6)).tolist(), concentration.grad.tolist()

    step(5)
    traced, trace = list[str](), Signature._trace
    monkeypatch.setattr(Signature, "_trace", lambda self: (traced.append(self.bop.name), trace(self))[1])
    found, gradient = step(7)
    assert found == np.gcd(np.arange(7), 6).tolist() and min(gradient) > 0
    assert not {"gcd", "_standard_gamma_grad", "StandardGammaBackward0"} & set(traced)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_gamma_samples_are_those_of_one_element_each(dtype):
    torch.manual_seed(0)
    concentration = torch.linspace(0.3, 60, 21, dtype=dtype)
    drawn = torch._standard_gamma(concentration)
    together = torch._standard_gamma_grad(concentration, drawn)
    alone = torch.stack([torch._standard_gamma_grad(c, d) for c, d in zip(concentration, drawn, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-9)


def test_a_loss_that_is_added_up_is_none_of_these():
    x, y = torch.ones(4, 3), torch.zeros(4, 3, dtype=torch.float64)
    assert torch.nn.functional.mse_loss(x, y).shape == ()


def test_lengths():
    assert [filled_length((n,)) for n in (0, 1, 16, 17, 1024, 1025)] == [0, 16, 16, 64, 1024, 0]


_SCRIPT = """
import sys
import torchgrad_jax as torch
imported = []
for n in range(2, 12):
    found = torch.special.i0e(torch.linspace(-0.9, 0.9, n))
    assert abs(found[-1].item() - 0.493163) < 1e-5, found
    imported.append("scipy.special" in sys.modules)
print(imported)
"""


@pytest.mark.skipif("TORCHGRAD_JAX_BASELINE" in os.environ, reason="the interpreter is off")
def test_scipy_is_imported_when_it_was_wanted_often_enough():
    pure = {**os.environ, "TORCHGRAD_JAX_TYPED": "off"}  # compiled, it is a function of C's
    told = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, env=pure).stdout.strip()
    imported = [word == "True" for word in told.strip("[]").split(", ")]
    assert not imported[0] and imported[-1] and imported == sorted(imported)


@pytest.mark.skipif(not knows(ALONG), reason="costs are those of C's loops")
@pytest.mark.parametrize("make", [
    lambda x: torch.nn.functional.binary_cross_entropy(x, x.detach()), lambda x: x.var(1), lambda x: x.std(1).sum(), lambda x: x.topk(5, 1).values,
    lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
])  # fmt: skip
def test_forms_cost_about_what_their_plans_do(make, monkeypatch):
    """Else a program of large arrays would be interpreted for ever, or compiled at once."""
    made, signatures = Signature.__init__, list[Signature]()
    monkeypatch.setattr(Signature, "__init__", lambda self, *given: (made(self, *given), signatures.append(self))[0])
    x = torch.rand(613, 1021).requires_grad_()
    make(x).sum().backward()
    large = [sig for sig in signatures if isinstance(sig.baseline, NumPyForm) and sig.baseline.planned and sig.baseline.cost > 100_000]
    assert large
    for sig in large:
        assert 0.2 < sig.baseline.cost / sig._plan().cost < 5, sig.bop
