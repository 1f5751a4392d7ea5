"""Passes for a batch of gradients or tangents whose results belong to a graph, for `autograd/batched.py` and `autograd/forward_basis.py`: by levels,
so that each operation and each piece of the user's Python is carried out once for all of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchgrad_jax.autograd.batched import levels
from torchgrad_jax.autograd.engine import run_backward
from torchgrad_jax.core.node import Edge
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.levels import BatchLevel, ForwardLevel, batch_level
from torchgrad_jax.runtime.value import Aval

RANDOM = "vmap: We do not yet support calling random operations inside of vmap. Please perform random operations outside of vmap as a workaround"


def pull(
    roots: Sequence[Edge], grads: Sequence[Tensor], size: int, *, retain_graph: bool, captures: Sequence[Edge], accumulate: bool
) -> list[Tensor | None]:
    """`run_backward` under `create_graph` for gradients whose first dimension is a batch; so is the results'."""
    with batch_level(size) as level:
        mapped = [level.wrap(g, 0) for g in grads]
        found = run_backward(roots, mapped, retain_graph=retain_graph, create_graph=True, captures=captures, accumulate=accumulate)
        return [None if g is None else level.unwrap(g, 0) for g in found]


class _Batch(BatchLevel):
    """A level of vmap in which all is allowed that may be called with dual tensors."""

    __slots__ = ()
    transforms = False

    def _refuse_randomness(self) -> None:
        raise RuntimeError(RANDOM)


class _Duals(ForwardLevel):
    """A level of forward mode in which all is allowed that may be called with dual tensors."""

    __slots__ = ()
    transforms = False


def push(func: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], tangents: Sequence[Tensor], size: int) -> list[tuple[Aval, Tensor | None]]:
    """What `func` returns for `inputs` is like, and its tangents for those of the inputs; None where it has none. The first dimension of tangents
    is a batch."""
    with _Batch(size) as batch:
        with _Duals() as duals:
            found = [(o._aval, duals.unpack(o)[1]) for o in func(*[duals.dual(x, batch.wrap(t, 0)) for x, t in zip(inputs, tangents, strict=True)])]
        return [(aval, None if tangent is None else batch.unwrap(tangent, 0)) for aval, tangent in found]


levels.pull, levels.push = pull, push
