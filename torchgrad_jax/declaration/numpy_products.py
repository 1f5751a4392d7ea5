"""Products of matrices and the affine map, with their gradients: their forms on NumPy arrays. See `numpy_forms.py`.

They call what the interpreter calls for the traced ones. A layer's new sizes are then not traced, which takes more than a small product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array
from torchgrad_jax.runtime.baseline import Forms, blocks
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.cost import CHEAP, multiplies_natively, product
from torchgrad_jax.runtime.baseline.products import of_matrices
from torchgrad_jax.runtime.baseline.reducing import summing
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval

# Threads share additions to more elements than these, where they are traced.
_MOST = 1 << 16
multiplying = cache(of_matrices)


def _product(a: Array, b: Array, left: bool = False, right: bool = False) -> Array:
    return multiplying(left, right, a.dtype)(a, b)


def _shape(a: Array, b: Array, left: bool = False, right: bool = False) -> tuple[int, ...] | None:
    """That of a product, of the transpose of the first ones if `left`, of the others if `right`; None where there is no form."""
    if a.ndim != b.ndim or a.ndim < 2 or a.dtype != b.dtype or not multiplies_natively(a.dtype) or not (a.size and b.size):
        return None
    (rows, inner), (same, columns) = a.shape[-2:][:: -1 if left else 1], b.shape[-2:][:: -1 if right else 1]
    return (*a.shape[:-2], rows, columns) if inner == same and a.shape[:-2] == b.shape[:-2] else None


def _takes(a: Array, b: Array, left: bool = False, right: bool = False) -> float:
    rows, inner = a.shape[-2:][:: -1 if left else 1]
    return product(math.prod(a.shape[:-2]), rows, inner, b.shape[-2 if right else -1], a.dtype)


def _multiplied_result(a: Array, b: Array) -> Array | None:
    shape = _shape(a, b)
    return None if shape is None else stand_in(shape, a.dtype)


def _affine(bias: Array, a: Array, b: Array) -> Array:
    multiply = multiplying(False, False, a.dtype)
    return multiply(a, b, bias) if bias.shape == b.shape[1:] else np.add(multiply(a, b), bias)


def _affine_result(bias: Array, a: Array, b: Array) -> Array | None:
    shape = _shape(a, b) if a.ndim == 2 else None
    if shape is None or bias.dtype != a.dtype or shape[0] * shape[1] > _MOST:
        return None
    return stand_in(shape, a.dtype) if bias.shape in ((), shape[1:], shape, (1, shape[1]), (shape[0], 1), (1,)) else None


def _affine_steps(bias: Array, a: Array, b: Array) -> Any:
    return [(multiplying(False, False, a.dtype), (1, 2, 0))] if bias.shape == b.shape[1:] else None


multiplied = Forms(_product, _multiplied_result, True, takes=_takes, steps=lambda a, b: [(multiplying(False, False, a.dtype), (0, 1))])
affine = Forms(_affine, _affine_result, True, takes=lambda bias, a, b: _takes(a, b) + CHEAP * a.shape[0] * b.shape[1], steps=_affine_steps)


# ---------------------------------------------------------------------- gradients


class Gradients:
    """The forms of gradients of a product: called with the names of the wanted operands. factors: those of the ones that are multiplied."""

    def __init__(self, forms: Callable[[tuple[str, ...]], Forms], factors: tuple[str, str]) -> None:
        self._forms, self.factors = forms, factors

    def __call__(self, wanted: tuple[str, ...]) -> Forms:
        return self._forms(wanted)


def _of(first: str, second: str, added: str | None = None) -> Gradients:
    """The form of the gradients of `wanted` operands of a product, of these names, and of what is added to it."""

    @cache
    def gradients(wanted: tuple[str, ...]) -> Forms:
        def operands(saved: Sequence[Any]) -> tuple[Any, Any]:
            """Each is saved for the other's gradient."""
            return saved[0] if second in wanted else None, saved[-1] if first in wanted else None

        def function(grad: Array, avals: Sequence[Aval], *saved: Array) -> Any:
            a, b = operands(saved)
            made = {name: _product(*pair) for name, pair in _pairs(grad, a, b).items() if name in wanted}
            if added in wanted:
                made[added] = _summed(grad, avals[wanted.index(added)].shape)
            return made[wanted[0]] if len(wanted) == 1 else tuple([made[name] for name in wanted])

        def result(grad: Array, avals: Sequence[Aval], *saved: Array) -> Any:
            a, b = operands(saved)
            shapes = {name: _shape(*pair) for name, pair in _pairs(grad, a, b).items() if name in wanted}
            if added in wanted:
                shape = avals[wanted.index(added)].shape
                shapes[added] = shape if shape in (grad.shape[1:], grad.shape) and multiplies_natively(grad.dtype) else None
            if None in shapes.values() or not grad.size:
                return None
            made = [stand_in(shapes[name], grad.dtype) for name in wanted]  # type: ignore[arg-type] # None is not among them
            return made[0] if len(made) == 1 else tuple(made)

        def _pairs(grad: Array, a: Any, b: Any) -> dict[str, tuple[Any, ...]]:
            return {first: (grad, b, False, True), second: (a, grad, True, False)}

        def takes(grad: Array, *saved: Array) -> float:
            pairs = _pairs(grad, *operands(saved))
            return sum([_takes(*pairs[name]) for name in wanted if name != added]) + CHEAP * grad.size

        def steps(grad: Array, avals: Sequence[Aval], *saved: Array) -> Any:
            if added in wanted and avals[wanted.index(added)].shape != grad.shape[1:]:
                return None
            at_second = len(saved)  # the last of the operands
            of = {
                first: (multiplying(False, True, grad.dtype), (0, at_second)),
                second: (multiplying(True, False, grad.dtype), (1, 0)),
                added: (summing((0,), grad.dtype), (0,)),
            }
            return [of[name] for name in wanted]

        return Forms(function, result, takes=takes, steps=steps)

    return Gradients(gradients, (first, second))


def _summed(grad: Array, shape: tuple[int, ...]) -> Array:
    return grad if shape == grad.shape else summing((0,), grad.dtype)(grad)


gradients_of_product, gradients_of_affine = _of("self", "mat2"), _of("mat1", "mat2", "self")


def of_factors(wanted: Sequence[Sequence[Any]]) -> Forms:
    """The form of several sums of products of some operands: see `factors.OfMatrices`."""

    def pairs(arrays: Sequence[Array], terms: Sequence[Any]) -> list[tuple[Array, Array, bool, bool]]:
        return [(arrays[f.first], arrays[f.second], f.left, f.right) for f in terms]

    def function(*arrays: Array) -> Any:
        made = [reduce(np.add, [_product(*pair) for pair in pairs(arrays, terms)]) for terms in wanted]
        return made[0] if len(made) == 1 else tuple(made)

    def result(*arrays: Array) -> Any:
        shapes = [{_shape(*pair) for pair in pairs(arrays, terms)} for terms in wanted]
        if any([None in found or len(found) > 1 for found in shapes]):
            return None
        made = [stand_in(*found, arrays[0].dtype) for found in shapes]  # type: ignore[arg-type] # None is not among them
        return made[0] if len(made) == 1 else tuple(made)

    def takes(*arrays: Array) -> float:
        return sum([_takes(*pair) for terms in wanted for pair in pairs(arrays, terms)])

    def steps(*arrays: Array) -> Any:
        return [(multiplying(f.left, f.right, arrays[0].dtype), (f.first, f.second)) for (f,) in wanted]

    alone = all([len(terms) == 1 for terms in wanted])
    return Forms(function, result, len(wanted) == 1, takes=takes, steps=steps if alone else None, planned=not alone)


# ---------------------------------------------------------------------- pairs of changes


def _direction(grad: Array, scale: Array, changes: Sequence[Array], steps: Sequence[Array], ro: Sequence[Array], count: Array) -> tuple[Array, Array]:
    number, made, factors = int(count), np.negative(grad), np.zeros(len(ro), grad.dtype)
    of_changes, of_steps, found = [contiguous(v) for v in changes[:number]], [contiguous(v) for v in steps[:number]], [0.0] * number
    blocks.through_pairs(made, scale.astype(grad.dtype), of_changes, of_steps, [float(r) for r in ro[:number]], found)
    factors[:number] = found
    return made, factors


def _direction_result(
    grad: Array, scale: Array, changes: Sequence[Array], steps: Sequence[Array], ro: Sequence[Array], count: Array
) -> tuple[Array, Array] | None:
    alike = all([v.dtype == grad.dtype and v.shape == grad.shape for v in (*changes, *steps)]) and all([r.dtype == grad.dtype for r in ro])
    if not alike or grad.dtype.char not in "fd" or not grad.size or (scale.dtype != grad.dtype and scale.dtype.kind != "i"):
        return None
    return stand_in(grad.shape, grad.dtype), stand_in((len(ro),), grad.dtype)


def _direction_takes(grad: Array, scale: Array, changes: Sequence[Array], *rest: Any) -> float:
    return len(changes) * (_EACH_PAIR + _ITS_ELEMENT * grad.size)


# Nanoseconds that a pair takes, and each element of one.
_EACH_PAIR, _ITS_ELEMENT = 250.0, 0.3
lbfgs_direction = Forms(_direction, _direction_result, True, takes=_direction_takes)
