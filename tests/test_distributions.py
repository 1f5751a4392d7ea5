"""Distributions, where nothing need be compared with PyTorch. The rest: test_distribution_comparison.py."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys

import numpy as np
import pytest

import torchgrad_jax as tj

pytestmark = pytest.mark.operators
D = tj.distributions


# ---------------------------------------------------------------------- implicit derivatives


def test_gamma_samples_move_with_their_concentration():
    special = pytest.importorskip("scipy.special")
    a = np.array([0.05, 0.7, 3.0, 40.0])
    x = special.gammaincinv(a, [[0.01], [0.3], [0.9]])
    h = 1e-5 * a
    expected = (special.gammaincinv(a + h, special.gammainc(a, x)) - special.gammaincinv(a - h, special.gammainc(a, x))) / (2 * h)
    found = tj._standard_gamma_grad(tj.tensor(np.broadcast_to(a, x.shape)), tj.tensor(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_beta_samples_move_with_their_concentrations():
    special = pytest.importorskip("scipy.special")
    a, b = (v.ravel() for v in np.meshgrid([0.05, 0.7, 3.0, 40.0, 900.0], [0.1, 1.0, 8.0, 300.0]))
    for level in (0.02, 0.4, 0.97):
        x = special.betaincinv(a, b, level)
        inside = (x > 1e-12) & (x < 1 - 1e-9)
        p, q, y = a[inside], b[inside], x[inside]
        h = 1e-5 * p
        expected = (special.betaincinv(p + h, q, special.betainc(p, q, y)) - special.betaincinv(p - h, q, special.betainc(p, q, y))) / (2 * h)
        found = tj._dirichlet_grad(tj.tensor(y), tj.tensor(p), tj.tensor(p + q)).numpy() * (1 - y)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_they_are_differentiated_no_further():
    a = tj.tensor([2.0, 0.5], requires_grad=True)
    (first,) = tj.autograd.grad(tj._standard_gamma(a).sum(), a, create_graph=True)
    with pytest.raises(NotImplementedError, match="the derivative for '_standard_gamma_grad' is not implemented."):
        tj.autograd.grad(first.sum(), a)
    with pytest.raises(RuntimeError, match="derivative for aten::_sample_dirichlet is not implemented"):
        tj._sample_dirichlet(a).sum().backward()


def test_samples_within_transforms():
    c = tj.tensor([2.0, 0.5, 30.0])
    for d in (lambda c: D.Gamma(c, 2.0, validate_args=False), lambda c: D.Beta(c, 2.0, validate_args=False)):
        tj.manual_seed(0)
        gradient = tj.func.grad(lambda c, d=d: d(c).rsample().sum())(c)
        tj.manual_seed(0)
        leaf = c.clone().requires_grad_()
        d(leaf).rsample().sum().backward()
        assert tj.allclose(gradient, leaf.grad)
    drawn = tj.vmap(lambda c: D.Gamma(c, 1.0, validate_args=False).rsample(), randomness="different")(tj.full((50,), 3.0))
    assert drawn.shape == (50,) and drawn.unique().numel() == 50


def test_parameters_are_looked_at_once():
    counters = tj.runtime.counters
    loc, scale, value = tj.ones(3) * 2, tj.ones(3).exp(), tj.ones(3).cos()
    counters.reset()
    D.Gamma(loc, scale, validate_args=False).log_prob(value)
    assert counters.flushed == 0
    made = D.Gamma(loc, scale)
    assert counters.flushed == 1
    made.log_prob(value)
    assert counters.flushed == 1, "the first look computed it, too: on the host it is asked by NumPy"
    made.log_prob(tj.ones(3).sin())
    assert counters.flushed == 2


NUMBERS = ["real", "boolean", "positive", "nonnegative", "unit_interval", "nonnegative_integer", "one_hot", "simplex", "real_vector"]


@pytest.mark.parametrize("name", NUMBERS)
def test_constraints_hold_of_what_is_at_hand_where_they_are_met(name):
    region = getattr(D.constraints, name)
    rows = [[0.0, 1.0, 0.0], [0.25, 0.25, 0.5], [-1.0, 1.0, 1.0], [0.5, 3.0, float("nan")], [2.0, 0.0, 1.0]]
    values = [tj.tensor(row, dtype=dtype) for row in rows for dtype in (tj.float32, tj.float64, tj.bfloat16)]
    for value in [*values, tj.tensor(rows), tj.tensor([0, 1, 0]), tj.ones(2, 3, requires_grad=True)]:
        assert region.holds(value) == bool(region.check(value).all())
    assert not region.holds(tj.ones(3).cos() * 0.5), "it is pending"


def test_constraints_hold_by_the_bounds_and_the_question_that_they_have():
    between = D.constraints.integer_interval(0, 2)
    assert between.holds(tj.tensor([0, 2])) and not between.holds(tj.tensor([0, 3]))
    assert not D.constraints.greater_than(tj.tensor(0.0)).holds(tj.tensor(1.0)), "a bound that is a tensor is not asked for here"

    class Never(type(D.constraints.positive)):
        def check(self, value):
            return value < value

    assert not Never(0.0).holds(tj.tensor(1.0))
    with pytest.raises(ValueError, match="within the support"):
        D.Categorical(logits=tj.zeros(3)).log_prob(tj.tensor(3))


def test_set_default_validate_args():
    D.Distribution.set_default_validate_args(False)
    try:
        assert D.Normal(0.0, -1.0).scale.item() == -1.0
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="Expected parameter scale"):
        D.Normal(0.0, -1.0)


def test_pickles_and_modules_have_pytorchs_names():
    made = D.HalfNormal(tj.tensor([1.0, 2.0]))
    assert type(made).__module__ == "torchgrad_jax.distributions.half_normal"
    assert pickle.loads(pickle.dumps(made)).scale.tolist() == [1.0, 2.0]
    transform = pickle.loads(pickle.dumps(D.transforms.ExpTransform().inv))
    assert transform(tj.tensor(1.0)).item() == 0.0
    program = """
import torchgrad_jax.distributions.weibull  # loads its own module before the package
from torchgrad_jax.distributions.half_normal import HalfNormal
import torchgrad_jax as torch
assert torch.distributions.HalfNormal is HalfNormal and torch.distributions.normal.Normal is torch.distributions.Normal
assert torch.distributions.kl_divergence(HalfNormal(1.), HalfNormal(1.)).item() == 0.
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_training_step_through_rsample():
    tj.manual_seed(0)
    loc, log_scale = tj.zeros(3, requires_grad=True), tj.zeros(3, requires_grad=True)
    target = D.Independent(D.Normal(tj.tensor([1.0, -1.0, 2.0]), 0.5), 1)
    optimizer = tj.optim.Adam([loc, log_scale], lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        loss = D.kl_divergence(D.Independent(D.Normal(loc, log_scale.exp()), 1), target)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


# ---------------------------------------------------------------------- where PyTorch is not what is compared with


def test_densities_of_angles_sum_to_one():
    angles = tj.linspace(-math.pi, math.pi, 2001, dtype=tj.float64)[1:]
    for concentration in (0.01, 3.0, 60.0):
        density = D.VonMises(tj.tensor(0.5, dtype=tj.float64), tj.tensor(concentration, dtype=tj.float64)).log_prob(angles).exp()
        assert density.sum().item() * 2 * math.pi / 2000 == pytest.approx(1, abs=1e-12)


def test_modes_are_where_the_density_is_largest():
    x = tj.linspace(0, 1, 2001, dtype=tj.float64)[1:-1]
    for made in (D.Kumaraswamy(2.0, 3.0), D.Beta(2.0, 3.0), D.Weibull(0.4, 2.0), D.LogNormal(-1.0, 0.5), D.InverseGamma(3.0, 1.0)):
        assert x[made.log_prob(x).argmax()].item() == pytest.approx(made.mode.item(), abs=1e-3)


def test_divergences_of_a_batch_are_those_of_its_members():
    v = tj.tensor([[2.0, 0.5], [0.5, 1.0]])
    p, q = D.Wishart(tj.tensor(4.0), v), [D.Wishart(tj.tensor(df), precision_matrix=v) for df in (3.0, 5.0)]
    found = D.kl_divergence(p, D.Wishart(tj.tensor([3.0, 5.0]), precision_matrix=v))
    assert found.tolist() == pytest.approx([D.kl_divergence(p, each).item() for each in q], rel=1e-5)


@pytest.mark.parametrize("p, q", [
    (D.ContinuousBernoulli(0.3), D.Uniform(0.0, 2.0)), (D.Beta(2.0, 3.0), D.Gamma(2.0, 1.5)), (D.Uniform(0.2, 0.7), D.Beta(2.0, 3.0)),
    (D.Uniform(0.2, 0.7), D.Gumbel(0.1, 2.0)), (D.Beta(2.0, 3.0), D.Normal(1.0, 2.0)), (D.Kumaraswamy(2.0, 3.0), D.Kumaraswamy(2.0, 3.0)),
])  # fmt: skip
def test_divergences_are_means_of_differences_of_densities(p, q):
    x = (tj.arange(4000, dtype=tj.float64) + 0.5) / 4000
    x = x[(x > 0.2) & (x < 0.7)] if isinstance(p, D.Uniform) else x
    density = p.log_prob(x)
    expected = (density.exp() * (density - q.log_prob(x))).sum().item() / 4000
    assert D.kl_divergence(p, q).item() == pytest.approx(expected, rel=2e-3, abs=1e-6)


def test_log_normalizers_give_entropies_and_divergences():
    p, q = D.Gamma(tj.tensor([2.0, 0.7]), 3.0), D.Gamma(tj.tensor([1.0, 5.0]), tj.tensor(0.5))
    bregman = D.kl._KL_REGISTRY[D.ExponentialFamily, D.ExponentialFamily]
    for a, b in (
        (p, q),
        (D.Dirichlet(tj.tensor([2.0, 3.0, 0.4])), D.Dirichlet(tj.tensor([1.0, 0.3, 4.0]))),
        (D.Normal(0.5, 2.0), D.Normal(0.0, 1.0)),
    ):
        assert tj.allclose(bregman(a, b), D.kl_divergence(a, b), rtol=1e-5)
    for made in (D.Normal(0.5, 2.0), D.Gamma(2.0, 3.0), D.Exponential(2.0), D.Bernoulli(0.3)):
        assert D.ExponentialFamily.entropy(made).item() == pytest.approx(made.entropy().item(), rel=1e-5)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: tj.distributions.Chi2(-1.0), "Expected parameter df (Tensor of shape ()) of distribution Chi2()"),
        (lambda: tj.distributions.Chi2(tj.tensor([1.0, 0.0])), "Expected parameter df (Tensor of shape (2,)) of distribution Chi2()"),
        (lambda: tj.distributions.Multinomial(-1, tj.ones(2)), "Expected parameter total_count (Tensor of shape (2,)) of distribution Binomial("),
        (lambda: tj.distributions.Normal(1j, 1.0), "Input arguments must all be instances of Number"),
    ],
)
def test_parameters_that_were_taken_without_a_word_are_refused(make, words):
    with pytest.raises(ValueError) as error:
        make()
    assert words in str(error.value)
