"""Elements that lie next to each other, reduced: `torch.segment_reduce`."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import numpy as jnp

from torchgrad_jax.declaration.converting import where
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.operators.indexing import factors_beside, gather_along, reduce_along, write_along

# By what elements are put together, and what an empty segment is.
_HOW = {"sum": ("sum", 0.0), "mean": ("sum", 0.0), "prod": ("prod", 1.0), "max": ("amax", -np.inf), "min": ("amin", np.inf)}


class _Segments:
    """Which elements belong to which segment.

    bounds: the lengths of segments along its last dimension, or (offsets) where they begin and the last one ends; the dimensions before are data's.
    at: for each element of data the number of its segment along `axis`; `count` where it belongs to none.
    """

    def __init__(self, data: Any, bounds: Any, offsets: bool) -> None:
        self.axis, n = bounds.ndim - 1, data.shape[bounds.ndim - 1]
        self.lengths = bounds[..., 1:] - bounds[..., :-1] if offsets else bounds
        self.count = self.lengths.shape[-1]
        ends = bounds[..., 1:] if offsets else jnp.cumsum(bounds, -1)
        ended = write_along(jnp.zeros((*ends.shape[:-1], n + 1), np.int64), jnp.clip(ends, 0, n), jnp.ones(ends.shape, np.int64), self.axis, "add")
        at = jnp.cumsum(ended, -1)[..., :n]
        if offsets:
            at = where(jnp.arange(n) < bounds[..., :1], self.count, at)
        self.at = jnp.broadcast_to(self._wide(at, data), data.shape)

    @staticmethod
    def _wide(a: Any, data: Any) -> Any:
        return a.reshape(a.shape + (1,) * (data.ndim - a.ndim))

    def start(self, data: Any, value: float) -> Any:
        """A number for each segment, and one for what is in none."""
        return jnp.full((*data.shape[: self.axis], self.count + 1, *data.shape[self.axis + 1 :]), value, data.dtype)

    def sizes(self, data: Any) -> Any:
        """The lengths, as many dimensions as data has."""
        return self._wide(self.lengths, data)

    def each(self, values: Any) -> Any:
        """Values of segments for each of their elements; 0 for what is in none."""
        none = jnp.zeros((*values.shape[: self.axis], 1, *values.shape[self.axis + 1 :]), values.dtype)
        return gather_along(jnp.concatenate([values, none], self.axis), self.at, self.axis)


def _grad(grad: Any, data: Any, bounds: Any, result: Any, reduce: str, offsets: bool, initial: float | None) -> Any:
    segments = _Segments(data, bounds, offsets)
    if reduce == "mean":
        grad = grad / segments.sizes(data).astype(grad.dtype)
    if reduce in ("sum", "mean"):
        return segments.each(grad)
    how, empty = _HOW[reduce]
    if reduce == "prod":
        start, nan = segments.start(data, empty if initial is None else initial), jnp.isnan(data)
        whole, others = (reduce_along(start, segments.at, x, segments.axis, how, True) for x in (data, where(nan, jnp.ones_like(data), data)))
        nans = write_along(segments.start(data, 0.0), segments.at, nan.astype(data.dtype), segments.axis, "add")
        beside_nan = gather_along(where(nans > 1, jnp.full_like(others, np.nan), others), segments.at, segments.axis)
        beside = where(nan, beside_nan, factors_beside(start, segments.at, data, whole, segments.axis))
        return beside * segments.each(grad)
    won = ((data == segments.each(result)) | jnp.isnan(data)).astype(data.dtype)
    winners = write_along(segments.start(data, 0.0), segments.at, won, segments.axis, "add")
    return won * segments.each(grad) / jnp.maximum(gather_along(winners, segments.at, segments.axis), 1)


_PROBLEMS = (
    "lengths contains negative value!",
    "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe.",
    "Expected segment_length >= 0 to be true, but got false.  (Could this error message be improved?  If so, please report an enhancement request "
    "to PyTorch.)",
)


def _problem(data: Any, bounds: Any, offsets: bool, unsafe: bool) -> Any:
    """The check of the bounds: (1, the number of the problem), or zeros."""
    axis = bounds.ndim - 1
    if offsets:
        number = where((bounds[..., 1:] < bounds[..., :-1]).any(), 3, 0)
    elif unsafe:
        return jnp.zeros(2, np.int64)
    else:
        number = where((bounds < 0).any(), 1, where((bounds.sum(-1) != data.shape[axis]).any(), 2, 0))
    return jnp.stack([number != 0, number]).astype(np.int64)


@op("segment_reduce(Tensor data, Tensor bounds, str reduce, bool offsets, bool unsafe, float? initial)", method=False, toplevel=False,
    validate=refusing("_segment_reduce_cpu", "biuc"), grads={"data": _grad},
    check=lambda number: RuntimeError(_PROBLEMS[number - 1]),
    once=("data", lambda reduce: True, "derivative for aten::_segment_reduce_backward is not implemented"))  # fmt: skip
def segment_reduce(data: Any, bounds: Any, reduce: str, offsets: bool, unsafe: bool, initial: float | None) -> Any:
    """The elements of each segment put together, from `initial` on."""
    segments, (how, empty) = _Segments(data, bounds, offsets), _HOW[reduce]
    start = segments.start(data, empty if initial is None else initial)
    made = reduce_along(start, segments.at, data, segments.axis, how, True)
    made = jnp.take(made, jnp.arange(segments.count), axis=segments.axis)
    if reduce == "mean":
        sizes = segments.sizes(data)
        nothing = jnp.asarray(np.nan if initial is None else initial, data.dtype)
        made = where(sizes > 0, made / jnp.maximum(sizes, 1).astype(data.dtype), nothing)
    return made, _problem(data, bounds, offsets, unsafe)
