"""What views show, in memory of its own: `X_copy` for each function X that gives a view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.calling.out import with_out, write_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.made import detached
from torchgrad_jax.core.strided import as_strided
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.core.viewing import viewed
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.functions import views
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.operators import registry


def _of_view(name: str, view_of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The copying twin of a function that gives a view by one operation: what a view of the detached tensor was made by is done to the tensor."""

    def function(input: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Tensor:
        seen = view_of(detached(input), *args, **kwargs)
        assert seen._view is not None
        link = seen._view.links[-1]
        twin = registry[f"{link.read.operator.name}_copy"].bind(link.read.layout)
        return with_out(name, out, apply(twin, (input, *link.numbers)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"As `{name.removesuffix('_copy')}`, in a copy. {view_of.__doc__}"
    return function


def _slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """Every `step`-th slice of `dim` from start to end."""
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    if not input._aval.ndim:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim(dim, input._aval.ndim)
    begin, length = _span(input._aval.shape[dim], start, end, step)
    return views.part_of("slice", input, begin, (dim, length, step))


def _span(size: int, start: int | None, end: int | None, step: int) -> tuple[int, int]:
    first, last, _ = slice(start, end, step).indices(size)
    return first, max(0, -(-(last - first) // step))


def _alias(input: Tensor) -> Tensor:
    """The tensor itself."""
    return viewed("alias", input)


_STRIDED_COPY = _of_view("as_strided_copy", as_strided)


@public("torch")
def as_strided_copy(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None, *, out: Any = None) -> Tensor:
    """As `as_strided`, in a copy."""
    if input._view is None:
        return _STRIDED_COPY(input, size, stride, storage_offset, out=out)
    return with_out("as_strided_copy", out, views.clone(as_strided(input, size, stride, storage_offset)))


@public("torch", "torch.Tensor")
def narrow_copy(input: Tensor, dim: int, start: Any, length: int, *, out: Any = None) -> Tensor:
    """A copy of `length` elements of `dim` from `start` (an int or a 0-dim tensor) on."""
    seen = views.narrow(detached(input), dim, start, length)
    assert seen._view is not None
    return with_out("narrow_copy", out, call("narrow_copy", input, wrap_dim(dim, input._aval.ndim), *seen._view.links[-1].numbers, length))


def _several(name: str, input: Tensor, dim: int, parts: list[tuple[int, int]], out: Any) -> Any:
    """A tuple; None where it is written to `out`, as PyTorch's functions of this kind return."""
    made = apply(registry[name].bind((ARRAY, Static(dim), Static(tuple(parts)))), (input,))
    if out is None:
        return made
    write_out(name, out, made)
    return None


@public("torch")
def unbind_copy(input: Tensor, dim: int = 0, *, out: Any = None) -> Any:
    """As `unbind`, in copies."""
    if not input._aval.ndim:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    dim = wrap_dim(dim, input._aval.ndim)
    return _several("unbind_copy", input, dim, [(i, 1) for i in range(input._aval.shape[dim])], out)


@public("torch")
def split_copy(input: Tensor, split_size: int, dim: int = 0, *, out: Any = None) -> Any:
    """As `split` by one size, in copies."""
    if not hasattr(split_size, "__index__"):
        raise TypeError(f"split_copy(): argument 'split_size' (position 2) must be int, not {type(split_size).__name__}")
    return _several("split_copy", input, *views.split_parts(input, int(split_size), dim)[1:], out)


@public("torch")
def split_with_sizes_copy(input: Tensor, split_sizes: Any, dim: int = 0, *, out: Any = None) -> Any:
    """As `split_with_sizes`, in copies."""
    return _several("split_with_sizes_copy", input, *views.split_parts(input, list(split_sizes), dim)[1:], out)


@public("torch")
def detach_copy(input: Tensor, *, out: Any = None) -> Tensor:
    """A copy. Where `input` requires grad so does it, but it has no derivative."""
    return with_out("detach_copy", out, call("detach_copy", input))


for _name, _function in {
    "alias": _alias, "diagonal": views.diagonal, "expand": views.expand, "permute": views.permute, "select": views.select, "slice": _slice,
    "squeeze": views.squeeze, "t": views.t, "transpose": views.transpose, "unfold": views.unfold, "unsqueeze": views.unsqueeze, "view": views.view,
    "view_as_complex": views.view_as_complex, "view_as_real": views.view_as_real,
}.items():  # fmt: skip
    public("torch")(_of_view(f"{_name}_copy", _function))


@public("torch", "torch.Tensor")
def slice_inverse(input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """The part of a slice's memory that is where `src`, the tensor that was sliced, is in its own: `src` again. As in PyTorch the slice itself, which
    the other arguments tell, makes no difference."""
    return as_strided(input, src._aval.shape, src._strides(), src._offset())
