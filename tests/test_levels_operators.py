"""Operators inside of transforms, where their functions choose among operators or look at values. The numbers of a loop are expected."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.lifting.levels import batch_level, forward_level, grad_level

pytestmark = pytest.mark.operators

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
def test_what_is_derived_in_another_way_is_so_in_every_level(function, interpreted):  # to the bit where it is 0 but for rounding
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


INDICES = tj.tensor([[0, 2, 1], [1, 1, 2]])
FACTORS = tj.tensor([[0.1, 0.5], [0.9, 0.25]], dtype=tj.float64)


@pytest.mark.parametrize(
    ("function", "mapped"),
    [
        (lambda i: tj.nn.functional.one_hot(i, 4), INDICES),
        (lambda i: tj.bincount(i, minlength=4), INDICES),
        (lambda i: tj.bincount(tj.tensor([0, 1, 1]), i * 0.5), INDICES),
        (lambda i: tj.repeat_interleave(tj.arange(3), i, output_size=3), tj.tensor([[1, 2, 0], [0, 1, 2]])),
        (lambda n: tj.repeat_interleave(tj.arange(3), n), tj.tensor([2, 2])),
        (lambda i: tj.nonzero_static(i, size=4), INDICES),
        (lambda q: tj.quantile(tj.arange(5.0, dtype=tj.float64), q), FACTORS),
        (lambda q: tj.linspace(q[0], 2, 4), FACTORS),
        (lambda i: tj.arange(12).reshape(3, 4)[i[0]], INDICES),
        (lambda i: tj.arange(12).reshape(3, 4)[1:, i[0]], INDICES),
        (lambda q: tj.linalg.matrix_rank(tj.eye(2, dtype=tj.float64) * 0.3, tol=q[0]), FACTORS),
        (lambda w: tj.nn.functional.embedding(tj.tensor([0, 1]), w.reshape(2, 1).clone() * 3, max_norm=1.0), FACTORS),
    ],
)
def test_what_looks_at_values_takes_a_batch_of_them(function, mapped):
    np.testing.assert_allclose(vmap(function, mapped).numpy(), looped(function, mapped))


def test_what_looks_at_values_takes_levels_in_levels():
    i = tj.stack([INDICES, INDICES.flip(0)])
    found = vmap(lambda rows: vmap(lambda row: tj.bincount(row, minlength=3), rows), i)
    np.testing.assert_array_equal(found.numpy(), [[np.bincount(r, minlength=3) for r in rows] for rows in i.tolist()])
    with grad_level() as level:
        inside = level.wrap(INDICES[0])
        found = level.unwrap(tj.bincount(inside)), level.unwrap(tj.arange(3)[inside[1]])
    assert [t.tolist() for t in found] == [[1, 1, 1], 2]


def test_results_of_several_sizes_are_told():
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        vmap(tj.bincount, INDICES + tj.tensor([[0], [3]]))
    with pytest.raises(RuntimeError, match="explicit positive num_classes"):
        vmap(tj.nn.functional.one_hot, INDICES)


def test_an_index_that_is_mapped_writes_and_has_a_gradient():
    x = numbers(2, 3).requires_grad_()

    def put(row, i):
        row = row.clone()
        row[i] = 5.0
        return row[i] * row

    found = vmap(put, x, tj.tensor([2, 0]))
    (grad,) = tj.autograd.grad(found.sum(), x)
    np.testing.assert_allclose(grad.numpy(), [[5, 5, 0], [0, 5, 5]])


def test_what_is_made_like_a_mapped_tensor_can_be_written_to():
    def filled(row):
        total, more = tj.zeros_like(row), row.new_full((2,), 1)
        total += row
        more[0] = row.sum()
        return total, more

    x = numbers(2, 3).requires_grad_()
    with batch_level(2) as level:
        with grad_level() as inner:
            total, more = map(inner.unwrap, filled(inner.wrap(level.wrap(x, 0))))
        total, more = level.unwrap(total), level.unwrap(more)
    np.testing.assert_allclose(total.detach().numpy(), x.detach().numpy())
    np.testing.assert_allclose(more.detach().numpy(), [[row.sum().item(), 1] for row in x])
    assert tj.autograd.grad(more.sum(), x)[0].tolist() == [[1, 1, 1]] * 2


def test_the_gradient_of_a_reduction_that_has_no_second_one_for_some_values():
    index = tj.tensor([0, 0, 1])

    def gradient(row):
        with grad_level() as level:
            source = level.require_grad(level.wrap(row))
            found = tj.ones(2, dtype=tj.float64).scatter_reduce(0, index, source, "prod")
        return level.pull([found], [source], [tj.ones(2, dtype=tj.float64)])[0]

    x = tj.tensor([[2.0, 3.0, 5.0], [0.0, 4.0, 1.0]], dtype=tj.float64)
    assert vmap(gradient, x).tolist() == [[3, 2, 1], [4, 0, 1]]
