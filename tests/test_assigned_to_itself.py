"""``t[key] += ...`` and its kin, which end by writing a part of a tensor to itself."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.runtime import execution_mode
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.recorder import recorder

KEYS = [1, -1, (0, 2), (slice(1, 3),), slice(0, 3, 2), (slice(None), 1), (Ellipsis, 0), (slice(0, 4, 3), slice(1, 4, 2)), (2, slice(1, None))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex64])
@pytest.mark.parametrize("key", KEYS)
def test_what_is_added_is_there_once(key, dtype):
    given = np.arange(20).reshape(4, 5)
    x = torch.tensor(given).to(dtype)
    for turn in range(3):
        x[key] += 2
        given[key] += 2
        np.testing.assert_array_equal(x.numpy().real, given)
        assert x._version == 2 * (turn + 1)  # of the addition, and of the assignment


def test_of_a_row_it_records_what_is_added_alone():
    with execution_mode("fused"):
        x, y = torch.zeros(4, 3), torch.ones(3)
        x[1] += y
        x.tolist(), recorder().flush("mode")
        before = counters.recorded
        x[1] += y
        assert x[1].tolist() == [2, 2, 2] and counters.recorded - before <= 4


def test_another_part_is_copied():
    x = torch.arange(12.0).reshape(4, 3)
    x[1] = x[2]
    x[0, 1] = x[3, 2]
    x[:2, 0] = x[2:, 0]
    assert x.tolist() == [[6.0, 11.0, 2.0], [9.0, 7.0, 8.0], [6.0, 7.0, 8.0], [9.0, 10.0, 11.0]]
    row = torch.arange(4.0)
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor refer to a single memory location"):
        row[:2] = row[1:3]


def test_of_a_tensor_that_lies_by_columns():
    for made in (torch.arange(9.0).reshape(3, 3).t().clone(), torch.arange(9.0).reshape(3, 3).t() + 0):
        assert made.stride() == (1, 3)
        other = made.clone()
        made[:, 1] = made[1].clone()
        assert made.tolist() == [[0.0, 1.0, 6.0], [1.0, 4.0, 7.0], [2.0, 7.0, 8.0]]
        other[1] += 1
        other[:, 2] *= 3
        assert other.tolist() == [[0.0, 3.0, 18.0], [2.0, 5.0, 24.0], [2.0, 5.0, 24.0]]


def test_it_is_a_write_for_what_was_saved():
    x, w = torch.ones(3, 2), torch.ones(2, requires_grad=True)
    y = (x * w).sum()
    row = x[0]
    x[0] = row
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_views_that_were_there_see_it():
    x = torch.zeros(3, 4)
    rows, part = x[1], x[:, 2]
    x[1] += 1
    x[1, 2] *= 5
    assert rows.tolist() == [1.0, 1.0, 5.0, 1.0] and part.tolist() == [0.0, 5.0, 0.0]
    rows += 1
    assert x[1].tolist() == [2.0, 2.0, 6.0, 2.0]


def test_where_a_graph_follows_it_is_recorded():
    w = torch.ones(3, requires_grad=True)
    x = torch.zeros(3) + w * 0
    x[1] += w[1] * 2
    x.sum().backward()
    assert w.grad.tolist() == [0.0, 2.0, 0.0] and x.grad_fn.name().endswith("CopySlices")


def test_of_a_leaf_that_is_trained_by_hand():
    w = torch.ones(3, 2, requires_grad=True)
    (w * torch.arange(6.0).reshape(3, 2)).sum().backward()
    with torch.no_grad():
        for i in range(3):
            w[i] -= 0.5 * w.grad[i]
    assert w.tolist() == [[1.0, 0.5], [0.0, -0.5], [-1.0, -1.5]] and w.requires_grad and w.is_leaf
