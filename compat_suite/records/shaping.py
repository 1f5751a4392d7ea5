"""Shapes, views, joining and splitting; indexing, gathering and scattering; factories and conversions."""

from __future__ import annotations

import jax
import numpy as np
from jax import numpy as jnp

import torchgrad_jax as tj
from compat_suite.records.record import REAL, Make, Record, each, given

F = tj.nn.functional
matrix = each((3, 4))
several = lambda make: [([make(2, 3), make(2, 3)], 1), ([make(2, 3), make(1, 3), make(2, 3)], 0)]  # noqa: E731
like = lambda make: [make(3, 4), make(2)]  # noqa: E731


def picked(make: Make):
    """Slices, numbers, new dimensions, index tensors."""
    yield make(5, 4), (slice(1, 4, 2), None, 1)
    yield make(5, 4), make.integers(3)
    yield make(5, 4), (make.integers(2, high=4), make.integers(2, 2, high=4))


def placed(make: Make):
    """A dimension, indices of it, and what goes there."""
    yield make(4, 3), 0, make.permutation(4)[:2], make(2, 3)
    yield make(3, 4), 1, make.permutation(4)[:3], make(3, 3)


def scattered(make: Make):
    """A dimension, an index for each element of a source, no two alike in a line."""
    yield make(4, 3), 0, tj.stack([make.permutation(4)[:2] for _ in range(3)], 1), make(2, 3)
    yield make(3, 4), 1, tj.stack([make.permutation(4)[:3] for _ in range(3)]), make(3, 3)


def repeated(make: Make):
    """A dimension, and indices of which some are alike."""
    yield make(4, 3), 0, make.integers(2, 3, high=4), make(2, 3)
    yield make(3, 4), 1, make.integers(3, 2, high=4), make(3, 2)


def grid_of(x, dim, index):
    """The positions of the elements that an index along one dimension names."""
    places = list(jnp.meshgrid(*(jnp.arange(n) for n in index.shape), indexing="ij"))
    places[dim] = index
    return tuple(places)


def at(x, dim, index):
    """All of x but for one dimension, where the index says."""
    return (slice(None),) * dim + (index,)


def pieces(x, sizes, dim=0):
    """Slices of these lengths."""
    starts = np.cumsum([0, *sizes])
    return tuple(jax.lax.slice_in_dim(x, a, b, axis=dim) for a, b in zip(starts, starts[1:], strict=False))


def pieces_of(x, size, dim=0):
    """Slices of one length, the last as long as is left."""
    n = x.shape[dim]
    return pieces(x, [min(size, n - start) for start in range(0, n, size)], dim)


def windows(x, dim, size, step):
    """Windows along a dimension, their elements in a last dimension."""
    count = (x.shape[dim] - size) // step + 1
    return jnp.moveaxis(jnp.take(x, jnp.arange(count)[:, None] * step + jnp.arange(size), axis=dim), dim + 1, -1)


def on_diagonal(x):
    """Matrices with the last dimension on their diagonals."""
    return x[..., None] * jnp.eye(x.shape[-1])


def in_place_of(x, mask, source):
    """The source's elements, in order, where the mask holds."""
    return jnp.where(mask, jnp.take(source.reshape(-1), jnp.clip(jnp.cumsum(mask.reshape(-1)) - 1, 0)).reshape(x.shape), x)


def converted(name: str) -> Record:
    """A method that converts to a dtype."""
    kind = {"double": "float64", "float": "float32", "long": "int64", "int": "int32", "half": "float16"}.get(name, name)
    derivatives = 0 if kind in ("int64", "int32", "bool") else 2 if kind == "float64" else None
    return Record(name, like, lambda x: x.astype(kind), dtypes=REAL, derivatives=derivatives)


def shaped(name: str, number) -> Record:
    """A factory of a shape that is given."""
    return Record(name, lambda make: [((2, 3), {"dtype": make.dtype})], lambda size, dtype: jnp.full(size, number), derivatives=0)


JOINING = [
    Record("atleast_1d", each((), (3,)), jnp.atleast_1d),
    Record("atleast_2d", each((), (3,), (2, 3, 2)), jnp.atleast_2d),
    Record("block_diag", lambda make: [(make(2, 3), make(1, 2))], jax.scipy.linalg.block_diag),
    Record("broadcast_tensors", lambda make: [(make(3, 1), make(4))], jnp.broadcast_arrays),
    Record("broadcast_shapes", lambda make: [((3, 1), (4,))], jnp.broadcast_shapes, dtypes=REAL, derivatives=0),
    Record("cat", several, jnp.concatenate),
    Record("chunk", given(((7, 2), 3), ((2, 5), 2, 1)), lambda x, n, dim=0: pieces_of(x, -(-x.shape[dim] // n), dim)),
    Record("column_stack", lambda make: [([make(3), make(3, 2)],)], jnp.column_stack),
    Record("hstack", lambda make: [([make(3, 1), make(3, 2)],)], jnp.hstack),
    Record("meshgrid.list_of_tensors", lambda make: [([make(2), make(3)], {"indexing": "ij"})],
           lambda xs, indexing: jnp.meshgrid(*xs, indexing="ij")),
    Record("meshgrid.variadic_tensors", lambda make: [(make(2), make(3), {"indexing": "xy"})], jnp.meshgrid),
    Record("split", given(((7, 2), 3), ((2, 5), 2, 1)), pieces_of),
    Record("split.list_args", given(((7, 2), [3, 4]), ((2, 5), [1, 4], 1)), pieces),
    Record("split_with_sizes", given(((7, 2), [3, 4])), pieces),
    Record("stack", lambda make: [([make(2, 3), make(2, 3)], 1)], jnp.stack),
    Record("tensor_split", given(((7, 2), 3), ((7, 2), (2, 5))), jnp.array_split),
    Record("unbind", given(((3, 2), 0), ((3, 2), 1)), lambda x, dim: tuple(jnp.moveaxis(x, dim, 0))),
    Record("vstack", lambda make: [([make(3), make(2, 3)],)], jnp.vstack),
]  # fmt: skip

VIEWS = [
    Record("T", matrix, jnp.transpose),
    Record("mH", each((2, 3, 4)), lambda x: jnp.conj(jnp.matrix_transpose(x))),
    Record("mT", each((2, 3, 4)), jnp.matrix_transpose),
    Record("t", matrix, jnp.transpose),
    Record("broadcast_to", given(((3, 1), (3, 4))), jnp.broadcast_to),
    Record("contiguous", matrix, jnp.copy, lambda x: x.t().t().contiguous()),
    Record("diag", each((4,), (3, 4)), jnp.diag),
    Record("diag_embed", each((2, 3)), on_diagonal),
    Record("diagonal", given(((3, 4),), ((3, 4), 1)), jnp.diagonal),
    Record("expand", given(((3, 1), (2, 3, 4)), ((3, 1), (3, 4))), jnp.broadcast_to),
    Record("expand_as", lambda make: [(make(3, 1), make(3, 4, gradient=False))], lambda x, y: jnp.broadcast_to(x, y.shape)),
    Record("flatten", given(((2, 3, 4),), ((2, 3, 4), 1)), lambda x, start=0: x.reshape(*x.shape[:start], -1)),
    Record("flip", given(((3, 4), (0,)), ((3, 4), (0, 1))), jnp.flip),
    Record("movedim", given(((2, 3, 4), 0, -1)), jnp.moveaxis),
    Record("narrow", given(((5, 3), 0, 1, 2)), lambda x, dim, start, n: jax.lax.slice_in_dim(x, start, start + n, axis=dim)),
    Record("permute", given(((2, 3, 4), (2, 0, 1))), jnp.transpose),
    Record("ravel", matrix, jnp.ravel),
    Record("repeat", given(((3, 4), (2, 1, 3))), jnp.tile),
    Record("repeat_interleave", given(((3, 4), 2), ((3, 4), 3, 1)), jnp.repeat),
    Record("reshape", given(((3, 4), (2, -1))), jnp.reshape),
    Record("reshape_as", lambda make: [(make(3, 4), make(2, 6, gradient=False))], lambda x, y: x.reshape(y.shape)),
    Record("roll", given(((3, 4), 2), ((3, 4), (1, -1), (0, 1))), jnp.roll),
    Record("select", given(((3, 4), 1, 2)), lambda x, dim, i: jnp.take(x, i, axis=dim)),
    Record("squeeze", given(((3, 1, 4),), ((3, 1), 1)), jnp.squeeze),
    Record("squeeze.multiple", given(((1, 3, 1), (0, 2))), jnp.squeeze),
    Record("tile", given(((3, 4), (2, 2))), jnp.tile),
    Record("transpose", given(((2, 3, 4), 0, 2)), jnp.swapaxes),
    Record("tril", given(((3, 4),), ((3, 4), 1)), jnp.tril),
    Record("triu", given(((3, 4),), ((3, 4), -1)), jnp.triu),
    Record("unflatten", given(((2, 6), 1, (2, 3))), lambda x, dim, sizes: x.reshape(x.shape[0], *sizes)),
    Record("unfold", given(((7, 2), 0, 3, 2)), windows),
    Record("unsqueeze", given(((3, 4), 1)), jnp.expand_dims),
    Record("view", given(((3, 4), (2, 6))), jnp.reshape),
    Record("view_as", lambda make: [(make(3, 4), make(2, 6, gradient=False))], lambda x, y: x.reshape(y.shape)),
    Record("view_as_complex", each((3, 2)), lambda x: x[..., 0] + 1j * x[..., 1], dtypes=REAL),
    Record("view_as_real", each((3, 2)), lambda x: jnp.stack([x.real, x.imag], -1), dtypes=("complex128",)),
]  # fmt: skip

INDEXING = [
    Record("__getitem__", picked, lambda x, i: x[i]),
    Record("argwhere", lambda make: [make.integers(3, 4, high=2)], jnp.argwhere, dtypes=REAL, derivatives=0),
    Record("gather", lambda make: [(make(4, 3), 0, make.integers(2, 3, high=4)), (make(3, 4), 1, make.integers(3, 5, high=4))],
           lambda x, dim, i: jnp.take_along_axis(x, i, dim)),
    Record("index_add", lambda make: [(make(4, 3), 0, make.integers(5, high=4), make(5, 3))], lambda x, d, i, y: x.at[at(x, d, i)].add(y)),
    Record("index_copy", placed, lambda x, d, i, y: x.at[at(x, d, i)].set(y)),
    Record("index_fill", lambda make: [(make(4, 3), 0, make.integers(2, high=4), 2.5), (make(3, 4), 1, make.integers(2, high=4), -1.0)],
           lambda x, d, i, n: x.at[at(x, d, i)].set(n)),
    Record("index_put", lambda make: [(make(4, 3), (make.permutation(4)[:2], make.integers(2, high=3)), make(2))], lambda x, i, y: x.at[i].set(y)),
    Record("index_select", lambda make: [(make(4, 3), 0, make.integers(5, high=4)), (make(3, 4), 1, make.integers(2, high=4))],
           lambda x, dim, i: jnp.take(x, i, axis=dim)),
    Record("masked_fill", lambda make: [(make(3, 4), make.bools(4), 2.5), (make(3, 4), make.bools(3, 4), make())],
           lambda x, m, n: jnp.where(m, n, x)),
    Record("masked_scatter", lambda make: [(make(3, 4), make.bools(3, 4), make(12))], in_place_of),
    Record("masked_select", lambda make: [(make(3, 4), make.bools(3, 4))], lambda x, m: x[m]),
    Record("nonzero", lambda make: [make.integers(3, 4, high=2)], lambda x: jnp.stack(jnp.nonzero(x), 1), dtypes=REAL, derivatives=0),
    Record("scatter", scattered, lambda x, d, i, y: x.at[grid_of(x, d, i)].set(y)),
    Record("scatter_add", repeated, lambda x, d, i, y: x.at[grid_of(x, d, i)].add(y)),
    Record("scatter_reduce.sum", lambda make: [(*row, {"reduce": "sum"}) for row in repeated(make)],
           lambda x, d, i, y, reduce: x.at[grid_of(x, d, i)].add(y), dtypes=REAL),
    Record("take_along_dim", lambda make: [(make(3, 4), make.integers(3, 2, high=4), 1)], jnp.take_along_axis),
]  # fmt: skip

FACTORIES = [
    Record("arange", lambda make: [(1.5, 4.0, 0.7), (5,)], jnp.arange, dtypes=REAL, derivatives=0),
    Record("empty", lambda make: [((2, 3),)], lambda size: jnp.zeros(size), lambda size: tj.empty(size).zero_(), dtypes=REAL, derivatives=0),
    Record("empty_like", like, jnp.zeros_like, lambda x: tj.empty_like(x).zero_(), derivatives=0),
    Record("eye", lambda make: [(3,), (3, 4)], jnp.eye, dtypes=REAL, derivatives=0),
    Record("full", lambda make: [((2, 3), 2.5)], jnp.full, dtypes=REAL, derivatives=0),
    Record("full_like", given(((3, 4), 2.5)), jnp.full_like, derivatives=0),
    Record("item", lambda make: [make(), make(1, 1)], lambda x: x.item(), derivatives=0),
    Record("linspace", lambda make: [(0.5, 3.0, 7), (1.0, 2.0, 1)], jnp.linspace, dtypes=REAL, derivatives=0),
    Record("new_full", given(((3,), (2, 3), 2.5)), lambda x, size, n: jnp.full(size, n, x.dtype), derivatives=0),
    Record("new_ones", given(((3,), (2, 3))), lambda x, size: jnp.ones(size, x.dtype), derivatives=0),
    Record("new_zeros", given(((3,), (2, 3))), lambda x, size: jnp.zeros(size, x.dtype), derivatives=0),
    shaped("ones", 1),
    Record("ones_like", like, jnp.ones_like, derivatives=0),
    Record("to", lambda make: [(make(3, 4), tj.complex128)], lambda x, dtype: x.astype("complex128")),
    Record("tril_indices", lambda make: [(3, 4), (3, 3, 1)], lambda n, m, k=0: jnp.stack(jnp.tril_indices(n, k, m)), dtypes=REAL, derivatives=0),
    Record("triu_indices", lambda make: [(3, 4), (3, 3, 1)], lambda n, m, k=0: jnp.stack(jnp.triu_indices(n, k, m)), dtypes=REAL, derivatives=0),
    shaped("zeros", 0),
    Record("zeros_like", like, jnp.zeros_like, derivatives=0),
    *map(converted, ("bfloat16", "bool", "double", "float", "half", "int", "long")),
]  # fmt: skip

RECORDS = [*JOINING, *VIEWS, *INDEXING, *FACTORIES]
