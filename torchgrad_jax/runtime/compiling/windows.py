"""The largest elements of an image's windows, and their gradient, as primitives of JAX's.

XLA's CPU compiler takes ten times as long for what jax.numpy can say of them as a loop of C's, `native/pooling.pxd`. A program on a CPU has a foreign
function in the place of these primitives, and the interpreter calls the loop. Elsewhere, and where they are differentiated, they are what jax.numpy
says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from torchgrad_jax.runtime._jax_compat import has_x64
from torchgrad_jax.runtime.baseline import jaxprs_in
from torchgrad_jax.runtime.baseline.pooling import how_of
from torchgrad_jax.runtime.compiling.equations import calling, rewritten_within
from torchgrad_jax.runtime.compiling.foreign import POOLING, knows_pooling

Ints = tuple[int, ...]
_made: set[Any] = set()


def fits(x: Any, kernel: Ints, sizes: Ints) -> bool:
    """Whether images of this shape and dtype have windows that the loops know."""
    return x.dtype == np.float32 and len(kernel) == 2 and x.size > 0 and 0 not in sizes and has_x64() and knows_pooling()


def primitive(name: str, function: Callable[..., Any]) -> Any:
    """A primitive that computes `function` of arrays, of the shape of the last of them or, if there is one only, of its windows. Its parameters, all
    hashable: those of `how_of` but for the image's size."""
    made = Primitive(name)

    def shape(x: Any, *others: Any, sizes: Ints, **parameters: Any) -> Any:
        return x if others else x.update(shape=(*x.shape[:-2], *sizes))

    def differentiated(primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> Any:
        return jax.jvp(partial(function, **parameters), tuple(primals), tuple(map(ad.instantiate_zeros, tangents)))

    def batched(arrays: Sequence[Any], dims: Sequence[Any], **parameters: Any) -> Any:
        size = next(x.shape[d] for x, d in zip(arrays, dims, strict=True) if d is not None)
        front = [batching.bdim_at_front(x, d, size) for x, d in zip(arrays, dims, strict=True)]
        return made.bind(*front, **parameters), 0

    made.def_impl(lambda *arrays, **parameters: jax.jit(partial(made.bind, **parameters))(*arrays))
    made.def_abstract_eval(shape)
    ad.primitive_jvps[made] = differentiated
    batching.primitive_batchers[made] = batched
    mlir.register_lowering(made, mlir.lower_fun(function, multiple_results=False))
    _made.add(made)
    return made


def by_foreign(closed: Any) -> Any:
    """A closed jaxpr with foreign functions in the place of these primitives, within loops and branches too."""
    return closed.replace(jaxpr=_rewritten(closed.jaxpr)) if _has_windows(closed.jaxpr) else closed


def _has_windows(jaxpr: Any) -> bool:
    return any([eqn.primitive in _made or any(map(_has_windows, jaxprs_in(eqn))) for eqn in jaxpr.eqns])


def _rewritten(jaxpr: Any) -> Any:
    eqns = []
    for eqn in jaxpr.eqns:
        if eqn.primitive in _made:
            call = jax.ffi.ffi_call(POOLING, jax.ShapeDtypeStruct(eqn.outvars[0].aval.shape, np.float32))
            how = how_of(eqn.invars[0].aval.shape[-2:], **eqn.params)
            made = calling(partial(call, how=how), [v.aval for v in eqn.invars]).jaxpr.eqns[0]
            eqn = made.replace(invars=eqn.invars, outvars=eqn.outvars)
        elif any(map(_has_windows, jaxprs_in(eqn))):
            eqn = rewritten_within(eqn, _rewritten)
        eqns.append(eqn)
    return jaxpr.replace(eqns=eqns)
