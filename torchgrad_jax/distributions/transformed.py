"""Distributions of transformed values."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.distributions.distribution import Distribution
from torchgrad_jax.distributions.independent import Independent
from torchgrad_jax.distributions.transforming import ComposeTransform, Transform
from torchgrad_jax.distributions.utils import sum_rightmost


class TransformedDistribution(Distribution):
    """The distribution of `transforms`, one after another, of a value of `base_distribution`.

    A batch dimension of the base that a transform makes part of one value becomes part of the event."""

    arg_constraints: Any = {}
    base_dist: Any
    transforms: Any

    def __init__(self, base_distribution: Distribution, transforms: Any, validate_args: bool | None = None) -> None:
        self.transforms = _listed(transforms)
        self._law_settle(base_distribution)
        event = self._whole.codomain.event_dim + max(len(self.base_dist.event_shape) - self._whole.domain.event_dim, 0)
        shape = self._whole.forward_shape(self.base_dist.batch_shape + self.base_dist.event_shape)
        at = len(shape) - event
        Distribution.__init__(self, Size(shape[:at]), Size(shape[at:]), validate_args)

    _whole: Any = property(lambda self: ComposeTransform(self.transforms))

    def _law_settle(self, base: Distribution) -> None:
        """The base, of the batch shape that the transforms need, and with their event dimensions."""
        whole, shape = self._whole, base.batch_shape + base.event_shape
        needed = whole.domain.event_dim
        if len(shape) < needed:
            raise ValueError(f"base_distribution needs to have shape with size at least {needed}, but got {shape}.")
        wider = Size(whole.inverse_shape(whole.forward_shape(shape)))
        if wider != shape:
            base = base.expand(wider[: len(wider) - len(base.event_shape)])
        missing = needed - len(base.event_shape)
        self.base_dist = Independent(base, missing) if missing > 0 else base

    def _law_fill(self, made: Any, batch: Size) -> None:
        made.transforms = self.transforms
        inner = Size(self._whole.inverse_shape(batch + self._event_shape))
        made.base_dist = self.base_dist.expand(inner[: len(inner) - len(self.base_dist.event_shape)])
        Distribution.__init__(made, batch, self._event_shape, validate_args=False)
        made._validate_args = self._validate_args

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @C.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        region = self.transforms[-1].codomain
        return C.independent(region, len(self._event_shape) - region.event_dim) if len(self._event_shape) > region.event_dim else region

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self._forward(self.base_dist.sample(Size(sample_shape)))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(Size(sample_shape)))

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        """The base's density at the value transformed back, over the derivative's determinant."""
        y = self._law_checked(value)
        dims, total = len(self._event_shape), None
        for transform in self.transforms[::-1]:
            x = transform.inv(y)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            part = sum_rightmost(transform.log_abs_det_jacobian(x, y), dims - transform.domain.event_dim)
            total = part if total is None else total + part
            y = x
        density = sum_rightmost(self.base_dist.log_prob(y), dims - len(self.base_dist.event_shape))
        return density if total is None else density - total

    def _law_turned(self, p: Tensor) -> Tensor:
        """The probability, or its complement where the transforms together are decreasing."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return p if isinstance(sign, int) and sign == 1 else sign * (p - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        y = value
        for transform in self.transforms[::-1]:
            y = transform.inv(y)
        return self._law_turned(self.base_dist.cdf(y))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._law_turned(value)))


def _listed(given: Any) -> list[Transform]:
    """The transforms, of one or a list of them. ValueError where it is neither."""
    found = [given] if isinstance(given, Transform) else given
    if not isinstance(found, list):
        raise ValueError(f"transforms must be a Transform or list, but was {given}")
    if any(not isinstance(each, Transform) for each in found):
        raise ValueError("transforms must be a Transform or a list of Transforms")
    return found
