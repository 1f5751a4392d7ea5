"""Nested sequences of numbers, of which tensors are made."""

from __future__ import annotations

from typing import Any

import numpy as np


def first_leaf(data: Any) -> Any:
    """The first element that is no sequence; a sequence where that is empty."""
    while isinstance(data, (list, tuple)) and len(data):
        data = data[0]
    return data


def has_float(data: Any) -> bool:
    """Whether there is a float or a complex number among the elements."""
    return any(map(has_float, data)) if isinstance(data, (list, tuple)) else isinstance(data, (float, complex))


def lengths(data: Any) -> list[int]:
    """The lengths of the first sequences on each level."""
    found = []
    while isinstance(data, (list, tuple)):
        found.append(len(data))
        if len(data) == 0:
            break
        data = data[0]
    return found


def check_lengths(data: Any, depth: int, lengths: list[int], real: bool) -> None:
    """ValueError, TypeError with PyTorch's text where sequences of one level differ in length. real: whether there are floats among the elements."""
    if depth == len(lengths):
        if isinstance(data, (list, tuple)):
            text = "must be real number, not {}" if real else "'{}' object cannot be interpreted as an integer"
            raise TypeError(text.format(type(data).__name__))
        return
    if not isinstance(data, (list, tuple)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'" if isinstance(data, (str, bytes)) else "not a sequence")
    if len(data) != lengths[depth]:
        raise ValueError(f"expected sequence of length {lengths[depth]} at dim {depth} (got {len(data)})")
    for d in data:
        check_lengths(d, depth + 1, lengths, real)


def check_leaves(data: Any) -> None:
    """TypeError, RuntimeError with PyTorch's text for an element that is no number."""
    if isinstance(data, (list, tuple)):
        for d in data:
            check_leaves(d)
    elif isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    elif not isinstance(data, (bool, int, float, complex, np.generic)):
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
