"""Batches of distributions as one distribution of more dimensions."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.distributions.distribution import Distribution
from torchgrad_jax.distributions.utils import sum_rightmost

D = TypeVar("D", bound=Distribution)


class Independent(Distribution, Generic[D]):
    """The joint distribution of independent ones: the last `reinterpreted_batch_ndims` batch dimensions of the base become event dimensions."""

    arg_constraints: Any = {}
    base_dist: D

    def __init__(self, base_distribution: D, reinterpreted_batch_ndims: int, validate_args: bool | None = None) -> None:
        taken, there = reinterpreted_batch_ndims, len(base_distribution.batch_shape)
        if taken > there:
            raise ValueError(f"Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual {taken} vs {there}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, taken
        kept, joined = base_distribution.batch_shape[: there - taken], base_distribution.batch_shape[there - taken :]
        super().__init__(kept, joined + base_distribution.event_shape, validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    has_enumerate_support = property(lambda self: self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support)
    mean: Any = property(lambda self: self.base_dist.mean)
    mode: Any = property(lambda self: self.base_dist.mode)
    variance: Any = property(lambda self: self.base_dist.variance)

    @C.dependent_property
    def support(self) -> Any:
        base = self.base_dist.support
        return C.independent(base, self.reinterpreted_batch_ndims) if self.reinterpreted_batch_ndims else base

    def _law_fill(self, made: Any, batch: Size) -> None:
        joined = self._event_shape[: self.reinterpreted_batch_ndims]
        made.base_dist = self.base_dist.expand(batch + joined)
        made.reinterpreted_batch_ndims = self.reinterpreted_batch_ndims
        Distribution.__init__(made, batch, self._event_shape, validate_args=False)
        made._validate_args = self._validate_args

    # The samples of the base have the joined dimensions where they belong.
    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(Size(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(Size(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if not self.reinterpreted_batch_ndims:
            return self.base_dist.enumerate_support(expand)
        raise NotImplementedError("Enumeration over cartesian product is not implemented")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
