"""Gamma distributions, what they are made of and what is made of them (Johnson, Kotz & Balakrishnan, chapters 17 to 19, 25, 27; 49 for Dirichlet)."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.autograd.function import Function
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.distributions.distribution import Distribution, ExponentialFamily
from torchgrad_jax.distributions.utils import tensors
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.limits import finfo
from torchgrad_jax.functions.overloads import where
from torchgrad_jax.functions.random_factories import _sample_dirichlet, _standard_gamma
from torchgrad_jax.functions.shaping import broadcast_tensors, stack

_NAN = float("nan")


class Gamma(ExponentialFamily):
    """Gamma distributions of shape `concentration`, and of mean `concentration / rate`."""

    arg_constraints = {"concentration": C.positive, "rate": C.positive}
    support: Any = C.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._law_given(validate_args, concentration=concentration, rate=rate)

    mean: Any = property(lambda self: self.concentration / self.rate)
    mode: Any = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance: Any = property(lambda self: self.concentration / self.rate.square())

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        numbers = _standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        # Values below the least normal number are set to it, without changing the gradient.
        return numbers + (numbers.detach().clamp(min=finfo(numbers.dtype).tiny) - numbers.detach())

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._law_checked(tensors(value, self.rate)[0])
        a, b = self.concentration, self.rate
        return a.xlogy(b) + (a - 1).xlogy(x) - b * x - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        return self.concentration.igamma(self.rate * self._law_checked(value))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a.lgamma() + a - (a - 1) * a.digamma() - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, first: Tensor, second: Tensor) -> Tensor:
        return (first + 1).lgamma() - (first + 1) * (-second).log()


class Chi2(Gamma):
    """Chi-square distributions: sums of squares of `df` standard normal numbers."""

    arg_constraints = {"df": C.positive}
    _law_standing_for_given = ("df",)

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args)

    df: Any = property(lambda self: 2 * self.concentration)


class Exponential(ExponentialFamily):
    """Exponential distributions of mean `1 / rate`."""

    arg_constraints = {"rate": C.positive}
    support = C.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._law_given(validate_args, rate=rate)

    mean: Any = property(lambda self: self.rate.reciprocal())
    stddev: Any = property(lambda self: self.rate.reciprocal())
    mode: Any = property(lambda self: self.rate * 0)
    variance: Any = property(lambda self: self.rate.square().reciprocal())

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * self._law_checked(value)

    def cdf(self, value: Tensor) -> Tensor:
        return -(-self.rate * self._law_checked(value)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, first: Tensor) -> Tensor:
        return -(-first).log()


class FisherSnedecor(Distribution):
    """F-distributions: the quotient of two chi-square numbers, each over its degrees of freedom."""

    arg_constraints = {"df1": C.positive, "df2": C.positive}
    support = C.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self._law_given(validate_args, df1=df1, df2=df2)

    @property
    def mean(self) -> Tensor:
        known = self.df2 > 2
        return where(known, self.df2 / (self.df2 - 2).where(known, 1.0), _NAN)

    @property
    def mode(self) -> Tensor:
        known = self.df1 > 2
        return where(known, (1 - 2 / self.df1) * self.df2 / (self.df2 + 2), _NAN)

    @property
    def variance(self) -> Tensor:
        known = self.df2 > 4
        m = self.df2.where(known, 5.0)
        return where(known, 2 * m.square() * (self.df1 + m - 2) / (self.df1 * (m - 2).square() * (m - 4)), _NAN)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        tiny = finfo(self.df1.dtype).tiny
        above, below = (Gamma(df / 2, df / 2, validate_args=False).expand(shape).rsample() for df in (self.df1, self.df2))
        return (above / below.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._law_checked(value)
        a, b, odds = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return a * odds.log() + (a - 1) * x.log() - (a + b) * (odds * x).log1p() - log_beta


# ---------------------------------------------------------------------- parts of a whole


class _DirichletNumbers(Function):
    """Dirichlet numbers, differentiated implicitly: each as a beta number of its own concentration and the others' sum."""

    generate_vmap_rule = True

    @staticmethod
    def forward(concentration: Tensor) -> Tensor:  # type: ignore[override] - the context is given to setup_context
        return _sample_dirichlet(concentration)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output, inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override] - one gradient
        x, concentration = ctx.saved_tensors
        total = concentration.sum(-1, keepdim=True).expand_as(concentration)
        moves = call("_dirichlet_grad", x, concentration, total)
        # What one part gains the others lose, in proportion.
        return moves * (gradient - (x * gradient).sum(-1, keepdim=True))


class Dirichlet(ExponentialFamily):
    """Dirichlet distributions of the `concentration`s along the last dimension."""

    arg_constraints = {"concentration": C.independent(C.positive, 1)}
    support = C.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self._law_given(validate_args, ("concentration", 1), concentration=concentration)

    _total: Any = property(lambda self: self.concentration.sum(-1, keepdim=True))
    mean: Any = property(lambda self: self.concentration / self._total)
    variance: Any = property(lambda self: self.mean * (1 - self.mean) / (self._total + 1))

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0)
        inner = above / above.sum(-1, keepdim=True)
        # Where no concentration exceeds 1 the density is largest in a corner.
        corner = _one_hot(inner.argmax(-1), self.concentration)
        return where((self.concentration < 1).all(-1, keepdim=True), corner, inner)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return _DirichletNumbers.apply(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return (a - 1).xlogy(self._law_checked(value)).sum(-1) - self._log_normalizer(a)

    def entropy(self) -> Tensor:
        a, total = self.concentration, self._total
        return self._log_normalizer(a) - ((a - 1) * (a.digamma() - total.digamma())).sum(-1)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, first: Tensor) -> Tensor:
        return first.lgamma().sum(-1) - first.sum(-1).lgamma()


def _one_hot(index: Tensor, like: Tensor) -> Tensor:
    """Ones where `index` says along the last dimension of `like`."""
    return like.new_zeros(like.shape).scatter(-1, index.unsqueeze(-1), 1.0)


class Beta(ExponentialFamily):
    """Beta distributions: the first part of a Dirichlet distribution of two."""

    arg_constraints = {"concentration1": C.positive, "concentration0": C.positive}
    support = C.unit_interval
    has_rsample = True
    _law_carried = ("_dirichlet",)

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        both = stack(broadcast_tensors(*tensors(concentration1, concentration0)), -1)
        self._dirichlet = Dirichlet(both, validate_args)
        Distribution.__init__(self, self._dirichlet.batch_shape, validate_args=validate_args)

    concentration1: Any = property(lambda self: self._dirichlet.concentration[..., 0])
    concentration0: Any = property(lambda self: self._dirichlet.concentration[..., 1])
    mean: Any = property(lambda self: self._dirichlet.mean[..., 0])
    mode: Any = property(lambda self: self._dirichlet.mode[..., 0])
    variance: Any = property(lambda self: self._dirichlet.variance[..., 0])

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._law_checked(value)
        return self._dirichlet.log_prob(stack((x, 1 - x), -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, first: Tensor, second: Tensor) -> Tensor:
        return first.lgamma() + second.lgamma() - (first + second).lgamma()
