"""`vmap`: the arguments, sizes, chunks and results of a mapped call. How operations are mapped is the level's to know."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.random import get_rng_state, set_rng_state
from torchgrad_jax.functions.shaping import cat
from torchgrad_jax.functions.views import narrow
from torchgrad_jax.lifting.levels import batch_level
from torchgrad_jax.lifting.remembered import transform
from torchgrad_jax.lifting.trees import TreeSpec, broadcast, tree_flatten, tree_leaves

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
        inputs = Inputs(in_dims, args, func)
        call = Call(func, kwargs, inputs, out_dims, randomness)
        length = -(-inputs.size // chunks) if chunk_size is None else chunk_size
        return call.whole(inputs.leaves, inputs.size) if inputs.size <= length else call.in_chunks(length)

    return transform("vmap", func, (in_dims, out_dims, randomness, chunk_size, chunks), mapped)


def check_randomness(randomness: str) -> None:
    """RuntimeError where it is none of the three."""
    if randomness not in RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")


def name_of(func: Any) -> str:
    """What error messages call a function."""
    if hasattr(func, "__name__"):
        return func.__name__
    if isinstance(func, functools.partial):
        return f"functools.partial({name_of(func.func)}, ...)"
    return repr(func)


# ---------------------------------------------------------------------- arguments


class Inputs:
    """The leaves of the positional arguments, the dimension (0 or more, or None) that each is mapped over, and the common size of these."""

    __slots__ = ("leaves", "dims", "spec", "size")
    leaves: list[Any]
    dims: list[int | None]
    spec: TreeSpec
    size: int

    def __init__(self, in_dims: Dims, args: tuple[Any, ...], func: Callable[..., Any]) -> None:
        """ValueError with PyTorch's texts where they do not fit."""
        name = name_of(func)
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
            inside = [leaf if dim is None else level.wrap(leaf, dim) for leaf, dim in zip(leaves, self.inputs.dims, strict=True)]
            found = self.func(*self.inputs.spec.unflatten(inside), **self.kwargs)
            outs, self.spec = tree_flatten(found)
            dims = self._dims_of(found)
            self.dims = [self._output_dim(level, out, dim) for out, dim in zip(outs, dims, strict=True)]
            return [level.unwrap(out, dim) if isinstance(out, Tensor) else out for out, dim in zip(outs, self.dims, strict=True)]

    def _dims_of(self, found: Any) -> list[Any]:
        """`out_dims` for each leaf of the results. ValueError where it is another tree than the results are."""
        call, given = f"vmap({self.name}, ..., out_dims={self.out_dims})", self.out_dims
        if isinstance(found, Tensor) and isinstance(given, tuple) and len(given) == 1:
            given = given[0]
        dims = broadcast(given, self.spec)
        if dims is None:
            raise ValueError(
                f"{call}(<inputs>): out_dims is not compatible with the structure of `outputs`. out_dims has structure {tree_flatten(given)[1]} but "
                f"outputs has structure {self.spec}."
            )
        return dims

    def _output_dim(self, level: Any, out: Any, dim: int | None) -> int | None:
        """The dimension counted from the front, as it was checked."""
        if dim is None:
            if isinstance(out, Tensor) and level.is_mapped(out):
                raise ValueError(f"vmap({self.name}, ...): `{self.name}` can not return a BatchedTensor when out_dim is None")
            return None
        if not isinstance(out, Tensor):
            raise ValueError(
                f"vmap({self.name}, ...): `{self.name}` must only return Tensors, got type {type(out)}. Did you mean to set out_dims= to None for "
                "output?"
            )
        ndim = out.dim() + 1
        if not -ndim <= dim < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
        return dim % ndim
