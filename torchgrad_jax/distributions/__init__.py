"""Probability distributions, transforms of their values, divergences between them: PyTorch's interface."""

import sys as _sys

from torchgrad_jax.calling.owning import own_methods as _own_methods
from torchgrad_jax.distributions import constraints as constraints
from torchgrad_jax.distributions import kl as kl
from torchgrad_jax.distributions import names as _names
from torchgrad_jax.distributions import transforming as _transforming
from torchgrad_jax.distributions import transforms as transforms
from torchgrad_jax.distributions import utils as utils
from torchgrad_jax.distributions.categories import Categorical, Multinomial, OneHotCategorical, OneHotCategoricalStraightThrough
from torchgrad_jax.distributions.circular import VonMises
from torchgrad_jax.distributions.constraint_registry import biject_to, transform_to
from torchgrad_jax.distributions.counts import Bernoulli, Binomial, ContinuousBernoulli, Geometric, NegativeBinomial, Poisson
from torchgrad_jax.distributions.distribution import Distribution, ExponentialFamily
from torchgrad_jax.distributions.gammas import Beta, Chi2, Dirichlet, Exponential, FisherSnedecor, Gamma
from torchgrad_jax.distributions.gaussians import LowRankMultivariateNormal, MultivariateNormal
from torchgrad_jax.distributions.independent import Independent
from torchgrad_jax.distributions.kl import kl_divergence, register_kl
from torchgrad_jax.distributions.locations import Cauchy, Laplace, Normal, StudentT, Uniform
from torchgrad_jax.distributions.matrices import LKJCholesky, Wishart
from torchgrad_jax.distributions.mixture_same_family import MixtureSameFamily
from torchgrad_jax.distributions.pushed import (
    GeneralizedPareto,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogNormal,
    Pareto,
    Weibull,
)
from torchgrad_jax.distributions.relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from torchgrad_jax.distributions.transformed import TransformedDistribution
from torchgrad_jax.distributions.transforms import *  # noqa: F403 - its __all__

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet", "Distribution", "Exponential",
    "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent",
    "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal", "LowRankMultivariateNormal", "MixtureSameFamily",
    "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto",
    "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical", "StudentT", "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart",
    "biject_to", "kl_divergence", "register_kl", "transform_to",
]  # fmt: skip
__all__ += transforms.__all__

# Classes have PyTorch's modules, by which they are printed and pickled.
for _module, (_ours, _classes) in _names.MODULES.items():
    for _name in _classes:
        getattr(_sys.modules[f"{__name__}.{_ours}"], _name).__module__ = f"{__name__}.{_module}"
for _kind in vars(_transforming).copy().values():
    if isinstance(_kind, type) and _kind.__module__ == _transforming.__name__:
        _kind.__module__ = transforms.__name__
_own_methods(
    [kind for kind in map(globals().get, __all__) if isinstance(kind, type)], ("__init__",), frozenset(("_Located", "_OfCategories", "_Trials"))
)
