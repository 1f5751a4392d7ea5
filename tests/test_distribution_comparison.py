"""The comparison of distributions with PyTorch's: a sample of it agrees, and what is wrong is noticed. The whole: ``compat_suite distributions``."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from side_by_side import error_of, like_pytorch

import torchgrad_jax as tj

torch = pytest.importorskip("torch")
from compat_suite import distributions as suite  # noqa: E402 - needs PyTorch

pytestmark = pytest.mark.operators
D = tj.distributions


@pytest.fixture(autouse=True)
def arguments_are_validated():
    """PyTorch stops validating for good once something was compiled."""
    torch.distributions.Distribution.set_default_validate_args(True)


# ---------------------------------------------------------------------- numbers


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sampler", ["_standard_gamma", "_sample_dirichlet"])
def test_gamma_numbers_are_pytorchs_bit_for_bit(sampler, dtype):
    concentrations = np.random.RandomState(0).gamma(0.4, 5, (100, 3))
    concentrations[0] = 0, 1e-3, 1e4
    found = []
    for m in (tj, torch):
        m.manual_seed(3)
        drawn = getattr(m, sampler)(m.tensor(concentrations, dtype=getattr(m, dtype)))
        found.append([drawn.numpy(), m.rand(1).numpy(), m.randn(3).numpy()])  # and the state afterwards
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_what_is_no_concentration():
    for m in (tj, torch):
        m.manual_seed(0)
        tiny = m.finfo(m.float32).tiny
        assert m._standard_gamma(m.tensor([math.nan, 0.0, -0.7])).tolist() == [tiny] * 3
        assert m._standard_gamma(m.tensor([math.inf])).item() == math.inf
        for sampler, kernel in ((m._standard_gamma, "gamma_cpu"), (m._sample_dirichlet, "dirichlet")):
            with pytest.raises(NotImplementedError, match=f"\"{kernel}\" not implemented for 'Long'"):
                sampler(m.tensor([1, 2]))
            with pytest.raises(NotImplementedError, match=f"\"{kernel}\" not implemented for 'Half'"):
                sampler(m.tensor([1.0], dtype=m.float16))


def test_what_distributions_of_other_packages_are_made_of():
    def program(m):
        utils, t = m.distributions.utils, m.arange(24.0).reshape(2, 3, 4)
        m.manual_seed(0)
        drawn = [utils._standard_normal(m.Size([20]), m.float32, "cpu"), utils._standard_normal((3,), dtype=m.float64, device=m.device("cpu"))]
        return [*drawn, m.rand(1), *(utils._sum_rightmost(t, n) for n in range(5)), utils._sum_rightmost(value=t[0, 0, 0], dim=0)]

    like_pytorch(program)()


# ---------------------------------------------------------------------- the comparison


def measured(names, checks, dtype="float64"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return suite.measure(names, [dtype], checks)


@pytest.mark.parametrize("name, check", [
    ("Normal", "density"), ("Gamma", "samples"), ("Beta", "gradients"), ("Dirichlet", "moments"), ("Categorical", "expand"), ("Bernoulli", "entropy"),
    ("Weibull", "cdf"), ("VonMises", "samples"), ("LowRankMultivariateNormal", "density"), ("MixtureSameFamily", "text"), ("Wishart", "samples"),
])  # fmt: skip
def test_a_sample_of_the_comparison_agrees(name, check):
    found = measured([name], [check])
    assert sum(count for _, count, _ in found.values()) >= 2
    assert [d for _, _, differences in found.values() for d in differences] == []


def test_refusals_agree(monkeypatch):
    monkeypatch.setattr(suite, "TEXTS", suite.TEXTS[::8])
    assert [d for _, _, differences in measured([], ["errors"], "float32").values() for d in differences] == []


def test_transforms_agree(monkeypatch):
    monkeypatch.setattr(suite, "TRANSFORMS", [t for t in suite.TRANSFORMS if "Stick" in t[0] or "Corr" in t[0] or "Affine" in t[0]])
    assert [d for _, _, differences in measured([], ["transforms"]).values() for d in differences] == []


def test_another_density_is_noticed(monkeypatch):
    density = D.Laplace.log_prob
    monkeypatch.setattr(D.Laplace, "log_prob", lambda self, value: density(self, value) * (1 + 1e-5))
    assert all(agree == 0 for agree, _, _ in measured(["Laplace"], ["density"]).values())


def test_other_numbers_are_noticed(monkeypatch):
    monkeypatch.setattr(D.Uniform, "rsample", lambda self, shape=(): self.high - tj.rand(self._extended_shape(shape)) * (self.high - self.low))
    assert all(agree == 0 for agree, _, _ in measured(["Uniform"], ["samples"]).values())


# ---------------------------------------------------------------------- programs


@like_pytorch
def test_the_most_specific_divergence_is_called(m):
    d = m.distributions

    class Mine(d.Normal):
        pass

    class Yours(d.Normal):
        pass

    p, q = Mine(0.0, 1.0), Yours(1.0, 1.0)
    before = d.kl_divergence(p, q).item()
    d.register_kl(Mine, d.Normal)(lambda p, q: "left")
    left = d.kl_divergence(p, q)
    d.register_kl(d.Normal, Yours)(lambda p, q: "right")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ambiguous = d.kl_divergence(p, q)
    d.register_kl(Mine, Yours)(lambda p, q: "both")
    both = d.kl_divergence(p, q)
    for pair in ((Mine, d.Normal), (d.Normal, Yours), (Mine, Yours)):
        del d.kl._KL_REGISTRY[pair]
    d.kl._KL_MEMOIZE.clear()
    return before, left, ambiguous, [str(w.message) for w in told if w.category is RuntimeWarning], both


@like_pytorch
def test_divergences_are_registered_for_any_classes(m):
    d = m.distributions

    class Base:
        pass

    class Mine(Base):
        pass

    d.register_kl(Base, d.Normal)(lambda p, q: "by the base")
    found = d.kl_divergence(Mine(), d.Normal(0.0, 1.0))
    del d.kl._KL_REGISTRY[Base, d.Normal]
    d.kl._KL_MEMOIZE.clear()
    return found, [error_of(lambda pair=pair: d.register_kl(*pair)) for pair in ((1, d.Normal), (d.Normal, 1), ("x", "y"))]


@like_pytorch
def test_covariances_follow_from_the_factor_that_a_subclass_has(m):
    class Mine(m.distributions.MultivariateNormal):
        @property
        def _unbroadcasted_scale_tril(self):
            return self.factor

        @_unbroadcasted_scale_tril.setter
        def _unbroadcasted_scale_tril(self, value):
            self.factor = value

        @m.distributions.utils.lazy_property
        def covariance_matrix(self):
            return super().covariance_matrix

    matrix, found = m.tensor([[2.0, 0.5], [0.5, 1.0]]), []
    for name in ("covariance_matrix", "precision_matrix"):
        made = Mine(m.zeros(3, 2), **{name: matrix})
        found += [made.factor, made.scale_tril, made.covariance_matrix, made.precision_matrix, made.log_prob(m.ones(2)), name in vars(made)]
    m.manual_seed(0)
    return [*found, m.distributions.utils._standard_normal((2, 3), m.float64, "cpu"), m.distributions.utils._standard_normal([2], None, None)]


@like_pytorch
def test_a_users_distribution(m):
    d = m.distributions

    class Scaled(d.TransformedDistribution):
        arg_constraints = {"scale": d.constraints.positive}

        def __init__(self, scale, validate_args=None):
            self.scale = scale
            super().__init__(d.Normal(m.zeros(2), 1.0), [d.transforms.AffineTransform(0.0, scale)], validate_args=validate_args)

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Scaled, _instance)
            new.scale = self.scale.expand(batch_shape)
            return super().expand(batch_shape, _instance=new)

    made = Scaled(m.tensor([2.0, 3.0]))
    m.manual_seed(0)
    return repr(made), made.expand((3, 2)).sample().tolist(), made.log_prob(m.ones(2)).tolist(), made.expand((3, 2)).scale.tolist()


@like_pytorch
def test_a_subclass_with_a_table_of_its_own(m):
    d = m.distributions

    class Shifted(d.Normal):
        arg_constraints = {"scale": d.constraints.real}

    class Tempered(d.Categorical):
        def __init__(self, probs):
            super().__init__(probs=probs)

    made = Shifted(m.zeros(2), m.tensor([1.0, -1.0])).expand((3, 2))
    try:
        Tempered(m.tensor([0.5, 0.5])).expand((3,))
    except NotImplementedError as error:
        refused = str(error)
    return repr(made), made.scale.tolist(), made.loc.shape, refused, type(d.Chi2(m.ones(2)).expand((3, 2))).__name__


@like_pytorch
def test_a_distribution_without_support(m):
    class Bare(m.distributions.Distribution):
        arg_constraints: dict = {}

        def log_prob(self, value):
            if self._validate_args:
                self._validate_sample(value)
            return value

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        Bare().log_prob(m.tensor(1.0))
    return [str(w.message).partition("'>")[2] for w in told]


@like_pytorch
def test_cached_transforms(m):
    T = m.distributions.transforms
    x = m.tensor([0.3, -20.0])
    found = []
    for transform in (T.SigmoidTransform(cache_size=1), T.ComposeTransform([T.TanhTransform(), T.AffineTransform(0, 2)], cache_size=1)):
        y = transform(x)
        found.append((transform.inv(y) is x, transform.inv.inv is transform, m.equal(transform.inv(y + 0), x)))
    return found


@like_pytorch
def test_a_relaxed_distribution_shows_both_parameters_of_what_it_is_made_of(m):
    return repr(m.distributions.RelaxedBernoulli(m.tensor(1.0), m.tensor(0.5)).base_dist)


@like_pytorch
def test_where_a_divergence_is_infinite_its_gradient_is_zero(m):
    alpha = m.tensor([0.5, 2.5], requires_grad=True)
    p = m.distributions.Pareto(m.tensor([0.5, 2.5]), alpha)
    found = [m.distributions.kl_divergence(p, q) for q in (m.distributions.Exponential(m.ones(2)), m.distributions.Normal(m.zeros(2), m.ones(2)))]
    return found, [m.autograd.grad(kl[1], alpha, retain_graph=True) for kl in found]


def test_a_divergence_of_a_batch_is_infinite_where_the_mean_is():
    p = D.Pareto(tj.tensor([0.5, 2.5]), tj.tensor([0.5, 2.5]))
    found = D.kl_divergence(p, D.Gamma(tj.tensor([[1.0], [2.0], [3.0]]), tj.ones(3, 1)))
    assert found.isinf().tolist() == [[True, False]] * 3 and (found[:, 1] > 0).all()


@like_pytorch
def test_batches_that_do_not_fit_are_named_in_the_order_of_the_distributions(m):
    d = m.distributions
    d.kl_divergence(d.Dirichlet(m.ones(2, 3)), d.Dirichlet(m.ones(4, 3)))


@like_pytorch
def test_powers_by_a_number_have_a_sign_and_the_distribution_functions_that_follow_from_it(m):
    d, x, found = m.distributions, m.tensor([0.4, 0.6]), []
    for exponent in (2, -1.0, m.tensor([1.0, 2.0])):
        power = d.transforms.PowerTransform(exponent)
        of = d.TransformedDistribution(d.HalfNormal(1.0), [power])
        found.append((power.exponent, power.sign, power.inv.sign, of.cdf(x), of.icdf(x), power.forward_shape((3, 1))))
    return found


@like_pytorch
def test_samplers_of_the_users_own_are_given_a_size(m):
    d, told = m.distributions, []

    class Own(d.Distribution):
        arg_constraints = {}
        has_rsample = True

        def __init__(self):
            super().__init__(m.Size([2]), m.Size([3]), validate_args=False)

        def rsample(self, sample_shape=m.Size()):  # noqa: B008 - as PyTorch's page has it
            told.append((type(sample_shape) is m.Size, sample_shape.numel()))
            return m.zeros(self._extended_shape(sample_shape))

    over = d.TransformedDistribution(Own(), d.transforms.IndependentTransform(d.ExpTransform(), 1))
    return [list(s.shape) for s in (Own().sample(), over.sample(), over.rsample(), d.Independent(Own(), 1).sample(), Own().sample(m.Size([4])))], told
