"""Dual tensors for tests, and programs that use them compared with PyTorch."""

from __future__ import annotations

import pytest
from side_by_side import error_of, like_pytorch

import torchgrad_jax as tj


@pytest.fixture(params=["fused", "eager"], autouse=True)
def both_modes(request):
    """Runs each test of a module that imports it in both execution modes."""
    with tj.runtime.execution_mode(request.param):
        yield


def values(m, *shape, seed=0, dtype="float64", requires_grad=False):
    """A tensor of quarters, none of them 0 and no two alike."""
    size = 1
    for n in shape:
        size *= n
    made = [(((i + 1) * 7 + seed * 5) % 29 - 14.25) / 4 for i in range(size)]
    return m.tensor(made, dtype=getattr(m, dtype)).view(shape).requires_grad_(requires_grad)


def positive(m, *shape, seed=0):
    return values(m, *shape, seed=seed).abs() / 4 + 0.25


def dual(m, *shape, seed=0, **options):
    return m.autograd.forward_ad.make_dual(values(m, *shape, seed=seed, **options), values(m, *shape, seed=seed + 1, **options))


def tangent(m, t):
    return m.autograd.forward_ad.unpack_dual(t).tangent


def both(m, found):
    """The values and the tangents of all tensors that were returned. (Whether a tangent has a graph is not compared: in PyTorch it
    has one by a zero times a tensor with a graph.)"""
    if isinstance(found, m.Tensor):
        moved = tangent(m, found) if found.is_floating_point() or found.is_complex() else None
        # PyTorch's zeros may have no memory, until something is added.
        return [found, None if moved is None else moved.detach() + m.zeros((), dtype=moved.dtype)]
    return [both(m, f) for f in found] if isinstance(found, (tuple, list)) else found


def errors(m, calls):
    """What each call raises; what it returns where it does not."""
    found = []
    for call in calls:
        made = []
        raised = error_of(lambda call=call, made=made: made.append(call()))
        found.append(both(m, made) if raised is None else list(raised))
    return found


def inside(program):
    """A program that runs in a dual level and whose results are looked at there."""

    def whole(m):
        with m.autograd.forward_ad.dual_level():
            return both(m, program(m))

    whole.__name__, whole.__doc__ = program.__name__, program.__doc__
    return like_pytorch(whole)
