"""`torch.signal.windows`: windows of length `M`, whose largest value is 1.

With `sym` False the window is the beginning of a symmetric one of M + 1 points, for spectral analysis. All raise ValueError for a negative length,
for another layout than torch.strided and for another dtype than float32 and float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.strides import strided
from torchgrad_jax.functions import creation

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip

torch_dtype = dtypes.dtype


def _few(name: str, M: int, dtype: Any, layout: Any, device: Any, requires_grad: bool) -> Tensor | None:
    """The window where it has no more than one point; the checks of all."""
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if dtype not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    if M in (0, 1):
        return creation.ones((M,), dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    return None


def _dtype(dtype: Any) -> Any:
    return dtypes.get_default_dtype() if dtype is None else dtype


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: torch_dtype | None = None, layout: Any = strided,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-abs(k - center) / tau), `center` being the middle: (M,). ValueError for tau below 0, and for a center of a symmetric window."""
    dtype = _dtype(dtype)
    few = _few("exponential", M, dtype, layout, device, requires_grad)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if few is not None:
        return few
    if center is None:
        center = (M if not sym else M - 1) / 2.0
    k = creation.linspace(-center / tau, (-center + (M - 1)) / tau, M, dtype=dtype, device=device, requires_grad=requires_grad)
    return (-k.abs()).exp()


def cosine(
    M: int, *, sym: bool = True, dtype: torch_dtype | None = None, layout: Any = strided, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """sin(pi (k + 1 / 2) / M): (M,)."""
    dtype = _dtype(dtype)
    few = _few("cosine", M, dtype, layout, device, requires_grad)
    if few is not None:
        return few
    constant = math.pi / (M + 1 if not sym else M)
    k = creation.linspace(0.5 * constant, (0.5 + (M - 1)) * constant, M, dtype=dtype, device=device, requires_grad=requires_grad)
    return k.sin()


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: torch_dtype | None = None, layout: Any = strided, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-((k - middle) / std) ** 2 / 2): (M,). ValueError for a standard deviation that is not positive."""
    dtype = _dtype(dtype)
    few = _few("gaussian", M, dtype, layout, device, requires_grad)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    if few is not None:
        return few
    start, constant = -(M if not sym else M - 1) / 2.0, 1 / (std * math.sqrt(2))
    k = creation.linspace(start * constant, (start + (M - 1)) * constant, M, dtype=dtype, device=device, requires_grad=requires_grad)
    return (-(k**2)).exp()


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: torch_dtype | None = None, layout: Any = strided, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """I0(beta sqrt(1 - (2 k / (M - 1) - 1) ** 2)) / I0(beta): (M,). ValueError for a negative beta."""
    dtype = _dtype(dtype)
    few = _few("kaiser", M, dtype, layout, device, requires_grad)
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    if few is not None:
        return few
    largest = creation.tensor(beta, dtype=dtype, device=device)
    constant = 2.0 * beta / (M if not sym else M - 1)
    end = min(beta, -beta + (M - 1) * constant)
    k = creation.linspace(-beta, end, M, dtype=dtype, device=device, requires_grad=requires_grad)
    return (largest * largest - k**2).clamp(min=0).sqrt().i0() / largest.i0()


def hamming(
    M: int, *, sym: bool = True, dtype: torch_dtype | None = None, layout: Any = strided, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """0.54 - 0.46 cos(2 pi k / (M - 1)): (M,)."""
    return general_hamming(M, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def hann(
    M: int, *, sym: bool = True, dtype: torch_dtype | None = None, layout: Any = strided, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """0.5 - 0.5 cos(2 pi k / (M - 1)): (M,)."""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def blackman(
    M: int, *, sym: bool = True, dtype: torch_dtype | None = None, layout: Any = strided, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """0.42 - 0.5 cos(2 pi k / (M - 1)) + 0.08 cos(4 pi k / (M - 1)): (M,)."""
    dtype = _dtype(dtype)
    few = _few("blackman", M, dtype, layout, device, requires_grad)
    if few is not None:
        return few
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def bartlett(
    M: int, *, sym: bool = True, dtype: torch_dtype | None = None, layout: Any = strided, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """1 - abs(2 k / (M - 1) - 1): (M,)."""
    dtype = _dtype(dtype)
    few = _few("bartlett", M, dtype, layout, device, requires_grad)
    if few is not None:
        return few
    constant = 2 / (M if not sym else M - 1)
    k = creation.linspace(-1, -1 + (M - 1) * constant, M, dtype=dtype, device=device, requires_grad=requires_grad)
    return 1 - k.abs()


def general_cosine(
    M: int, *, a: Iterable[float], sym: bool = True, dtype: torch_dtype | None = None, layout: Any = strided, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The sum of (-1) ** i a[i] cos(2 pi i k / (M - 1)): (M,). TypeError for coefficients that are no list or tuple, ValueError for none."""
    dtype = _dtype(dtype)
    few = _few("general_cosine", M, dtype, layout, device, requires_grad)
    if few is not None:
        return few
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    constant = 2 * math.pi / (M if not sym else M - 1)
    k = creation.linspace(0, (M - 1) * constant, M, dtype=dtype, device=device, requires_grad=requires_grad)
    weights = creation.tensor([(-1) ** i * w for i, w in enumerate(a)], dtype=dtype, device=device)
    i = creation.arange(weights.shape[0], dtype=weights.dtype, device=device)
    return (weights.unsqueeze(-1) * (i.unsqueeze(-1) * k).cos()).sum(0)


def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: torch_dtype | None = None, layout: Any = strided, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - (1 - alpha) cos(2 pi k / (M - 1)): (M,)."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def nuttall(
    M: int, *, sym: bool = True, dtype: torch_dtype | None = None, layout: Any = strided, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The sum of four cosines with Nuttall's weights of least sidelobes: (M,)."""
    return general_cosine(
        M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )
