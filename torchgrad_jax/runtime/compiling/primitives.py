"""Primitives of JAX's for what XLA's CPU compiler is slow at and a loop of C's is not: the largest elements of windows, images at
points, sums of a few elements along a dimension, softmax and standardization of rows, an LSTM's steps, attention, what runs along a dimension.

And reductions of many elements, which are JAX's own primitives: XLA adds 1,048,576 numbers in 500 us, and one function of C's in 60.
From 512 elements on it takes 20 to 130 ms longer to compile one, by vectors that it unrolls, than to call a function, and small programs run as long.

A program on a CPU has a foreign function in the place of each, and the interpreter calls the loop. Elsewhere, in what users trace, and where they are
differentiated, they are what jax.numpy says: a foreign function could not be exported.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from torchgrad_jax.runtime._jax_compat import has_x64
from torchgrad_jax.runtime.baseline import jaxprs_in
from torchgrad_jax.runtime.baseline.reducing import runs
from torchgrad_jax.runtime.compiling.equations import calling, rewritten_within
from torchgrad_jax.runtime.compiling.foreign import REDUCTION, knows
from torchgrad_jax.runtime.native import reducing


class Loop(NamedTuple):
    """A loop of C's: the foreign function that it is for XLA; and of operands of such avals, under such parameters, what it is told and the shapes of
    its results, which have the first operand's dtype, but the second one int64 if it is of `places`. least: of how many elements on, given or made,
    it is the quicker one for XLA, too, which else joins what jax.numpy says with what is around it."""

    target: str
    how: Callable[..., np.ndarray]
    shapes: Callable[..., list[tuple[int, ...]]]
    least: int = 0
    places: bool = False

    def results(self, *avals: Any, **parameters: Any) -> list[Any]:
        """The results' avals."""
        dtypes = avals[0].dtype, np.dtype(np.int64) if self.places else avals[0].dtype
        return [avals[0].update(shape=shape, dtype=dtypes[i == 1]) for i, shape in enumerate(self.shapes(*avals, **parameters))]


_loops: dict[Any, Loop] = {}


def has(target: str) -> bool:
    """Whether primitives may stand for this foreign function here: not within what users trace with JAX's 32 bits, where jax.numpy has to say it."""
    return has_x64() and knows(target)


def primitive(name: str, function: Callable[..., Sequence[Any]], loop: Loop, leading: bool = False) -> Any:
    """A primitive that computes `function` of arrays, which returns several, under parameters that are hashable. leading: whether the arrays may have
    any dimensions in front, the same for all."""
    made = Primitive(name)
    made.multiple_results = True

    def differentiated(primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> Any:
        return jax.jvp(partial(function, **parameters), tuple(primals), tuple(map(ad.instantiate_zeros, tangents)))

    def mapped(arrays: Sequence[Any], dims: Sequence[Any], **parameters: Any) -> Any:
        if leading:
            size = next(x.shape[d] for x, d in zip(arrays, dims, strict=True) if d is not None)
            found = made.bind(*[batching.bdim_at_front(x, d, size) for x, d in zip(arrays, dims, strict=True)], **parameters)
        else:
            found = jax.vmap(partial(function, **parameters), in_axes=tuple(dims))(*arrays)
        return found, [0] * len(found)

    made.def_impl(lambda *arrays, **parameters: jax.jit(partial(made.bind, **parameters))(*arrays))
    made.def_abstract_eval(loop.results)
    ad.primitive_jvps[made] = differentiated
    batching.primitive_batchers[made] = mapped
    mlir.register_lowering(made, mlir.lower_fun(function, multiple_results=True))
    _loops[made] = loop
    return made


def is_loop(primitive: Any) -> bool:
    """Whether it is one of these: its derivative is that of what jax.numpy says, which may hold other programs."""
    return primitive in _loops


def _how_of_reduction(which: int, x: Any, *, axes: tuple[int, ...], **_: Any) -> np.ndarray:
    """What the loop is told of the last dimensions that follow one another, and then of those before: the sizes before them, theirs, and behind."""
    (first, after), (low, high) = (*runs(axes), (0, 0))[:2]

    def sizes(*bounds: int) -> list[int]:
        return [math.prod(x.shape[a:b]) for a, b in itertools.pairwise(bounds)]

    before, n, between = sizes(0, low, high, first)
    inner = math.prod(x.shape[after:])
    return np.array([which, x.dtype == np.float64, *sizes(0, first, after, x.ndim), before, n, between * inner], np.int64)


def _without(x: Any, *, axes: tuple[int, ...], **_: Any) -> list[tuple[int, ...]]:
    return [tuple([n for d, n in enumerate(x.shape) if d not in axes])]


_REDUCTIONS = {
    name: Loop(REDUCTION, partial(_how_of_reduction, which), _without, 1 << 9)
    for name, which in (("reduce_sum", reducing.SUM), ("reduce_max", reducing.LARGEST), ("reduce_min", reducing.SMALLEST))
}


def _is_reduction(eqn: Any) -> bool:
    axes, x = eqn.params["axes"], eqn.invars[0].aval
    return 0 < len(runs(axes)) < 3 and x.size > 0 and x.dtype in (np.float32, np.float64) and knows(REDUCTION)


def by_foreign(closed: Any) -> Any:
    """A closed jaxpr with foreign functions in the place of these primitives, within loops and branches too."""
    return closed.replace(jaxpr=_rewritten(closed.jaxpr)) if _has_any(closed.jaxpr) else closed


def _has_any(jaxpr: Any) -> bool:
    return any([_loop_for(eqn) is not None or any(map(_has_any, jaxprs_in(eqn))) for eqn in jaxpr.eqns])


def _loop_for(eqn: Any) -> Loop | None:
    loop = _loops.get(eqn.primitive)
    if loop is None:
        loop = _REDUCTIONS.get(eqn.primitive.name)
        if loop is None or not _is_reduction(eqn):
            return None
    return loop if max(eqn.invars[0].aval.size, eqn.outvars[0].aval.size) >= loop.least else None


def _rewritten(jaxpr: Any) -> Any:
    eqns = []
    for eqn in jaxpr.eqns:
        loop = _loop_for(eqn)
        if loop is not None:
            avals = [v.aval for v in eqn.invars]
            call = jax.ffi.ffi_call(loop.target, [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.outvars])
            made = calling(partial(call, how=loop.how(*avals, **eqn.params)), avals).jaxpr.eqns[0]
            eqn = made.replace(invars=eqn.invars, outvars=eqn.outvars)
        elif any(map(_has_any, jaxprs_in(eqn))):
            eqn = rewritten_within(eqn, _rewritten)
        eqns.append(eqn)
    return jaxpr.replace(eqns=eqns)
