"""A function of tensors mapped over a dimension of them: the user's Python runs once, on tensors that stand for all of a batch.

A value inside a map exists only while it runs, so no graph can hold it, and nothing from outside can be written to with it. Where the results
have a graph or a tangent, the function is therefore called for each element, and the results are stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from torchgrad_jax.core.duals import seen_tangent
from torchgrad_jax.core.tensor import Tensor, wrap
from torchgrad_jax.core.writing import apply_inplace
from torchgrad_jax.declaration.operator import ARRAY
from torchgrad_jax.functions.random import get_rng_state, set_rng_state
from torchgrad_jax.functions.shaping import stack
from torchgrad_jax.functions.views import select
from torchgrad_jax.memory.storage import maps
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime._jax_compat import as_x64
from torchgrad_jax.runtime.value import aval_of, constant

LOOKED = (
    "vmap: the value of a tensor was asked for (by item(), bool(), numpy() or printing, or by an operator whose result's shape depends on it), "
    "which inside vmap stands for all of a batch."
)
RANDOM = "vmap: We do not yet support calling random operations inside of vmap. Please perform random operations outside of vmap as a workaround"
ESCAPED = "vmap: a tensor that was made inside vmap was used outside of it, where it has no value."


def mapped(func: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor], dims: Sequence[int | None] | None = None) -> list[Tensor]:
    """The results of `func` for each part of `tensors`, each with the batch as its first dimension.

    func: takes tensors and returns a sequence of tensors. dims: the dimension of each tensor that is mapped over, None for none of it; by default
    the first. RuntimeError where `func` looks at a value, draws random numbers, or writes with what is mapped to what is not.
    """
    axes = [0] * len(tensors) if dims is None else list(dims)
    found, graphs, changed = _at_once(func, tensors, axes)
    if graphs or any(_is_tracked(t) for t in tensors):
        return _one_by_one(func, tensors, axes)
    for t, content in changed:
        apply_inplace(_copy(), (t, content))
    return found


def _copy() -> Any:
    return registry["copy"].bind((ARRAY, ARRAY))


def _is_tracked(t: Tensor) -> bool:
    return t.requires_grad or seen_tangent(t) is not None


def _at_once(
    func: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor], axes: Sequence[int | None]
) -> tuple[list[Tensor], bool, list[tuple[Tensor, Tensor]]]:
    """The results of the mapped function, whether one of them has a graph or a tangent, and the arguments that were written to with their new
    contents."""
    graphs: list[bool] = []
    written: list[int] = []
    sources: list[Source] = []

    def one(*arrays: Any) -> tuple[list[Any], list[Any]]:
        given = [_stand_in(t, array, axis) for t, array, axis in zip(tensors, arrays, axes, strict=True)]
        results = func(*given)
        graphs.append(any(map(_is_tracked, results)))
        written.extend(i for i, (g, axis) in enumerate(zip(given, axes, strict=True)) if axis is not None and g._version)
        sources.extend([_source(i, results, given, axes) for i in range(len(results))])
        return [o._concrete() for o in results], [given[i]._concrete() for i in written]

    maps.append(one)
    before = get_rng_state()
    try:
        outs, contents = as_x64(_mapping(one, axes), [t._concrete() for t in tensors])
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError, jax.errors.TracerBoolConversionError) as error:
        raise RuntimeError(LOOKED) from error
    except jax.errors.UnexpectedTracerError as error:
        raise RuntimeError(ESCAPED) from error
    finally:
        maps.remove(one)
    if not np.array_equal(before._concrete(), get_rng_state()._concrete()):
        set_rng_state(before)
        raise RuntimeError(RANDOM)
    changed = []
    for i, content in zip(written, contents, strict=True):
        axis: Any = axes[i]
        changed.append((tensors[i], wrap(constant(as_x64(partial(jnp.moveaxis, source=0, destination=axis), [content])))))
    return _with_sources([wrap(constant(o)) for o in outs], sources, tensors), any(graphs), changed


def _mapping(function: Callable[..., Any], axes: Sequence[int | None]) -> Callable[..., Any]:
    """`function` mapped over `axes` of arrays, on the device or the host."""
    return lambda *arrays: jax.vmap(function, tuple(axes), 0)(*map(jnp.asarray, arrays))


# Whether a result is new (None), is an argument or another result, or is a view of one with this shape, these strides and this offset.
Source = tuple[str, int, tuple[Any, ...]] | None


def _source(place: int, results: Sequence[Tensor], given: Sequence[Tensor], axes: Sequence[int | None]) -> Source:
    o = results[place]
    for i, (g, axis) in enumerate(zip(given, axes, strict=True)):
        if o is g and axis == 0:
            return "argument", i, ()
    for i, other in enumerate(results):
        if o is other and i < place:
            return "result", i, ()
        if o._base is other and other.is_contiguous():
            return "view", i, (o._aval.shape, (other._aval.size, *o._strides()), o.storage_offset() - other.storage_offset())
    return None


def _with_sources(outs: list[Tensor], sources: Sequence[Source], tensors: Sequence[Tensor]) -> list[Tensor]:
    """The results, of which those share memory that did so inside."""
    made = list(outs)
    for kind in ("argument", "result", "view"):
        for place, source in enumerate(sources):
            if source is None or source[0] != kind:
                continue
            _, i, part = source
            if kind == "view":
                shape, strides, offset = part
                made[place] = made[i].as_strided((made[i].shape[0], *shape), strides, offset)
            else:
                made[place] = (tensors if kind == "argument" else made)[i]
    return made


def _stand_in(t: Tensor, array: Any, axis: int | None) -> Tensor:
    """The tensor that the function sees: one part of a mapped one, the tensor itself where it is not mapped."""
    if axis is None:
        return t
    aval = t._aval
    return wrap(constant(array, aval_of(tuple(array.shape), aval.dtype, aval.device)))


def _one_by_one(func: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor], axes: Sequence[int | None]) -> list[Tensor]:
    size = next(t._aval.shape[axis] for t, axis in zip(tensors, axes, strict=True) if axis is not None)
    rows = [func(*[t if axis is None else select(t, axis, i) for t, axis in zip(tensors, axes, strict=True)]) for i in range(size)]
    return [stack(column) for column in zip(*rows, strict=True)]
