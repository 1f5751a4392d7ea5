"""`torch._vmap_internals`: what PyTorch's own code about autograd uses to compute for a batch at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.func.mapped import checked_call
from torchgrad_jax.lifting.basis import mapped

__all__ = ["_vmap"]


def _vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, allow_none_pass_through: bool = False) -> Callable[..., Any]:
    """`func` mapped over a dimension of its tensors: for each part it sees tensors without that dimension, and its results are stacked.

    in_dims: the dimension that is mapped over, for all arguments or a tuple with one for each of them (nested where an argument is); None where an
    argument is not mapped. out_dims: where the batch is in each result. ValueError where they do not fit, RuntimeError where `func` looks at
    a value, or writes with what is mapped to what is not.
    """
    name = getattr(func, "__name__", repr(func))

    @functools.wraps(func)
    def call(*args: Any) -> Any:
        _check_out_dims(name, out_dims)
        leaves, dims = _flat_with_dims(name, in_dims, args)
        places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
        _check_sizes(leaves, dims)
        shape: list[Any] = []

        def of_tensors(*tensors: Tensor) -> list[Tensor]:
            filled = list(leaves)
            for i, t in zip(places, tensors, strict=True):
                filled[i] = t
            found = func(*_unflatten(args, iter(filled)))
            outs = list(found) if isinstance(found, tuple) else [found]
            _check_results(name, outs, isinstance(found, tuple), allow_none_pass_through)
            shape[:] = [isinstance(found, tuple), [o is None for o in outs]]
            return [o for o in outs if o is not None]

        made = iter(mapped(of_tensors, [leaves[i] for i in places], [dims[i] for i in places]))
        several, missing = shape
        outs = [None if there else next(made) for there in missing]
        return _placed(name, outs, out_dims) if several else _placed(name, outs, out_dims)[0]

    return call


def _check_out_dims(name: str, out_dims: Any) -> None:
    if not (isinstance(out_dims, int) or (isinstance(out_dims, tuple) and all(isinstance(d, int) for d in out_dims))):
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int or a tuple of int representing where in the outputs the vmapped "
            "dimension should appear."
        )


def _flat_with_dims(name: str, in_dims: Any, args: tuple[Any, ...]) -> tuple[list[Any], list[int | None]]:
    """What is in the arguments, with the dimension that each is mapped over. ValueError with PyTorch's texts."""
    call = checked_call(name, in_dims, args)
    leaves: list[Any] = []
    dims: list[int | None] = []
    if not _flatten(args, in_dims, leaves, dims):
        raise ValueError(f"{call}: in_dims is not compatible with the structure of `inputs`.")
    for x, dim in zip(leaves, dims, strict=True):
        if dim is None:
            continue
        if not isinstance(x, Tensor):
            raise ValueError(
                f"{call}: Got in_dim={dim} for an input but the input is of type {type(x)}. We cannot vmap over non-Tensor arguments, please use "
                "None as the respective in_dim"
            )
        if not 0 <= dim < x.dim():
            raise ValueError(
                f"{call}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {x.dim()} so expected in_dim to satisfy "
                f"0 <= in_dim < {x.dim()}."
            )
    return leaves, dims


def _flatten(tree: Any, dims: Any, leaves: list[Any], found: list[int | None]) -> bool:
    """Append what is in a nested structure; False where the structure of the dimensions is another."""
    if not isinstance(tree, (tuple, list, dict)):
        leaves.append(tree)
        found.append(dims)
        return dims is None or isinstance(dims, int)
    parts = list(tree.values()) if isinstance(tree, dict) else list(tree)
    if dims is None or isinstance(dims, int):
        return all([_flatten(part, dims, leaves, found) for part in parts])
    if type(dims) is not type(tree) or len(dims) != len(parts):
        return False
    of_parts = list(dims.values()) if isinstance(dims, dict) else list(dims)
    return all([_flatten(part, dim, leaves, found) for part, dim in zip(parts, of_parts, strict=True)])


def _unflatten(tree: Any, leaves: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _unflatten(part, leaves) for key, part in tree.items()}
    if isinstance(tree, (tuple, list)):
        parts = [_unflatten(part, leaves) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return next(leaves)


def _check_sizes(leaves: list[Any], dims: list[int | None]) -> None:
    sizes = [x.shape[dim] for x, dim in zip(leaves, dims, strict=True) if dim is not None]
    if not sizes:
        raise ValueError("vmap: at least one input must be mapped over, but every in_dim is None")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped dimension")


def _check_results(name: str, outs: list[Any], several: bool, allow_none: bool) -> None:
    for i, o in enumerate(outs):
        if isinstance(o, Tensor) or (o is None and allow_none):
            continue
        which = f"for return {i}" if several else "as the return"
        raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(o)} {which}.")


def _placed(name: str, outs: list[Any], out_dims: Any) -> tuple[Any, ...]:
    dims = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(outs)
    if len(dims) != len(outs):
        raise ValueError(f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must have one dim per output (got {len(outs)} outputs) of {name}.")
    return tuple([o if o is None or dim == 0 else o.movedim(0, dim) for o, dim in zip(outs, dims, strict=True)])
