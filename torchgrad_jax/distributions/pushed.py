"""Families that are transforms of simpler ones (Johnson, Kotz & Balakrishnan, chapters 14, 20 to 23; Kumaraswamy 1980 and Jones 2009; Aitchison &
Shen 1980 for the logistic-normal distribution)."""

from __future__ import annotations

import math
from typing import Any

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.distributions.distribution import Distribution
from torchgrad_jax.distributions.gammas import Exponential, Gamma
from torchgrad_jax.distributions.locations import Cauchy, Normal, Uniform
from torchgrad_jax.distributions.transformed import TransformedDistribution
from torchgrad_jax.distributions.transforms import AbsTransform, AffineTransform, ExpTransform, PowerTransform, StickBreakingTransform
from torchgrad_jax.distributions.utils import broadcast_all, euler_constant
from torchgrad_jax.functions.limits import finfo
from torchgrad_jax.functions.overloads import where
from torchgrad_jax.functions.random_factories import rand

_NAN, _INF = math.nan, math.inf


class _OfBase(TransformedDistribution):
    """A family that has its base's parameters."""

    has_rsample: Any = True
    loc: Any = property(lambda self: self.base_dist.loc)
    scale: Any = property(lambda self: self.base_dist.scale)


class LogNormal(_OfBase):
    """Exponentials of normal numbers."""

    arg_constraints = {"loc": C.real, "scale": C.positive}
    support: Any = C.positive

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale), ExpTransform(), validate_args)

    mean: Any = property(lambda self: (self.loc + self.scale.square() / 2).exp())
    mode: Any = property(lambda self: (self.loc - self.scale.square()).exp())
    variance: Any = property(lambda self: self.scale.square().expm1() * (2 * self.loc + self.scale.square()).exp())

    def entropy(self) -> Tensor:
        return self.loc + self.base_dist.entropy()


class LogisticNormal(_OfBase):
    """Probabilities from normal numbers, by breaking sticks: one more than there are numbers."""

    arg_constraints = {"loc": C.real, "scale": C.positive}
    support: Any = C.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale)
        super().__init__(base if base.batch_shape else base.expand([1]), StickBreakingTransform(), validate_args)

    loc: Any = property(lambda self: self.base_dist.base_dist.loc)
    scale: Any = property(lambda self: self.base_dist.base_dist.scale)


class _Folded(_OfBase):
    """Absolute values of numbers that are symmetric about 0."""

    arg_constraints = {"scale": C.positive}
    support: Any = C.nonnegative
    mode: Any = property(lambda self: self.scale * 0)

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._law_checked(value)
        return where(x >= 0, math.log(2) + self.base_dist.log_prob(x), -_INF)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(self._law_checked(value)) - 1

    def icdf(self, prob: Tensor) -> Tensor:
        return self.base_dist.icdf(0.5 + prob / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Folded):
    """Absolute values of normal numbers of mean 0 and standard deviation `scale`."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale), AbsTransform(), validate_args)

    mean: Any = property(lambda self: math.sqrt(2 / math.pi) * self.scale)
    variance: Any = property(lambda self: (1 - 2 / math.pi) * self.scale.square())


class HalfCauchy(_Folded):
    """Absolute values of Cauchy numbers about 0."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale), AbsTransform(), validate_args)

    mean: Any = property(lambda self: self.scale.new_full(self._extended_shape(), _INF))
    variance: Any = property(lambda self: self.base_dist.variance)


class InverseGamma(_OfBase):
    """Reciprocals of gamma numbers."""

    arg_constraints = {"concentration": C.positive, "rate": C.positive}
    support: Any = C.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(base.rate.new_full((), -1.0)), validate_args)

    concentration: Any = property(lambda self: self.base_dist.concentration)
    rate: Any = property(lambda self: self.base_dist.rate)
    mode: Any = property(lambda self: self.rate / (self.concentration + 1))

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return where(a > 1, self.rate / (a - 1), _INF)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return where(a > 2, (self.rate / (a - 1)).square() / (a - 2), _INF)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (a + 1) * a.digamma()


# ---------------------------------------------------------------------- parameters of their own


class _Built(TransformedDistribution):
    """A family with parameters of its own, which `_build` makes base and transforms of."""

    def _build(self) -> tuple[Distribution, list[Any]]:
        raise NotImplementedError

    def _from(self, validate_args: bool | None, **parameters: Any) -> None:
        vars(self).update(zip(parameters, broadcast_all(*parameters.values()), strict=True))
        TransformedDistribution.__init__(self, *self._build(), validate_args)

    def _law_fill(self, made: Any, batch: Size) -> None:
        for name in type(self).arg_constraints:
            vars(made).setdefault(name, vars(self)[name].expand(batch))
        made._validate_args = False
        TransformedDistribution.__init__(made, *made._build())
        made._validate_args = self._validate_args


class Gumbel(_Built):
    """Limits of the largest of many numbers: -log(-log u) of uniform u, scaled and shifted."""

    arg_constraints = {"loc": C.real, "scale": C.positive}
    support: Any = C.real
    loc: Any
    scale: Any

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._from(validate_args, loc=loc, scale=scale)

    def _build(self) -> tuple[Distribution, list[Any]]:
        limits, one = finfo(self.loc.dtype), self.scale.new_ones(self.scale.shape)
        base = Uniform(one * limits.tiny, one * (1 - limits.eps), validate_args=False)
        log = ExpTransform().inv
        return base, [log, AffineTransform(0, -one), log, AffineTransform(self.loc, -self.scale)]

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self._law_checked(value) - self.loc) / self.scale
        return -z - (-z).exp() - self.scale.log()

    mean: Any = property(lambda self: self.loc + euler_constant * self.scale)
    mode: Any = property(lambda self: self.loc)
    stddev: Any = property(lambda self: math.pi / math.sqrt(6) * self.scale)
    variance: Any = property(lambda self: self.stddev.square())

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)


class Weibull(_Built):
    """Powers of exponential numbers."""

    arg_constraints = {"scale": C.positive, "concentration": C.positive}
    support: Any = C.positive
    scale: Any
    concentration: Any

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._from(validate_args, scale=scale, concentration=concentration)

    _power: Any = property(lambda self: self.concentration.reciprocal())

    def _build(self) -> tuple[Distribution, list[Any]]:
        base = Exponential(self.scale.new_ones(self.scale.shape), validate_args=False)
        return base, [PowerTransform(self._power), AffineTransform(0, self.scale)]

    def _moment(self, order: int) -> Tensor:
        """The mean of a power of the value over `scale`."""
        return (1 + order * self._power).lgamma().exp()

    mean: Any = property(lambda self: self.scale * self._moment(1))
    mode: Any = property(lambda self: self.scale * ((self.concentration - 1) / self.concentration).pow(self._power))
    variance: Any = property(lambda self: self.scale.square() * (self._moment(2) - self._moment(1).square()))

    def entropy(self) -> Tensor:
        return 1 + euler_constant * (1 - self._power) + (self.scale * self._power).log()


class Pareto(_Built):
    """Values from `scale` on, of a density that falls by the power `alpha + 1`: exponentials of exponential numbers."""

    arg_constraints = {"alpha": C.positive, "scale": C.positive}
    alpha: Any
    scale: Any

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self._from(validate_args, scale=scale, alpha=alpha)

    def _build(self) -> tuple[Distribution, list[Any]]:
        return Exponential(self.alpha, validate_args=self._validate_args), [ExpTransform(), AffineTransform(0, self.scale)]

    @C.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return C.greater_than_eq(self.scale)

    mode: Any = property(lambda self: self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)  # below, it is infinite
        return self.scale * a / (a - 1)

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return a * (self.scale / (a - 1)).square() / (a - 2)

    def entropy(self) -> Tensor:
        return self.scale.log() - self.alpha.log() + 1 + self.alpha.reciprocal()


class Kumaraswamy(_Built):
    """Values between 0 and 1, much like those of a beta distribution, of a distribution function that has an inverse."""

    arg_constraints = {"concentration1": C.positive, "concentration0": C.positive}
    support: Any = C.unit_interval
    has_rsample: Any = True
    concentration1: Any
    concentration0: Any

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self._from(validate_args, concentration1=concentration1, concentration0=concentration0)

    def _build(self) -> tuple[Distribution, list[Any]]:
        zero = self.concentration0.new_zeros(self.concentration0.shape)
        powers = [PowerTransform(c.reciprocal()) for c in (self.concentration0, self.concentration1)]
        return Uniform(zero, zero + 1, validate_args=False), [powers[0], AffineTransform(1.0, -1.0), powers[1]]

    def _moment(self, order: int) -> Tensor:
        a, b = 1 + order / self.concentration1, self.concentration0
        return b * (a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    mean: Any = property(lambda self: self._moment(1))
    variance: Any = property(lambda self: self._moment(2) - self._moment(1).square())

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        # Else the density is largest at an end.
        inside = (a >= 1) & (b >= 1) & ((a > 1) | (b > 1))
        found = ((-a.reciprocal()).log1p() - (-(a * b).reciprocal()).log1p() - b.log()) / a
        return found.exp().masked_fill(~inside, _NAN)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + euler_constant
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - a.log() - b.log()


class GeneralizedPareto(Distribution):
    """Excesses over a threshold `loc` (Pickands 1975): exponential where `concentration` is 0, bounded where it is negative, else heavy-tailed."""

    arg_constraints = {"loc": C.real, "scale": C.positive, "concentration": C.real}
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._law_given(validate_args, loc=loc, scale=scale, concentration=concentration)

    @C.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        end = self.loc - self.scale / self.concentration
        return C.interval(self.loc, where(self.concentration < 0, end, _INF))

    @property
    def _exponential(self) -> Tensor:
        return self.concentration.isclose(self.concentration.new_zeros(()))

    @property
    def _shape(self) -> Tensor:
        """The concentration where the formulas with it hold, elsewhere 1."""
        return self.concentration.masked_fill(self._exponential, 1.0)

    def _log_survival(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return where(self._exponential, -z, -(self._shape * z).log1p() / self._shape)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of more than `value`."""
        return self._log_survival(self._law_checked(value))

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of `cdf`."""
        return (-self._log_survival(self._law_checked(value)).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        left = (-value).log1p()
        return self.loc + self.scale * where(self._exponential, -left, (-self._shape * left).expm1() / self._shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self._law_checked(value) - self.loc) / self.scale
        return where(self._exponential, -z, -(1 + 1 / self._shape) * (self._shape * z).log1p()) - self.scale.log()

    @property
    def mean(self) -> Tensor:
        known = self.concentration < 1
        return where(known, self.loc + self.scale / (1 - self.concentration.where(known, 0.5)), _NAN)

    @property
    def variance(self) -> Tensor:
        known = self.concentration < 0.5
        k = self.concentration.where(known, 0.25)
        return where(known, (self.scale / (1 - k)).square() / (1 - 2 * k), _NAN)

    mode: Any = property(lambda self: self.loc)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
