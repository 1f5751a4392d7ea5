"""`rearrange`: dimensions put in another order, split and merged, by a pattern such as ``"b h w c -> b (c h) w"``."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from math import prod
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.shaping import stack
from torchgrad_jax.functions.views import permute, reshape

ELLIPSIS = "..."
# A name that stands alone, or the names in parentheses; none of them for a dimension of size 1.
Item = str | list[str]


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """The tensor with the dimensions that the left side of `pattern` names as its right side has them.

    A name is a dimension, names in parentheses are one dimension that they make up together, ``...`` is all that are not named, and ``1`` or ``()``
    one of size 1. axes_lengths: sizes of names in parentheses; one of each parentheses may be left to be worked out. A sequence of tensors is
    stacked first.

    ValueError for a pattern that is none or does not fit the tensor's dimensions, RuntimeError where sizes do not fit, TypeError for what is no
    tensor.

        >>> torch.func.rearrange(torch.zeros(2, 3, 4), "a b c -> (a c) b").shape
        torch.Size([8, 3])
    """
    if not isinstance(tensor, Tensor):
        if not isinstance(tensor, (list, tuple)):
            raise TypeError(f"stack(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensor).__name__}")
        tensor = stack(tensor)
    sides = _sides(pattern)
    _check_names(*sides, axes_lengths)
    ellipsis = [f"{ELLIPSIS}{i}" for i in range(tensor.dim() - len(sides[0]) + 1)]
    left, right = (_expanded(side, ellipsis) for side in sides)
    if len(left) != tensor.dim():
        raise ValueError(f"Number of dimensions in pattern ({len(left)}) must be equal to the number of dimensions in the tensor ({tensor.dim()})")
    sizes = _sizes(left, tensor.shape, axes_lengths)
    names = [name for group in left for name in group]
    order = [name for group in right for name in group]
    parts = reshape(tensor, tuple(sizes[name] for name in names))
    moved = permute(parts, tuple(names.index(name) for name in order))
    return reshape(moved, tuple(prod(sizes[name] for name in group) for group in right))


# ---------------------------------------------------------------------- patterns


def _sides(pattern: str) -> tuple[list[Item], list[Item]]:
    """The dimensions on both sides."""
    try:
        left, right = pattern.split("->")
    except ValueError:
        raise ValueError("Pattern must contain a single '->' separator") from None
    if ELLIPSIS in right and ELLIPSIS not in left:
        raise ValueError(f"Ellipsis found in right side, but not left side of a pattern {pattern}")
    found = _items(left), _items(right)
    if any(ELLIPSIS in item for item in found[0] if not isinstance(item, str)):
        raise ValueError(f"Ellipsis is parenthesis in the left side is not allowed: {pattern}")
    return found


def _items(side: str) -> list[Item]:
    if "." in side.replace(ELLIPSIS, "", 1):
        more = "; only one ellipsis for tensor " if side.count(ELLIPSIS) > 1 else ""
        raise ValueError(f"Expression may contain dots only inside ellipsis (...){more}")
    found: list[Item] = []
    inside: list[str] | None = None
    names: set[str] = set()
    for token in re.findall(r"\(|\)|\.\.\.|[^\s().]+", side):
        if token == "(":
            if inside is not None:
                raise ValueError("Axis composition is one-level (brackets inside brackets not allowed)")
            found.append(inside := [])
        elif token == ")":
            if inside is None:
                raise ValueError("Brackets are not balanced")
            inside = None
        elif token == "1":
            if inside is None:
                found.append([])
        else:
            _check_name(token)
            if token in names:
                raise ValueError(f"Indexing expression contains duplicate dimension '{token}'")
            names.add(token)
            (found if inside is None else inside).append(token)
    if inside is not None:
        raise ValueError(f"Imbalanced parentheses in expression: '{side}'")
    return found


def _check_name(token: str) -> None:
    if token == ELLIPSIS:
        return
    if token.isdecimal():
        raise ValueError("rearrange only supports unnamed axes of size 1")
    for character in token:
        if not (character.isalnum() or character == "_"):
            raise ValueError(f"Unknown character '{character}'")
    if not token.isidentifier():
        raise ValueError(f"Invalid axis identifier: {token}\nnot a valid python identifier")
    if token.startswith("_") or token.endswith("_"):
        raise ValueError(f"Invalid axis identifier: {token}\naxis name should should not start or end with underscore")
    if keyword.iskeyword(token) and token not in ("if", "is", "in"):
        raise ValueError(f"Invalid axis identifier: {token}\nit is a keyword of Python")


def _check_names(left: list[Item], right: list[Item], lengths: dict[str, int]) -> None:
    of_left, of_right = ({name for item in side for name in ([item] if isinstance(item, str) else item)} for side in (left, right))
    if of_left ^ of_right:
        raise ValueError(f"Identifiers only on one side of rearrange expression (should be on both): {of_left ^ of_right}")
    if unknown := set(lengths) - of_left:
        raise ValueError(f"Identifiers not found in rearrange expression: {unknown}")


def _expanded(side: list[Item], ellipsis: list[str]) -> list[list[str]]:
    """The names that make up each dimension; those of an ellipsis that stands alone are a dimension each."""
    found: list[list[str]] = []
    for item in side:
        if item == ELLIPSIS:
            found.extend([name] for name in ellipsis)
        else:
            found.append([n for name in ([item] if isinstance(item, str) else item) for n in (ellipsis if name == ELLIPSIS else [name])])
    return found


def _sizes(left: list[list[str]], shape: Sequence[int], lengths: dict[str, int]) -> dict[str, int]:
    """The size of each name. RuntimeError where sizes do not make up the tensor's."""
    sizes: dict[str, Any] = dict(lengths)
    for group, size in zip(left, shape, strict=True):
        known = prod(lengths[name] for name in group if name in lengths)
        unknown = [name for name in group if name not in lengths]
        if len(unknown) > 1:
            raise RuntimeError(f"cannot infer the sizes of two dimensions at once {unknown[0]} and {unknown[1]}")
        if unknown:
            if size % known if known else size:
                shown = tuple("?" if name in unknown else lengths[name] for name in group)
                raise RuntimeError(f"inferred dimension does not evenly fit into larger dimension: {size} vs {shown}")
            sizes[unknown[0]] = size // known if known else 0
        elif known != size:
            raise RuntimeError(f"Dimension sizes to do not match ({size} != {known}) when matching dimension pack {tuple(group)}")
    return sizes
