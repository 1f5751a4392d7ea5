"""Kullback-Leibler divergences as formulas, by pairs of families.

Those of one family are formulas of their own, since differences of entropies would cancel. Those of two are the cross-entropy less the entropy of p:
the mean of q's log-density needs few expectations under p (`_mean_log` and the like), the same for many p.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.distributions.categories import Categorical, OneHotCategorical
from torchgrad_jax.distributions.counts import Bernoulli, Binomial, ContinuousBernoulli, Geometric, Poisson, _log_one_plus_exp
from torchgrad_jax.distributions.gammas import Beta, Dirichlet, Exponential, Gamma
from torchgrad_jax.distributions.gaussians import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    log_det_of_factor,
    low_rank_log_det,
    squared_distances,
)
from torchgrad_jax.distributions.locations import Cauchy, Laplace, Normal, Uniform
from torchgrad_jax.distributions.pushed import Gumbel, Pareto
from torchgrad_jax.distributions.utils import euler_constant
from torchgrad_jax.functions.matrices.decompositions import solve_triangular
from torchgrad_jax.functions.shaping import broadcast_tensors

_INF = math.inf


# ---------------------------------------------------------------------- one family


def _normals(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return (ratio - 1 - ratio.log() + ((p.loc - q.loc) / q.scale).square()) / 2


def _laplaces(p: Any, q: Any) -> Tensor:
    apart, ratio = (p.loc - q.loc).abs(), p.scale / q.scale
    return apart / q.scale + ratio * (-apart / p.scale).exp() - ratio.log() - 1


def _cauchys(p: Any, q: Any) -> Tensor:
    """Chyzak & Nielsen, "A closed-form formula for the Kullback-Leibler divergence between Cauchy distributions", 2019."""
    return ((p.scale + q.scale).square() + (p.loc - q.loc).square()).log() - (4 * p.scale * q.scale).log()


def _uniforms(p: Any, q: Any) -> Tensor:
    return _unless((p.low < q.low) | (p.high > q.high), ((q.high - q.low) / (p.high - p.low)).log())


def _exponentials(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


def _gammas(p: Any, q: Any) -> Tensor:
    a, b, ratio = p.concentration, q.concentration, p.rate / q.rate
    return b * ratio.log() + a * (1 / ratio - 1) + (a - b) * a.digamma() + b.lgamma() - a.lgamma()


def _dirichlets(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    means = a.digamma() - a.sum(-1, keepdim=True).digamma()
    return -p._log_normalizer(a) + q._log_normalizer(b) + ((a - b) * means).sum(-1)


def _gumbels(p: Any, q: Any) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return apart + euler_constant * (ratio - 1) - ratio.log() - 1 + ((1 + ratio).lgamma() - apart).exp()


def _paretos(p: Any, q: Any) -> Tensor:
    scales, ratio = p.scale / q.scale, q.alpha / p.alpha
    return _unless(p.support.lower_bound < q.support.lower_bound, q.alpha * scales.log() - ratio.log() + ratio - 1)


def _poissons(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


def _bernoullis(p: Any, q: Any) -> Tensor:
    found = _log_one_plus_exp(q.logits) - _log_one_plus_exp(p.logits) - p.probs * (q.logits - p.logits)
    return _unless(((q.probs == 0) & (p.probs > 0)) | ((q.probs == 1) & (p.probs < 1)), found)


def _binomials(p: Any, q: Any) -> Tensor:
    if (q.total_count > p.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    found = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return _unless(p.total_count > q.total_count, found)


def _geometrics(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


def _categoricals(p: Any, q: Any) -> Tensor:
    terms = (p.logits - q.logits) * p.probs
    # What p never chooses does not count; what q alone never chooses does.
    terms = _unless((q.probs == 0).expand_as(terms), terms).masked_fill((p.probs == 0).expand_as(terms), 0.0)
    return terms.sum(-1)


def _continuous_bernoullis(p: Any, q: Any) -> Tensor:
    return p.mean * (p.logits - q.logits) + p._log_constant() - q._log_constant() + (-p.probs).log1p() - (-q.probs).log1p()


# ---------------------------------------------------------------------- multivariate normal distributions


def _covariance_terms(p: Any) -> tuple[Tensor, list[Tensor]]:
    """The logarithm of the covariance's determinant, and matrices A with covariance = sum of A A'."""
    if isinstance(p, LowRankMultivariateNormal):
        return low_rank_log_det(p), [p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag.sqrt().diag_embed()]
    return 2 * log_det_of_factor(p._unbroadcasted_scale_tril), [p._unbroadcasted_scale_tril]


def _gaussians(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        low = isinstance(p, LowRankMultivariateNormal), isinstance(q, LowRankMultivariateNormal)
        rank = "Low Rank " if all(low) else "(Low Rank) " if any(low) else ""
        kinds = f"two {rank}Multivariate Normals with"
        raise ValueError(f"KL-divergence between {kinds}{' ' * 26}different event shapes cannot be computed")
    (log_det_p, factors), (log_det_q, _) = _covariance_terms(p), _covariance_terms(q)
    factor = q.scale_tril if isinstance(q, LowRankMultivariateNormal) else q._unbroadcasted_scale_tril
    # The trace of Q^-1 A A' is the sum of squares of L^-1 A.
    trace: Any = sum(solve_triangular(*_same_batch(factor, a), upper=False).square().sum((-2, -1)) for a in factors)
    distance = squared_distances(factor, q.loc - p.loc)
    return (log_det_q - log_det_p + trace + distance - p.event_shape[0]) / 2


def _same_batch(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    batch = broadcast_tensors(a[..., 0, 0], b[..., 0, 0])[0].shape
    return a.expand(batch + a.shape[-2:]), b.expand(batch + b.shape[-2:])


# ---------------------------------------------------------------------- two families


def _unless(impossible: Tensor, found: Tensor) -> Tensor:
    """Infinite where p has values that q has not."""
    return found.masked_fill(impossible, _INF)


def _mean_log(p: Any) -> Tensor:
    """The mean of log x."""
    if isinstance(p, Gamma):
        return p.concentration.digamma() - p.rate.log()
    if isinstance(p, Exponential):
        return -euler_constant - p.rate.log()
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return _mean_log_between(p.low, p.high)


def _mean_log_complement(p: Any) -> Tensor:
    """The mean of log(1 - x) under a uniform distribution."""
    return _mean_log_between(1 - p.high, 1 - p.low)


def _mean_log_between(low: Tensor, high: Tensor) -> Tensor:
    return (high.xlogy(high) - low.xlogy(low)) / (high - low) - 1


def _mean_exp(p: Any, s: Tensor) -> Tensor:
    """The mean of exp(s x), for s < 0."""
    if isinstance(p, Normal):
        return (s * p.loc + (s * p.scale).square() / 2).exp()
    if isinstance(p, Gamma):
        return (-p.concentration * (-s / p.rate).log1p()).exp()
    if isinstance(p, Exponential):
        return p.rate / (p.rate - s)
    return ((s * p.high).exp() - (s * p.low).exp()) / (s * (p.high - p.low))


def _least(p: Any) -> Any:
    return p.low if isinstance(p, Uniform) else 0.0


def _beyond_unit(p: Any) -> Tensor:
    return (p.low < 0) | (p.high > 1)


def _mean(p: Any) -> Tensor:
    """The mean; what the formula gives where it is infinite, for `_if_finite` to replace, since what is masked has a gradient of 0."""
    return p.scale * p.alpha / (p.alpha - 1) if isinstance(p, Pareto) else p.mean


def _variance(p: Any) -> Tensor:
    """The variance, as `_mean`."""
    return p.alpha * (p.scale / (p.alpha - 1)).square() / (p.alpha - 2) if isinstance(p, Pareto) else p.variance


def _if_finite(p: Any, moment: int, found: Tensor) -> Tensor:
    """Infinite where that moment of p is."""
    return _unless(p.alpha <= moment, found) if isinstance(p, Pareto) else found


def _to_normal(p: Any, q: Any) -> Tensor:
    squared = (_variance(p) + (_mean(p) - q.loc).square()) / q.scale.square()
    return _if_finite(p, 2, (squared + math.log(2 * math.pi)) / 2 + q.scale.log() - p.entropy())


def _to_exponential(p: Any, q: Any) -> Tensor:
    found = _if_finite(p, 1, _mean(p) * q.rate - q.rate.log() - p.entropy())
    return _unless(p.low < 0, found) if isinstance(p, Uniform) else found


def _to_gamma(p: Any, q: Any) -> Tensor:
    a, b = q.concentration, q.rate
    found = _if_finite(p, 1, b * _mean(p) - a * b.log() + a.lgamma() - (a - 1) * _mean_log(p) - p.entropy())
    return _unless(p.low < 0, found) if isinstance(p, Uniform) else found


def _to_gumbel(p: Any, q: Any) -> Tensor:
    apart = (p.mean - q.loc) / q.scale
    return q.scale.log() + apart + (q.loc / q.scale).exp() * _mean_exp(p, -1 / q.scale) - p.entropy()


def _to_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    found = -p.mean * q.logits - (-q.probs).log1p() - q._log_constant() - p.entropy()
    return _unless(_beyond_unit(p), found) if isinstance(p, Uniform) else found


def _to_uniform(p: Any, q: Any) -> Tensor:
    """Of what lies between 0 and 1."""
    return _unless((q.low > 0) | (q.high < 1), -p.entropy() + (q.high - q.low).log())


def _uniform_to_beta(p: Any, q: Any) -> Tensor:
    a, b = q.concentration1, q.concentration0
    found = q._log_normalizer(a, b) - (a - 1) * _mean_log(p) - (b - 1) * _mean_log_complement(p) - p.entropy()
    return _unless(_beyond_unit(p), found)


def _uniform_to_pareto(p: Any, q: Any) -> Tensor:
    found = (q.alpha + 1) * _mean_log(p) - q.alpha.log() - q.alpha * q.scale.log() - p.entropy()
    return _unless(p.low < q.scale, found)


def _normal_to_laplace(p: Any, q: Any) -> Tensor:
    """The mean distance from a point is that of a folded normal distribution (Leone, Nelson & Nottingham 1961)."""
    apart = p.loc - q.loc
    z = apart / p.scale
    distance = p.scale * math.sqrt(2 / math.pi) * (-z.square() / 2).exp() + apart * (z / math.sqrt(2)).erf()
    return (2 * q.scale).log() + distance / q.scale - p.entropy()


def _bernoulli_to_poisson(p: Any, q: Any) -> Tensor:
    return q.rate - p.probs * q.rate.log() - p.entropy()


def _infinite(p: Any, q: Any) -> Tensor:
    """p has values that q has not."""
    first = p.mean
    return first.new_full((), _INF).expand(p.batch_shape)


_Formula = Callable[[Any, Any], Tensor]


def _against(formula: _Formula, q: type, *ps: type) -> dict[tuple[type, type], _Formula]:
    return {(p, q): formula for p in ps}


# Of p, all q with a smaller support.
_SMALLER: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,), ContinuousBernoulli: (Pareto,), Poisson: (Bernoulli, Binomial), Pareto: (Beta, ContinuousBernoulli, Uniform),
    **dict.fromkeys((Exponential, Gamma), (Beta, ContinuousBernoulli, Pareto, Uniform)),
    **dict.fromkeys((Gumbel, Laplace, Normal), (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
}  # fmt: skip

DIVERGENCES: dict[tuple[type, type], _Formula] = {
    (Bernoulli, Bernoulli): _bernoullis, (Beta, Beta): lambda p, q: _dirichlets(p._dirichlet, q._dirichlet), (Binomial, Binomial): _binomials,
    (Categorical, Categorical): _categoricals, (Cauchy, Cauchy): _cauchys, (ContinuousBernoulli, ContinuousBernoulli): _continuous_bernoullis,
    (Dirichlet, Dirichlet): _dirichlets, (Exponential, Exponential): _exponentials, (Gamma, Gamma): _gammas, (Geometric, Geometric): _geometrics,
    (Gumbel, Gumbel): _gumbels, (Laplace, Laplace): _laplaces, (Normal, Normal): _normals,
    (OneHotCategorical, OneHotCategorical): lambda p, q: _categoricals(p._categorical, q._categorical), (Pareto, Pareto): _paretos,
    (Poisson, Poisson): _poissons, (Uniform, Uniform): _uniforms, (Bernoulli, Poisson): _bernoulli_to_poisson, (Normal, Laplace): _normal_to_laplace,
    (Uniform, Beta): _uniform_to_beta, (Uniform, Pareto): _uniform_to_pareto,
    **{(p, q): _gaussians for p in (MultivariateNormal, LowRankMultivariateNormal) for q in (MultivariateNormal, LowRankMultivariateNormal)},
    **_against(_to_normal, Normal, Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform),
    **_against(_to_exponential, Exponential, Beta, ContinuousBernoulli, Gamma, Pareto, Uniform),
    **_against(_to_gamma, Gamma, Beta, Exponential, Pareto, Uniform),
    **_against(_to_gumbel, Gumbel, Exponential, Gamma, Normal, Uniform),
    **_against(_to_continuous_bernoulli, ContinuousBernoulli, Beta, Uniform),
    **_against(_to_uniform, Uniform, Beta, ContinuousBernoulli),
    **{(p, q): _infinite for p, qs in _SMALLER.items() for q in qs},
}  # fmt: skip
