"""Operators that arrange elements: copies, pieces, joining, repeating, mirroring."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_parts, promotion
from torchgrad_jax.declaration import numpy_forms as forms
from torchgrad_jax.declaration.converting import convert, where, wide, zeros_like
from torchgrad_jax.declaration.memory_order import JOINED, TURNED
from torchgrad_jax.declaration.operator import NOT_IMPLEMENTED, SAME, op
from torchgrad_jax.declaration.refusals import no_derivative, refusing
from torchgrad_jax.runtime.value import aval_of


@op("clone(Tensor self)", method=False, toplevel=False, keeps_order="exactly", grads={"self": SAME}, numpy=lambda x: x)
def clone(x: Any) -> Any:
    """A copy."""
    return x


@op("_unsafe_view(Tensor self, int[] size)", method=False, toplevel=False, linear=True, node="UnsafeViewBackward0",
    numpy=lambda x, size: forms.reshaped(x, size), numpy_vjp=forms.reshape_vjp, attributes="self_sym_sizes")  # fmt: skip
def unsafe_view(x: Any, size: tuple[int, ...]) -> Any:
    """The elements in another shape, of a copy that nobody else sees."""
    return lax.reshape(x, size)


# What PyTorch's functions do in place to a tensor that they have just made; nobody else sees it, so there is nothing to write to.


@op("_squeeze_written(Tensor self, int dim)", method=False, toplevel=False, linear=True, node="SqueezeBackward4",
    numpy=lambda x, dim: x.squeeze(dim) if x.ndim and x.shape[dim] == 1 else x, numpy_vjp=forms.reshape_vjp)  # fmt: skip
def squeeze_written(x: Any, dim: int) -> Any:
    """Without the dimension `dim`, if it is of size 1."""
    return lax.squeeze(x, (dim,)) if x.ndim and x.shape[dim] == 1 else x


@op("_unsqueeze_written(Tensor self, int dim)", method=False, toplevel=False, linear=True, node="UnsqueezeBackward1",
    numpy=forms.unsqueeze, numpy_vjp=forms.reshape_vjp)  # fmt: skip
def unsqueeze_written(x: Any, dim: int) -> Any:
    """With a new dimension of size 1."""
    return lax.expand_dims(x, (dim,))


@op("_transpose_written(Tensor self, int dim0, int dim1)", method=False, toplevel=False, linear=True, node="TransposeBackward1",
    numpy=lambda x, dim0, dim1: x.swapaxes(dim0, dim1), numpy_vjp=lambda grad, aval, dim0, dim1: grad.swapaxes(dim0, dim1))  # fmt: skip
def transpose_written(x: Any, dim0: int, dim1: int) -> Any:
    """With two dimensions exchanged."""
    return jnp.swapaxes(x, dim0, dim1)


for _name, _node in (("unbind", "UnbindBackward0"), ("unbind_copy", "UnbindBackward0_copy")):

    @op(f"{_name}(Tensor self, int dim, any parts)", method=False, toplevel=False, linear=True, node=_node,
        numpy=forms.unbind, numpy_vjp=forms.unbind_vjp, attributes="dim", gives_views=_name == "unbind")  # fmt: skip
    def _unbind(x: Any, dim: int, parts: tuple[tuple[int, int], ...]) -> Any:
        """The slices along `dim`."""
        return tuple(lax.index_in_dim(x, start, dim, keepdims=False) for start, _ in parts)


for _name, _node in (
    ("split", "SplitBackward0"), ("split_with_sizes", "SplitWithSizesBackward0"),
    ("unsafe_split", "UnsafeSplitBackward0"), ("unsafe_split_with_sizes", "UnsafeSplitWithSizesBackward0"),
    ("split_copy", "SplitBackward0_copy"), ("split_with_sizes_copy", "SplitWithSizesBackward0_copy"),
):  # fmt: skip

    @op(f"{_name}(Tensor self, int dim, any parts)", method=False, toplevel=False, linear=True, node=_node,
        numpy=forms.split, numpy_vjp=forms.split_vjp,
        attributes="dim split_sizes self_sym_sizes" if "with_sizes" in _name else "dim split_size self_sym_sizes",
        gives_views=_name in ("split", "split_with_sizes"))  # fmt: skip
    def _split(x: Any, dim: int, parts: tuple[tuple[int, int], ...]) -> Any:
        """Pieces of `dim`."""
        return tuple(lax.slice_in_dim(x, start, start + length, axis=dim) for start, length in parts)


def _stack_shapes(tensors: list[Any], dim: int) -> None:
    for i, a in enumerate(tensors):
        if a.shape != tensors[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(tensors[0].shape)} at entry 0 and {list(a.shape)} at entry {i}"
            )


@op("_stack(Tensor[] tensors, int dim)", method=False, toplevel=False, linear=True, node="StackBackward0", validate=_stack_shapes,
    numpy=forms.stack, numpy_vjp=forms.stack_vjp, attributes="dim")  # fmt: skip
def stack(tensors: list[Any], dim: int) -> Any:
    """The tensors along a new dimension."""
    dtype = jnp.result_type(*tensors)
    return jnp.stack([t.astype(dtype) for t in tensors], dim)


# ---------------------------------------------------------------------- joining


def _is_skipped(a: Any) -> bool:
    """An empty vector joins anything: it is left out."""
    return a.shape == (0,)


def _cat_shapes(tensors: list[Any], dim: int) -> None:
    for i, a in enumerate(tensors):
        if a.ndim == 0:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    first = next((a for a in tensors if not _is_skipped(a)), tensors[0])
    for i, a in enumerate(tensors):
        if _is_skipped(a):
            continue
        if a.ndim != first.ndim:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {first.ndim} and {a.ndim}")
        for d in range(a.ndim):
            if d != dim and a.shape[d] != first.shape[d]:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {first.shape[d]} but got size {a.shape[d]} "
                    f"for tensor number {i} in the list."
                )


@op("cat(Tensor[] tensors, int dim)", method=False, toplevel=False, linear=True, validate=_cat_shapes, numpy=forms.cat, numpy_vjp=forms.cat_vjp,
    skips=_is_skipped, order=JOINED, attributes="dim")  # fmt: skip
def cat(tensors: list[Any], dim: int) -> Any:
    """The tensors one after another along `dim`, in their common dtype."""
    dtype = promotion.result_type([aval_of((1,) * max(t.ndim, 1), np.dtype(t.dtype)) for t in tensors])
    kept = [convert(t, dtype) for t in tensors if not _is_skipped(t)]
    return lax.concatenate(kept, dim) if kept else convert(tensors[0], dtype)


@op("block_diag(Tensor[] tensors)", method=False, toplevel=False, linear=True, numpy=forms.block_diag, numpy_vjp=forms.block_diag_vjp)
def block_diag(tensors: list[Any]) -> Any:
    """Matrices along the diagonal of one matrix; vectors are rows and numbers are 1 by 1."""
    matrices = [t.reshape((1,) * (2 - t.ndim) + t.shape) for t in tensors]
    dtype = promotion.result_type([aval_of((1, 1), np.dtype(t.dtype)) for t in tensors])
    columns = sum(m.shape[1] for m in matrices)
    rows, before = [], 0
    for m in matrices:
        after = columns - before - m.shape[1]
        rows.append(jnp.pad(convert(m, dtype), ((0, 0), (before, after))))
        before += m.shape[1]
    return jnp.concatenate(rows, 0) if rows else jnp.zeros((1, 0), dtype)


# ---------------------------------------------------------------------- mirroring, rolling, repeating


@op("flip(Tensor self, any dims)", keeps_order="exactly", method=False, toplevel=False, linear=True,
    numpy=numpy_parts.flipped, numpy_vjp=lambda grad, aval, dims: numpy_parts.flipped(grad, dims), attributes="dims")  # fmt: skip
def flip(x: Any, dims: tuple[int, ...]) -> Any:
    """The order along `dims` reversed."""
    return lax.rev(x, dims) if x.ndim else x


@op("roll(Tensor self, any shifts, any dims)", method=False, toplevel=False, linear=True, numpy=forms.roll, numpy_vjp=forms.roll_vjp,
    attributes="shifts dims")  # fmt: skip
def roll(x: Any, shifts: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    """The elements moved along `dims`, those that fall off at one end coming in at the other; of the flattened tensor without dims."""
    if not x.size:
        return x
    return jnp.roll(x, shifts, dims) if dims else jnp.roll(x, shifts[0])


@op("rot90(Tensor self, int k, any dims)", order=TURNED, method=False, toplevel=False, linear=True,
    numpy=lambda x, k, dims: np.rot90(x, k, dims), numpy_vjp=lambda grad, aval, k, dims: np.rot90(grad, -k, dims), attributes="k dims")  # fmt: skip
def rot90(x: Any, k: int, dims: tuple[int, int]) -> Any:
    """The plane of two dimensions turned by `k` quarters."""
    return jnp.rot90(x, k, dims)


@op("repeat(Tensor self, any repeats)", method=False, toplevel=False, linear=True, numpy=forms.repeat, numpy_vjp=forms.repeat_vjp,
    attributes="repeats self_sym_sizes")  # fmt: skip
def repeat(x: Any, repeats: tuple[int, ...]) -> Any:
    """`repeats` copies of the whole tensor along each dimension, counted from the last."""
    shape = (1,) * (len(repeats) - x.ndim) + x.shape
    pairs = [(r, n) for r, n in zip(repeats, shape, strict=True)]
    # The gradient adds in the wide precision.
    copies = lax.broadcast_in_dim(wide(x).reshape(shape), tuple(m for pair in pairs for m in pair), tuple(range(1, 2 * len(pairs), 2)))
    return lax.reshape(copies, tuple(r * n for r, n in pairs)).astype(x.dtype)


# ---------------------------------------------------------------------- triangles and diagonals


def _at_least_matrix(name: str) -> Any:
    def validate(a: Any, diagonal: int) -> None:
        if a.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")

    return validate


def _triangle(x: Any, keep: Any) -> Any:
    rows = lax.broadcasted_iota(np.int32, x.shape[-2:], 0)
    columns = lax.broadcasted_iota(np.int32, x.shape[-2:], 1)
    mask = lax.broadcast_in_dim(keep(rows, columns), x.shape, (x.ndim - 2, x.ndim - 1))
    return lax.select(mask, x, zeros_like(x))


@op("tril(Tensor self, int diagonal=0)", inplace=True, linear=True, validate=_at_least_matrix("tril"), numpy=forms.tril, numpy_vjp=forms.tril_vjp,
    attributes="diagonal")  # fmt: skip
def tril(x: Any, diagonal: int) -> Any:
    """The elements on and below a diagonal, zeros above it."""
    return _triangle(x, lambda i, j: j - i <= diagonal)


@op("triu(Tensor self, int diagonal=0)", inplace=True, linear=True, validate=_at_least_matrix("triu"), numpy=forms.triu, numpy_vjp=forms.triu_vjp,
    attributes="diagonal")  # fmt: skip
def triu(x: Any, diagonal: int) -> Any:
    """The elements on and above a diagonal, zeros below it."""
    return _triangle(x, lambda i, j: j - i >= diagonal)


@op("diag_embed(Tensor self, int offset, int dim1, int dim2)", method=False, toplevel=False,
    grads={"self": lambda grad, offset, dim1, dim2: jnp.diagonal(grad, offset, dim1, dim2)},
    numpy=forms.diag_embed, numpy_vjp=lambda grad, aval, offset, dim1, dim2: grad.diagonal(offset, dim1, dim2),
    attributes="offset dim1 dim2")  # fmt: skip
def diag_embed(x: Any, offset: int, dim1: int, dim2: int) -> Any:
    """The last dimension as a diagonal of two new ones, zeros elsewhere."""
    size = x.shape[-1] + abs(offset)
    i = lax.broadcasted_iota(np.int32, (size, size), 0)
    j = lax.broadcasted_iota(np.int32, (size, size), 1)
    low, high = (abs(offset), 0) if offset < 0 else (0, offset)
    columns = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(high, low)])
    made = where(j - i == offset, columns[..., None, :], jnp.zeros((), x.dtype))
    return jnp.moveaxis(made, (-2, -1), (dim1, dim2))


@op("detach_copy(Tensor self)", method=False, toplevel=False, node=NOT_IMPLEMENTED, grads={"self": no_derivative("detach_copy")}, numpy=lambda x: x)
def detach_copy(x: Any) -> Any:
    """A copy, which PyTorch has no derivative of."""
    return x


@op("narrow_copy(Tensor self, int dim, int start, int length)", method=False, toplevel=False, linear=True,
    numpy=forms.narrow, numpy_vjp=forms.placing(forms.narrow))  # fmt: skip
def narrow_copy(x: Any, dim: int, start: int, length: int) -> Any:
    """A copy of `length` elements of `dim` from `start` on."""
    return lax.slice_in_dim(x, start, start + length, axis=dim)


def _trace_shapes(a: Any) -> None:
    refusing("trace", "b")(a)
    if a.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {a.ndim}")


@op("trace(Tensor self)", linear=True, out=False, validate=_trace_shapes, attributes="self_sym_sizes",
    numpy=forms.trace, numpy_vjp=forms.placing(lambda x: x.diagonal()))  # fmt: skip
def trace(x: Any) -> Any:
    """The sum of a matrix's diagonal; of integers, as int64."""
    diagonal = jnp.diagonal(x)
    return jnp.sum(diagonal, dtype=x.dtype if dtypes.is_float(np.dtype(x.dtype)) else np.int64)
