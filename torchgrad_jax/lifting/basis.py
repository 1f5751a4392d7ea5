"""Passes for a batch of gradients or tangents, for `autograd/batched.py`, `autograd/forward_basis.py` and `gradcheck`: by levels, so that each
operation and each piece of the user's Python is carried out once for all of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.autograd.batched import levels
from torchgrad_jax.autograd.engine import run_backward
from torchgrad_jax.core.duals import seen_tangent
from torchgrad_jax.core.node import Edge
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import apply_inplace
from torchgrad_jax.lifting.levels import BatchLevel, ForwardLevel, batch_level
from torchgrad_jax.lifting.remembered import transform
from torchgrad_jax.runtime.value import Aval

RANDOM = "vmap: We do not yet support calling random operations inside of vmap. Please perform random operations outside of vmap as a workaround"


class _Batch(BatchLevel):
    """A level of vmap in which all is allowed that may be called with dual tensors."""

    __slots__ = ()
    transforms = False

    def _refuse_randomness(self) -> None:
        raise RuntimeError(RANDOM)

    def refusal_to_look(self, asked: str) -> str:
        """See BatchLevel."""
        return f"Batching rule not implemented for aten::{asked}. We could not generate a fallback." if asked else super().refusal_to_look(asked)


class _Duals(ForwardLevel):
    """A level of forward mode in which all is allowed that may be called with dual tensors."""

    __slots__ = ()
    transforms = False

    def write_outside(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """See Level: what has no derivative in this level may be written to any tensor."""
        if any([isinstance(o, Tensor) and (seen_tangent(o) is not None or (o.requires_grad and self.owns(o))) for o in operands]):
            return super().write_outside(bound, operands)
        given = tuple([self.unwrap(o) if isinstance(o, Tensor) else o for o in operands])
        with self.outside:
            return apply_inplace(bound, given)


def pull(
    roots: Sequence[Edge], grads: Sequence[Tensor], size: int, *, retain_graph: bool, create_graph: bool, captures: Sequence[Edge], accumulate: bool
) -> list[Tensor | None]:
    """`run_backward` for gradients whose first dimension is a batch; so is the results'."""
    with batch_level(size) if create_graph else _Batch(size) as level:
        mapped = [level.wrap(g, 0) for g in grads]
        found = run_backward(roots, mapped, retain_graph=retain_graph, create_graph=create_graph, captures=captures, accumulate=accumulate)
        return [None if g is None else level.unwrap(g, 0) for g in found]


def mapped(func: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor], dims: Sequence[int | None]) -> list[Tensor]:
    """The results of `func` for each part of `tensors`, each with the batch as its first dimension.

    func: takes tensors and returns a sequence of tensors. dims: the dimension of each tensor that is mapped over, None for none of it.
    RuntimeError where `func` looks at a value, draws random numbers, or writes with what is mapped to what is not.
    """
    size = next(t._aval.shape[dim] for t, dim in zip(tensors, dims, strict=True) if dim is not None)
    with _Batch(size) as level:
        given = [level.wrap(t, dim) for t, dim in zip(tensors, dims, strict=True)]
        found = func(*given)
        return _sharing(found, [level.unwrap(o, 0) for o in found])


def _sharing(inside: Sequence[Tensor], made: list[Tensor]) -> list[Tensor]:
    """`made` of what a function has returned: what was a view of another result is one again."""
    for i, o in enumerate(inside):
        base = next((made[k] for k, other in enumerate(inside) if other is o._base and other.is_contiguous()), None)
        if base is not None:
            strides = (base[0].numel(), *o._strides()) if len(base) else base._strides()
            made[i] = base.as_strided(made[i].shape, strides, o._offset())
    return made


def push(func: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], tangents: Sequence[Tensor], size: int) -> list[tuple[Aval, Tensor | None]]:
    """What `func` returns for `inputs` is like, and its tangents for those of the inputs; None where it has none. The first dimension of tangents
    is a batch."""
    with _Batch(size) as batch:
        with _Duals() as duals:
            found = [(o._aval, duals.unpack(o)[1]) for o in func(*[duals.dual(x, batch.wrap(t, 0)) for x, t in zip(inputs, tangents, strict=True)])]
        return [(aval, None if tangent is None else batch.unwrap(tangent, 0)) for aval, tangent in found]


levels.pull, levels.push, levels.mapped, levels.transform = pull, push, mapped, transform
