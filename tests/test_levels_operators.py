"""Operators inside of transforms, where their functions choose among operators or look at values. The numbers of a loop are expected."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.lifting.levels import batch_level, forward_level, grad_level

RANDOM = np.random.default_rng(0)


def vmap(function, *tensors, dims=None):
    with batch_level(tensors[0].shape[0]) as level:
        found = function(*[level.wrap(t, d) for t, d in zip(tensors, dims or (0,) * len(tensors), strict=True)])
        return level.unwrap(found)


def looped(function, *tensors):
    return np.stack([function(*row).detach().numpy() for row in zip(*tensors, strict=True)])


def numbers(*shape):
    return tj.tensor(RANDOM.uniform(-2, 2, shape))


@pytest.mark.parametrize("function", [tj.linalg.svdvals, lambda x: tj.linalg.eigvalsh(x + x.mT), lambda x: tj.linalg.norm(x, 2)])
def test_what_is_derived_in_another_way_is_so_in_every_level(function):
    x = numbers(2, 3, 3)
    expected = looped(lambda t: _gradient(function, t), x)

    outside = x.clone().requires_grad_()
    (found,) = tj.autograd.grad(vmap(function, outside).sum(), outside)
    np.testing.assert_allclose(found.numpy(), expected)

    with grad_level() as level:
        inside = level.require_grad(level.wrap(x))
        results = vmap(function, inside).sum()
    (found,) = level.pull([results], [inside], [tj.ones((), dtype=x.dtype)])
    np.testing.assert_allclose(found.numpy(), expected)

    v = numbers(2, 3, 3)
    with forward_level() as level:
        _, tangent = level.unpack(vmap(function, level.dual(x, v)).sum())
    np.testing.assert_allclose(tangent.item(), (expected * v.numpy()).sum())


def _gradient(function, t):
    t = t.clone().requires_grad_()
    return tj.autograd.grad(function(t).sum(), t)[0]


def test_a_bad_value_in_one_part_of_a_batch_is_told():
    index = tj.tensor([[0, 1], [2, 7]])
    with pytest.raises((IndexError, RuntimeError), match="7"):
        vmap(lambda i: numbers(3).gather(0, i), index).sum().item()
    singular = tj.stack([tj.eye(2), tj.ones(2, 2)])
    with pytest.raises(RuntimeError, match="singular"):
        vmap(lambda a: tj.linalg.solve(a, tj.ones(2)), singular).sum().item()


def test_whole_powers_of_a_batch_of_integers():
    x = tj.tensor([2, -3, 1])
    np.testing.assert_array_equal(vmap(lambda y: x**y, tj.tensor([[0, 3, -2], [5, 1, 9]])).numpy(), [[1, -27, 1], [32, -3, 1]])
