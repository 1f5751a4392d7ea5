"""Multivariate normal distributions (Rasmussen & Williams, "Gaussian Processes for Machine Learning", 2006, appendix A)."""

from __future__ import annotations

import math
from typing import Any

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.distributions.distribution import Distribution
from torchgrad_jax.distributions.utils import lazy_property, the_given
from torchgrad_jax.functions.creation import eye
from torchgrad_jax.functions.matrices.decompositions import cholesky, cholesky_solve, solve_triangular
from torchgrad_jax.functions.shaping import broadcast_tensors


def squared_distances(factor: Tensor, x: Tensor) -> Tensor:
    """x' (L L')^-1 x, for factors L and vectors x that broadcast."""
    if factor.dim() == 2 and x.dim() > 1:  # one factor for all: one solution
        return solve_triangular(factor, x.reshape(-1, x.shape[-1]).mT, upper=False).square().sum(0).reshape(x.shape[:-1])
    return solve_triangular(factor, x.unsqueeze(-1), upper=False).square().sum((-2, -1))


def log_det_of_factor(factor: Tensor) -> Tensor:
    """The logarithm of the determinant of triangular matrices."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def factor_of_inverse(matrix: Tensor) -> Tensor:
    """The lower triangular L with L L' = matrix^-1. With both axes reversed, the Cholesky factor of `matrix` is an upper triangular U with
    U U' = matrix; L is the inverse of its transpose."""
    upper = cholesky(matrix.flip(-2, -1)).flip(-2, -1)
    return solve_triangular(upper.mT, eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device), upper=False)


def inverse_of_factor(factor: Tensor) -> Tensor:
    """(L L')^-1."""
    return cholesky_solve(eye(factor.shape[-1], dtype=factor.dtype, device=factor.device), factor)


def product_of_factor(factor: Tensor) -> Tensor:
    """L L'."""
    return factor @ factor.mT


def _batch_mv(bmat: Tensor, bvec: Tensor) -> Tensor:
    """Products of matrices and vectors of which the batches broadcast."""
    return (bmat @ bvec.unsqueeze(-1)).squeeze(-1)


# Names of PyTorch's that packages use.
_batch_mahalanobis, _precision_to_scale_tril = squared_distances, factor_of_inverse


class Covariances(Distribution):
    """What has one of the equivalent `covariance_matrix`, `precision_matrix` (the inverse) and `scale_tril` (the lower Cholesky factor)."""

    # The factor of the matrix as it was given: one serves a whole batch of means. Subclasses of programs may have a property in its place.
    _unbroadcasted_scale_tril: Any
    _law_carried = ("_unbroadcasted_scale_tril",)
    covariance_matrix: Any = lazy_property(lambda self: self._law_of_batch(product_of_factor(self._unbroadcasted_scale_tril)))
    precision_matrix: Any = lazy_property(lambda self: self._law_of_batch(inverse_of_factor(self._unbroadcasted_scale_tril)))
    scale_tril: Any = lazy_property(lambda self: self._law_of_batch(self._unbroadcasted_scale_tril))

    def _law_of_batch(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + matrix.shape[-2:])

    @staticmethod
    def _matrix(factor: str, **candidates: Any) -> tuple[str, Tensor]:
        """The name of the matrix that was given, and the matrix. ValueError where it is none; `factor` is what `scale_tril` is called then."""
        name, value = the_given(**candidates)
        if value.dim() < 2:
            what = factor if name == "scale_tril" else name
            raise ValueError(f"{what} must be at least two-dimensional, with optional leading batch dimensions")
        return name, value

    @staticmethod
    def _law_factor_of(name: str, matrix: Tensor) -> Tensor:
        """The lower Cholesky factor of the covariance, of the matrix that is called `name`."""
        if name == "scale_tril":
            return matrix
        return cholesky(matrix) if name == "covariance_matrix" else factor_of_inverse(matrix)


class MultivariateNormal(Covariances):
    """Normal distributions of vectors, of mean `loc` and one of the equivalent matrices."""

    arg_constraints = {
        "loc": C.real_vector, "covariance_matrix": C.positive_definite, "precision_matrix": C.positive_definite, "scale_tril": C.lower_cholesky,
    }  # fmt: skip
    support = C.real_vector
    has_rsample = True

    def __init__(
        self, loc: Tensor, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = self._matrix(
            "scale_tril matrix",
            covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril,
        )  # fmt: skip
        self._law_given(validate_args, ("loc", 1), **{"loc": loc, name: matrix})
        self._unbroadcasted_scale_tril = self._law_factor_of(name, matrix)

    mean: Any = property(lambda self: self.loc)
    mode: Any = property(lambda self: self.loc)
    variance: Any = property(lambda self: self.scale_tril.square().sum(-1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        z = self.loc.new_empty(self._extended_shape(sample_shape)).normal_()
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, z)

    def log_prob(self, value: Tensor) -> Tensor:
        distance = squared_distances(self._unbroadcasted_scale_tril, self._law_checked(value) - self.loc)
        return -(distance + self._event_shape[0] * math.log(2 * math.pi)) / 2 - log_det_of_factor(self._unbroadcasted_scale_tril)

    def entropy(self) -> Tensor:
        found = self._event_shape[0] * (1 + math.log(2 * math.pi)) / 2 + log_det_of_factor(self._unbroadcasted_scale_tril)
        return found.expand(self._batch_shape)


class LowRankMultivariateNormal(Distribution):
    """Normal distributions of vectors with covariance W W' + D: `cov_factor` W, of few columns, `cov_diag` the diagonal of D.

    What is solved is of the size of W' D^-1 W + 1, by the Woodbury identity; the determinant follows from the same matrix."""

    arg_constraints = {"loc": C.real_vector, "cov_factor": C.independent(C.real, 2), "cov_diag": C.independent(C.positive, 1)}
    support = C.real_vector
    has_rsample = True
    _law_carried = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        n = loc.shape[-1]
        if cov_factor.shape[-2] != n:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {n} x m")
        if cov_diag.shape[-1] != n:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {Size((n,))}")
        try:
            self._law_given(validate_args, ("loc", 1), loc=loc, cov_factor=cov_factor, cov_diag=cov_diag)
        except RuntimeError as mismatch:
            raise ValueError(f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}") from mismatch
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = capacitance_factor(cov_factor, cov_diag)

    mean: Any = property(lambda self: self.loc)
    mode: Any = property(lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        found = self._unbroadcasted_cov_factor.square().sum(-1) + self._unbroadcasted_cov_diag
        return found.expand(self._extended_shape())

    @property
    def covariance_matrix(self) -> Tensor:
        """W W' + D."""
        w = self._unbroadcasted_cov_factor
        return self._whole(w @ w.mT + self._unbroadcasted_cov_diag.diag_embed())

    @property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        return cholesky(self.covariance_matrix)

    @property
    def precision_matrix(self) -> Tensor:
        """D^-1 - (L^-1 W' D^-1)' (L^-1 W' D^-1), with L L' = 1 + W' D^-1 W."""
        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        solved = solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._whole(self._unbroadcasted_cov_diag.reciprocal().diag_embed() - solved.mT @ solved)

    def _whole(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        w = self._unbroadcasted_cov_factor
        along = self.loc.new_empty((*shape[:-1], w.shape[-1])).normal_()
        beside = self.loc.new_empty(shape).normal_()
        return self.loc + _batch_mv(w, along) + self._unbroadcasted_cov_diag.sqrt() * beside

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._law_checked(value) - self.loc
        distance = low_rank_distance(self, x)
        return -(distance + self._event_shape[0] * math.log(2 * math.pi) + low_rank_log_det(self)) / 2

    def entropy(self) -> Tensor:
        found = (self._event_shape[0] * (1 + math.log(2 * math.pi)) + low_rank_log_det(self)) / 2
        return found.expand(self._batch_shape)


def capacitance_factor(w: Tensor, d: Tensor) -> Tensor:
    """The lower Cholesky factor of 1 + W' D^-1 W."""
    small = w.mT @ (w / d.unsqueeze(-1))
    return cholesky(small + eye(w.shape[-1], dtype=w.dtype, device=w.device))


def low_rank_distance(p: LowRankMultivariateNormal, x: Tensor) -> Tensor:
    """x' (W W' + D)^-1 x."""
    scaled = x / p._unbroadcasted_cov_diag
    along = _batch_mv(p._unbroadcasted_cov_factor.mT, scaled)
    factor, along = _of_one_batch(p._capacitance_tril, along)
    return (x * scaled).sum(-1) - squared_distances(factor, along)


def low_rank_log_det(p: LowRankMultivariateNormal) -> Tensor:
    """log det(W W' + D)."""
    return 2 * log_det_of_factor(p._capacitance_tril) + p._unbroadcasted_cov_diag.log().sum(-1)


def _of_one_batch(factor: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    batch, _ = broadcast_tensors(x[..., 0], factor[..., 0, 0])
    return factor, x.expand(batch.shape + x.shape[-1:])
