"""The discrete Fourier transforms that all of `torch.fft` is made of: complex to complex, real to complex, complex to real.

`normalization` is 0 for the plain sum, 1 for division by the root of the number of points, 2 for division by it.
"""

from __future__ import annotations

import math
from typing import Any

from jax import lax
from jax import numpy as jnp
from jax.lax import FftType

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import where
from torchgrad_jax.declaration.memory_order import COMPLEX_TRANSFORM, REAL_TRANSFORM
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.operators.kernels import numpy_fourier

PRIVATE = {"method": False, "toplevel": False}
MOST = 3  # dimensions that XLA transforms at once


def _along(x: Any, kind: FftType, dims: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    """XLA's transform of some dimensions, which it wants to be the last ones."""
    last = tuple(range(x.ndim - len(dims), x.ndim))
    return jnp.moveaxis(lax.fft(jnp.moveaxis(x, dims, last), kind, sizes), last, dims)


def _scaled(x: Any, points: int, normalization: int, divided: bool) -> Any:
    """The transform of `points` numbers as `normalization` wants it; XLA has divided it by their number if `divided`."""
    factor = (points if divided else 1) / (1, math.sqrt(points), points)[normalization]
    return x if factor == 1 else x * jnp.asarray(factor, dtypes.to_real(x.dtype))


def _complex_to_complex(x: Any, dim: tuple[int, ...], forward: bool) -> Any:
    for i in range(0, len(dim), MOST):
        part = dim[i : i + MOST]
        x = _along(x, FftType.FFT if forward else FftType.IFFT, part, tuple(x.shape[d] for d in part))
    return x


def _points(shape: tuple[int, ...], dim: tuple[int, ...]) -> int:
    return math.prod(shape[d] for d in dim)


def _c2c(x: Any, dim: tuple[int, ...], normalization: int, forward: bool) -> Any:
    if not x.size:
        return x
    return _scaled(_complex_to_complex(x, dim, forward), _points(x.shape, dim), normalization, not forward)


@op("_fft_c2c(Tensor self, int[] dim, int normalization, bool forward)", order=COMPLEX_TRANSFORM, node="FftC2CBackward0", **PRIVATE,
    numpy=numpy_fourier.c2c, numpy_vjp=numpy_fourier.c2c_grad,
    grads={"self": lambda grad, dim, normalization, forward: _c2c(grad, dim, normalization, not forward)})  # fmt: skip
def fft_c2c(x: Any, dim: tuple[int, ...], normalization: int, forward: bool) -> Any:
    """Along `dim`, X[k] is the sum of x[j] exp(-2 pi i j k / n); +2 unless `forward`."""
    return _c2c(x, dim, normalization, forward)


def _r2c(x: Any, dim: tuple[int, ...], normalization: int, onesided: bool) -> Any:
    n = x.shape[dim[-1]]
    if not x.size:
        kept = n // 2 + 1 if onesided else n
        return jnp.zeros((*x.shape[: dim[-1]], kept, *x.shape[dim[-1] + 1 :]), dtypes.to_complex(x.dtype))
    if onesided:
        made = _complex_to_complex(_along(x, FftType.RFFT, dim[-1:], (n,)), dim[:-1], True)
    else:
        made = _complex_to_complex(x.astype(dtypes.to_complex(x.dtype)), dim, True)
    return _scaled(made, _points(x.shape, dim), normalization, False)


def _r2c_grad(grad: Any, self: Any, dim: tuple[int, ...], normalization: int, onesided: bool) -> Any:
    """The half that was left out has no gradient; the imaginary part belongs to no input."""
    missing = self.shape[dim[-1]] - grad.shape[dim[-1]]
    filled = jnp.pad(grad, [(0, missing if d == dim[-1] else 0) for d in range(grad.ndim)]) if onesided else grad
    return _c2c(filled, dim, normalization, False).real


@op(
    "_fft_r2c(Tensor self, int[] dim, int normalization, bool onesided)",
    order=REAL_TRANSFORM,
    node="FftR2CBackward0",
    grads={"self": _r2c_grad},
    numpy=numpy_fourier.r2c,
    numpy_vjp=numpy_fourier.r2c_grad,
    **PRIVATE,
)
def fft_r2c(x: Any, dim: tuple[int, ...], normalization: int, onesided: bool) -> Any:
    """The forward transform of real numbers. `onesided` leaves out the half of the last of `dim` that mirrors the other."""
    return _r2c(x, dim, normalization, onesided)


def _c2r_grad(grad: Any, dim: tuple[int, ...], normalization: int) -> Any:
    """All but the first element, and the last of an even number of points, stand for their mirror image, too."""
    n, last = grad.shape[dim[-1]], dim[-1]
    made = _r2c(grad, dim, normalization, True)
    at = jnp.arange(made.shape[last])
    weight = where((at == 0) | (2 * at == n), 1, 2).astype(grad.dtype)
    return made * weight.reshape([-1 if d == last else 1 for d in range(grad.ndim)])


@op(
    "_fft_c2r(Tensor self, int[] dim, int normalization, int last_dim_size)",
    order=REAL_TRANSFORM,
    node="FftC2RBackward0",
    grads={"self": _c2r_grad},
    numpy=numpy_fourier.c2r,
    numpy_vjp=numpy_fourier.c2r_grad,
    **PRIVATE,
)
def fft_c2r(x: Any, dim: tuple[int, ...], normalization: int, last_dim_size: int) -> Any:
    """The backward transform to real numbers, `last_dim_size` of them along the last of `dim`, from one half of the mirrored ones."""
    shape = (*x.shape[: dim[-1]], last_dim_size, *x.shape[dim[-1] + 1 :])
    if not x.size:
        return jnp.zeros(shape, dtypes.to_real(x.dtype))
    made = _along(_complex_to_complex(x, dim[:-1], False), FftType.IRFFT, dim[-1:], (last_dim_size,))
    return _scaled(made, _points(shape, dim), normalization, True)
