"""Derivatives by perturbing a tensor where it is: what `gradcheck` compares backward with.

The perturbed contents are made on the host and enter the program as its inputs, so every evaluation after the first
finds its program compiled. A result is a NumPy array in the precision of the function's output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.ops import dtypes
from torchgrad_jax.runtime.value import constant
from torchgrad_jax.tensor.inplace import holding
from torchgrad_jax.tensor.tensor import Size, Tensor

Evaluate = Callable[[], Sequence[Tensor]]


def host(t: Tensor) -> np.ndarray:
    """The content of a tensor, computed now."""
    return np.asarray(t._concrete())


def is_float(t: Tensor) -> bool:
    """Whether a tensor has a derivative at all."""
    return t.is_floating_point() or t.is_complex()


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of a real or imaginary part."""
    return np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype


def directional(evaluate: Evaluate, target: Tensor, step: np.ndarray, eps: float, where: str) -> list[np.ndarray]:
    """The central difference of every output along `step`, an array of the target's shape that contains the factor `eps`.

    where: says in the error which elements were moved. AssertionError where an output changes its shape or dtype.
    """
    content = host(target)
    before, after = (_at(evaluate, target, (content + moved).astype(content.dtype)) for moved in (-step, step))
    found = []
    for a, b in zip(before, after, strict=True):
        if a.shape != b.shape:
            raise AssertionError(_differs("shape", where, eps, Size(a.shape), Size(b.shape)))
        if a.dtype != b.dtype:
            raise AssertionError(_differs("dtype", where, eps, dtypes.of(a.dtype), dtypes.of(b.dtype)))
        with np.errstate(all="ignore"):  # what is not finite is for the comparison to find
            found.append(_quotient(b - a, 2 * eps))
    return found


def _at(evaluate: Evaluate, target: Tensor, content: np.ndarray) -> list[np.ndarray]:
    with holding(target, constant(content, target._aval)):
        return [host(t) for t in evaluate()]


def _quotient(difference: np.ndarray, span: float) -> np.ndarray:
    """Divided as PyTorch does: in single precision where the dtype is narrower."""
    if difference.dtype.itemsize < 4:
        return (difference.astype(np.float32) / np.float32(span)).astype(difference.dtype)
    return difference / difference.dtype.type(span)


def _differs(what: str, where: str, eps: float, before: Any, after: Any) -> str:
    return f"Expected `func` to return outputs with the same {what} when inputs are perturbed{where} by {eps}, but got: {what}s {before} and {after}."


def partials(evaluate: Evaluate, target: Tensor, eps: float, unit: complex = 1.0) -> list[np.ndarray]:
    """For every output the matrix (elements of `target`, elements of the output) of partial derivatives. `unit` is 1j for those with
    respect to the imaginary parts."""
    rows = []
    aval = target._aval
    for index in np.ndindex(*aval.shape):
        # In double precision, so that the sum is rounded once, as when a Python number is added to the element.
        step = np.zeros(aval.shape, np.complex128 if aval.dtype.kind == "c" else np.float64)
        step[index] = eps * unit
        rows.append([d.ravel() for d in directional(evaluate, target, step, eps, f" on index {index}")])
    if not rows:
        return [np.zeros((0, t.numel()), t._aval.dtype) for t in evaluate()]
    return [np.stack(columns) for columns in zip(*rows, strict=True)]


def joined(real: np.ndarray, imaginary: np.ndarray | None) -> np.ndarray:
    """The derivative of a real function in PyTorch's convention: ``d/da + i d/db`` at a complex input ``a + bi``."""
    if imaginary is None:
        return real
    found = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    found.real, found.imag = real, imaginary
    return found
