"""Operations on arrays with further dimensions in front, by NumPy: what an operation is for a whole batch, without `jax.vmap` being traced.

A batch of a batch has two, and so on. Where something is the same for all of a batch, the dimension there is 1. Known are views that give all
elements, what is element by element, products of matrices and the sums of what was expanded: most of what networks, and derivatives of any order of
them, are made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from torchgrad_jax.declaration import numpy_products
from torchgrad_jax.declaration.batching.along import whole
from torchgrad_jax.declaration.factors import OfMatrices, Sum, of_operator
from torchgrad_jax.declaration.vjp import Vjp
from torchgrad_jax.runtime.baseline.reducing import summing
from torchgrad_jax.runtime.operation import Signature, of_vectors, signature
from torchgrad_jax.runtime.value import Aval
from torchgrad_jax.runtime.vectors import specs_of_vectors

Array = np.ndarray
# Of the operands, and how many dimensions each has in front: the results, with as many. They may be views.
Leading = Callable[[Sequence[Array], int], list[Array]]
# Nanoseconds: to call a plan, and what it may take at most, which is less than `jax.vmap` takes to be traced.
_CALL, _TRACE = 4_000.0, 400_000.0


def leading(sig: Signature, parts: int) -> Leading | None:
    """The function of an operation, where it is done for so many parts of a batch; None where none is known. The outcome of a check is a result."""
    own = getattr(sig.bop, "leading", None)
    if own is not None:
        return own(sig.specs, parts)
    known = None
    if sig.check is None:
        known = _of_view(sig) or _of_products(sig) or _of_sums(sig) or _of_elements(sig) or _of_whole(sig)
    return known or _one_by_one(sig, parts)


def reduced(array: Array, at: int, size: int, adds: bool) -> Array:
    """A result whose dimension `at` is that of a batch of this size, or 1: added up along it if that is asked for."""
    if array.shape[at] != size:
        array = np.broadcast_to(array, (*array.shape[:at], size, *array.shape[at + 1 :]))
    return summing((at,), array.dtype)(array) if adds else array


def first_bad(pairs: Array, at: int) -> Array:
    """Of the outcomes of a check for the parts of a batch, whose dimension is `at`, that of the first which is bad."""
    if not pairs.shape[at]:
        return np.zeros((*pairs.shape[:at], 2), pairs.dtype)
    which = np.argmax(pairs[..., 0] != 0, at)
    return np.take_along_axis(pairs, which[..., None, None], at).reshape(*pairs.shape[:at], 2)


def _of_view(sig: Signature) -> Leading | None:
    if getattr(sig.bop, "reshapes", False):
        (aval,) = sig.avals
        return lambda arrays, lead: [arrays[0].reshape(*arrays[0].shape[:lead], *aval.shape)]
    find = getattr(sig.bop, "permutation", None)
    order = None if find is None else find(sig.specs)
    if order is None:
        return None
    return lambda arrays, lead: [arrays[0].transpose(*range(lead), *[lead + dim for dim in order])]


def _of_whole(sig: Signature) -> Leading | None:
    if whole(sig, 1) is None:
        return None

    def function(arrays: Sequence[Array], lead: int) -> list[Array]:
        shape, flat = _in_one_batch(sig, arrays, lead)
        found: Any = whole(sig, math.prod(shape))
        return [out.reshape(*shape, *out.shape[1:]) for out in found.baseline(*flat)]

    return function


def _one_by_one(sig: Signature, parts: int) -> Leading | None:
    """Each part by itself, where that takes less than a trace would: the plan of one is there, as is what its derivatives are made of."""
    plan: Any = sig.baseline
    if plan is None or parts * (plan.cost + _CALL) > _TRACE:
        return None

    def function(arrays: Sequence[Array], lead: int) -> list[Array]:
        shape, flat = _in_one_batch(sig, arrays, lead)
        size, of_parts = math.prod(shape), [isinstance(s, Aval) for s in sig.specs]
        made = [plan(*[x[i] if there else x for x, there in zip(flat, of_parts, strict=True)]) for i in range(size)]
        if not made:
            return [np.zeros((*shape, *a.shape), a.dtype) for a in sig.avals] + [np.zeros((*shape, 2), np.int64)] * (sig.check is not None)
        return [np.array(outs).reshape(*shape, *np.shape(outs[0])) for outs in zip(*made, strict=True)]

    return function


def _in_one_batch(sig: Signature, arrays: Sequence[Array], lead: int) -> tuple[tuple[int, ...], list[Array]]:
    """The dimensions in front, and the arrays with one for all of these."""
    there = [isinstance(s, Aval) for s in sig.specs]
    shape = np.broadcast_shapes(*[x.shape[:lead] for x, array in zip(arrays, there, strict=True) if array])
    size, flat = math.prod(shape), list(arrays)
    for i, x in enumerate(arrays):
        if there[i]:
            flat[i] = np.broadcast_to(x, (*shape, *x.shape[lead:])).reshape(size, *x.shape[lead:])
    return shape, flat


# ---------------------------------------------------------------------- element by element


def _of_elements(sig: Signature) -> Leading | None:
    bop = of_vectors(sig.bop)
    specs = None if bop is None else specs_of_vectors(sig.specs)
    if bop is None or specs is None:
        return None
    plan: Any = signature(bop, specs).baseline
    shape = sig.avals[0].shape
    if not getattr(plan, "everywhere", False) or not plan.reaches(shape, sig.specs):
        return None
    missing = [len(shape) - s.ndim if isinstance(s, Aval) else 0 for s in sig.specs]
    run = plan.broadcasting

    def function(arrays: Sequence[Array], lead: int) -> list[Array]:
        return run(*[x if not n else x.reshape(*x.shape[:lead], *(1,) * n, *x.shape[lead:]) for x, n in zip(arrays, missing, strict=True)])

    return function


# ---------------------------------------------------------------------- products


def _of_products(sig: Signature) -> Leading | None:
    wanted, added = _products(sig)
    if not wanted or not all([type(p) is OfMatrices or type(p) is Sum for p in wanted]):
        return None

    def function(arrays: Sequence[Array], lead: int) -> list[Array]:
        found = [reduce(np.add, [_product(arrays, term) for term in _terms(p)]) for p in wanted]
        if added is not None:
            bias = arrays[added]
            missing = sig.avals[0].ndim - (bias.ndim - lead)
            found[0] = np.add(found[0], bias.reshape(*bias.shape[:lead], *(1,) * missing, *bias.shape[lead:]))
        return found

    return function


def _products(sig: Signature) -> tuple[Sequence[Any], int | None]:
    """The products that are an operation's results, and the operand that is added to the first of them."""
    if isinstance(sig.bop, Vjp):
        return sig.bop.products, None
    product = of_operator(sig)
    if product is None:
        return (), None
    rest = [i for i in range(len(sig.specs)) if i not in (product.first, product.second)]
    form = sig.bop.operator.numpy  # type: ignore[attr-defined] # it is a BoundOperator
    if form not in (numpy_products.affine, numpy_products.multiplied) or len(rest) > 1:
        return (), None
    return [product], rest[0] if rest else None


def _terms(product: Any) -> Sequence[OfMatrices]:
    return product.terms if type(product) is Sum else (product,)


def _product(arrays: Sequence[Array], term: OfMatrices) -> Array:
    """The products of two arrays of matrices, whose dimensions in front broadcast."""
    x, y, left, right = arrays[term.first], arrays[term.second], term.left, term.right
    of_x, of_y = x.shape[:-2], y.shape[:-2]
    multiply = numpy_products.multiplying(left, right, x.dtype)
    if not x.size or not y.size:
        return np.matmul(x.mT if left else x, y.mT if right else y)
    if of_x == of_y:
        found = multiply(x.reshape(-1, *x.shape[-2:]), y.reshape(-1, *y.shape[-2:]))
        return found.reshape(*of_x, *found.shape[1:])
    if math.prod(of_y) == 1 and not left and x.ndim == y.ndim:  # one for all: it multiplies the rows of all of them
        found = multiply(x.reshape(-1, x.shape[-1]), y.reshape(y.shape[-2:]))
        return found.reshape(*x.shape[:-1], found.shape[-1])
    if math.prod(of_x) == 1 and right and x.ndim == y.ndim:
        found = numpy_products.multiplying(False, not left, x.dtype)(y.reshape(-1, y.shape[-1]), x.reshape(x.shape[-2:]))
        return found.reshape(*y.shape[:-1], found.shape[-1]).mT
    shape = np.broadcast_shapes(of_x, of_y)
    x, y = [np.broadcast_to(z, (*shape, *z.shape[-2:])).reshape(-1, *z.shape[-2:]) for z in (x, y)]
    found = multiply(x, y)
    return found.reshape(*shape, *found.shape[1:])


def _of_sums(sig: Signature) -> Leading | None:
    """The gradient of what was expanded, and then added."""
    if not getattr(sig.bop, "adds", False) or sig.avals[0].dtype.char not in "fd" or len(sig.specs) != 1:
        return None
    given: Any = sig.specs[0].shape
    shape, dtype = sig.avals[0].shape, sig.avals[0].dtype
    extra = len(given) - len(shape)
    dims = [*range(extra), *[extra + i for i, n in enumerate(shape) if n == 1 != given[extra + i]]]

    def function(arrays: Sequence[Array], lead: int) -> list[Array]:
        found = summing(tuple([lead + dim for dim in dims]), dtype)(arrays[0])
        return [found.reshape(*arrays[0].shape[:lead], *shape)]

    return function if dims and sig.specs[0].dtype == dtype else None
