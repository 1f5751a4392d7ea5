"""Arithmetic with numbers of a step that are Python's or 0-dim tensors: what the options `alpha` and `value` of tensors' methods take is a number."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.tensor import Tensor


def add(t: Tensor, other: Tensor, factor: Any) -> Tensor:
    """t + factor * other."""
    return t.add(other * factor) if isinstance(factor, Tensor) else t.add(other, alpha=factor)


def add_(t: Tensor, other: Tensor, factor: Any) -> Tensor:
    """`add` in place."""
    return t.add_(other * factor) if isinstance(factor, Tensor) else t.add_(other, alpha=factor)


def addcmul_(t: Tensor, a: Tensor, b: Tensor, factor: Any) -> Tensor:
    """t + factor * a * b, in place."""
    return t.add_(a * b * factor) if isinstance(factor, Tensor) else t.addcmul_(a, b, value=factor)


def addcdiv_(t: Tensor, a: Tensor, b: Tensor, factor: Any) -> Tensor:
    """t + factor * a / b, in place."""
    return t.add_(a / b * factor) if isinstance(factor, Tensor) else t.addcdiv_(a, b, value=factor)


def lerp_(t: Tensor, end: Tensor, weight: Any) -> Tensor:
    """t + weight * (end - t), in place."""
    return t.lerp_(end, weight.to(dtype=t.dtype) if isinstance(weight, Tensor) else weight)


def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers."""
    if isinstance(b, Tensor):
        a, b = b, a
    return a.clamp(min=b) if isinstance(a, Tensor) else max(a, b)


def smaller(a: Any, b: Any) -> Any:
    """The smaller of two numbers."""
    if isinstance(b, Tensor):
        a, b = b, a
    return a.clamp(max=b) if isinstance(a, Tensor) else min(a, b)
