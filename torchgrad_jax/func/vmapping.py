"""`vmap`: the arguments, sizes, chunks and results of a mapped call. How operations are mapped is the level's to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.func.mapped import Inputs, name_of, output_dim, output_dims
from torchgrad_jax.func.vmap_steps import are_replaced, carried_out
from torchgrad_jax.functions.random import get_rng_state, set_rng_state
from torchgrad_jax.functions.shaping import cat
from torchgrad_jax.lifting.levels import batch_level
from torchgrad_jax.lifting.remembered import transform
from torchgrad_jax.lifting.trees import TreeSpec, tree_flatten, tree_leaves

RANDOMNESS = ("error", "different", "same")
Dims = Any


def vmap(
    func: Callable[..., Any], in_dims: Dims = 0, out_dims: Dims = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable[..., Any]:
    """`func` mapped over a dimension of its arguments: it sees tensors without that dimension, and its results have one more.

    in_dims: the dimension of the arguments that is mapped over: an int for all of them, or a tuple with an int or None (not mapped) for each, nested
    as the arguments are. out_dims: where the batch stands in the results, nested as they are; None for what is not mapped, which need not be a
    tensor. randomness: random operations raise ("error"), draw for each part ("different") or once for all ("same"). chunk_size: at most so many
    parts at a time, one after another. Keyword arguments are passed on unmapped.

    RuntimeError for another `randomness`, ValueError for a `chunk_size` below 1. The function raises ValueError where arguments, results, dimensions
    and sizes do not fit, IndexError for an `out_dims` that no result has, RuntimeError where `func` looks at the value of what is mapped.

        >>> per_row = torch.vmap(torch.dot)
        >>> per_row(torch.ones(2, 3), torch.ones(2, 3))
        tensor([3., 3.])
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    return vmap_in_chunks(func, in_dims, out_dims, randomness, chunk_size, 1)


def vmap_in_chunks(
    func: Callable[..., Any], in_dims: Dims, out_dims: Dims, randomness: str, chunk_size: int | None, chunks: int
) -> Callable[..., Any]:
    """`vmap` in chunks of this size; where it is None, in so many chunks."""
    check_randomness(randomness)

    def mapped(*args: Any, **kwargs: Any) -> Any:
        if chunk_size is None and chunks == 1 and are_replaced():
            return carried_out(func, in_dims, out_dims, randomness, args, kwargs)
        inputs = Inputs(in_dims, args, func)
        call = Call(func, kwargs, inputs, out_dims, randomness)
        length = -(-inputs.size // chunks) if chunk_size is None else chunk_size
        return call.whole(inputs.leaves, inputs.size) if inputs.size <= length else call.in_chunks(length)

    return transform("vmap", func, (in_dims, out_dims, randomness, chunk_size, chunks), mapped)


def check_randomness(randomness: str) -> None:
    """RuntimeError where it is none of the three."""
    if randomness not in RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")


# ---------------------------------------------------------------------- the call


class Call:
    """One call of a mapped function. ValueError where `out_dims` is no tree of dimensions.

    spec, dims: after the call, the structure of the results and their dimensions.
    """

    __slots__ = ("func", "name", "kwargs", "inputs", "out_dims", "randomness", "spec", "dims")
    spec: TreeSpec
    dims: list[int | None]

    def __init__(self, func: Callable[..., Any], kwargs: dict[str, Any], inputs: Inputs, out_dims: Dims, randomness: str) -> None:
        self.func, self.name, self.kwargs, self.inputs = func, name_of(func), kwargs, inputs
        self.out_dims, self.randomness = out_dims, randomness
        if not all(dim is None or isinstance(dim, int) for dim in tree_leaves(out_dims)):
            raise ValueError(
                f"vmap({self.name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints representing where in "
                "the outputs the vmapped dimension should appear."
            )

    def whole(self, leaves: list[Any], size: int) -> Any:
        """The results for `size` parts at once."""
        outs = self._flat(leaves, size)
        return self.spec.unflatten(outs)

    def in_chunks(self, chunk_size: int) -> Any:
        """The results for `chunk_size` parts at a time, concatenated. Of what is not mapped the first is taken."""
        before = get_rng_state() if self.randomness == "same" else None
        columns: list[list[Any]] = []
        for start in range(0, self.inputs.size, chunk_size):
            if start and before is not None:
                set_rng_state(before)  # each chunk draws what the first one drew
            length = min(chunk_size, self.inputs.size - start)
            columns.append(self._flat(self.inputs.part(start, length), length))
        joined = [parts[0] if dim is None else cat(parts, dim) for parts, dim in zip(zip(*columns, strict=True), self.dims, strict=True)]
        return self.spec.unflatten(joined)

    def _flat(self, leaves: list[Any], size: int) -> list[Any]:
        """The leaves of the results, unwrapped; `spec` and `dims` are set to their structure and dimensions."""
        with batch_level(size, self.randomness) as level:
            inside = [level.wrap(leaf, dim) for leaf, dim in zip(leaves, self.inputs.dims, strict=True)]
            found = self.func(*self.inputs.spec.unflatten(inside), **self.kwargs)
            outs, self.spec = tree_flatten(found)
            dims = output_dims(self.name, self.out_dims, found, self.spec)
            self.dims = [output_dim(self.name, level, out, dim) for out, dim in zip(outs, dims, strict=True)]
            return [level.unwrap(out, dim) if isinstance(out, Tensor) else out for out, dim in zip(outs, self.dims, strict=True)]
