"""Matrix products."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.blocks import converted
from torchgrad_jax.runtime.baseline.carrying import Product
from torchgrad_jax.runtime.baseline.copying import in_one_piece
from torchgrad_jax.runtime.baseline.cost import multiplies_natively, product
from torchgrad_jax.runtime.baseline.rules import AnySizes, is_half, rule
from torchgrad_jax.runtime.baseline.surroundings import by_one_thread
from torchgrad_jax.runtime.native import blas, handlers

# From so many elements of the matrix on (TJ_SHARED_ELEMENTS) a product with a vector is shared by threads, as NumPy's is not: it takes half the time.
_LARGE = 1 << 18


def working_dtype(eqn: Any) -> np.dtype:
    """In which dtype a product is computed: in float32 for half precision, else in that of the result or wider."""
    found = np.result_type(*[np.float32 if is_half(v.aval.dtype) else v.aval.dtype for v in (*eqn.invars, *eqn.outvars)])
    return eqn.outvars[0].aval.dtype if found.kind in "biu" else found


# ---------------------------------------------------------------------- dot_general


def _parts(eqn: Any) -> tuple[list[int], list[int]]:
    """The dimensions of each operand that stay, and are not of the batch."""
    (lc, rc), (lb, rb) = eqn.params["dimension_numbers"]
    left, right = eqn.invars[0].aval, eqn.invars[1].aval
    return [d for d in range(left.ndim) if d not in lc and d not in lb], [d for d in range(right.ndim) if d not in rc and d not in rb]


def _product_cost(eqn: Any) -> float:
    (lc, _), (lb, _) = eqn.params["dimension_numbers"]
    left, right = eqn.invars[0].aval.shape, eqn.invars[1].aval.shape
    lf, rf = _parts(eqn)
    batch, rows, inner, columns = [math.prod([shape[d] for d in dims]) for shape, dims in ((left, lb), (left, lf), (left, lc), (right, rf))]
    return product(batch, rows, inner, columns, eqn.outvars[0].aval.dtype)


@rule("dot_general", cost=_product_cost, fresh=True)
def _dot_general(eqn: Any) -> Any:
    dtype, work = eqn.outvars[0].aval.dtype, working_dtype(eqn)
    multiply = _multiplying(eqn, work)
    if all([v.aval.dtype == work for v in (*eqn.invars, *eqn.outvars)]):
        return multiply
    function = multiply.function if type(multiply) is AnySizes else multiply

    def multiply_converted(a: Any, b: Any) -> Any:
        found = function(a if a.dtype == work else converted(a, work), b if b.dtype == work else converted(b, work))
        return found if found.dtype == dtype else converted(found, dtype)

    return AnySizes(multiply_converted) if type(multiply) is AnySizes else multiply_converted


def _multiplying(eqn: Any, work: np.dtype) -> Any:
    """The product of operands of one dtype."""
    (lc, rc), (lb, rb) = eqn.params["dimension_numbers"]
    left, right = eqn.invars[0].aval, eqn.invars[1].aval
    simple = None if lb else _simple(left.ndim, right.ndim, tuple(lc), tuple(rc), work)
    if simple is not None:
        return simple
    lf, rf = _parts(eqn)
    if len(lf) == len(rf) == len(lc) == 1:
        return _of_batches((*lb, *lf, *lc), (*rb, *rc, *rf), work)
    batch, kept = [left.shape[d] for d in lb], [left.shape[d] for d in lf]
    inner, columns = math.prod([left.shape[d] for d in lc]), [right.shape[d] for d in rf]
    left_order, right_order = (*lb, *lf, *lc), (*rb, *rc, *rf)
    left_shape, right_shape = (*batch, math.prod(kept), inner), (*batch, inner, math.prod(columns))
    shape = (*batch, *kept, *columns)
    matmul = of_matrices(False, False, work)

    def multiply(a: Any, b: Any) -> Any:
        a, b = a.transpose(left_order).reshape(left_shape), b.transpose(right_order).reshape(right_shape)
        return matmul(a, b).reshape(shape)

    return multiply


def _simple(left: int, right: int, lc: tuple[int, ...], rc: tuple[int, ...], dtype: np.dtype) -> Any:
    """The product of two matrices or vectors of these ranks, without a batch; None if it is another."""
    if left == right == 1 and lc:
        return AnySizes(np.dot)
    if left != 2 or right not in (1, 2) or len(lc) != 1:
        return None
    turned, other = lc == (0,), rc == (1,)
    if right == 1:
        return AnySizes(_times_vector(turned, dtype))
    return AnySizes(of_matrices(turned, other, dtype))


def _times_vector(turned: bool, dtype: np.dtype) -> Any:
    """The product of a matrix, or of its transpose, and a vector."""

    def multiply(a: Any, b: Any) -> Any:
        return np.matmul(in_one_piece(a.T if turned else a), b)

    if not multiplies_natively(dtype):
        return multiply

    def multiply_large(a: Any, b: Any) -> Any:
        found = handlers.multiplied(a, b[:, None], turned, False) if a.size >= _LARGE else None
        return multiply(a, b) if found is None else found[:, 0]

    return multiply_large


def of_matrices(turned: bool, other: bool, dtype: np.dtype) -> Any:
    """The products of matrices, or of their transposes: of the first ones' if `turned`, of the `other` ones'."""

    def multiply(a: Any, b: Any) -> Any:
        return np.matmul(in_one_piece(a.mT if turned else a), in_one_piece(b.mT if other else b))

    if dtype.char not in "fd" or not blas.multiplies():
        return multiply

    return Product(turned, other, partial(by_one_thread, multiply))


def _of_batches(left_order: tuple[int, ...], right_order: tuple[int, ...], dtype: np.dtype) -> Any:
    """The products of matrices, as many as the batch has, with the dimensions in these orders."""
    left, right = (order if order != tuple(range(len(order))) else None for order in (left_order, right_order))
    multiply = of_matrices(False, False, dtype)
    if left is None and right is None:
        return AnySizes(multiply)
    return AnySizes(lambda a, b: multiply(a if left is None else a.transpose(left), b if right is None else b.transpose(right)))
