"""Matrix products within XLA's programs on a CPU: by the functions of C that the interpreter uses too, our own or NumPy's BLAS.

XLA's own take 1.1 to 3 times as long, 64 x 64 x 64 seven times (49 us by itself, against 12), and 64 products of 4 x 4 ten times (33 us, against 3).
A program then calls a foreign function, `multiplying.pxd`, for each. That needs the typed core and a NumPy whose BLAS can be found; else, and for
other dtypes, vectors and what is large, products stay XLA's. Those of half precision are of operands made float32, and rounded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Literal

from torchgrad_jax.runtime.baseline import jaxprs_in
from torchgrad_jax.runtime.baseline.rules import is_half
from torchgrad_jax.runtime.compiling.equations import calling, rewritten_within
from torchgrad_jax.runtime.compiling.foreign import PRODUCT, knows_products

# Below so many rows, columns or terms of a sum the call takes longer than the product.
_LEAST = 4
# Above so many multiplications XLA's are as quick.
_MOST = 1 << 26

Shape = tuple[int, ...]


class _Operand(NamedTuple):
    """One side of a product. var: of shape (batch, own, summed) if `own_first`, else (batch, summed, own), where each may be several dimensions."""

    var: Any
    own_first: bool


def by_blas(closed: Any) -> Any:
    """A closed jaxpr with foreign functions in the place of its products, within loops and branches too."""
    return closed.replace(jaxpr=_rewritten(closed.jaxpr)) if multiplies(closed.jaxpr) and knows_products() else closed


def multiplies(jaxpr: Any) -> bool:
    """Whether there is a product that BLAS may take."""
    return any([_fits(eqn) or any(map(multiplies, jaxprs_in(eqn))) for eqn in jaxpr.eqns])


class Exchanged(NamedTuple):
    """Which inputs and outputs of an operation have their last two dimensions exchanged."""

    inputs: frozenset[int]
    outputs: frozenset[int]

    def given(self, avals: Sequence[Any]) -> list[tuple[Any, Any]]:
        """The shapes and dtypes of inputs that are as `avals` where nothing is exchanged."""
        return [((*a.shape[:-2], a.shape[-1], a.shape[-2]) if i in self.inputs else a.shape, a.dtype) for i, a in enumerate(avals)]


NONE = Exchanged(frozenset(), frozenset())


def exchangeable(jaxpr: Any) -> Exchanged:
    """The inputs that products alone read, and the outputs that products alone give: exchanged, they cost nothing."""
    readers: dict[Any, list[Any]] = {}
    for eqn in jaxpr.eqns:
        for v in eqn.invars:
            if not isinstance(v, Literal):
                readers.setdefault(v, []).append(eqn)
    makers = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}

    def for_products(v: Any) -> bool:
        reading = readers.get(v, ())
        return len(reading) > 0 and all([_is_plain(eqn) or (_exchanges(eqn) and for_products(eqn.outvars[0])) for eqn in reading])

    def of_product(v: Any) -> bool:
        eqn = makers.get(v)
        return v not in readers and eqn is not None and (_is_plain(eqn) or (_exchanges(eqn) and _is_plain(makers.get(eqn.invars[0]))))

    outvars = [None if isinstance(v, Literal) else v for v in jaxpr.outvars]
    return Exchanged(
        frozenset([i for i, v in enumerate(jaxpr.invars) if v not in outvars and for_products(v)]),
        frozenset([i for i, v in enumerate(outvars) if v is not None and of_product(v)]),
    )


def exchanging(function: Callable[..., Any], exchanged: Exchanged) -> Callable[..., Any]:
    """The function of arrays, and to arrays, that are so exchanged."""

    def call(*arrays: Any) -> tuple[Any, ...]:
        outs = function(*[a.mT if i in exchanged.inputs else a for i, a in enumerate(arrays)])
        return tuple([o.mT if i in exchanged.outputs else o for i, o in enumerate(outs)])

    return call


def exchanges(permutation: Sequence[int]) -> bool:
    """Whether a permutation exchanges the last two dimensions."""
    n = len(permutation)
    return n > 1 and tuple(permutation) == (*range(n - 2), n - 1, n - 2)


def _exchanges(eqn: Any) -> bool:
    return eqn.primitive.name == "transpose" and exchanges(eqn.params["permutation"])


def _is_plain(eqn: Any) -> bool:
    """Whether an equation is a product of two matrices, or of batches of them."""
    return eqn is not None and _fits(eqn) and all([v.aval.ndim == len(eqn.params["dimension_numbers"][1][0]) + 2 for v in eqn.invars])


def _fits(eqn: Any) -> bool:
    """Whether an equation is a product of what BLAS knows, and large enough."""
    if eqn.primitive.name != "dot_general":
        return False
    x, y = eqn.invars[0].aval, eqn.invars[1].aval
    (summed, _), (batch, _) = eqn.params["dimension_numbers"]
    if x.dtype != y.dtype or not _is_known(x.dtype, eqn.outvars[0].aval.dtype) or len(summed) != 1:
        return False
    k, each = x.shape[summed[0]], math.prod([x.shape[d] for d in batch])
    if each == 0 or k < _LEAST:
        return False
    m, n = x.size // (k * each), y.size // (k * each)
    return min(m, n) >= _LEAST and m * n * k <= _MOST


def _is_known(dtype: np.dtype, result: np.dtype) -> bool:
    """Whether products of a dtype that are of another one are those of float32 or float64, half precision's being rounded once."""
    return result in (dtype, np.float32) if is_half(dtype) else result == dtype and dtype in (np.float32, np.float64)


def _rewritten(jaxpr: Any) -> Any:
    if not multiplies(jaxpr):
        return jaxpr
    turning = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if eqn.primitive.name == "transpose" and not isinstance(eqn.invars[0], Literal)}
    uses = Counter([v for eqn in jaxpr.eqns for v in eqn.invars if not isinstance(v, Literal)])
    uses.update([v for v in jaxpr.outvars if not isinstance(v, Literal)])
    turned = {eqn.invars[0]: eqn for eqn in turning.values() if uses[eqn.invars[0]] == 1}
    made: dict[int, Any] = {}  # in the place of an equation: another, or none
    for eqn in jaxpr.eqns:
        if _fits(eqn):
            made |= _by_blas(eqn, turning, turned)
        elif any(map(multiplies, jaxprs_in(eqn))):
            made[id(eqn)] = rewritten_within(eqn, _rewritten)
    return jaxpr.replace(eqns=_read([found for eqn in jaxpr.eqns if (found := made.get(id(eqn), eqn)) is not None], jaxpr.outvars))


def _read(eqns: list[Any], outvars: Sequence[Any]) -> list[Any]:
    """The equations without transposes that nothing reads any more."""
    found, read = [], {v for v in outvars if not isinstance(v, Literal)}
    for eqn in reversed(eqns):
        if eqn.primitive.name != "transpose" or eqn.outvars[0] in read:
            found.append(eqn)
            read.update([v for v in eqn.invars if not isinstance(v, Literal)])
    return found[::-1]


def _by_blas(eqn: Any, turning: dict[Any, Any], turned: dict[Any, Any]) -> dict[int, Any]:
    """What comes in the place of a product, and of transposes that alone read it: by the old equations' identities."""
    ((summed, of_other), (batch, others)) = eqn.params["dimension_numbers"]
    left, right = _operand(eqn.invars[0], summed[0], batch, turning), _operand(eqn.invars[1], of_other[0], others, turning)
    if left is None or right is None:
        return {}
    out, found = eqn.outvars[0], {}
    each, dims, end = len(batch), eqn.invars[0].aval.ndim - 1, out.aval.ndim  # its first ones are the left operand's
    while (then := turned.get(out)) is not None and then.params["permutation"] == (*range(each), *range(dims, end), *range(each, dims)):
        left, right, out, dims = right, left, then.outvars[0], each + end - dims
        turning.pop(out)  # it is what the product gives now: who reads it must not look behind it
        found[id(then)] = None
    k, count = eqn.invars[0].aval.shape[summed[0]], math.prod(out.aval.shape[:each])
    m, n = (operand.var.aval.size // (k * count) for operand in (left, right))
    left_shape, right_shape = (count, m, k) if left.own_first else (count, k, m), (count, n, k) if right.own_first else (count, k, n)
    how = (0 if left.own_first else 1) + (2 if right.own_first else 0)  # see `multiplying.pxd`
    made = _product(left.var.aval, right.var.aval, left_shape, right_shape, (count, m, n), how, out.aval)
    return {**found, id(eqn): made.replace(invars=[left.var, right.var], outvars=[out])}


@lru_cache(1024)
def _product(left: Any, right: Any, left_shape: Shape, right_shape: Shape, result: Shape, how: int, out: Any) -> Any:
    """The equation that multiplies arrays like `left` and `right`. What is alike is traced once, and lowered once."""

    def product(x: Any, y: Any) -> Any:
        if is_half(x.dtype):
            x, y = x.astype(np.float32), y.astype(np.float32)
        call = jax.ffi.ffi_call(PRODUCT, jax.ShapeDtypeStruct(result, x.dtype))
        return call(x.reshape(left_shape), y.reshape(right_shape), how=np.int64(how)).reshape(out.shape).astype(out.dtype)

    return calling(product, [left, right]).jaxpr.eqns[0]


def _operand(var: Any, summed: int, batch: Sequence[int], turning: dict[Any, Any]) -> _Operand | None:
    """One side of a product: what it is, or what it is a transpose of, whichever BLAS can read. None where it can neither."""
    if isinstance(var, Literal):
        return None
    roles: list[Any] = [None] * var.aval.ndim
    for i, d in enumerate(batch):
        roles[d] = ("batch", i)
    roles[summed] = "summed"
    own = [d for d, role in enumerate(roles) if role is None]
    for i, d in enumerate(own):
        roles[d] = ("own", i)
    batches, owns = [("batch", i) for i in range(len(batch))], [("own", i) for i in range(len(own))]
    found = None
    while True:
        if roles == [*batches, *owns, "summed"]:
            found = _Operand(var, True)
        elif roles == [*batches, "summed", *owns]:
            found = _Operand(var, False)
        if var not in turning:
            return found
        eqn = turning[var]
        below = [None] * len(roles)
        for d, before in enumerate(eqn.params["permutation"]):
            below[before] = roles[d]
        var, roles = eqn.invars[0], below
