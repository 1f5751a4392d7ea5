"""Derivatives by perturbing a tensor where it is: what `gradcheck` compares backward with.

The perturbed contents are made on the host and enter the program as its inputs, so every evaluation after the first
finds its program compiled. A result is a NumPy array in the precision of the function's output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.core.writing import holding
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.value import constant

Evaluate = Callable[[], Sequence[Tensor]]


def host(t: Tensor) -> np.ndarray:
    """The content of a tensor, computed now."""
    return np.asarray(t._concrete())


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of a real or imaginary part."""
    return np.real(np.empty(0, dtype)).dtype


def directional(evaluate: Evaluate, outputs: Sequence[Tensor], target: Tensor, step: np.ndarray, eps: float, where: str) -> list[np.ndarray]:
    """The central difference of every output along `step`, an array of the target's shape that contains the factor `eps`.

    outputs: what `evaluate` gives without a perturbation. where: says in the error which elements were moved. AssertionError where the two
    perturbations give outputs of different shape or dtype, RuntimeError where they are no outputs like `outputs`.
    """
    content = host(target)
    before, after = (_at(evaluate, target, (content + moved).astype(content.dtype)) for moved in (-step, step))
    if not len(before) == len(after) == len(outputs):
        counts = f"{len(outputs)} outputs, but {len(before)} and {len(after)}"
        raise RuntimeError(f"torchgrad_jax: `func` returned {counts} when inputs are perturbed{where} by {eps}")
    found = []
    for a, b, output in zip(before, after, outputs, strict=True):
        if a.shape != b.shape:
            raise AssertionError(_differs("shape", where, eps, Size(a.shape), Size(b.shape)))
        if a.dtype != b.dtype:
            raise AssertionError(_differs("dtype", where, eps, dtypes.of(a.dtype), dtypes.of(b.dtype)))
        if a.shape != output._aval.shape:
            raise RuntimeError(f"torchgrad_jax: `func` returned {output.shape}, but {Size(a.shape)} when inputs are perturbed{where} by {eps}")
        with np.errstate(all="ignore"):  # what is not finite is for the comparison to find
            found.append(_quotient(b - a, 2 * eps).astype(output._aval.dtype))
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


def partials(evaluate: Evaluate, outputs: Sequence[Tensor], target: Tensor, eps: float) -> list[list[np.ndarray]]:
    """For every output the matrix (elements of `target`, elements of the output) of its derivatives with respect to the real parts, and a
    second one for the imaginary parts if the target is complex."""
    aval = target._aval
    units = units_of(target)
    # In double precision, so that the sum is rounded once, as when a Python number is added to the element.
    wide = np.complex128 if aval.dtype.kind == "c" else np.float64
    matrices = [[np.zeros((aval.size, o.numel()), o._aval.dtype) for _ in units] for o in outputs]
    for row, index in enumerate(np.ndindex(*aval.shape)):
        for k, unit in enumerate(units):
            step = np.zeros(aval.shape, wide)
            step[index] = eps * unit
            for found, d in zip(matrices, directional(evaluate, outputs, target, step, eps, f" on index {index}"), strict=True):
                found[k][row] = d.ravel()
    return matrices


def units_of(t: Tensor) -> tuple[complex, ...]:
    """The directions in which an element can be moved."""
    return (1.0, 1j) if t.is_complex() else (1.0,)


def joined(real: Any, imaginary: Any = None) -> Any:
    """The derivative of a real function in PyTorch's convention: ``d/da + i d/db`` at a complex input ``a + bi``."""
    if imaginary is None:
        return real
    found = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    found.real, found.imag = real, imaginary
    return found
