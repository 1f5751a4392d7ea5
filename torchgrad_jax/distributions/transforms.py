"""Transforms as formulas: of numbers, one row each, then of vectors and matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torchgrad_jax.distributions.constraints as C
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.distributions.transforming import (
    CatTransform,
    ComposeTransform,
    CumulativeDistributionTransform,
    IndependentTransform,
    ReshapeTransform,
    StackTransform,
    Transform,
    _expect_dims,
    _InverseTransform,  # noqa: F401 - found here by pickles
    identity_transform,
)
from torchgrad_jax.distributions.utils import broadcast_all, lazy_property, sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix
from torchgrad_jax.functions.creation import arange, eye
from torchgrad_jax.functions.limits import finfo
from torchgrad_jax.functions.matrices.decompositions import cholesky
from torchgrad_jax.functions.questions import broadcast_shapes
from torchgrad_jax.nn.activation import softplus
from torchgrad_jax.nn.padding import pad

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform",
    "ExpTransform", "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
    "SigmoidTransform", "SoftplusTransform", "TanhTransform", "SoftmaxTransform", "StackTransform", "StickBreakingTransform", "Transform",
    "identity_transform",
]  # fmt: skip


class _Fixed(Transform):
    """A transform without settings: all of its kind are equal."""

    __hash__ = None  # type: ignore[assignment] - see Transform

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self))


def _increasing(
    name: str, function: Callable[[Tensor], Tensor], inverse: Callable[[Tensor], Tensor], log_slope: Callable[[Tensor, Tensor], Tensor], codomain: Any
) -> Any:
    """The class of an increasing function of numbers, of its inverse and the logarithm of its derivative at x, where it is y."""
    contents = {
        "__module__": __name__, "__doc__": function.__doc__, "domain": C.real, "codomain": codomain, "bijective": True, "sign": 1,
        "_call": lambda self, x: function(x), "_inverse": lambda self, y: inverse(y),
        "log_abs_det_jacobian": lambda self, x, y: log_slope(x, y),
    }  # fmt: skip
    return type(name, (_Fixed,), contents)


def _inside_unit(p: Tensor) -> Tensor:
    """Probabilities of which the log-odds are finite."""
    limits = finfo(p.dtype)
    return p.clamp(limits.tiny, 1 - limits.eps)


def _log_odds(p: Tensor) -> Tensor:
    inside = _inside_unit(p)
    return inside.log() - (-inside).log1p()


def _log_slope_of_tanh(x: Tensor) -> Tensor:
    """log(1 - tanh(x)^2) = -2 log cosh x."""
    return 2 * (math.log(2) - x - softplus(-2 * x))


ExpTransform = _increasing("ExpTransform", lambda x: x.exp(), lambda y: y.log(), lambda x, y: x, C.positive)
SigmoidTransform = _increasing(
    "SigmoidTransform", lambda x: _inside_unit(x.sigmoid()), _log_odds, lambda x, y: -softplus(x) - softplus(-x), C.unit_interval
)
SoftplusTransform = _increasing("SoftplusTransform", softplus, lambda y: (-(-y).expm1()).log() + y, lambda x, y: -softplus(-x), C.positive)
TanhTransform = _increasing("TanhTransform", lambda x: x.tanh(), lambda y: y.atanh(), lambda x, y: _log_slope_of_tanh(x), C.interval(-1.0, 1.0))


class AbsTransform(_Fixed):
    """The absolute value. Of inverses the positive one is taken."""

    domain, codomain = C.real, C.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


def _same_value(a: Any, b: Any) -> bool:
    numbers = not isinstance(a, Tensor) and not isinstance(b, Tensor)
    same = a == b
    return bool(same) if numbers else bool(same.all())


class PowerTransform(Transform):
    """x to the power of `exponent`."""

    domain, codomain, bijective = C.positive, C.positive, True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @lazy_property
    def sign(self) -> Any:
        return self.exponent.sign()

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * (y / x)).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _same_value(self.exponent, other.exponent)


class AffineTransform(Transform):
    """loc + scale * x; one value has `event_dim` dimensions."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    event_dim: Any = property(lambda self: self._event_dim)

    @C.dependent_property(is_discrete=False)
    def domain(self) -> Any:  # type: ignore[override] - told of an object only
        return C.independent(C.real, self._event_dim) if self._event_dim else C.real

    @C.dependent_property(is_discrete=False)
    def codomain(self) -> Any:  # type: ignore[override] - told of an object only
        return self.domain

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.scale * x + self.loc

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        slope = self.scale.abs().log() if isinstance(self.scale, Tensor) else x.new_full((), math.log(abs(self.scale)))
        return sum_rightmost(slope.expand(broadcast_shapes(slope.shape, x.shape)), self._event_dim)

    def forward_shape(self, shape: Any) -> Any:
        return broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    inverse_shape = forward_shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and _same_value(self.loc, other.loc) and _same_value(self.scale, other.scale)


# ---------------------------------------------------------------------- vectors


class SoftmaxTransform(_Fixed):
    """Probabilities in proportion to exponentials. Logarithms are taken as their inverse: no bijection."""

    domain, codomain = C.real_vector, C.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        _expect_dims(len(shape), 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(_Fixed):
    """n numbers as n + 1 probabilities: a stick is broken n times, of what is left each time by the number's sigmoid, shifted so that zeros give
    equal parts (Stan reference manual, "Unit simplex")."""

    domain, codomain, bijective = C.real_vector, C.simplex, True

    @staticmethod
    def _shift(x: Tensor) -> Tensor:
        """The logarithms of how many parts are still to come."""
        return arange(x.shape[-1], 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Tensor) -> Tensor:
        broken = SigmoidTransform()(x - self._shift(x))
        left = (1 - broken).cumprod(-1)
        return pad(broken, [0, 1], value=1.0) * pad(left, [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = y[..., :-1]
        left = (1 - parts.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return parts.log() - left.log() + self._shift(parts)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # Each part is what was left, times a sigmoid s of slope s (1 - s); 1 - s of x is the sigmoid of -x.
        return (y[..., :-1].log() - softplus(x - self._shift(x))).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _expect_dims(len(shape), 1)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        _expect_dims(len(shape), 1)
        return (*shape[:-1], shape[-1] - 1)


# ---------------------------------------------------------------------- matrices


class LowerCholeskyTransform(_Fixed):
    """The lower triangle, with the exponential of the diagonal."""

    domain, codomain = C.independent(C.real, 2), C.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return _with_diagonal(x, Tensor.exp)

    def _inverse(self, y: Tensor) -> Tensor:
        return _with_diagonal(y, Tensor.log)


def _with_diagonal(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    return x.tril(-1) + function(x.diagonal(dim1=-2, dim2=-1)).diag_embed()


class PositiveDefiniteTransform(_Fixed):
    """The matrix of which `LowerCholeskyTransform` gives the Cholesky factor."""

    domain, codomain = C.independent(C.real, 2), C.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = _with_diagonal(x, Tensor.exp)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return _with_diagonal(cholesky(y), Tensor.log)


class CorrCholeskyTransform(_Fixed):
    """n (n - 1) / 2 numbers as the Cholesky factor of an n x n correlation matrix.

    Their hyperbolic tangents are partial correlations; each row of the factor has the norm 1 (Lewandowski, Kurowicka & Joe, "Generating random
    correlation matrices based on vines and extended onion method", 2009)."""

    domain, codomain, bijective = C.real_vector, C.corr_cholesky, True

    def _call(self, x: Tensor) -> Tensor:
        eps = finfo(x.dtype).eps
        partial = vec_to_tril_matrix(x.tanh().clamp(eps - 1, 1 - eps), -1)
        # Of a row's squares, what the entries before have left.
        left = pad((1 - partial.square()).sqrt().cumprod(-1)[..., :-1], [1, 0], value=1.0)
        return (partial + eye(partial.shape[-1], dtype=x.dtype, device=x.device)) * left

    def _inverse(self, y: Tensor) -> Tensor:
        left = 1 - y.square().cumsum(-1)
        before = pad(left[..., :-1], [1, 0], value=1.0)
        ratio = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(before, -1).sqrt()
        return ratio.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # An entry is its tangent times the root of what was left: half the logarithms of all slopes before it in its row.
        n = self.forward_shape(x.shape)[-1]
        places = arange(n, dtype=x.dtype, device=x.device)
        entries_after = tril_matrix_to_vec(places.unsqueeze(-1) - places - 1, -1)
        return (_log_slope_of_tanh(x) * (1 + entries_after / 2)).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _expect_dims(len(shape), 1)
        n = (1 + math.isqrt(1 + 8 * shape[-1])) // 2
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Any) -> Any:
        _expect_dims(len(shape), 2)
        if shape[-1] != shape[-2]:
            raise ValueError("Input is not square")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)
