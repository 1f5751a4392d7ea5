"""`torch.hann_window` and its kin: computed on the host, in the arithmetic of their dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.calling.factory_options import check_memory
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import as_device, from_host


def _points(name: str, window_length: int, periodic: bool, options: dict[str, Any], formula: Callable[[np.ndarray, int], np.ndarray]) -> Tensor:
    """`formula` of 0, 1 ... and the last of them; `periodic` leaves that one out."""
    check_memory(name, options)
    dtype = options.get("dtype")
    target = dtypes.default_float() if dtype is None else dtype.np
    if not dtypes.is_float(target):
        where = as_device(options.get("device"))
        asked = " (default)" if not options.get("requires_grad") else ""
        raise RuntimeError(
            f"{name} expects floating point dtypes, got: TensorOptions(dtype={_C_NAMES.get(target.name, target.name)}, device={where}, "
            f"layout=Strided (default), requires_grad={str(bool(options.get('requires_grad'))).lower()}{asked}, pinned_memory=false, "
            "memory_format=(nullopt))"
        )
    if window_length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={window_length}")
    if target.kind == "c":
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{dtypes.of(target).title}'")
    if window_length < 2:
        return from_host(name, np.ones(window_length, target), options)
    last = window_length if periodic else window_length - 1
    return from_host(name, formula(np.arange(last + 1).astype(target), last).astype(target)[:window_length], options)


_C_NAMES = {"int64": "long int", "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char"}


def _cosine(x: np.ndarray, last: int, multiple: int) -> np.ndarray:
    kind = x.dtype.type
    return np.cos(x * kind(multiple * math.pi / last))


@public("torch")
def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """A triangle from 0 to 1 and back: (window_length,). `periodic` leaves out the last point of a window that is one longer."""

    def formula(x: np.ndarray, last: int) -> np.ndarray:
        rising = x * x.dtype.type(2 / last)
        rising[last // 2 + 1 :] = 2 - rising[last // 2 + 1 :]
        return rising

    return _points("bartlett_window", window_length, periodic, options, formula)


@public("torch")
def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n): (window_length,)."""

    def formula(x: np.ndarray, last: int) -> np.ndarray:
        kind = x.dtype.type
        return _cosine(x, last, 4) * kind(0.08) - _cosine(x, last, 2) * kind(0.5) + kind(0.42)

    return _points("blackman_window", window_length, periodic, options, formula)


@public("torch")
def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any) -> Tensor:
    """alpha - beta cos(2 pi k / n): (window_length,)."""
    return _points("hamming_window", window_length, periodic, options, lambda x, last: _raised(x, last, alpha, beta))


def _raised(x: np.ndarray, last: int, alpha: float, beta: float) -> np.ndarray:
    kind = x.dtype.type
    return _cosine(x, last, 2) * kind(-beta) + kind(alpha)


@public("torch")
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """0.5 - 0.5 cos(2 pi k / n): (window_length,)."""
    return _points("hann_window", window_length, periodic, options, lambda x, last: _raised(x, last, 0.5, 0.5))


@public("torch")
def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Tensor:
    """I0(beta sqrt(1 - (2 k / n - 1) ** 2)) / I0(beta): (window_length,)."""

    def formula(x: np.ndarray, last: int) -> np.ndarray:
        inside = 1 - (x.astype(np.float64) * (2 / last) - 1) ** 2
        return np.i0(beta * np.sqrt(np.maximum(inside, 0))) / np.i0(beta)

    return _points("kaiser_window", window_length, periodic, options, formula)
