"""What a mapped call is given, and where its results have the batch: as PyTorch checks both, with its texts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.views import narrow
from torchgrad_jax.lifting.trees import TreeSpec, broadcast, tree_flatten

Dims = Any


def name_of(func: Any) -> str:
    """What error messages call a function."""
    if hasattr(func, "__name__"):
        return func.__name__
    if isinstance(func, functools.partial):
        return f"functools.partial({name_of(func.func)}, ...)"
    return repr(func)


def checked_call(name: str, in_dims: Dims, args: tuple[Any, ...]) -> str:
    """What error messages call a mapped call. ValueError with PyTorch's texts where it has no arguments, or `in_dims` are of another kind."""
    call = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{call}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function with no inputs. "
            "The latter is unsupported."
        )
    return call


class Inputs:
    """The leaves of the positional arguments, the dimension (0 or more, or None) that each is mapped over, and the common size of these."""

    __slots__ = ("leaves", "dims", "spec", "size")
    leaves: list[Any]
    dims: list[int | None]
    spec: TreeSpec
    size: int

    def __init__(self, in_dims: Dims, args: tuple[Any, ...], func: Callable[..., Any]) -> None:
        """ValueError with PyTorch's texts where they do not fit."""
        call = checked_call(name_of(func), in_dims, args)
        self.leaves, self.spec = tree_flatten(args)
        dims = broadcast(in_dims, self.spec)
        if dims is None:
            raise ValueError(
                f"{call}: in_dims is not compatible with the structure of `inputs`. in_dims has structure {tree_flatten(in_dims)[1]} but inputs has "
                f"structure {self.spec}."
            )
        self.dims = [_input_dim(call, leaf, dim) for leaf, dim in zip(self.leaves, dims, strict=True)]
        self.size = self._common_size()

    def _common_size(self) -> int:
        sizes = [leaf.size(dim) for leaf, dim in zip(self.leaves, self.dims, strict=True) if dim is not None]
        if not sizes:
            raise ValueError("vmap: Expected at least one Tensor to vmap over")
        if any(size != sizes[0] for size in sizes):
            raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped dimension")
        return sizes[0]

    def part(self, start: int, length: int) -> list[Any]:
        """The leaves with `length` parts, from `start` on, of those that are mapped."""
        return [leaf if dim is None else narrow(leaf, dim, start, length) for leaf, dim in zip(self.leaves, self.dims, strict=True)]


def _input_dim(call: str, leaf: Any, dim: Any) -> int | None:
    """The dimension counted from the front, as it was checked."""
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise ValueError(f"{call}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None.")
    if not isinstance(leaf, Tensor):
        raise ValueError(
            f"{call}: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over non-Tensor arguments, please use None "
            "as the respective in_dim"
        )
    ndim = leaf.dim()
    if not -ndim <= dim < ndim:
        raise ValueError(
            f"{call}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {ndim} so expected in_dim to satisfy "
            f"-{ndim} <= in_dim < {ndim}."
        )
    return dim % ndim


def output_dims(name: str, out_dims: Dims, found: Any, spec: TreeSpec) -> list[Any]:
    """`out_dims` for each leaf of the results, whose structure is `spec`. ValueError where it is another tree than they are."""
    given = out_dims[0] if isinstance(found, Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1 else out_dims
    dims = broadcast(given, spec)
    if dims is None:
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of `outputs`. out_dims has structure "
            f"{tree_flatten(given)[1]} but outputs has structure {spec}."
        )
    return dims


def output_dim(name: str, level: Any, out: Any, dim: int | None) -> int | None:
    """The dimension of a result, counted from the front, as it was checked. ValueError for what is no tensor, or a batch with none; IndexError."""
    if dim is None:
        if isinstance(out, Tensor) and level.is_mapped(out):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return None
    if not isinstance(out, Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(out)}. Did you mean to set out_dims= to None for output?"
        )
    ndim = out.dim() + 1
    if not -ndim <= dim < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
    return dim % ndim
