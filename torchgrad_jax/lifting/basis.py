"""Passes for a batch of gradients or tangents whose results belong to a graph, for `autograd/batched.py` and `autograd/forward_basis.py`: by levels,
so that each operation and each piece of the user's Python is carried out once for all of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchgrad_jax.autograd.batched import levels
from torchgrad_jax.autograd.engine import run_backward
from torchgrad_jax.core.node import Edge
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.levels import batch_level, forward_level


def pull(
    roots: Sequence[Edge], grads: Sequence[Tensor], size: int, *, retain_graph: bool, captures: Sequence[Edge], accumulate: bool
) -> list[Tensor | None]:
    """`run_backward` under `create_graph` for gradients whose first dimension is a batch; so is the results'."""
    with batch_level(size) as level:
        mapped = [level.wrap(g, 0) for g in grads]
        found = run_backward(roots, mapped, retain_graph=retain_graph, create_graph=True, captures=captures, accumulate=accumulate)
        return [None if g is None else level.unwrap(g, 0) for g in found]


def push(
    func: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], tangents: Sequence[Tensor], size: int
) -> list[tuple[Tensor, Tensor | None]]:
    """What `func` returns for `inputs`, and its tangents for those of the inputs, whose first dimension is a batch; None where there is none."""
    with batch_level(size) as batch:
        with forward_level() as forward:
            duals = [forward.dual(x, batch.wrap(t, 0)) for x, t in zip(inputs, tangents, strict=True)]
            found = [forward.unpack(o) for o in func(*duals)]
        return [(batch.unwrap(primal, 0)[0], None if tangent is None else batch.unwrap(tangent, 0)) for primal, tangent in found]


levels.pull, levels.push = pull, push
