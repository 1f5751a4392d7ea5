"""The transforms that are checked, of functions of several tensors that return a list of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.lifting.levels import batch_level, forward_level, grad_level

Function = Callable[[Sequence[Any]], list[Any]]


def vmap(function: Function, given: Sequence[Any], dims: Sequence[int | None], out_dim: int = 0) -> list[Any]:
    """The results for a batch of size 2 along the dimension `dims` of each tensor; None: of which there is but one. Each part draws
    the same random numbers, as do calls that seed the generator alike."""
    with batch_level(2, "same") as level:
        inside = [level.wrap(t, d) for t, d in zip(given, dims, strict=True)]
        return [level.unwrap(t, out_dim) for t in function(inside)]


def jvp(function: Function, given: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """The tangents of the results; None for those without one."""
    with forward_level() as level:
        inside = [level.dual(t, d) for t, d in zip(given, tangents, strict=True)]
        return [level.unpack(t)[1] for t in function(inside)]


def vjp(function: Function, given: Sequence[Any], cotangents: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """The gradients of the given tensors; None for those without one. cotangents: gives the gradients of the results, for the results."""
    with grad_level() as level:
        inside = [level.require_grad(level.wrap(t)) for t in given]
        results = function(inside)
        outside = [level.unwrap(t) for t in results]
    return level.pull(results, inside, cotangents(outside))
