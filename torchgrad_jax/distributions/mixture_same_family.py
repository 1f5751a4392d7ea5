"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.distributions.categories import Categorical
from torchgrad_jax.distributions.distribution import Distribution


class MixtureSameFamily(Distribution):
    """Each value is from one of the components, these being along the last batch dimension of `component_distribution`; which, is chosen by
    `mixture_distribution`."""

    arg_constraints: Any = {}
    has_rsample = False

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: bool | None = None) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution")
        ours, whole = mixture_distribution.batch_shape, component_distribution.batch_shape
        theirs, there = whole[:-1], whole[-1]
        if any(a != b and 1 not in (a, b) for a, b in zip(reversed(ours), reversed(theirs), strict=False)):
            raise ValueError(f"`mixture_distribution.batch_shape` ({ours}) is not compatible with `component_distribution.batch_shape`({theirs})")
        chosen = mixture_distribution.logits.shape[-1]
        if chosen != there:
            raise ValueError(f"`mixture_distribution component` ({chosen}) does not equal `component_distribution.batch_shape[-1]` ({there})")
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        super().__init__(theirs, component_distribution.event_shape, validate_args)

    mixture_distribution: Any = property(lambda self: self._mixture_distribution)
    component_distribution: Any = property(lambda self: self._component_distribution)

    def _law_fill(self, made: Any, batch: Size) -> None:
        components = self._component_distribution
        made._component_distribution = components.expand(batch + components.batch_shape[-1:])
        made._mixture_distribution = self._mixture_distribution.expand(batch)
        Distribution.__init__(made, batch, self._event_shape, validate_args=False)
        made._validate_args = self._validate_args

    @C.dependent_property
    def support(self) -> Any:
        return C.MixtureSameFamilyConstraint(self._component_distribution.support)

    _dim: Any = property(lambda self: -1 - len(self._event_shape))

    def _mixed(self, x: Tensor) -> Tensor:
        """The means of what each component has."""
        weights = self._mixture_distribution.probs
        weights = weights.reshape(weights.shape + Size([1] * len(self._event_shape)))
        return (weights * x).sum(self._dim)

    @property
    def mean(self) -> Tensor:
        return self._mixed(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        """The mean variance and the variance of the means."""
        parts = self._component_distribution
        return self._mixed(parts.variance) + self._mixed((parts.mean - self.mean.unsqueeze(self._dim)).square())

    def cdf(self, x: Tensor) -> Tensor:
        each = self._component_distribution.cdf(self._law_checked_for_each(x))
        return (each * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        each = self._component_distribution.log_prob(self._law_checked_for_each(x))
        return (each + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def _law_checked_for_each(self, value: Tensor) -> Tensor:
        return self._law_checked(value).unsqueeze(self._dim)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            chosen = self._mixture_distribution.sample(Size(sample_shape))
            each = self._component_distribution.sample(Size(sample_shape))
            at = chosen.reshape(chosen.shape + Size([1] * (1 + len(self._event_shape))))
            at = at.expand(self._extended_shape(sample_shape)[: each.dim() - 1 - len(self._event_shape)] + Size([1]) + self._event_shape)
            return each.gather(self._dim, at).squeeze(self._dim)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n  {self._mixture_distribution},\n  {self._component_distribution})"
