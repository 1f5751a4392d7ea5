"""Jacobians in forward mode: a function is called with tangents that stand for every direction of its inputs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.autograd.basis import construct_standard_basis_for
from torchgrad_jax.autograd.forward_ad import dual_level, make_dual_plainly, unpack_dual_plainly
from torchgrad_jax.autograd.functional_checks import as_tensors
from torchgrad_jax.autograd.mapped import mapped
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import zeros_like


def jacobian_by_tangents(func: Callable[..., Any], several: bool, inputs: tuple[Tensor, ...]) -> Any:
    """The Jacobian of `func` by forward mode, laid out as PyTorch lays it out in this mode: lists for a tuple of inputs. several: whether they are.

    Results can be differentiated where an input, or what else the function uses, requires a gradient. TypeError where it returns something other
    than tensors, RuntimeError inside an open dual level.
    """
    sizes = [x._aval.size for x in inputs]
    tuples: list[bool] = []

    def push(*directions: Tensor) -> list[Tensor]:
        duals = [make_dual_plainly(x, d.view(x._aval.shape)) for x, d in zip(inputs, directions, strict=True)]
        is_tuple, outputs = as_tensors(func(*duals), "outputs", None)
        tuples.append(is_tuple)
        tangents = []
        for o in outputs:
            primal, tangent = unpack_dual_plainly(o)
            tangents.append(zeros_like(primal) if tangent is None else tangent)
        return tangents

    basis = construct_standard_basis_for(inputs, sizes)
    with dual_level():
        columns = mapped(push, basis)
    found = []
    for rows in columns:
        shape = rows._aval.shape[1:]
        parts = [part.movedim(0, -1).reshape(shape + x._aval.shape) for part, x in zip(rows.split(sizes), inputs, strict=True)]
        found.append(parts if several else parts[0])
    return found[0] if not tuples[0] else found if several else tuple(found)
