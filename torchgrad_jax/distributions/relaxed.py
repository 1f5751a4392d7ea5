"""Differentiable relaxations of discrete distributions (Maddison, Mnih & Teh, "The concrete distribution", 2017; Jang, Gu & Poole, "Categorical
reparameterization with Gumbel-softmax", 2017)."""

from __future__ import annotations

import math
from typing import Any

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.distributions.categories import Categorical, _OfCategories
from torchgrad_jax.distributions.counts import _Trials
from torchgrad_jax.distributions.distribution import Distribution
from torchgrad_jax.distributions.transformed import TransformedDistribution
from torchgrad_jax.distributions.transforms import ExpTransform, SigmoidTransform
from torchgrad_jax.distributions.utils import clamp_probs
from torchgrad_jax.functions.random_factories import rand
from torchgrad_jax.nn.activation import softplus


def _between(d: Distribution, like: Tensor, sample_shape: Any) -> Tensor:
    """Uniform numbers, none of them 0 or 1."""
    return clamp_probs(rand(d._extended_shape(sample_shape), dtype=like.dtype, device=like.device))


class LogitRelaxedBernoulli(_Trials):
    """Log-odds of relaxed trials: logistic numbers about `logits`, over the temperature."""

    support = C.real
    has_rsample = True
    _law_carried = ("temperature",)

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self.temperature = temperature
        super().__init__(probs, logits, validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u, p = _between(self, self._param, sample_shape), clamp_probs(self.probs)
        return (u.log() - (-u).log1p() + p.log() - (-p).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        logits, y = self._log_odds_and_value(value)
        z = logits - y * self.temperature
        return self.temperature.log() + z - 2 * softplus(z)


class ExpRelaxedCategorical(_OfCategories):
    """Logarithms of relaxed one-hot vectors."""

    support = C.real_vector
    has_rsample = True
    _law_carried = ("_categorical", "temperature")

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self.temperature = temperature
        self._of(probs, logits, validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        gumbel = -(-_between(self, self._param, sample_shape).log()).log()
        return ((self.logits + gumbel) / self.temperature).log_softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        n, y = self._categorical._num_events, self._law_checked(value)
        scores = (self.logits - self.temperature * y).log_softmax(-1).sum(-1)
        constant = self.temperature.log() * (n - 1) + math.lgamma(n)
        return scores + constant


class _Relaxed(TransformedDistribution):
    """What has a relaxation's parameters."""

    has_rsample: Any = True
    temperature: Any = property(lambda self: self.base_dist.temperature)
    logits: Any = property(lambda self: self.base_dist.logits)
    probs: Any = property(lambda self: self.base_dist.probs)

    def __init__(self, base_distribution: Any, transforms: Any, validate_args: bool | None = None) -> None:
        super().__init__(base_distribution, transforms, validate_args)
        if self._validate_args:
            # PyTorch checks both of its parameters, after which what it is made of shows both.
            for name in ("logits", "probs"):
                getattr(base_distribution, name)


class RelaxedBernoulli(_Relaxed):
    """Values between 0 and 1; the lower the temperature, the nearer to an end."""

    arg_constraints = _Trials.arg_constraints
    support: Any = C.unit_interval

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform(), validate_args)


class RelaxedOneHotCategorical(_Relaxed):
    """Probabilities of categories; the lower the temperature, the nearer to one-hot vectors."""

    arg_constraints = Categorical.arg_constraints
    support: Any = C.simplex

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits, validate_args), ExpTransform(), validate_args)
