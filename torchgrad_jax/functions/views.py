"""Functions that give views: arguments made canonical, strides worked out, the view linked to its base."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from torchgrad_jax.calling.kinds import integers, split_sizes
from torchgrad_jax.calling.public import public
from torchgrad_jax.core import strided
from torchgrad_jax.core.called import unary
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.duals import hold, laid_out_alike, passes, tangent_of
from torchgrad_jax.core.level import as_told
from torchgrad_jax.core.made import detached
from torchgrad_jax.core.order import lay_out_as, plain
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.core.viewing import asked_for, is_conj, is_neg, made_together, part_of, refuse_lost, viewed
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import ARRAY, BoundOperator, Static
from torchgrad_jax.declaration.refusals import NO_COMPLEX32
from torchgrad_jax.memory.formats import contiguous_format, preserve_format
from torchgrad_jax.memory.storage import View
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.views import view_strides
from torchgrad_jax.runtime.recorder import per_thread


def as_dims(dims: tuple[Any, ...], named: Any = None) -> tuple[int, ...]:
    """``f(2, 3)`` and ``f((2, 3))`` alike, and where the sequence was given by its name. TypeError for both at once."""
    if named is not None:
        if dims:
            raise TypeError("got a sequence of ints both by position and by name")
        dims = (named,)
    if len(dims) == 1 and isinstance(dims[0], (tuple, list)):
        dims = tuple(dims[0])
    return dims if _are_ints(map(type, dims)) else tuple([d.__index__() for d in dims])


_are_ints = frozenset((int,)).issuperset


# ---------------------------------------------------------------------- parts


@public("torch", "torch.Tensor")
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice at `index` of `dim`, without that dimension. IndexError where it is out of range."""
    shape = input._aval.shape
    if not shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim(dim, len(shape))
    index = index.__index__()
    n = shape[dim]
    if not -n <= index < n:
        refuse_lost(input)
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(shape)} at dimension {dim}"
        )  # fmt: skip
    out = part_of("select", input, index + n if index < 0 else index, (dim,))
    if View.replayed_somewhere:
        asked_for(out, input, lambda t, given: select(t, dim, given(index)))
    return out


def slice_dim(t: Tensor, dim: int, start: int, stop: int, step: int) -> Tensor:
    """Elements `start`, `start + step` ... before `stop` of `dim`; bounds beyond the dimension are moved to its ends."""
    n = t._aval.shape[dim]
    first, last, step = slice(start, stop, step).indices(n)
    out = part_of("slice", t, first, (dim, max(0, -(-(last - first) // step)), step))
    if View.replayed_somewhere:
        asked_for(out, t, lambda t, given: slice_dim(t, dim, given(start), given(stop), given(step)))
    return out


@public("torch", "torch.Tensor")
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """`length` elements of `dim` from `start` (an int or a 0-dim tensor) on."""
    if not input._aval.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim(dim, input._aval.ndim)
    n = input._aval.shape[dim]
    if isinstance(start, Tensor):
        if start._aval.ndim or start._aval.dtype.kind not in "iu":
            raise RuntimeError("start must be an 0-dim integral Tensor.")
        start = start.item()
    if not hasattr(start, "__index__"):
        raise TypeError(f"narrow(): argument 'start' (position 3) must be int, not {type(start).__name__}")
    start = start.__index__()
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    start = start + n if start < 0 else start
    if start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return part_of("slice", input, start, (dim, length, 1))


# ---------------------------------------------------------------------- order of dimensions


@public("torch", "torch.swapaxes", "torch.swapdims", "torch.Tensor", "torch.Tensor.swapaxes", "torch.Tensor.swapdims")
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    if type(dim0) is not int or type(dim1) is not int:
        for position, (label, dim) in enumerate((("dim0", dim0), ("dim1", dim1)), 1):
            if not hasattr(dim, "__index__"):
                raise TypeError(f"transpose(): argument '{label}' (position {position}) must be int, not {type(dim).__name__}")
    ndim = input._aval.ndim
    dim0, dim1 = wrap_dim(dim0, ndim), wrap_dim(dim1, ndim)
    return viewed("transpose", input, dim0, dim1)


@public("torch", "torch.Tensor")
def t(input: Tensor) -> Tensor:
    """A matrix transposed; a vector as it is. RuntimeError for more than 2 dimensions."""
    if input._aval.ndim > 2:
        refuse_lost(input)
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input._aval.ndim}D")
    return viewed("t", input)


@public("torch", "torch.Tensor")
def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """The dimensions in the order `dims`."""
    ndim = input._aval.ndim
    order = as_dims(order, dims)
    if len(order) != ndim:
        refuse_lost(input)
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions "
            f"i.e. input.dim() = {ndim} is not equal to len(dims) = {len(order)}"
        )  # fmt: skip
    wrapped = _wrapped(order, ndim)
    if len(set(wrapped)) != ndim:
        refuse_lost(input)
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return viewed("permute", input, wrapped)


@lru_cache(1024)
def _wrapped(dims: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    return tuple([wrap_dim(d, ndim) for d in dims])


@public("torch", "torch.moveaxis", "torch.Tensor", "torch.Tensor.moveaxis")
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions `source` moved to the places `destination`, the others in their order."""
    ndim = input._aval.ndim
    given = [list(dims) if isinstance(dims, (tuple, list)) else [dims] for dims in (source, destination)]
    if len(given[0]) != len(given[1]):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({given[0]} dims) should contain the same number of dims as destination "
            f"({given[1]} dims)"
        )
    sources, targets = ([wrap_dim(d, ndim) for d in dims] for dims in given)
    for name, dims, wrapped in (("source", given[0], sources), ("destination", given[1], targets)):
        if len(set(wrapped)) < len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({dims})")
    if not ndim:
        return viewed("alias", input)
    order = [d for d in range(ndim) if d not in sources]
    for target, origin in sorted(zip(targets, sources, strict=True)):
        order.insert(target, origin)
    return viewed("permute", input, tuple(order))


# ---------------------------------------------------------------------- shapes


def infer_size(size: Sequence[int], numel: int) -> tuple[int, ...]:
    """`size` with its -1 worked out. RuntimeError with PyTorch's text where it does not hold `numel` elements."""
    known, unknown = 1, None
    for i, n in enumerate(size):
        if n == -1:
            if unknown is not None:
                raise RuntimeError("only one dimension can be inferred")
            unknown = i
        elif n < 0:
            raise RuntimeError(f"invalid shape dimension {n} at index {i} of shape {list(size)}")
        else:
            known *= n
    if unknown is None:
        if known != numel:
            raise RuntimeError(f"shape '{list(size)}' is invalid for input of size {numel}")
        return tuple(size)
    if known == 0 and numel == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(size)} because the unspecified dimension size -1 can be any value and is ambiguous"
        )
    if known == 0 or numel % known:
        raise RuntimeError(f"shape '{list(size)}' is invalid for input of size {numel}")
    return (*size[:unknown], numel // known, *size[unknown + 1 :])


_inferred = lru_cache(4096)(infer_size)


@public("torch.Tensor")
def view(input: Tensor, *shape: Any, size: Any = None, dtype: Any = None) -> Tensor:
    """The same memory in another shape, or as another dtype. RuntimeError where strides do not allow it."""
    kind = dtype if dtype is not None else shape[0] if len(shape) == 1 and isinstance(shape[0], dtypes.dtype) else None
    if kind is not None:
        if kind is input.dtype:
            return viewed("alias", input)
        return strided.reinterpreted(input, kind)
    dims = as_dims(shape, size)
    return _shaped(input, dims, _inferred(dims, input._aval.size))


def _shaped(input: Tensor, asked: tuple[int, ...], size: tuple[int, ...]) -> Tensor:
    out = viewed("view", input, size)
    if View.replayed_somewhere:
        asked_for(out, input, lambda t, given: view(t, *map(given, asked)))
    return out


@public("torch", "torch.Tensor")
def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """The elements in another shape: a view where strides allow it, else a copy."""
    dims = as_dims(sizes, shape)
    return in_shape(input, _inferred(dims, input._aval.size), dims)


def in_shape(input: Tensor, size: tuple[int, ...], asked: tuple[int, ...] | None = None) -> Tensor:
    """`reshape` to a size that has as many elements. asked: what the user wrote for it."""
    if input._view is None or plain(input) or input.is_contiguous():
        return _shaped(input, asked or size, size)
    if view_strides(input._aval.shape, input._strides(), size) is not None:
        return viewed("_reshape_alias", input, size)
    return unsafe_view(_copied_in_rows(input), size)


def unsafe_view(made: Tensor, size: tuple[int, ...]) -> Tensor:
    """A new tensor that nobody else has, in another shape: no view of it."""
    return _unsafe_view(size)(made)


@lru_cache(4096)
def _unsafe_view(size: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    bound = registry["_unsafe_view"].bind((ARRAY, Static(size)))
    return unary(bound, "_unsafe_view", lambda made: apply(bound, (made,)))


def _clone_in_rows() -> Callable[[Tensor], Tensor]:
    bound = BoundOperator(_CLONE.operator, _CLONE.layout, _CLONE.device)
    bound.keeps_order = False
    return unary(bound, "clone", lambda input: apply(bound, (input,)))


@public("torch", "torch.Tensor")
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dimensions from `start_dim` to `end_dim` as one."""
    shape = input._aval.shape
    start, end = wrap_dim(start_dim, len(shape)), wrap_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not shape:
        return reshape(input, (1,))
    if start == end:
        return input
    size = 1
    for n in shape[start : end + 1]:
        size *= n
    return reshape(input, (*shape[:start], size, *shape[end + 1 :]))


@public("torch", "torch.Tensor")
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dimension as several."""
    shape = input._aval.shape
    dim, sizes = wrap_dim(dim, len(shape)), tuple(integers(sizes, "unflatten(): argument 'sizes'"))
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if not shape:
        raise RuntimeError("unflatten got an unexpected error:\nDimension specified as 0 but tensor has no dimensions")
    try:
        inferred = infer_size(sizes, shape[dim])
    except RuntimeError as error:
        if "is invalid for input of size" in str(error):
            raise RuntimeError(
                f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} ({shape[dim]}) in the input tensor"
            ) from None
        raise RuntimeError(f"unflatten got an unexpected error:\n{error}") from None
    return view(input, (*shape[:dim], *inferred, *shape[dim + 1 :]))


@public("torch", "torch.Tensor")
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A dimension of size 1 put in at `dim`."""
    return viewed("unsqueeze", input, wrap_dim(dim, input._aval.ndim + 1))


@public("torch", "torch.Tensor")
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without its dimensions of size 1, or without those of `dim` that are."""
    shape = input._aval.shape
    if dim is None:
        return viewed("squeeze", input, tuple(i for i, n in enumerate(shape) if n == 1))
    several = isinstance(dim, (tuple, list))
    wrapped = [wrap_dim(d, len(shape)) for d in (dim if several else (dim,))]
    return viewed("squeeze_dims" if several else "squeeze_dim", input, tuple(sorted({d for d in wrapped if shape and shape[d] == 1})))


@public("torch.Tensor")
def expand(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Dimensions of size 1 repeated, and new ones in front, without memory. -1 keeps a size."""
    shape = input._aval.shape
    wanted = as_dims(sizes, size)
    full = _expanded(shape, wanted)
    if full is None:
        _refuse_expansion(input, shape, wanted)
    return expanded(input, full, wanted)


def expanded(input: Tensor, full: tuple[int, ...], wanted: tuple[int, ...]) -> Tensor:
    """`expand` to sizes that it can be expanded to. wanted: what was asked for."""
    out = viewed("expand", input, full)
    if View.replayed_somewhere:
        asked_for(out, input, lambda t, given: expand(t, *map(given, wanted)))
    return out


@lru_cache(4096)
def _expanded(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    """The sizes of a tensor of `shape` expanded to those `wanted`, None where it cannot be."""
    new = len(wanted) - len(shape)
    if new < 0:
        return None
    full = []
    for i, n in enumerate(wanted):
        old = shape[i - new] if i >= new else None
        if (n == -1 and old is None) or (n != -1 and old is not None and old not in (1, n)):
            return None
        full.append(old if n == -1 and old is not None else n)
    return tuple(full)


def _refuse_expansion(input: Tensor, shape: tuple[int, ...], wanted: tuple[int, ...]) -> NoReturn:
    new = len(wanted) - len(shape)
    if new < 0:
        raise RuntimeError(
            f"expand({input.dtype.tensor_type}{{{list(shape)}}}, size={list(wanted)}): the number of sizes provided ({len(wanted)}) must be "
            f"greater or equal to the number of dimensions in the tensor ({len(shape)})"
        )
    for i, n in reversed(list(enumerate(wanted))):
        old = shape[i - new] if i >= new else None
        if n == -1 and old is None:
            raise RuntimeError(f"The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {i}")
        if n != -1 and old is not None and old not in (1, n):
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({old}) at non-singleton dimension {i}.  "
                f"Target sizes: {list(wanted)}.  Tensor sizes: {list(shape)}"
            )
    raise AssertionError("it can be expanded")


@public("torch", "torch.Tensor")
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two dimensions, as the last dimension of a view."""
    ndim = input._aval.ndim
    try:
        a, b = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    except IndexError:
        refuse_lost(input)
        raise
    if a == b:
        refuse_lost(input)
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return viewed("diagonal", input, offset, a, b)


@public("torch.Tensor")
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """All windows of `size` along `dimension`, `step` apart, as a new last dimension."""
    shape = input._aval.shape
    dim = wrap_dim(dimension, len(shape))
    n = shape[dim] if shape else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > n:
        refuse_lost(input)
        raise RuntimeError(f"maximum size for tensor at dimension {dim} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    return viewed("unfold", input, dim, size, step)


@public("torch")
def view_as_real(input: Tensor) -> Tensor:
    """Complex numbers as pairs in a last dimension. RuntimeError for real tensors, and for conjugated views."""
    if not input.is_complex():
        raise RuntimeError("view_as_real is only supported for complex tensors")
    if is_conj(input):
        raise RuntimeError(
            "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view it as real, use "
            "self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the original."
        )
    return parts(input)


def parts(input: Tensor) -> Tensor:
    """`view_as_real` of a conjugated view too."""
    return _at(viewed("view_as_real", input), 2 * input._offset())


# ---------------------------------------------------------------------- complex numbers


def real(input: Tensor) -> Tensor:
    """The real part, as a view; a real tensor itself."""
    return select(parts(input), -1, 0) if input._aval.dtype.kind == "c" else input


def imag(input: Tensor) -> Tensor:
    """The imaginary part, as a view. RuntimeError for real tensors."""
    if input._aval.dtype.kind != "c":
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return select(parts(input), -1, 1)


def conj(input: Tensor) -> Tensor:
    """The complex conjugate, as a view; a real tensor itself."""
    return viewed("_conj", input) if input._aval.dtype.kind == "c" else input


def resolve_conj(input: Tensor) -> Tensor:
    """The tensor with its content in memory: a copy where it `is_conj`, else itself."""
    return clone(input) if is_conj(input) else input


def resolve_neg(input: Tensor) -> Tensor:
    """The tensor with its content in memory: a copy where it `is_neg`, else itself."""
    return clone(input) if is_neg(input) else input


@public("torch")
def view_as_complex(input: Tensor) -> Tensor:
    """Pairs in the last dimension as complex numbers. RuntimeError where there are none, or strides do not allow it."""
    shape, strides = input._aval.shape, input._strides()
    if input._aval.dtype not in (np.float16, np.float32, np.float64):
        raise RuntimeError(
            f"view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: {input.dtype.title}"
        )
    if not shape or shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2" if shape else "Input tensor must have one or more dimensions")
    if strides[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % 2 for s in strides[:-1]):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if input._offset() % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    if input._aval.dtype == np.float16:
        raise RuntimeError(NO_COMPLEX32)
    return _at(viewed("view_as_complex", input), input._offset() // 2)


def _at(t: Tensor, offset: int) -> Tensor:
    """The view with its offset counted in elements of its own dtype."""
    assert t._view is not None
    t._view.offset = offset
    return t


# ---------------------------------------------------------------------- several views


def _several(name: str, node: str, t: Tensor, dim: int, parts: list[tuple[int, int]], drop: bool) -> tuple[Tensor, ...]:
    """Parts ``(start, length)`` of `dim` as views that one node makes."""
    outs = apply(registry[name].bind((ARRAY, Static(dim), Static(tuple(parts)))), (t,))
    return made_together(t, outs, dim, parts, drop, node)


@public("torch", "torch.Tensor")
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`."""
    shape = input._aval.shape
    if not shape:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    dim = wrap_dim(dim, len(shape))
    if not shape[dim]:
        return ()
    made = _several("unbind", "UnbindBackward0", input, dim, [(i, 1) for i in range(shape[dim])], True)
    if View.replayed_somewhere:
        for i, out in enumerate(made):
            asked_for(out, input, lambda t, given, i=i: unbind(t, dim)[i])
    return made


@public("torch", "torch.Tensor")
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of `dim`: of one size (the last may be shorter), or of the sizes of a list."""
    name, dim, parts = split_parts(tensor, split_size_or_sections, dim)
    made = _several(name, "SplitBackward0" if name == "split" else "SplitWithSizesBackward0", tensor, dim, parts, False)
    if View.replayed_somewhere:
        asked = split_size_or_sections
        for i, out in enumerate(made):
            if name == "split":
                asked_for(out, tensor, lambda t, given, i=i: split(t, given(int(asked)), dim)[i])
            else:
                asked_for(out, tensor, lambda t, given, i=i: split(t, list(map(given, asked)), dim)[i])
    return made


def split_parts(tensor: Tensor, split_size_or_sections: Any, dim: int) -> tuple[str, int, list[tuple[int, int]]]:
    """The operator that splits, `dim` counted from the front, and (start, length) of each piece. RuntimeError where there are none."""
    shape = tensor._aval.shape
    if not shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    dim = wrap_dim(dim, len(shape))
    n, by = shape[dim], split_size_or_sections
    if isinstance(by, Tensor) and by._aval.size == 1:
        by = int(by)
    if isinstance(by, int) and not isinstance(by, bool):
        size = int(by)
        if size < 0:
            raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
        if size == 0 and n:
            raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}")
        sizes = [size] * (n // size) + ([n % size] if n % size else []) if n else [0]
        name = "split"
    else:
        name, sizes = "split_with_sizes", split_sizes(by)
        if sum(sizes) != n:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at dimension {dim}), but got split_sizes={sizes}"
            )
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return name, dim, list(zip(starts, sizes, strict=True))


@public("torch", "torch.Tensor")
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of `dim` of the given sizes."""
    return split(input, list(split_sizes), dim)


@public("torch", "torch.Tensor")
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size along `dim`; the last may be shorter."""
    return split(input, chunk_size(input, chunks, dim), dim)


def chunk_size(input: Tensor, chunks: int, dim: int) -> Any:
    """What to split by for `chunks` pieces. RuntimeError for none."""
    if not input._aval.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = input._aval.shape[wrap_dim(dim, input._aval.ndim)]
    size = -(-n // chunks)
    return size or [0] * chunks


# ---------------------------------------------------------------------- copies and twins


@public("torch", "torch.Tensor")
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy with memory of its own, part of the graph."""
    made = apply(_CLONE, (input,))
    return made if memory_format is None else lay_out_as(made, memory_format)


_CLONE = registry["clone"].bind((ARRAY,))
_copied_in_rows = _clone_in_rows()


@public("torch.Tensor")
def contiguous(input: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself if it is in row-major order (or the order of `memory_format`), else a copy that is."""
    if input.is_contiguous() if memory_format is None else input.is_contiguous(memory_format=memory_format):
        return input
    if memory_format is preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    return clone(input, memory_format=contiguous_format if memory_format is None else memory_format)


@public("torch", "torch.Tensor")
def detach(input: Tensor) -> Tensor:
    """A tensor on the same memory without history."""
    return detached(input)


@public("torch", "torch.Tensor")
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Elements of the tensor's memory by strides, counted from `storage_offset`, its own where None. RuntimeError for what is not in it."""
    found = as_told(input, tuple(size), tuple(stride), storage_offset)
    if found is NotImplemented:
        return strided.as_strided(input, size, stride, storage_offset)
    if passes(per_thread.recorder) and (tangent := tangent_of(input)) is not None:
        hold(found, as_strided(laid_out_alike(input, tangent), size, stride, storage_offset))
    return found
