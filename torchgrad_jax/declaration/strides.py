"""Strides: virtual here, since XLA lays arrays out as it likes, but counted as PyTorch counts them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torchgrad_jax.runtime.pickles import in_pickles

# By the names that pickles have for them.
_layouts: dict[str, layout] = {}


class layout:
    """How a tensor's elements are stored: `torch.strided` for nearly all, and see `sparse/`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name
        _layouts.setdefault(f"torch.{name}", self)

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (repr(self),)


layout.__module__ = "torchgrad_jax"  # where users find it
strided = layout("strided")


@in_pickles("_get_layout")
def _named(name: str) -> layout:
    """What pickle calls, as in PyTorch's files. RuntimeError for what is no layout."""
    if name not in _layouts:
        raise RuntimeError(f"torchgrad_jax knows no layout {name}: call to_dense() before saving")
    return _layouts[name]


@lru_cache(4096)
def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of row-major storage, in elements."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return tuple(strides)


def apart(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether all elements are places of their own in memory, as far as the order of the strides tells."""
    reach = 0  # of each dimension, from the fastest on: the next is to begin beyond
    for step, n in sorted((s, n) for s, n in zip(stride, size, strict=True) if n != 1):
        if step <= reach:
            return False
        reach += step * (n - 1)
    return True


def is_standard(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the strides are those that a new tensor has, in dimensions of size 1 too. Of no elements they may be any."""
    return strides == contiguous_strides(shape) or 0 in shape


@lru_cache(4096)
def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the strides are those of row-major storage; a dimension of size 1 may have any."""
    if 0 in shape:
        return True
    expected = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1:
            if s != expected:
                return False
            expected *= n
    return True


def is_by_rows(strides: tuple[int, ...]) -> bool:
    """Whether no two dimensions are in another order in memory than in row-major order, with whatever gaps, those of size 1 too: what is computed of
    such tensors element by element lies in rows without gaps. A copy keeps the strides of what has gaps in dimensions of size 1 alone."""
    return all([a > b for a, b in zip(strides, (*strides[1:], 0), strict=True)])
