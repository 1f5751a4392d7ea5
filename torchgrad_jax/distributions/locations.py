"""Distributions of the real line with a location and a scale (Johnson, Kotz & Balakrishnan, "Continuous Univariate Distributions", 1994/95)."""

from __future__ import annotations

import math
from typing import Any

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.distributions.distribution import Distribution, ExponentialFamily
from torchgrad_jax.functions.limits import finfo
from torchgrad_jax.functions.overloads import where
from torchgrad_jax.functions.random_factories import _standard_gamma, normal

_LOG_2PI = math.log(2 * math.pi)


class _Located(Distribution):
    """Parameters `loc` and `scale`; a symmetric density, so that `loc` is its mode, and its mean where there is one."""

    arg_constraints = {"loc": C.real, "scale": C.positive}
    support = C.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._law_given(validate_args, loc=loc, scale=scale)

    mean: Any = property(lambda self: self.loc)
    mode: Any = property(lambda self: self.loc)

    def _law_standardized(self, value: Any) -> Tensor:
        return (value - self.loc) / self.scale

    def _law_noise(self, sample_shape: Any) -> Tensor:
        """Memory for random numbers of the samples' shape."""
        return self.loc.new_empty(self._extended_shape(sample_shape))


class Normal(_Located, ExponentialFamily):
    """Normal distributions of mean `loc` and standard deviation `scale`."""

    stddev: Any = property(lambda self: self.scale)
    variance: Any = property(lambda self: self.scale.square())
    _mean_carrier_measure = 0

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + self._law_noise(sample_shape).normal_() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._law_standardized(self._law_checked(value))
        return -(z.square() + _LOG_2PI) / 2 - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return (self._law_standardized(self._law_checked(value)) / math.sqrt(2)).erf() / 2 + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + math.sqrt(2) * self.scale * (2 * value - 1).erfinv()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + _LOG_2PI) / 2

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        precision = self.scale.square().reciprocal()
        return self.loc * precision, -precision / 2

    def _log_normalizer(self, first: Tensor, second: Tensor) -> Tensor:
        return (-math.pi / second).log() / 2 - first.square() / (4 * second)


class Laplace(_Located):
    """Laplace distributions: exponential distributions of mean `scale` on either side of `loc`."""

    variance: Any = property(lambda self: 2 * self.scale.square())
    stddev: Any = property(lambda self: math.sqrt(2) * self.scale)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        # Uniform numbers above -1: the logarithm is finite.
        u = self._law_noise(sample_shape).uniform_(finfo(self.loc.dtype).eps - 1, 1)
        return self.loc - (-u.abs()).log1p() * u.sign() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._law_standardized(self._law_checked(value)).abs() - (2 * self.scale).log()

    def cdf(self, value: Tensor) -> Tensor:
        z = self._law_standardized(self._law_checked(value))
        return 0.5 - z.sign() * (-z.abs()).expm1() / 2

    def icdf(self, value: Tensor) -> Tensor:
        side = value - 0.5
        return self.loc - (-2 * side.abs()).log1p() * side.sign() * self.scale

    def entropy(self) -> Tensor:
        return (2 * self.scale).log() + 1


class Cauchy(_Located):
    """Cauchy distributions of median `loc`; `scale` is half the distance of the quartiles."""

    mean = property(lambda self: self.loc.new_full(self._extended_shape(), math.nan))
    variance: Any = property(lambda self: self.loc.new_full(self._extended_shape(), math.inf))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + self._law_noise(sample_shape).cauchy_() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._law_standardized(self._law_checked(value))
        return -(math.pi * self.scale).log() - z.square().log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self._law_standardized(self._law_checked(value)).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + (math.pi * (value - 0.5)).tan() * self.scale

    def entropy(self) -> Tensor:
        return (4 * math.pi * self.scale).log()


class StudentT(_Located):
    """Student's t-distributions of `df` degrees of freedom: a normal number over the root of an independent chi-square number per degree."""

    arg_constraints = {"df": C.positive, "loc": C.real, "scale": C.positive}

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self._law_given(validate_args, df=df, loc=loc, scale=scale)

    mean = property(lambda self: where(self.df > 1, self.loc, math.nan))

    @property
    def variance(self) -> Tensor:
        finite = self.scale.square() * self.df / (self.df - 2).where(self.df > 2, 1.0)
        return where(self.df > 2, finite, where(self.df > 1, math.inf, math.nan).to(finite.dtype))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        z = self._law_noise(sample_shape).normal_()
        half = (self.df / 2).expand(z.shape)
        chi_square = (_standard_gamma(half) / 0.5).clamp(min=finfo(z.dtype).tiny)
        return self.loc + z / (chi_square / self.df).sqrt() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._law_standardized(self._law_checked(value))
        half = self.df / 2
        log_beta = half.lgamma() + math.lgamma(0.5) - (half + 0.5).lgamma()
        return -(half + 0.5) * (z.square() / self.df).log1p() - log_beta - self.df.log() / 2 - self.scale.log()

    def entropy(self) -> Tensor:
        half = self.df / 2
        log_beta = half.lgamma() + math.lgamma(0.5) - (half + 0.5).lgamma()
        return (half + 0.5) * ((half + 0.5).digamma() - half.digamma()) + self.df.log() / 2 + log_beta + self.scale.log()


class Uniform(Distribution):
    """Uniform distributions on [`low`, `high`)."""

    has_rsample = True
    _law_ranks = {"low": 0, "high": 0}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self._law_given(validate_args, low=low, high=high)

    @property
    def arg_constraints(self) -> dict[str, Any]:
        return {"low": C.less_than(self.high), "high": C.greater_than(self.low)}

    @C.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return C.interval(self.low, self.high)

    _width: Any = property(lambda self: self.high - self.low)
    mean: Any = property(lambda self: (self.low + self.high) / 2)
    mode: Any = property(lambda self: self.low * math.nan)
    variance: Any = property(lambda self: self._width.square() / 12)
    stddev: Any = property(lambda self: self._width / math.sqrt(12))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.low + self.low.new_empty(self._extended_shape(sample_shape)).uniform_() * self._width

    def log_prob(self, value: Tensor) -> Tensor:
        self._law_checked(value)
        within = (value >= self.low) & (value < self.high)
        return within.to(self.low.dtype).log() - self._width.log()

    def cdf(self, value: Tensor) -> Tensor:
        return ((self._law_checked(value) - self.low) / self._width).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return self.low + value * self._width

    def entropy(self) -> Tensor:
        return self._width.log()
