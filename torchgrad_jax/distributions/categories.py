"""Distributions of one of several categories, and of how often each is chosen."""

from __future__ import annotations

from typing import Any

import torchgrad_jax
import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.distributions.counts import Binomial
from torchgrad_jax.distributions.distribution import Distribution
from torchgrad_jax.distributions.utils import Equivalent, logits_to_probs, probs_to_logits, the_given
from torchgrad_jax.functions.creation import arange, eye
from torchgrad_jax.functions.limits import finfo
from torchgrad_jax.functions.random_factories import categories

_NAN = float("nan")


class Categorical(Distribution):
    """The numbers of categories, of the probabilities along the last dimension. `probs` are normalized, `logits` are their logarithms but for a
    constant."""

    arg_constraints = {"probs": C.simplex, "logits": C.real_vector}
    has_enumerate_support = True
    probs: Any = Equivalent(logits=logits_to_probs)
    logits: Any = Equivalent(probs=probs_to_logits)

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        name, value = the_given(probs=probs, logits=logits)
        if value.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        normalized = value / value.sum(-1, keepdim=True) if name == "probs" else value - value.logsumexp(-1, keepdim=True)
        self._law_given(validate_args, **{name: normalized})

    @C.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return C.integer_interval(0, self._num_events - 1)

    @property
    def _param(self) -> Tensor:
        return self.probs if "probs" in vars(self) else self.logits

    _num_events: Any = property(lambda self: self._param.size(-1))

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.size()

    mean: Any = property(lambda self: self.probs.new_full(self._extended_shape(), _NAN))
    mode: Any = property(lambda self: self.probs.argmax(-1))
    variance: Any = property(lambda self: self.probs.new_full(self._extended_shape(), _NAN))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return categories(self.probs, Size(sample_shape).numel(), self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        index, logs = self._law_checked(value).long().unsqueeze(-1), self.logits
        if index.shape[:-1] != logs.shape[:-1]:
            index, logs = torchgrad_jax.broadcast_tensors(index, logs)  # may be what only behaves like a tensor
            index = index[..., :1]
        return logs.gather(-1, index).squeeze(-1)

    def entropy(self) -> Tensor:
        finite = self.logits.clamp(min=finfo(self.logits.dtype).min)
        return -(self.probs * finite).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        numbers = arange(self._num_events, dtype=dtypes.int64, device=self._param.device)
        column = numbers.reshape(-1, *(1 for _ in self.batch_shape))
        return column.expand(-1, *self.batch_shape) if expand else column


class _OfCategories(Distribution):
    """What has the parameters of a `Categorical`, one event being a vector with an entry for each category."""

    arg_constraints = Categorical.arg_constraints
    _law_carried = ("_categorical",)
    _categorical: Categorical

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._of(probs, logits, validate_args)

    def _of(self, probs: Any, logits: Any, validate_args: bool | None) -> None:
        self._categorical = Categorical(probs, logits)
        Distribution.__init__(self, self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    probs: Any = property(lambda self: self._categorical.probs)
    logits: Any = property(lambda self: self._categorical.logits)
    _param: Any = property(lambda self: self._categorical._param)
    param_shape: Any = property(lambda self: self._categorical.param_shape)


class OneHotCategorical(_OfCategories):
    """Vectors with a 1 at a category's place."""

    support = C.one_hot
    has_enumerate_support = True

    mean: Any = property(lambda self: self.probs)
    variance: Any = property(lambda self: self.probs * (1 - self.probs))

    @property
    def mode(self) -> Tensor:
        return self._vectors(self._categorical.mode).to(self.probs.dtype)

    def _vectors(self, index: Tensor) -> Tensor:
        return index.unsqueeze(-1) == arange(self.event_shape[0], device=index.device)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._vectors(self._categorical.sample(Size(sample_shape))).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._categorical.log_prob(self._law_checked(value).argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self.event_shape[0]
        unit = eye(n, dtype=self._param.dtype, device=self._param.device).reshape(n, *(1 for _ in self.batch_shape), n)
        return unit.expand(n, *self.batch_shape, n) if expand else unit


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot vectors with the gradient of the probabilities (Bengio, Leonard & Courville, "Estimating or propagating gradients", 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(_OfCategories):
    """How often each category is chosen in `total_count` choices."""

    _law_carried = ("_categorical", "total_count")

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._of(probs, logits, validate_args)
        if total_count < 0:  # which validate_args says nothing of, as in PyTorch
            Binomial(total_count, self.probs)

    @C.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return C.multinomial(self.total_count)

    mean: Any = property(lambda self: self.total_count * self.probs)
    variance: Any = property(lambda self: self.mean * (1 - self.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = Size(sample_shape)
        chosen = self._categorical.sample((self.total_count, *shape))
        counts = self.probs.new_zeros(self._extended_shape(shape)).type_as(self.probs)
        return counts.scatter_add(-1, chosen.movedim(0, -1), counts.new_ones(()).expand(chosen.movedim(0, -1).shape))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, x = torchgrad_jax.broadcast_tensors(self.logits, self._law_checked(value))
        logs = logits.masked_fill((x == 0) & (logits == -float("inf")), 0.0)
        return (x.sum(-1) + 1).lgamma() - (x + 1).lgamma().sum(-1) + (x * logs).sum(-1)

    def entropy(self) -> Tensor:
        n = self.total_count
        each = Binomial(n, self.probs, validate_args=False)
        counts = each.enumerate_support(False)[1:]
        # The mean of log(x!) over each category's count, which is binomial.
        factorials = (each.log_prob(counts).exp() * (counts + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - counts.new_full((), n + 1.0).lgamma() + factorials
