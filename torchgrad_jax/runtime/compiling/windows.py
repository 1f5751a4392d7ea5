"""The largest elements of an image's windows, and their gradient, as primitives of JAX's.

XLA's CPU compiler takes 20 to 30 times as long for what jax.numpy can say of them as a loop of C's, `native/pooling.pxd`, which is what becomes of
these primitives on a CPU, in a program or interpreted. Elsewhere, and where they are differentiated, they are what jax.numpy says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from torchgrad_jax.runtime.baseline.pooling import how_of
from torchgrad_jax.runtime.compiling.foreign import POOLING, knows_pooling

Ints = tuple[int, ...]


def fits(x: Any, kernel: Ints, sizes: Ints) -> bool:
    """Whether images of this shape and dtype have windows that the loops know."""
    return x.dtype == np.float32 and len(kernel) == 2 and x.size > 0 and 0 not in sizes and knows_pooling()


def primitive(name: str, function: Callable[..., Any]) -> Any:
    """A primitive that computes `function` of arrays, of the shape of the last of them or, if there is one only, of its windows. Its parameters, all
    hashable: those of `how_of` but for the image's size."""
    made = Primitive(name)

    def shape(x: Any, *others: Any, sizes: Ints, **parameters: Any) -> Any:
        return jax.core.ShapedArray(x.shape if others else (*x.shape[:-2], *sizes), x.dtype)

    def loops(ctx: Any, *arrays: Any, **parameters: Any) -> Any:
        return jax.ffi.ffi_lowering(POOLING)(ctx, *arrays, how=how_of(ctx.avals_in[0].shape[-2:], **parameters))

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
    mlir.register_lowering(made, loops, platform="cpu")
    return made
