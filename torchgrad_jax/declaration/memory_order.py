"""In which order the elements of results lie in memory where PyTorch's kernels choose it themselves: matrices of LAPACK by columns, images as
the first image lies, Fourier transforms with the transformed dimensions fastest.

A rule gives the dimensions of a result from slowest to fastest, None for row-major.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from torchgrad_jax.declaration.strides import is_contiguous, is_standard

Ints = tuple[int, ...]
Laid = tuple[Ints, Ints]
"""The shape and the strides of an operand."""
Rule = Callable[[Ints, Sequence[Laid], dict[str, Any]], Ints | None]


class Order:
    """The rule of each result, None (and absent) for row-major. always: also where all operands are row-major."""

    __slots__ = ("rules", "always")

    def __init__(self, *rules: Rule | None, always: bool = True) -> None:
        self.rules, self.always = rules, always


@lru_cache(maxsize=4096)
def result_layout(shape: Ints, operands: tuple[Laid, ...], exactly: bool = False) -> tuple[Ints, Ints] | None:
    """The order of a result's dimensions, slowest first, and its strides: those of the operands where these are alike and dense, else by their order.
    None for row-major. exactly: also where the operands' are row-major but for dimensions of size 1, whose stride can be any."""
    if len(set(operands)) == 1 and operands[0][0] == shape and 0 not in shape:
        strides = operands[0][1]
        order = dense_order(shape, strides)
        if order is not None and (exactly or not is_contiguous(shape, strides)):
            return None if is_standard(shape, strides) else (order, strides)
    order = result_order(shape, operands)
    return None if order is None else (order, strides_in(shape, order))


@lru_cache(maxsize=4096)
def result_order(shape: Ints, operands: tuple[Laid, ...]) -> Ints | None:
    """The order of a result's dimensions, slowest first, by PyTorch's rule: that of the operands' strides, the first that tells; None for
    row-major."""
    ndim = len(shape)
    if ndim < 2 or 0 in shape or all(s == shape and is_contiguous(s, strides) for s, strides in operands):
        return None
    known = []
    for own, strides in operands:
        missing = ndim - len(own)
        known.append([0] * missing + [0 if n == 1 != shape[missing + d] else s for d, (n, s) in enumerate(zip(own, strides, strict=True))])

    def faster(a: int, b: int) -> int:
        """Whether dimension `a` is faster in memory than `b` (-1), slower (1), or that cannot be told (0)."""
        for strides in known:
            one, other = strides[a], strides[b]
            if one and other:
                if one != other:
                    return -1 if one < other else 1
                if shape[a] > shape[b]:
                    return 1
        return 0

    order = list(range(ndim - 1, -1, -1))  # fastest first
    for i in range(1, ndim):
        at = i
        for j in range(i - 1, -1, -1):
            told = faster(order[j], order[at])
            if told > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif told < 0:
                break
    found = tuple(reversed(order))
    return None if is_standard(shape, strides_in(shape, found)) else found


@lru_cache(4096)
def dense_order(shape: Ints, strides: Ints) -> Ints | None:
    """The dimensions from slowest to fastest; None where elements overlap or leave gaps."""
    order = tuple(sorted(range(len(shape)), key=lambda d: (-strides[d], -shape[d], d)))
    dense = strides_in(shape, order)
    return order if all(s == e or n == 1 for s, e, n in zip(strides, dense, shape, strict=True)) else None


@lru_cache(4096)
def strides_in(shape: Ints, order: Ints) -> Ints:
    """The strides, in elements, of dimensions that lie in memory from slowest to fastest as `order` says."""
    found, step = [1] * len(shape), 1
    for d in reversed(order):
        found[d] = step
        step *= max(shape[d], 1)
    return tuple(found)


def by_columns(shape: Ints, operands: Sequence[Laid], statics: dict[str, Any]) -> Ints | None:
    """Matrices whose columns lie together, as LAPACK writes them."""
    n = len(shape)
    return (*range(n - 2), n - 1, n - 2) if n > 1 else None


def _by_side(shape: Ints, operands: Sequence[Laid], statics: dict[str, Any]) -> Ints | None:
    """Solutions of A X = B; those of X A = B are found transposed."""
    return by_columns(shape, operands, statics) if statics.get("left", True) else None


def is_channels_last(shape: Ints, strides: Ints) -> bool:
    """Whether images (or volumes) lie in memory pixel by pixel."""
    ndim, least = len(shape), 0
    if ndim not in (4, 5) or not strides[1]:
        return False
    for d in (1, *range(ndim - 1, 1, -1), 0):
        if not shape[d] or strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * max(shape[d], 1)
    return True


def _pixels(shape: Ints, operands: Sequence[Laid], count: int) -> Ints | None:
    ndim = len(shape)
    if ndim in (4, 5) and any([is_channels_last(*o) for o in operands[:count]]):
        return (0, *range(2, ndim), 1)
    return None


def _as_image(shape: Ints, operands: Sequence[Laid], statics: dict[str, Any]) -> Ints | None:
    return _pixels(shape, operands, 1)


def _as_image_or_weight(shape: Ints, operands: Sequence[Laid], statics: dict[str, Any]) -> Ints | None:
    return _pixels(shape, operands, 2)


def _as_all_images(shape: Ints, operands: Sequence[Laid], statics: dict[str, Any]) -> Ints | None:
    """What is joined of images that all lie pixel by pixel."""
    return _pixels(shape, operands, 1) if all([is_channels_last(*o) for o in operands]) else None


def _transformed(shape: Ints, operands: Sequence[Laid], statics: dict[str, Any], last: int | None) -> Ints | None:
    """Dimensions that are not transformed first, each part in the order of the operand; `last` fastest."""
    strides = operands[0][1]
    dims = [d % len(shape) for d in statics["dim"]]
    if last is not None:
        dims = [d for d in dims if d != last]
    others = [d for d in range(len(shape)) if d not in dims and d != last]
    order = (*sorted(others, key=lambda d: -strides[d]), *sorted(dims, key=lambda d: -strides[d]))
    return order if last is None else (*order, last)


def _complex_transform(shape: Ints, operands: Sequence[Laid], statics: dict[str, Any]) -> Ints | None:
    return _transformed(shape, operands, statics, None) if shape and statics["dim"] else None


def _real_transform(shape: Ints, operands: Sequence[Laid], statics: dict[str, Any]) -> Ints | None:
    return _transformed(shape, operands, statics, statics["dim"][-1] % len(shape)) if shape and statics["dim"] else None


def _turned(shape: Ints, operands: Sequence[Laid], statics: dict[str, Any]) -> Ints | None:
    """A rotation: flipped, which keeps the operand's order, then two dimensions swapped."""
    a, b = statics["dims"]
    strides = list(operands[0][1])
    if statics["k"] == 0:
        return None
    if statics["k"] % 2:
        strides[a], strides[b] = strides[b], strides[a]
        if not all(operands[0][1]):  # a copy of repeated elements is row-major
            dense = [1] * len(shape)
            own = operands[0][0]
            for d in range(len(shape) - 2, -1, -1):
                dense[d] = dense[d + 1] * own[d + 1]
            dense[a], dense[b] = dense[b], dense[a]
            strides = dense
    return tuple(sorted(range(len(shape)), key=lambda d: -strides[d])) if all(strides) else None


def _indexed(shape: Ints, operands: Sequence[Laid], statics: dict[str, Any]) -> Ints | None:
    """Elements at indices: where those are given for neighbouring dimensions, their own take the place of these; otherwise they come first."""
    (own, strides), *indices = operands
    dims = statics["dims"]
    kept = [d for d in range(len(own)) if d not in dims]
    before = sum(d < dims[0] for d in kept) if dims == tuple(range(dims[0], dims[0] + len(dims))) else 0
    count = len(shape) - len(kept)
    moved = [strides[d] for d in kept]
    laid = [(shape, (*moved[:before], *[0] * count, *moved[before:]))]
    for size, steps in indices:
        first = size[0] * steps[0] if size else 1
        outside = before + count - len(size), len(kept) - before
        laid.append(((*[1] * outside[0], *size, *[1] * outside[1]), (*[first] * outside[0], *steps, *[1] * outside[1])))
    return result_order(shape, tuple(laid))


COLUMNS = Order(by_columns)
BY_SIDE = Order(_by_side)
IMAGE = Order(_as_image, _as_image, always=False)
JOINED = Order(_as_all_images, always=False)
IMAGE_ALONE = Order(_as_image, always=False)
CONVOLVED = Order(_as_image_or_weight, always=False)
COMPLEX_TRANSFORM = Order(_complex_transform)
REAL_TRANSFORM = Order(_real_transform)
TURNED = Order(_turned)
INDEXED = Order(_indexed, always=False)
