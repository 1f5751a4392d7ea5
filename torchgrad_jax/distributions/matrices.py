"""Distributions of matrices: of covariances, and of factors of correlations."""

from __future__ import annotations

import math
from typing import Any

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.distributions.distribution import Distribution, ExponentialFamily
from torchgrad_jax.distributions.gammas import Beta, Chi2
from torchgrad_jax.distributions.gaussians import Covariances, log_det_of_factor
from torchgrad_jax.distributions.utils import tensors, vec_to_tril_matrix
from torchgrad_jax.functions.creation import arange
from torchgrad_jax.functions.limits import finfo
from torchgrad_jax.functions.matrices.decompositions import cholesky, cholesky_solve
from torchgrad_jax.functions.random_factories import randn
from torchgrad_jax.functions.shaping import broadcast_tensors
from torchgrad_jax.runtime.user_code import warn_user


class Wishart(Covariances, ExponentialFamily):
    """Wishart distributions: of X X' where the `df` columns of X are normal with the given covariance (Anderson, "An Introduction to Multivariate
    Statistical Analysis", chapter 7). `df` need not be whole."""

    support = C.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    _law_ranks = {"covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2, "df": 0}

    def __init__(
        self, df: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None, validate_args: bool | None = None
    ) -> None:
        candidates = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        assert sum(c is not None for c in candidates.values()) == 1, f"Exactly one of {' or '.join(candidates)} may be specified."
        if next(c for c in candidates.values() if c is not None).dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        name, matrix = self._matrix("scale_tril", **candidates)
        df = tensors(df, matrix)[0]
        n = matrix.shape[-1]
        if df.le(n - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        self._law_given(validate_args, (name, 2), **{name: matrix, "df": df})
        if self.df.lt(n).any():
            warn_user("Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.")
        self._unbroadcasted_scale_tril = self._law_factor_of(name, matrix)

    @property
    def arg_constraints(self) -> dict[str, Any]:
        regions = {"covariance_matrix": C.positive_definite, "precision_matrix": C.positive_definite, "scale_tril": C.lower_cholesky}
        return {**regions, "df": C.greater_than(self._event_shape[-1] - 1)}

    _n: Any = property(lambda self: self._event_shape[-1])
    _column: Any = property(lambda self: self.df[..., None, None])
    mean: Any = property(lambda self: self._column * self.covariance_matrix)

    @property
    def mode(self) -> Tensor:
        times = self._column - self._n - 1
        return times.masked_fill(times <= 0, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._column * (v.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape: Any = (), max_try_correction: Any = None) -> Tensor:
        """Samples by Bartlett's decomposition (1933): a factor with chi numbers on the diagonal and normal numbers below.

        PyTorch takes what is positive definite for singular: it warns, and draws again. So the numbers are those of the second draw, unless
        `max_try_correction` is 0."""
        found = self._drawn(Size(sample_shape))
        if max_try_correction == 0:
            return found
        warn_user("Singular sample detected.")
        return self._drawn(Size(sample_shape))

    def _drawn(self, shape: Size) -> Tensor:
        n = self._n
        degrees = self.df.unsqueeze(-1) - arange(n, dtype=self.df.dtype, device=self.df.device)
        diagonal = Chi2(degrees, validate_args=False).rsample(shape).sqrt()
        below = randn(shape + self._batch_shape + (n * (n - 1) // 2,), dtype=self.df.dtype, device=self.df.device)
        factor = self._unbroadcasted_scale_tril @ (diagonal.diag_embed() + (vec_to_tril_matrix(below, -1) if n > 1 else 0))
        return factor @ factor.mT

    def log_prob(self, value: Tensor) -> Tensor:
        x, n = self._law_checked(value), self._n
        half = self.df / 2
        factor, scattered = broadcast_tensors(self._unbroadcasted_scale_tril, x)
        scatter = cholesky_solve(scattered, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        log_det = 2 * log_det_of_factor(cholesky(x))
        normalizer = half * (n * math.log(2) + 2 * log_det_of_factor(self._unbroadcasted_scale_tril)) + half.mvlgamma(n)
        return (half - (n + 1) / 2) * log_det - scatter / 2 - normalizer

    def entropy(self) -> Tensor:
        half, n = self.df / 2, self._n
        digammas = (half.unsqueeze(-1) - arange(n, dtype=half.dtype, device=half.device) / 2).digamma().sum(-1)
        log_det = 2 * log_det_of_factor(self._unbroadcasted_scale_tril)
        parts = (n + 1) / 2 * (log_det + n * math.log(2)) + half.mvlgamma(n) - (half - (n + 1) / 2) * digammas
        return parts + half * n

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._n - 1) / 2

    def _log_normalizer(self, first: Tensor, second: Tensor) -> Tensor:
        n = self._n
        half = second + (n + 1) / 2
        return half * (n * math.log(2) - (-2 * first).slogdet()[1]) + half.mvlgamma(n)


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices, of densities in proportion to the matrix's determinant to the power `concentration - 1`
    (Lewandowski, Kurowicka & Joe 2009)."""

    arg_constraints = {"concentration": C.positive}
    support = C.corr_cholesky
    _law_carried = ("dim",)

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (eta,) = tensors(concentration)
        self._squared_lengths(eta, validate_args)
        self._law_given(validate_args, concentration=eta)
        self._event_shape = Size((dim, dim))

    def _squared_lengths(self, eta: Tensor, validate_args: bool | None = None) -> Beta:
        """Of each row's part below the diagonal. Row 0 has none, but takes part in drawing.

        The method has `columns / 2` first: from the third row on PyTorch draws of another distribution, and so must the same numbers."""
        columns = arange(self.dim, dtype=eta.dtype, device=eta.device).clamp(min=1)
        return Beta(columns - 0.5, eta.unsqueeze(-1) + (self.dim - 1 - columns) / 2, validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By the onion method: each row is a direction, of a length by a beta distribution, and what is missing to 1 on the diagonal."""
        shape = self._extended_shape(sample_shape)
        with no_grad():
            squares = self._squared_lengths(self.concentration, False).sample(Size(sample_shape)).unsqueeze(-1)
            z = randn(shape, dtype=self.concentration.dtype, device=self.concentration.device).tril(-1)
            length = z.square().sum(-1, keepdim=True).sqrt()
            rows = squares.sqrt() * (z / length.masked_fill(length == 0, 1.0))
            left = (1 - rows.square().sum(-1)).clamp(min=finfo(rows.dtype).tiny)
            return rows + left.sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        n, eta = self.dim, self.concentration
        diagonal = self._law_checked(value).diagonal(dim1=-1, dim2=-2)[..., 1:]
        powers = 2 * (eta - 1).unsqueeze(-1) + n - arange(2, n + 1, device=diagonal.device)
        alpha = eta + (n - 1) / 2
        normalizer = (n - 1) / 2 * math.log(math.pi) + (alpha - 0.5).mvlgamma(n - 1) - (n - 1) * alpha.lgamma()
        return (powers * diagonal.log()).sum(-1) - normalizer
