"""Distributions of trials that succeed or do not, and of how often events happen (Johnson, Kemp & Kotz, "Univariate Discrete Distributions", 2005).

Each has a probability of success: `probs`, or its log-odds `logits`.
"""

from __future__ import annotations

import math
from typing import Any

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.distributions.distribution import Distribution, ExponentialFamily
from torchgrad_jax.distributions.gammas import Gamma
from torchgrad_jax.distributions.utils import Equivalent, clamp_probs, logits_to_probs, probs_to_logits, tensors, the_given
from torchgrad_jax.functions.creation import arange
from torchgrad_jax.functions.limits import finfo
from torchgrad_jax.functions.overloads import where
from torchgrad_jax.functions.random_factories import bernoulli, binomial, poisson
from torchgrad_jax.functions.shaping import broadcast_tensors
from torchgrad_jax.nn.activation import logsigmoid, softplus

_NAN = float("nan")


class _Trials(Distribution):
    """`probs` or `logits`, whichever was given, and `total_count` where there is one."""

    arg_constraints: Any = {"probs": C.unit_interval, "logits": C.real}
    probs: Any = Equivalent(logits=lambda logits: logits_to_probs(logits, is_binary=True))
    logits: Any = Equivalent(probs=lambda probs: probs_to_logits(probs, is_binary=True))

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        name, value = the_given(probs=probs, logits=logits)
        self._law_given(validate_args, **{name: value})

    @property
    def _param(self) -> Tensor:
        return self.probs if "probs" in vars(self) else self.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.size()

    def _log_odds_and_value(self, value: Any) -> tuple[Tensor, Tensor]:
        x = self._law_checked(value)  # before the log-odds are computed, which would show them in what is raised
        logits, x = broadcast_tensors(*tensors(self.logits, x))
        return logits, x


class Bernoulli(_Trials, ExponentialFamily):
    """One trial: 1 with probability `probs`, or of log-odds `logits`, else 0."""

    support = C.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    mean: Any = property(lambda self: self.probs)
    variance: Any = property(lambda self: self.probs * (1 - self.probs))

    @property
    def mode(self) -> Tensor:
        likelier = (self.probs >= 0.5).to(self.probs.dtype)
        return likelier.masked_fill(self.probs == 0.5, _NAN)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, x = self._log_odds_and_value(value)
        return x * logits - _log_one_plus_exp(logits)

    def entropy(self) -> Tensor:
        return _log_one_plus_exp(self.logits) - self.probs * self.logits

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return _enumerated(self, arange(2, dtype=self._param.dtype, device=self._param.device), expand)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, first: Tensor) -> Tensor:
        return _log_one_plus_exp(first)


def _log_one_plus_exp(x: Tensor) -> Tensor:
    return -logsigmoid(-x)


def _enumerated(self: Distribution, values: Tensor, expand: bool) -> Tensor:
    """The values along a first dimension, beside those of the batch."""
    column = values.reshape(-1, *(1 for _ in self.batch_shape))
    return column.expand(-1, *self.batch_shape) if expand else column


class Geometric(_Trials):
    """How many trials fail before the first that succeeds."""

    support = C.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(probs, logits, validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            found, wrong = self.probs, self.probs[~(self.probs > 0)]
            raise ValueError(
                f"Expected parameter probs ({type(found).__name__} of shape {tuple(found.shape)}) of distribution {self!r} to be positive but found "
                f"invalid values:\n{wrong}"
            )

    mean: Any = property(lambda self: 1 / self.probs - 1)
    mode: Any = property(lambda self: self.probs * 0)
    variance: Any = property(lambda self: (1 / self.probs - 1) / self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        least = finfo(self.probs.dtype).tiny
        with no_grad():
            # The first whole number at which the distribution function reaches a uniform number.
            u = self.probs.new_empty(self._extended_shape(sample_shape)).uniform_(least, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        x, p = broadcast_tensors(self._law_checked(value), self.probs)
        # 0 failures are certain where success is.
        fails = (-p.masked_fill((p == 1) & (x == 0), 0.0)).log1p()
        return x * fails + self.probs.log()

    def entropy(self) -> Tensor:
        p, logits = self.probs, self.logits
        return (_log_one_plus_exp(logits) - p * logits) / p


class Binomial(_Trials):
    """How many of `total_count` trials succeed."""

    arg_constraints = {"total_count": C.nonnegative_integer, **_Trials.arg_constraints}
    has_enumerate_support = True

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        name, value = the_given(probs=probs, logits=logits)
        count, value = broadcast_tensors(*tensors(total_count, value))
        self._law_given(validate_args, total_count=count.type_as(value), **{name: value})

    @C.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return C.integer_interval(0, self.total_count)

    mean: Any = property(lambda self: self.total_count * self.probs)
    mode: Any = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count))
    variance: Any = property(lambda self: self.mean * (1 - self.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        x, n, logits = self._law_checked(value), self.total_count, self.logits
        ways = (n + 1).lgamma() - (x + 1).lgamma() - (n - x + 1).lgamma()
        return ways + x * logits - n * _log_one_plus_exp(logits)

    def entropy(self) -> Tensor:
        most = self._most()
        if not (self.total_count == most).all():
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        logs = self.log_prob(self.enumerate_support(False))
        return -(logs.exp() * logs).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        most = self._most()
        if not (self.total_count == most).all():
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        return _enumerated(self, arange(1 + most, dtype=self._param.dtype, device=self._param.device), expand)

    def _most(self) -> int:
        return int(self.total_count.max())


class NegativeBinomial(_Trials):
    """How many trials succeed before `total_count`, which need not be whole, have failed: Poisson numbers of gamma rates."""

    arg_constraints = {"total_count": C.greater_than_eq(0), "probs": C.half_open_interval(0.0, 1.0), "logits": C.real}
    support = C.nonnegative_integer

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        name, value = the_given(probs=probs, logits=logits)
        count, value = broadcast_tensors(*tensors(total_count, value))
        self._law_given(validate_args, total_count=count.type_as(value), **{name: value})

    mean: Any = property(lambda self: self.total_count * self.logits.exp())
    mode: Any = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0))
    variance: Any = property(lambda self: self.mean / (-self.logits).sigmoid())

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            rates = Gamma(self.total_count, (-self.logits).exp(), validate_args=False)
            return poisson(rates.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        x, n = self._law_checked(value), self.total_count
        certain = (n + x == 0).to(n.dtype)  # nothing has to fail: nothing succeeds, with probability 1
        ways = (n + x + certain).lgamma() - (n + certain).lgamma() - (1 + x).lgamma()
        return ways - n * softplus(self.logits) - x * softplus(-self.logits)


class Poisson(ExponentialFamily):
    """How often something happens that happens independently, `rate` times on average."""

    arg_constraints = {"rate": C.nonnegative}
    support = C.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._law_given(validate_args, rate=rate)

    mean: Any = property(lambda self: self.rate)
    mode: Any = property(lambda self: self.rate.floor())
    variance: Any = property(lambda self: self.rate)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        rate, x = broadcast_tensors(*tensors(self.rate, self._law_checked(value)))
        return x.xlogy(rate) - rate - (1 + x).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, first: Tensor) -> Tensor:
        return first.exp()


class ContinuousBernoulli(_Trials, ExponentialFamily):
    """Densities on [0, 1] in proportion to probs^x (1 - probs)^(1 - x) (Loaiza-Ganem & Cunningham, "The continuous Bernoulli", 2019).

    The formulas are quotients that vanish at probs = 1/2: for `probs` within `lims` their series about 1/2 is computed."""

    support = C.unit_interval
    has_rsample = True
    _law_carried = ("_lims",)
    _mean_carrier_measure = 0

    def __init__(self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501), validate_args: bool | None = None) -> None:
        name, value = the_given(probs=probs, logits=logits)
        (value,) = tensors(value)
        if name == "probs":
            # Where nothing is said of checks, what is outside is taken for an end.
            if validate_args is not None and not self.arg_constraints["probs"].check(value).all():
                raise ValueError("The parameter probs has invalid values")
            value = clamp_probs(value)
        self._lims = lims
        self._law_given(validate_args, **{name: value})

    @property
    def _near(self) -> Tensor:
        """Where the series is wanted."""
        return (self.probs > self._lims[0]) & (self.probs <= self._lims[1])

    @property
    def _apart(self) -> Tensor:
        """`probs` where these are not near 1/2, and elsewhere what does no harm."""
        return self.probs.masked_fill(self._near, self._lims[0])

    def _log_constant(self) -> Tensor:
        p = self._apart
        exact = ((-p).log1p() - p.log()).abs().log() - (2 * p - 1).abs().log()
        d = (self.probs - 0.5).square()
        return where(self._near, math.log(2) + (4 / 3 + 104 / 45 * d) * d, exact)

    @property
    def mean(self) -> Tensor:
        p = self._apart
        d = self.probs - 0.5
        exact = p / (2 * p - 1) + 1 / ((-p).log1p() - p.log())
        return where(self._near, 0.5 + (1 / 3 + 16 / 45 * d.square()) * d, exact)

    @property
    def variance(self) -> Tensor:
        p = self._apart
        d = (self.probs - 0.5).square()
        exact = 1 / ((-p).log1p() - p.log()).square() - p * (1 - p) / (1 - 2 * p).square()
        return where(self._near, 1 / 12 - (1 / 15 - 128 / 945 * d) * d, exact)

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(self.probs.new_empty(self._extended_shape(sample_shape)).uniform_())

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        logits, x = self._log_odds_and_value(value)
        return x * logits - _log_one_plus_exp(logits) + self._log_constant()

    def cdf(self, value: Tensor) -> Tensor:
        x, p = self._law_checked(value), self._apart
        exact = (p.pow(x) * (1 - p).pow(1 - x) + p - 1) / (2 * p - 1)
        inner = where(self._near, x, exact)
        return where(x <= 0, 0.0, where(x >= 1, 1.0, inner))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._apart
        exact = ((value * (2 * p - 1) - p).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return where(self._near, value, exact)

    def entropy(self) -> Tensor:
        fails = (-self.probs).log1p()
        return -self.mean * (self.probs.log() - fails) - fails - self._log_constant()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, first: Tensor) -> Tensor:
        near = (first.sigmoid() > self._lims[0]) & (first.sigmoid() <= self._lims[1])
        x = first.masked_fill(near, math.log(self._lims[0] / (1 - self._lims[0])))
        return where(near, first / 2 + first.square() / 24 - first.pow(4) / 2880, (x.expm1() / x).log())
