"""Functions that join, cut, mirror, repeat and rearrange tensors."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import numpy as np

from torchgrad_jax.calling.expecting import elements, elements_or_listed, listed, tensors_in
from torchgrad_jax.calling.factory_options import check_options
from torchgrad_jax.calling.out import with_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.level import by_parts, mapped_as
from torchgrad_jax.core.made import created
from torchgrad_jax.core.strided import as_strided
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.core.writing import fill_
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.functions import creation, views
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.creation import from_data, of_self, requiring, zeros
from torchgrad_jax.functions.gathering import call, index_select, joined
from torchgrad_jax.functions.overloads import masked_select
from torchgrad_jax.functions.views import chunk_size, split_parts
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.baseline import copying
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_once


@public("torch")
def empty_strided(size: Any, stride: Any, **kwargs: Any) -> Tensor:
    """A tensor of this size and these strides whose content does not matter (it is zero). Keywords: dtype, device, requires_grad."""
    check_options("empty_strided", kwargs)
    return _of_strides(views.as_dims((size,)), views.as_dims((stride,)), kwargs)


@public("torch")
def empty_permuted(size: Any, physical_layout: Any, **kwargs: Any) -> Tensor:
    """A dense tensor of this size, whose dimensions lie in memory in the order `physical_layout`; its content does not matter (it is zero). Keywords:
    dtype, device, requires_grad. RuntimeError where the order is none of the dimensions."""
    size, order = views.as_dims((size,)), views.as_dims((physical_layout,))
    if (n := len(size)) != len(order):
        said = f"len(size) = {n} is not equal to len(physical_layout) = {len(order)}"
        raise RuntimeError(f"Number of dimensions in size does not match the length of the physical_layout; i.e. {said}")
    for i, d in enumerate(order):
        if not 0 <= d < n:
            said = f"expected to be between 0 and {n - 1}, but got {d} at index {i}"
            raise RuntimeError(f"Dimension out of range ({said}).  NB: negative dims not currently supported; file an issue if you want it.")
        if d in order[:i]:
            raise RuntimeError("Duplicate dim not allowed")
    requires_grad = kwargs.pop("requires_grad", False)
    made = creation.empty([size[d] for d in order], **kwargs)
    return requiring(views.permute(made, tuple(map(order.index, range(n)))).detach(), requires_grad)


@public("torch.Tensor")
def new_empty_strided(self: Tensor, size: Any, stride: Any, **kwargs: Any) -> Tensor:
    """See `empty_strided`: with this tensor's dtype and device, where the keywords do not say otherwise."""
    check_options("new_empty_strided", kwargs)
    return _of_strides(views.as_dims((size,)), views.as_dims((stride,)), of_self(self, kwargs), self)


def _of_strides(size: tuple[int, ...], stride: tuple[int, ...], options: dict[str, Any], like: Tensor | None = None) -> Tensor:
    if len(size) != len(stride):
        raise RuntimeError(f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})")
    if any(n < 0 for n in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension {next(n for n in size if n < 0)}: {list(size)}")
    if 0 not in size and any(s < 0 for n, s in zip(size, stride, strict=True) if n > 1):
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}")
    steps = list(stride)
    for i in reversed(range(len(size))):
        if steps[i] < 0:  # of one element or none: PyTorch puts what row-major order would have there
            steps[i] = steps[i + 1] * max(size[i + 1], 1) if i + 1 < len(size) else 1
    requires_grad = options.pop("requires_grad", False)
    last = sum((n - 1) * s for n, s in zip(size, steps, strict=True)) if 0 not in size else -1
    memory = zeros(last + 1, **options)
    if like is not None:
        memory = mapped_as(memory, like)
    return requiring(as_strided(memory, size, tuple(steps)).detach(), requires_grad)


# ---------------------------------------------------------------------- joining


@public("torch", "torch.concat", "torch.concatenate")
def cat(tensors: Any, dim: int = 0, *, out: Any = None, axis: int | None = None) -> Tensor:
    """The tensors one after another along `dim`. ValueError for none, RuntimeError where other sizes differ."""
    found = tensors_in("cat", tensors)
    if not found:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    shapes = [t._aval.shape for t in found]
    if () in shapes:
        raise RuntimeError(f"zero-dimensional tensor (at position {shapes.index(())}) cannot be concatenated")
    first = next((s for s in shapes if s != (0,)), (0,))
    made = joined(copying.joined, "cat", found, wrap_dim(dim if axis is None else axis, len(first)))
    return made if out is None else with_out("cat", out, made, found)


@public("torch")
def stack(tensors: Any, dim: int = 0, *, out: Any = None) -> Tensor:
    """Tensors of one shape along a new dimension. RuntimeError for none, or where shapes differ."""
    found = tensors_in("stack", tensors)
    if not found:
        raise RuntimeError("stack expects a non-empty TensorList")
    dim = wrap_dim(dim, found[0]._aval.ndim + 1)
    made = joined(copying.stacked, "_stack", found, dim)
    if out is None and dim < found[0]._aval.ndim and not per_thread.recorder.inference and all([t.is_inference() for t in found]):
        made = views.view(views.view(made, -1), made._aval.shape)  # PyTorch joins them along `dim` and views that
    return made if out is None else with_out("stack", out, made, found)


def _joined(name: str, tensors: Any, rank: Any, dim: int, out: Any) -> Tensor:
    found = [rank(t) for t in tensors_in(name, tensors)]
    if not found:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return cat(found, dim, out=out)


@public("torch")
def hstack(tensors: Any, *, out: Any = None) -> Tensor:
    """The tensors side by side: along dimension 1, vectors along 0."""
    found = [atleast_1d(t) for t in tensors_in("hstack", tensors)]
    return _joined("hstack", found, lambda t: t, 0 if found and found[0]._aval.ndim == 1 else 1, out)


@public("torch", "torch.row_stack")
def vstack(tensors: Any, *, out: Any = None) -> Tensor:
    """The tensors one below another; vectors are rows."""
    return _joined("vstack", tensors, atleast_2d, 0, out)


@public("torch")
def dstack(tensors: Any, *, out: Any = None) -> Tensor:
    """The tensors along dimension 2."""
    return _joined("dstack", tensors, atleast_3d, 2, out)


@public("torch")
def column_stack(tensors: Any, *, out: Any = None) -> Tensor:
    """Vectors and numbers as columns, beside matrices."""
    return _joined("column_stack", tensors, lambda t: views.reshape(t, (t._aval.size, 1)) if t._aval.ndim <= 1 else t, 1, out)


@public("torch")
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of one matrix. RuntimeError for more than 2 dimensions."""
    found = elements_or_listed(tensors)
    for i, t in enumerate(found):
        if t._aval.ndim > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {t._aval.ndim} dimensions")
    return call("block_diag", found)


def _of_each(name: str, function: Any, tensors: tuple[Any, ...]) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return function(tensors[0])
    return tuple(function(t) for t in elements(listed(name, tensors[0]) if len(tensors) == 1 else tensors))


@public("torch")
def atleast_1d(*tensors: Any) -> Any:
    """Each tensor with at least one dimension."""
    return _of_each("atleast_1d", lambda t: t if t._aval.ndim else views.reshape(t, (1,)), tensors)


@public("torch")
def atleast_2d(*tensors: Any) -> Any:
    """Each tensor with at least two dimensions, new ones in front."""
    return _of_each("atleast_2d", lambda t: t if t._aval.ndim > 1 else views.unsqueeze(t, 0) if t._aval.ndim else views.reshape(t, (1, 1)), tensors)


def _three(t: Tensor) -> Tensor:
    ndim = t._aval.ndim
    if ndim == 0:
        return views.reshape(t, (1, 1, 1))
    if ndim == 1:
        return views.unsqueeze(views.unsqueeze(t, 0), -1)
    return views.unsqueeze(t, -1) if ndim == 2 else t


@public("torch")
def atleast_3d(*tensors: Any) -> Any:
    """Each tensor with at least three dimensions."""
    return _of_each("atleast_3d", _three, tensors)


# ---------------------------------------------------------------------- cutting


def _split_points(given: Tensor) -> Any:
    """The numbers in a tensor that says where to split, or into how many parts. RuntimeError with PyTorch's text for another kind of tensor."""
    if given._aval.dtype != np.int64:
        raise RuntimeError(f"tensor_split expected tensor_indices_or_sections to have dtype of long, but got {given.dtype.title}")
    if given._aval.ndim > 1:
        raise RuntimeError(
            f"tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but got a tensor with "
            f"{given._aval.ndim} dims"
        )
    return given.tolist()


@public("torch", "torch.Tensor")
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of nearly equal length along `dim`, or cut at given places."""
    if not input._aval.ndim:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    dim = wrap_dim(dim, input._aval.ndim)
    n = input._aval.shape[dim]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = _split_points(indices_or_sections)
    if isinstance(indices_or_sections, (tuple, list)):
        cuts = [0, *indices_or_sections, n]
    else:
        sections = int(indices_or_sections)
        if sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {sections}")
        cuts = [i * (n // sections) + min(i, n % sections) for i in range(sections + 1)]
    return tuple(views.slice_dim(input, dim, a, b, 1) for a, b in zip(cuts, cuts[1:], strict=False))


def _split_off(tensor: Tensor, by: Any, dim: int) -> tuple[Tensor, ...]:
    """As `split`, but the pieces are no views: they have memory of their own (PyTorch's share it, unnoticed)."""
    name, dim, parts = split_parts(tensor, by, dim)
    return apply(registry[f"unsafe_{name}"].bind((ARRAY, Static(dim), Static(tuple(parts)))), (tensor,))


@public("torch", "torch.Tensor")
def unsafe_split(tensor: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of `dim` of one size, which may be written to."""
    if not hasattr(split_size, "__index__"):
        raise TypeError(f"unsafe_split(): argument 'split_size' (position 1) must be int, not {type(split_size).__name__}")
    return _split_off(tensor, int(split_size), dim)


@public("torch", "torch.Tensor")
def unsafe_split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of `dim` of the given sizes, which may be written to."""
    return _split_off(input, list(split_sizes), dim)


@public("torch", "torch.Tensor")
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size along `dim`, which may be written to."""
    return _split_off(input, chunk_size(input, chunks, dim), dim)


def _even_split(name: str, least: int, dim: int) -> Any:
    def function(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
        ndim = input._aval.ndim
        if ndim < least:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {ndim} dimensions!")
        at = 0 if ndim == 1 else dim
        if not isinstance(indices_or_sections, (tuple, list)) and not hasattr(indices_or_sections, "__index__"):
            given = type(indices_or_sections).__name__
            raise TypeError(f"{name}() received an invalid combination of arguments - got (Tensor, {given}), but expected an int or a tuple of ints")
        if isinstance(indices_or_sections, int) and (indices_or_sections <= 0 or input._aval.shape[at] % indices_or_sections):
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {at}, but the size of the dimension {input._aval.shape[at]} is not divisible by "
                f"the split_size {indices_or_sections}!"
            )
        return tensor_split(input, indices_or_sections, at)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Views cut along dimension {dim}, in equal parts or at given places. RuntimeError where it is not divisible."
    return function


hsplit, vsplit, dsplit = _even_split("hsplit", 1, 1), _even_split("vsplit", 2, 0), _even_split("dsplit", 3, 2)
public("torch.hsplit", "torch.Tensor.hsplit")(hsplit)
public("torch.vsplit", "torch.Tensor.vsplit")(vsplit)
public("torch.dsplit", "torch.Tensor.dsplit")(dsplit)


# ---------------------------------------------------------------------- mirroring, rolling, repeating


@public("torch", "torch.Tensor")
def flip(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """The order along `dims` reversed, in a copy."""
    if not order and dims is None:
        raise TypeError('flip() missing 1 required positional arguments: "dims"')
    found = _wrapped_once(views.as_dims(order, dims), input._aval.ndim)
    return call("flip", input, found)


def _wrapped_once(dims: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    found: list[int] = []
    for d in dims:
        d = wrap_dim(d, ndim)
        if d in found:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        found.append(d)
    return tuple(found)


@public("torch", "torch.Tensor")
def fliplr(input: Tensor) -> Tensor:
    """Dimension 1 reversed."""
    if input._aval.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, 1)


@public("torch", "torch.Tensor")
def flipud(input: Tensor) -> Tensor:
    """Dimension 0 reversed."""
    if input._aval.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, 0)


@public("torch", "torch.Tensor")
def roll(input: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """The elements moved around along `dims`; along the flattened tensor without dims."""
    by = views.as_dims((shifts,)) if not isinstance(shifts, (tuple, list)) else tuple(shifts)
    along = () if dims is None else views.as_dims((dims,)) if not isinstance(dims, (tuple, list)) else tuple(dims)
    if not by:
        raise RuntimeError("`shifts` required")
    if len(by) != len(along) and not (not along and len(by) == 1):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(by)}, dims:{len(along)}")
    if along and not input._aval.ndim:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    return call("roll", input, by, tuple(wrap_dim(d, input._aval.ndim) for d in along))


@public("torch", "torch.Tensor")
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """The plane of two dimensions turned by `k` quarters, from the first towards the second."""
    ndim = input._aval.ndim
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {ndim}")
    if dims[0] == dims[1] or abs(dims[0] - dims[1]) == ndim:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    return call("rot90", input, int(k) % 4, (wrap_dim(dims[0], ndim), wrap_dim(dims[1], ndim)))


@public("torch.Tensor")
def repeat(input: Tensor, *counts: Any, repeats: Any = None) -> Tensor:
    """Copies of the whole tensor along each dimension. RuntimeError for fewer numbers than dimensions."""
    by = views.as_dims(counts, repeats)
    shape = input._aval.shape
    if len(by) < len(shape):
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    sizes = [r * n for r, n in zip(by, (1,) * (len(by) - len(shape)) + shape, strict=True)]
    for n in sizes:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {sizes}")
    return call("repeat", input, by)


@public("torch", "torch.Tensor")
def tile(input: Tensor, *counts: Any, dims: Any = None) -> Tensor:
    """As repeat, but numbers may be missing in front."""
    by = views.as_dims(counts, dims)
    return repeat(input, (1,) * (input._aval.ndim - len(by)) + by)


@public("torch", "torch.Tensor")
def repeat_interleave(input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Each slice of `dim` (each element without dim) repeated. Looks at `repeats` if it is a tensor.

    RuntimeError for an `output_size` that is not the size of the result along `dim`, which is known without it.
    """
    if repeats is None:
        return by_parts(partial(_places, None, output_size), input)
    if dim is None:
        input, dim = views.flatten(input), 0
    dim = wrap_dim(dim, input._aval.ndim)
    shape = input._aval.shape or (1,)
    if isinstance(repeats, Tensor) and repeats._aval.shape in ((), (1,)):
        repeats = views.expand(repeats, (shape[dim],)) if not repeats._content().readable else int(repeats.item())
    if isinstance(repeats, Tensor):
        return index_select(input, dim, by_parts(partial(_places, shape[dim], output_size), repeats))
    if repeats < 0:
        raise RuntimeError("Repeats must be non-negative")
    if output_size is not None and output_size != shape[dim] * repeats:
        raise RuntimeError(f"repeat_interleave: Invalid output_size, expected {shape[dim] * repeats} but got {output_size}")
    wide = views.unsqueeze(input if input._aval.ndim else views.reshape(input, shape), dim + 1)
    wide = views.clone(views.expand(wide, (*shape[: dim + 1], repeats, *shape[dim + 1 :])))
    return views.reshape(wide, (*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :]))


def _places(size: int | None, output_size: int | None, repeats: Tensor) -> Tensor:
    """Each place as often as `repeats` says. size: that `repeats` must have, if any. RuntimeError where it has not, or they are not `output_size`."""
    counts = _repeat_counts(repeats, size)
    if output_size is not None and output_size != counts.sum():
        raise RuntimeError("allocated size does not match required size")
    return _host(np.repeat(np.arange(counts.size, dtype=counts.dtype), counts), repeats)


def _repeat_counts(repeats: Tensor, size: int | None) -> np.ndarray:
    aval = repeats._aval
    if aval.ndim > 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    if size is not None and aval.size != size:
        raise RuntimeError(f"repeats must have the same size as input along dim, but got repeats.size(0) = {aval.size} and input.size(0) = {size}")
    if aval.dtype not in (np.int32, np.int64):
        raise NotImplementedError(f"\"repeat_interleave_cpu\" not implemented for '{repeats.dtype.title}'")
    counts = np.asarray(repeats._concrete())
    if (counts < 0).any():
        raise RuntimeError("repeats can not be negative")
    return counts


def _host(array: np.ndarray, like: Tensor) -> Tensor:
    return created(from_data(np.asarray(array, np.int64), None, like.device))


# ---------------------------------------------------------------------- diagonals, triangles


@public("torch", "torch.Tensor")
def diag(input: Tensor, diagonal: int = 0, *, out: Any = None) -> Tensor:
    """A vector as the diagonal of a matrix; the diagonal of a matrix as a vector, in a copy."""
    ndim = input._aval.ndim
    if ndim == 1:
        return with_out("diag", out, diag_embed(input, diagonal))
    if ndim == 2:
        return with_out("diag", out, call("diagonal_copy", input, int(diagonal), 0, 1))
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {ndim}D")


@public("torch", "torch.Tensor")
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension as a diagonal of two new ones."""
    ndim = input._aval.ndim + 1
    a, b = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return call("diag_embed", input, int(offset), a, b)


@public("torch", "torch.Tensor")
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The flattened tensor as the diagonal of a matrix."""
    return diag_embed(views.reshape(input, (-1,)), offset)


@public("torch.Tensor")
def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write a number to the main diagonal; where `wrap`, it begins again below the end of a tall matrix."""
    shape = self._aval.shape
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    (rows, columns), step = shape[:2], sum(self._strides())
    written = [(0, min(shape))]
    if wrap and len(shape) == 2:
        written += [(start, min(rows - start, columns)) for start in range(columns + 1, rows, columns + 1)]
    for start, length in written:
        offset = self._offset() + start * self._strides()[0]
        fill_(as_strided(self, (length,), (step,), offset), fill_value)
    return self


@lru_cache(64)
def _places_of_triangle(rows: int, columns: int, offset: int, lower: bool) -> np.ndarray:
    found = np.stack(np.nonzero(np.tri(rows, columns, offset, bool) if lower else ~np.tri(rows, columns, offset - 1, bool))).astype(np.int64)
    found.flags.writeable = False
    return found


def _triangle_indices(name: str, lower: bool) -> Any:
    def function(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = "cpu", **options: Any) -> Tensor:
        check_options(name, {"device": device, **options})
        for position, (what, n) in enumerate((("row", row), ("col", col), ("offset", offset)), 1):
            if not hasattr(n, "__index__") or isinstance(n, bool):
                raise TypeError(f"{name}(): argument '{what}' (position {position}) must be int, not {type(n).__name__}")
            if n < 0 and what != "offset":
                raise RuntimeError(f"{what} must be non-negative, got{n}")
        if dtype is not None and creation.checked_dtype(name, dtype) not in (dtypes.int32, dtypes.int64):
            raise NotImplementedError(f"\"{name}\" not implemented for '{creation.checked_dtype(name, dtype).title}'")
        made = created(from_data(_places_of_triangle(int(row), int(col), int(offset), lower), dtype or dtypes.int64, device))
        return creation.requiring(made, options.get("requires_grad", False))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Row and column numbers of a triangle's elements, in row-major order."
    return function


tril_indices, triu_indices = _triangle_indices("tril_indices", True), _triangle_indices("triu_indices", False)
public("torch.tril_indices")(tril_indices)
public("torch.triu_indices")(triu_indices)


# ---------------------------------------------------------------------- expanding


@public("torch")
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Views of the vectors expanded over the grid they span; "xy" exchanges the first two dimensions."""
    found = elements_or_listed(tensors)
    if indexing is None:
        warn_once("torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.")
        indexing = "ij"
    if not found:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for t in found:
        if t._aval.ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {t!r}")
        if t._aval.dtype != found[0]._aval.dtype:
            raise RuntimeError("meshgrid expects all tensors to have the same dtype")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    sizes = [t._aval.size for t in found]
    swap = indexing == "xy" and len(found) > 1
    places = [1, 0, *range(2, len(found))] if swap else list(range(len(found)))
    shape = [0] * len(found)
    for n, place in zip(sizes, places, strict=True):
        shape[place] = n
    return tuple(
        views.expand(views.view(t, [n if d == place else 1 for d in range(len(found))]), shape)
        for t, n, place in zip(found, sizes, places, strict=True)
    )


@public("torch", "torch.Tensor")
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """As expand."""
    return views.expand(input, size)


@public("torch")
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """The tensors expanded to one shape."""
    found = elements_or_listed(tensors)
    shape = broadcast_shapes(*(t._aval.shape for t in found)) if found else ()
    return tuple(t if t._aval.shape == shape else views.expand(t, shape) for t in found)


@public("torch.Tensor")
def sum_to_size(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """The sum over the dimensions along which `size` would have to expand. RuntimeError where it does not expand to the shape."""
    wanted, shape = views.as_dims(sizes, size), input._aval.shape
    lead = len(shape) - len(wanted)
    if lead < 0 or any(m not in (1, n) for n, m in zip(shape[lead:], wanted, strict=True)):
        raise RuntimeError(f"size {{{list(wanted)}}} is not expandable to size {{{list(shape)}}}.")
    if not wanted:  # a sum of what has no dimensions, too, so that integers become int64
        return input.sum()
    dims = [*range(lead), *(lead + i for i, m in enumerate(wanted) if m == 1 and shape[lead + i] != 1)]
    made = input.sum(dims, keepdim=True) if dims else input
    return views.view(made, wanted) if lead else made


@public("torch")
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """For each dimension of `shape`, the coordinates of elements whose places in row-major order are `indices`."""
    if indices._aval.dtype.kind not in "iu":
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype!r}")
    if not isinstance(shape, (int, tuple, list)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    for n in sizes:
        if not isinstance(n, int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(n)}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    indices = cast(indices, dtypes.int64)
    return tuple(indices.div(math.prod(sizes[d + 1 :]), rounding_mode="floor") % n for d, n in enumerate(sizes))


@public("torch", "torch.Tensor")
def ravel(input: Tensor) -> Tensor:
    """The elements in one dimension."""
    return views.view(views.contiguous(input), (-1,))


@public("torch")
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All tuples of one element of each vector, as rows; the vector itself if it is alone."""
    for t in elements(tensors):
        if t._aval.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t._aval.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([views.flatten(t) for t in meshgrid(*tensors, indexing="ij")], 1)


@public("torch")
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a vector, in order, as rows."""
    if input._aval.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input._aval.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return created(from_data(np.zeros(0), input.dtype, input.device))
    places = np.indices((input._aval.size,) * r)
    ordered = places[:-1] <= places[1:] if with_replacement else places[:-1] < places[1:]
    mask = created(from_data(ordered.all(0), None, input.device))
    return stack([masked_select(t, mask) for t in meshgrid(*(input,) * r, indexing="ij")], 1)
