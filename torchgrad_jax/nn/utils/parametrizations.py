"""`torch.nn.utils.parametrizations`: orthogonal matrices, weight normalization and spectral normalization as parametrizations."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import torchgrad_jax.nn.functional as F
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import eye, zeros_like
from torchgrad_jax.functions.limits import finfo
from torchgrad_jax.functions.matrices.decompositions import householder_product, matrix_exp, solve
from torchgrad_jax.functions.matrices.norms import _weight_norm, norm_except_dim
from torchgrad_jax.functions.random_factories import randn
from torchgrad_jax.functions.shaping import cat
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.utils.parametrize import register_parametrization
from torchgrad_jax.nn.utils.spectral_norm import rows_of

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


# ---------------------------------------------------------------------- orthogonal


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


class _Orthogonal(Module):
    """A matrix with orthonormal columns (rows, where it is wider than high) made of any matrix X of its shape.

    The maps are those of Lezcano-Casado and Martinez-Rubio 2019: with the skew-symmetric A = tril(X) - tril(X)^H, the first columns of exp(A), or of
    the Cayley transform (1 - A/2)^-1 (1 + A/2); or the product of the Householder reflections whose vectors are the columns of X below its diagonal.
    With `base` (dynamic trivialization) the matrix is base @ that, so that any orthogonal matrix can be assigned.
    """

    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        """(..., n, k) to the same."""
        wide = X.size(-2) < X.size(-1)
        tall: Any = X.mT if wide else X
        made = _reflected(tall) if self.orthogonal_map == _OrthMaps.householder else _rotated(tall, self.orthogonal_map)
        if hasattr(self, "base"):
            made = self.base @ made
        return made.mT if wide else made

    @no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        """What gives Q, or the orthogonal matrix next to it."""
        if Q.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}.")
        wide = Q.size(-2) < Q.size(-1)
        tall: Any = Q.mT if wide else Q
        if not hasattr(self, "base"):
            if self.orthogonal_map != _OrthMaps.householder:
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations when use_trivialization=False."
                )
            made = _reflections(tall)
            return made.mT if wide else made
        self.base = _completed(tall)
        identity = zeros_like(Q)
        identity.diagonal(dim1=-2, dim2=-1).fill_(-1.0)  # which every map makes the identity of
        return identity


def _rotated(X: Any, orthogonal_map: _OrthMaps) -> Any:
    n, k = X.size(-2), X.size(-1)
    lower = X.tril()
    if n != k:
        lower = cat([lower, X.new_zeros(n, n - k).expand(*X.shape[:-2], -1, -1)], dim=-1)
    skew = lower - lower.mH
    if orthogonal_map == _OrthMaps.matrix_exp:
        made: Any = matrix_exp(skew)
    else:
        one: Any = eye(n, dtype=X.dtype, device=X.device)
        made = solve(one.add(skew, alpha=-0.5), one.add(skew, alpha=0.5))
    return made[..., :k] if n != k else made


def _reflected(X: Any) -> Any:
    """The signs of the result's columns are the diagonal of X, which gets no gradient."""
    vectors = X.tril(diagonal=-1)
    factors = 2.0 / (1.0 + (vectors * vectors).sum(dim=-2))
    return householder_product(vectors, factors) * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)


def _reflections(Q: Any) -> Any:
    """What `_reflected` makes Q of: Householder vectors below the diagonal, signs on it."""
    made, factors = Q.geqrf()
    signs = made.diagonal(dim1=-2, dim2=-1)
    signs.sign_()
    signs[factors == 0] *= -1  # a column that LAPACK does not reflect is reflected by `_reflected`
    return made


def _completed(Q: Any) -> Any:
    """A square orthogonal matrix that begins with Q, whose further columns are random."""
    n, k = Q.size(-2), Q.size(-1)
    if n == k:
        return Q.clone() if _is_orthogonal(Q) else _made_orthogonal(Q)
    further = randn(*Q.size()[:-2], n, n - k, dtype=Q.dtype, device=Q.device)
    return _made_orthogonal(cat([Q, further], dim=-1))


def _is_orthogonal(Q: Any) -> bool:
    n, k = Q.size(-2), Q.size(-1)
    one: Any = eye(k, dtype=Q.dtype, device=Q.device)
    return (Q.mH @ Q).allclose(one.expand(*Q.shape[:-2], k, k), atol=10.0 * n * finfo(Q.dtype).eps)


def _made_orthogonal(A: Any) -> Any:
    """The Q of A = QR with a positive diagonal of R."""
    reflections, factors = A.geqrf()
    return householder_product(reflections, factors) * reflections.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True) -> Module:
    """Parametrize a matrix, or a batch of them, of a module so that its columns (rows, where it is wider than high) are orthonormal.

    orthogonal_map: "matrix_exp", "cayley" or "householder"; by default the first for square and complex matrices, the last for others.
    use_trivialization: let any orthogonal matrix be assigned, at the cost of a square buffer. ValueError where name, shape or map do not fit.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _OrthMaps.__members__:
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    made = _Orthogonal(weight, _OrthMaps[orthogonal_map], use_trivialization=use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)


# ---------------------------------------------------------------------- weight normalization


class _WeightNorm(Module):
    """A tensor of the norms `weight_g` along a dimension and the directions `weight_v`."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        """weight_g * weight_v / |weight_v|."""
        return _weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The norms of a tensor, and the tensor."""
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Parametrize a tensor of a module by its norms along `dim` (None: its norm) and its directions (Salimans and Kingma 2016). They are
    ``parametrizations.<name>.original0`` and ``original1``; states of modules that had `torch.nn.utils.weight_norm` are understood."""
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: Any, prefix: str, *rest: Any) -> None:
        names = {f"{prefix}{name}_{old}": f"{prefix}parametrizations.{name}.original{i}" for i, old in enumerate("gv")}
        if all(old in state_dict for old in names):
            for old, new in names.items():
                state_dict[new] = state_dict.pop(old)

    module._register_load_state_dict_pre_hook(rename)
    return module


# ---------------------------------------------------------------------- spectral normalization


class _SpectralNorm(Module):
    """A tensor, as a matrix, over its largest singular value, which `n_power_iterations` steps of the power method a call in training approximate
    (Miyato et al. 2018). A vector is normalized."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.dim, self.eps = dim % ndim, eps
        if ndim == 1:
            return
        self.n_power_iterations = n_power_iterations
        matrix = self._as_matrix(weight)
        for name, size in (("_u", matrix.size(0)), ("_v", matrix.size(1))):
            start = matrix.new_empty(size).normal_(0, 1)
            self.register_buffer(name, F.normalize(start, dim=0, eps=eps))
        self._iterate(matrix, 15)

    def _as_matrix(self, weight: Any) -> Any:
        return weight.movedim(self.dim, 0).flatten(1)

    @no_grad()
    def _iterate(self, matrix: Any, times: int) -> None:
        for _ in range(times):
            self._u = F.normalize(matrix.mv(self._v), dim=0, eps=self.eps, out=self._u)
            self._v = F.normalize(matrix.mH.mv(self._u), dim=0, eps=self.eps, out=self._v)

    def forward(self, weight: Tensor) -> Tensor:
        """The normalized tensor."""
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._as_matrix(weight)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        # The next step of the power method writes to these.
        u: Any = self._u.clone()
        return weight / u.vdot(matrix.mv(self._v.clone()))

    def right_inverse(self, value: Tensor) -> Tensor:
        """What is assigned is taken for what to normalize."""
        return value


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Module:
    """Parametrize a tensor of a module so that, as a matrix of the rows along `dim`, its largest singular value is 1. dim: 0 by default, 1 for
    transposed convolutions. IndexError, ValueError where the arguments do not fit."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    made = _SpectralNorm(weight, n_power_iterations, rows_of(module) if dim is None else dim, eps)
    return register_parametrization(module, name, made)
