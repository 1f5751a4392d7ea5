"""Kullback-Leibler divergences: which function computes that of two types, and those of distributions made of others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.distributions.distribution import Distribution, ExponentialFamily
from torchgrad_jax.distributions.divergences import DIVERGENCES
from torchgrad_jax.distributions.independent import Independent
from torchgrad_jax.distributions.pushed import HalfNormal
from torchgrad_jax.distributions.transformed import TransformedDistribution
from torchgrad_jax.distributions.utils import sum_rightmost
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["register_kl", "kl_divergence"]

_Function = Callable[[Any, Any], Tensor]
# What is registered, and what was found for types.
_KL_REGISTRY: dict[tuple[type, type], _Function] = {}
_KL_MEMOIZE: dict[tuple[type, type], Any] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[_Function], _Function]:
    """A decorator: the function computes `kl_divergence(p, q)` for these types and their subclasses. TypeError where they are no classes."""
    # Any class may be registered: programs have distributions that derive from `Distribution` in part only. What is none raises here.
    for kind in (type_p, type_q):
        issubclass(kind, Distribution)

    def registered(function: _Function) -> _Function:
        _KL_REGISTRY[type_p, type_q] = function
        _KL_MEMOIZE.clear()
        return function

    return registered


def kl_divergence(p: Any, q: Any) -> Tensor:
    """The mean of `p.log_prob(x) - q.log_prob(x)` over x from `p`, for each of the batch.

    The function of the most specific registered types is called; a RuntimeWarning says where that is ambiguous. NotImplementedError where there is
    none."""
    types = type(p), type(q)
    if types not in _KL_MEMOIZE:
        _KL_MEMOIZE[types] = _most_specific(*types)
    function = _KL_MEMOIZE[types]
    if function is None:
        names = [kind.__name__ for kind in types]
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {names[0]} and q type {names[1]}")
    return function(p, q)


def _most_specific(p: type, q: type) -> _Function | None:
    """The function for the nearest ancestors. Where one pair is nearer on the left and another on the right, that on the left, with a warning."""
    steps = {
        (a, b): (p.__mro__.index(a), q.__mro__.index(b)) for a, b in _KL_REGISTRY if a in p.__mro__ and b in q.__mro__
    }  # fmt: skip
    if not steps:
        return None
    left = min(steps, key=lambda pair: steps[pair])
    right = min(steps, key=lambda pair: steps[pair][::-1])
    if _KL_REGISTRY[left] is not _KL_REGISTRY[right]:
        warn_user(f"Ambiguous kl_divergence({p.__name__}, {q.__name__}). Please register_kl({left[0].__name__}, {right[1].__name__})", RuntimeWarning)
    return _KL_REGISTRY[left]


# ---------------------------------------------------------------------- whatever the formulas


def _bregman(p: Any, q: Any) -> Tensor:
    """Of one exponential family: F(theta_q) less its tangent in theta_p (Nielsen & Nock 2010)."""
    if type(p) is not type(q):
        gap = " " * 28
        raise NotImplementedError(f"The cross KL-divergence between different exponential families cannot {gap}be computed using Bregman divergences")
    value, thetas, means = p._law_normalizer()
    others = q._natural_params
    terms = zip(thetas, means, others, strict=True)
    tangent = sum(sum_rightmost((other - theta) * mean, theta.dim() - value.dim()) for theta, mean, other in terms)
    return q._log_normalizer(*others) - value - tangent


def _of_independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims == q.reinterpreted_batch_ndims:
        return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
    raise NotImplementedError


def _of_transformed(p: Any, q: Any) -> Tensor:
    """What both are transformed by changes nothing."""
    if p.transforms == q.transforms and p.event_shape == q.event_shape:
        return kl_divergence(p.base_dist, q.base_dist)
    raise NotImplementedError


def _of_part(name: str, p: Any, q: Any) -> Tensor:
    return kl_divergence(getattr(p, name), getattr(q, name))


_KL_REGISTRY.update(DIVERGENCES)
_KL_REGISTRY[ExponentialFamily, ExponentialFamily] = _bregman
_KL_REGISTRY[Independent, Independent] = _of_independent
_KL_REGISTRY[TransformedDistribution, TransformedDistribution] = _of_transformed
_KL_REGISTRY[HalfNormal, HalfNormal] = partial(_of_part, "base_dist")
