"""`torch._functorch.vmap`: the steps of a mapped call under PyTorch's names.

A package whose containers know by themselves how they are mapped puts functions of its own in the place of these, as tensordict does; `vmap` goes by
them then, and by its own, shorter way where nobody did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.func.mapped import Dims, Inputs, output_dim, output_dims
from torchgrad_jax.func.mapped import name_of as _get_name
from torchgrad_jax.lifting.levels import add_batch_dim as _add_batch_dim
from torchgrad_jax.lifting.levels import batch_level, open_batch_level
from torchgrad_jax.lifting.levels import remove_batch_dim as _remove_batch_dim
from torchgrad_jax.lifting.trees import TreeSpec, tree_flatten, tree_unflatten
from torchgrad_jax.lifting.trees import broadcast as _broadcast_to_and_flatten

__all__ = [
    "Tensor", "_add_batch_dim", "_broadcast_to_and_flatten", "_create_batched_inputs", "_get_name", "_maybe_remove_batch_dim",
    "_process_batched_inputs", "_remove_batch_dim", "_unwrap_batched", "tree_flatten", "tree_unflatten",
]  # fmt: skip


def _process_batched_inputs(in_dims: Dims, args: tuple[Any, ...], func: Callable[..., Any]) -> tuple[int, list[int | None], list[Any], TreeSpec]:
    """The size of the batch, the dimension of each leaf of the arguments, the leaves, and their structure."""
    inputs = Inputs(in_dims, args, func)
    return inputs.size, inputs.dims, inputs.leaves, inputs.spec


def _create_batched_inputs(flat_in_dims: list[int | None], flat_args: list[Any], vmap_level: int, args_spec: TreeSpec) -> Any:
    """The arguments as the function is given them in the level of this depth."""
    inside = [arg if dim is None else _add_batch_dim(arg, dim, vmap_level) for dim, arg in zip(flat_in_dims, flat_args, strict=True)]
    return args_spec.unflatten(inside)


def _maybe_remove_batch_dim(name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: int | None) -> Any:
    """A result outside of the level. ValueError for a batch whose `out_dim` is None, and for what is no tensor where it is not."""
    dim = output_dim(name, open_batch_level(vmap_level), batched_output, out_dim)
    return batched_output if dim is None else _remove_batch_dim(batched_output, vmap_level, batch_size, dim)


def _unwrap_batched(batched_outputs: Any, out_dims: Dims, vmap_level: int, batch_size: int, func: Callable[..., Any]) -> Any:
    """The results outside of the level. ValueError where `out_dims` is another tree than they are."""
    name, (outs, spec) = _get_name(func), tree_flatten(batched_outputs)
    dims = output_dims(name, out_dims, batched_outputs, spec)
    return spec.unflatten([_maybe_remove_batch_dim(name, out, vmap_level, batch_size, dim) for out, dim in zip(outs, dims, strict=True)])


_ours = _process_batched_inputs, _create_batched_inputs, _unwrap_batched


def are_replaced() -> bool:
    """Whether somebody put other steps in the place of these."""
    return (_process_batched_inputs, _create_batched_inputs, _unwrap_batched) != _ours


def carried_out(func: Callable[..., Any], in_dims: Dims, out_dims: Dims, randomness: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of a mapped call, by the steps that are here now."""
    size, dims, leaves, spec = _process_batched_inputs(in_dims, args, func)
    with batch_level(size, randomness) as level:
        inside = _create_batched_inputs(dims, leaves, level.depth, spec)
        return _unwrap_batched(func(*inside, **kwargs), out_dims, level.depth, size, func)
