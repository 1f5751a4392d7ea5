"""Jacobians in forward mode: a function is called with tangents that stand for every direction of its inputs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.autograd.basis import construct_standard_basis_for
from torchgrad_jax.autograd.batched import levels
from torchgrad_jax.autograd.functional_checks import as_tensors
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import zeros
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval


def jacobian_by_tangents(func: Callable[..., Any], several: bool, inputs: tuple[Tensor, ...]) -> Any:
    """The Jacobian of `func` by forward mode, laid out as PyTorch lays it out in this mode: lists for a tuple of inputs. several: whether they are.

    Results can be differentiated where an input, or what else the function uses, requires a gradient. TypeError where it returns something other
    than tensors, RuntimeError inside an open dual level.
    """
    if per_thread.recorder.flags.dual_level is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    for x in inputs:
        if not dtypes.is_float(x._aval.dtype):
            raise ValueError(f"Expected primal to be floating point or complex, but got: {x.dtype}")
    return levels.transform("jacobian_by_tangents", func, several, lambda *given: _jacobian(func, several, given))(*inputs)


def _jacobian(func: Callable[..., Any], several: bool, inputs: tuple[Tensor, ...]) -> Any:
    sizes = [x._aval.size for x in inputs]
    basis = [u.view((sum(sizes), *x._aval.shape)) for u, x in zip(construct_standard_basis_for(inputs, sizes), inputs, strict=True)]
    tuples: list[bool] = []

    def called(*duals: Tensor) -> tuple[Tensor, ...]:
        is_tuple, outputs = as_tensors(func(*duals), "outputs", None)
        tuples.append(is_tuple)
        return outputs

    columns = [_rows(aval, tangent, sum(sizes)) for aval, tangent in levels.push(called, inputs, basis, sum(sizes))]
    found = []
    for rows in columns:
        shape = rows._aval.shape[1:]
        parts = [part.movedim(0, -1).reshape(shape + x._aval.shape) for part, x in zip(rows.split(sizes), inputs, strict=True)]
        found.append(parts if several else parts[0])
    return found[0] if not tuples[0] else found if several else tuple(found)


def _rows(like: Aval, tangent: Tensor | None, size: int) -> Tensor:
    return zeros((size, *like.shape), dtype=dtypes.of(like.dtype), device=like.device) if tangent is None else tangent
