"""Fourier transforms and their gradients as NumPy's loops compute them, without what `numpy.fft` does around these, which takes longer than a
transform of a hundred numbers does. What NumPy calls is not public: where it is not as it is known, `numpy.fft` itself is asked.

The arguments are those of `operators/fourier.py`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.operation import stand_in

Array = np.ndarray
Dims = tuple[int, ...]

_KINDS = {"fft": "Ff->F", "ifft": "Ff->F", "rfft_n_even": "ff->F", "rfft_n_odd": "ff->F", "irfft": "Ff->f"}
_COMPLEX = {"f": np.dtype(np.complex64), "d": np.dtype(np.complex128)}
_REAL = {"F": np.dtype(np.float32), "D": np.dtype(np.float64), "f": np.dtype(np.float32), "d": np.dtype(np.float64)}
_EACH = 10.0  # nanoseconds for a number, of a few hundred in a row


@cache
def _loop(name: str) -> Any:
    """NumPy's loop over rows, None where there is none of these dtypes."""
    found = getattr(getattr(np.fft, "_pocketfft_umath", None), name, None)
    return found if _KINDS[name] in getattr(found, "types", ()) else None


def _along(name: str, x: Array, dim: int, size: int, factor: float, dtype: np.dtype) -> Array:
    """A transform along one dimension to `size` numbers, times a factor; the backward ones divide by nothing."""
    real = _REAL[x.dtype.char]
    loop = _loop(name)
    if loop is None:
        points = size if name == "irfft" else x.shape[dim]
        kind = name.split("_")[0]
        made = getattr(np.fft, kind)(x, points, dim)
        return (made * real.type(factor * (points if kind[0] == "i" else 1))).astype(dtype, copy=False)
    out = np.empty((*x.shape[:dim], size, *x.shape[dim + 1 :]), dtype)
    if dim == x.ndim - 1:
        return loop(x, real.type(factor), out)
    return loop(x, real.type(factor), out, axes=[(dim,), (), (dim,)])


def _factor(points: int, normalization: int) -> float:
    return 1 / (1, math.sqrt(points), points)[normalization]


def _points(shape: tuple[int, ...], dim: Dims) -> int:
    return math.prod([shape[d] for d in dim])


def _complex_to_complex(x: Array, dim: Dims, factor: float, forward: bool) -> Array:
    for i, d in enumerate(reversed(dim)):
        x = _along("fft" if forward else "ifft", x, d, x.shape[d], 1 if i else factor, x.dtype)
    return x


def _c2c(x: Array, dim: Dims, normalization: int, forward: bool) -> Array:
    return _complex_to_complex(x, dim, _factor(_points(x.shape, dim), normalization), forward)


def _r2c(x: Array, dim: Dims, normalization: int, onesided: bool) -> Array:
    factor, last, made_of = _factor(_points(x.shape, dim), normalization), dim[-1], _COMPLEX[x.dtype.char]
    if not onesided:
        return _complex_to_complex(x.astype(made_of), dim, factor, True)
    n = x.shape[last]
    made = _along("rfft_n_odd" if n % 2 else "rfft_n_even", x, last, n // 2 + 1, factor, made_of)
    return _complex_to_complex(made, dim[:-1], 1, True)


def _c2r(x: Array, dim: Dims, normalization: int, last_dim_size: int) -> Array:
    last = dim[-1]
    points = _points(x.shape, dim[:-1]) * last_dim_size
    made = _complex_to_complex(x, dim[:-1], 1, False)
    return _along("irfft", made, last, last_dim_size, _factor(points, normalization), _REAL[x.dtype.char])


def _r2c_grad(grad: Array, aval: Any, *saved: Array, dim: Dims, normalization: int, onesided: bool) -> Array:
    """The half that was left out has no gradient; the imaginary part belongs to no input."""
    if onesided:
        filled = np.zeros(aval.shape, grad.dtype)
        filled[(*[slice(None)] * dim[-1], slice(grad.shape[dim[-1]]))] = grad
        grad = filled
    return np.real(_c2c(grad, dim, normalization, False))


def _c2r_grad(grad: Array, aval: Any, *saved: Array, dim: Dims, normalization: int, last_dim_size: int) -> Array:
    """All but the first element, and the last of an even number of points, stand for their mirror image, too."""
    made, last = _r2c(grad, dim, normalization, True), dim[-1]
    doubled = made[(*[slice(None)] * last, slice(1, (last_dim_size + 1) // 2))]
    doubled *= 2
    return made


def _of_shape(x: Array, dim: Dims, size: int, dtype: np.dtype) -> Any:
    """What has the result's shape and dtype: `size` elements along the last of `dim`."""
    last = dim[-1]
    shape = (*x.shape[:last], size, *x.shape[last + 1 :])
    return stand_in(shape, dtype) if x.size and size and dim else None


def _like(aval: Any, grad: Array, fits: bool) -> Any:
    return stand_in(aval.shape, aval.dtype) if fits and grad.size else None


def _is_complex(x: Array) -> bool:
    return x.dtype.char in "FD"


def _is_real(x: Array) -> bool:
    return x.dtype.char in "fd"


c2c = Forms(_c2c, lambda x, dim, normalization, forward: stand_in(x.shape, x.dtype) if _is_complex(x) and x.size and dim else None, True, each=_EACH)
c2c_grad = Forms(
    lambda grad, aval, *saved, dim, normalization, forward: _c2c(grad, dim, normalization, not forward),
    lambda grad, aval, *saved, dim, normalization, forward: _like(aval, grad, _is_complex(grad) and grad.dtype == aval.dtype and bool(dim)),
    True, each=_EACH,
)  # fmt: skip
r2c = Forms(
    _r2c,
    lambda x, dim, normalization, onesided: _of_shape(x, dim, x.shape[dim[-1]] // 2 + 1 if onesided else x.shape[dim[-1]], _COMPLEX[x.dtype.char])
    if _is_real(x) and dim else None,
    True, each=_EACH,
)  # fmt: skip
r2c_grad = Forms(
    _r2c_grad,
    lambda grad, aval, *saved, dim, normalization, onesided: _like(aval, grad, _is_complex(grad) and grad.dtype == _COMPLEX.get(aval.dtype.char)),
    each=_EACH,
)
c2r = Forms(
    _c2r, lambda x, dim, normalization, last_dim_size: _of_shape(x, dim, last_dim_size, _REAL[x.dtype.char]) if _is_complex(x) and dim else None,
    True, each=_EACH,
)  # fmt: skip
c2r_grad = Forms(
    _c2r_grad,
    lambda grad, aval, *saved, dim, normalization, last_dim_size: _like(aval, grad, _is_real(grad) and _COMPLEX[grad.dtype.char] == aval.dtype),
    True, each=_EACH,
)  # fmt: skip
