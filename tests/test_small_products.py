"""Products with matrices of at most four rows and columns, as points and colours are multiplied by: one loop over all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.runtime.native import handlers

pytestmark = pytest.mark.skipif(not torch.runtime.typed_core(), reason="the core in pure Python multiplies by NumPy")


def numbers(rng, *shape, dtype):
    return rng.standard_normal(shape).astype(dtype)


def lying(array, how):
    """The same matrices, as they may lie: in order, transposed, with others between, or with the batch last."""
    if how == "transposed":
        return np.swapaxes(np.ascontiguousarray(np.swapaxes(array, -1, -2)), -1, -2)
    if how == "apart":
        room = np.zeros((*array.shape[:-2], array.shape[-2] + 2, array.shape[-1] + 1), array.dtype)
        room[..., 1:-1, 1:] = array
        return room[..., 1:-1, 1:]
    if how == "repeated" and array.ndim > 2:
        return np.broadcast_to(array[:1], array.shape)
    return array


@settings(max_examples=150, deadline=None)
@given(
    batch=st.sampled_from([(), (1,), (7,), (3, 5), (70,), (1, 9)]), m=st.integers(1, 9), k=st.integers(1, 4), n=st.integers(1, 4),
    ways=st.tuples(*[st.sampled_from(["in order", "transposed", "apart", "repeated"])] * 2), dtype=st.sampled_from(["float32", "float64"]),
    bias=st.booleans(), seed=st.integers(0, 9),
)  # fmt: skip
def test_however_they_lie(batch, m, k, n, ways, dtype, bias, seed):
    """The same bits: each sum has its terms in their order."""
    rng = np.random.default_rng(seed)
    x, y = lying(numbers(rng, *batch, m, k, dtype=dtype), ways[0]), lying(numbers(rng, *batch, k, n, dtype=dtype), ways[1])
    added = numbers(rng, n, dtype=dtype) if bias else None
    found = handlers.multiplied(x, y, False, False, added)
    assert found is not None and found.shape == (*batch, m, n) and found.dtype == dtype
    wanted = np.matmul(x.astype(np.float64), y.astype(np.float64)) + (0 if added is None else added)
    np.testing.assert_allclose(found, wanted, rtol=1e-5 if dtype == "float32" else 1e-13, atol=1e-5 if dtype == "float32" else 1e-13)
    plain = handlers.multiplied(np.ascontiguousarray(x), np.ascontiguousarray(y), False, False, added)
    np.testing.assert_array_equal(found, plain)
    left, right = np.ascontiguousarray(np.swapaxes(x, -1, -2)), np.ascontiguousarray(np.swapaxes(y, -1, -2))
    np.testing.assert_array_equal(handlers.multiplied(left, right, True, True, added), plain)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(40000, 2, 3, 3), (3000, 30, 4, 2), (1, 70000, 3, 3), (70001, 1, 4, 1)])
def test_threads_share_many(shape, dtype):
    batch, m, k, n = shape
    rng = np.random.default_rng(0)
    x, y = numbers(rng, batch, m, k, dtype=dtype), numbers(rng, batch, k, n, dtype=dtype)
    found = [handlers.multiplied(x, y, False, False) for _ in range(5)]
    np.testing.assert_allclose(found[0], np.einsum("bmk,bkn->bmn", x, y), rtol=1e-4, atol=1e-5)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_zeros_and_what_is_not_finite():
    x = np.array([[[0.0, -0.0]], [[np.inf, 1]], [[np.nan, 0]], [[-0.0, -0.0]]], np.float32)
    found = handlers.multiplied(x, np.array([[1.0], [1.0]], np.float32)[None].repeat(4, 0), False, False)
    np.testing.assert_array_equal(found[:, 0, 0], [0, np.inf, np.nan, 0])
    assert not np.signbit(found[3, 0, 0])  # a sum begins with 0


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients(compiled):
    """Of rotated points, by both tiers."""
    points = torch.linspace(-1, 1, 3000).reshape(1000, 3)
    turn = torch.tensor([[0.6, -0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]]).repeat(1000, 1, 1).requires_grad_()
    with torch.runtime.baseline_tier(not compiled):
        for _ in range(3):
            turn.grad = None
            turned = (turn @ points[:, :, None]).squeeze(-1)
            (turned**2).sum().backward()
            grad = turn.grad.numpy()
    x, r = points.numpy(), turn.detach().numpy()
    np.testing.assert_allclose(grad, 2 * np.einsum("bij,bj,bk->bik", r, x, x), rtol=1e-5, atol=1e-6)
