"""Copies of arrays into row-major memory: in C what NumPy makes, however the array lies in memory."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.runtime.baseline import copying

DTYPES = [np.bool_, np.int8, np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64, np.complex128]


@pytest.fixture(autouse=True, scope="module")
def of_any_size():
    """Small arrays, too, which NumPy copies otherwise."""
    before, copying.LEAST = copying.LEAST, 0
    yield
    copying.LEAST = before


def numbers(shape, dtype):
    return np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)


def assert_copied(x):
    for made in (copying.copied(x), copying.contiguous(x)):
        assert made.flags.c_contiguous and made.dtype == x.dtype
        np.testing.assert_array_equal(made, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (1,), (), (3, 4), (17, 33), (40, 16), (2, 3, 4), (20, 5, 18), (4, 1, 7, 3), (0, 3)])
def test_copies_are_equal_in_any_order_and_step(shape, dtype):
    x = numbers(shape, dtype)
    for order in itertools.permutations(range(len(shape))):
        turned = x.transpose(order)
        for part in (turned, *([turned[..., ::2], turned[::-1], turned[..., 1:]] if shape else [])):
            assert_copied(part)
    assert_copied(np.broadcast_to(x, (3, *shape)))
    assert_copied(np.broadcast_to(x[..., None], (*shape, 4)))


@settings(max_examples=100)
@given(st.data())
def test_copies_are_equal_of_any_view(data):
    rank = data.draw(st.integers(1, 5))
    x = numbers(tuple(data.draw(st.lists(st.integers(1, 20), min_size=rank, max_size=rank))), np.float32)
    x = x.transpose(data.draw(st.permutations(range(rank))))
    steps = st.builds(slice, st.integers(0, 3), st.none(), st.sampled_from([1, 1, 2, -1]))
    assert_copied(x[tuple(data.draw(st.lists(steps, max_size=rank)))])


def test_copies_of_windows_that_overlap():
    x = numbers((2, 3, 8, 9), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (2, 3))
    for order in ((0, 1, 2, 3, 4, 5), (0, 1, 4, 5, 2, 3), (5, 4, 3, 2, 1, 0)):
        assert_copied(windows.transpose(order))


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_copies_of_what_lies_at_any_address(dtype):
    memory = np.zeros(40 * 50 * np.dtype(dtype).itemsize + 1, np.uint8)
    x = memory[1:].view(dtype).reshape(40, 50)
    x[...] = numbers((40, 50), dtype)
    assert not x.flags.aligned
    assert_copied(x.T)
    assert_copied(x[::2, ::3])


@settings(max_examples=60)
@given(st.data())
def test_a_view_is_reshaped_to_a_view_where_there_is_one(data):
    rank = data.draw(st.integers(1, 5))
    x = numbers(tuple(data.draw(st.lists(st.sampled_from([1, 2, 2, 3, 4]), min_size=rank, max_size=rank))), np.float32)
    x = x.transpose(data.draw(st.permutations(range(rank))))
    x = x[tuple(data.draw(st.lists(st.sampled_from([slice(None), slice(1, None), slice(None, None, -1), np.newaxis]), max_size=min(rank, 2))))]
    if x.size and x.shape and data.draw(st.booleans()):
        x = np.broadcast_to(x[..., :1], (*x.shape[:-1], 4))
    shape, left = ([] if x.size else [0]), x.size
    while left > 1:
        shape.append(data.draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0])))
        left //= shape[-1]
    found, wanted = copying.reshaped(x, tuple(shape)), x.reshape(shape)
    np.testing.assert_array_equal(found, wanted)
    assert np.shares_memory(found, x) == np.shares_memory(wanted, x)


def test_what_lies_turned_is_reshaped_to_a_copy_and_what_does_not_to_a_view():
    x = numbers((6, 4), np.float32)
    np.testing.assert_array_equal(copying.reshaped(x.T, (24,)), x.T.reshape(-1))
    assert np.shares_memory(copying.reshaped(x, (3, 8)), x)
    nothing = np.broadcast_to(np.float32(1), (1 << 20, 1 << 20))
    assert not any(copying.reshaped(nothing, (1 << 40,)).strides), "what takes no memory goes on taking none"


def test_large_transposed_tensors():
    x = torch.arange(300 * 70, dtype=torch.float32).reshape(300, 70)
    want = x.numpy()
    np.testing.assert_array_equal(x.T.contiguous().numpy(), np.ascontiguousarray(want.T))
    np.testing.assert_array_equal(x.t().reshape(-1).numpy(), want.T.reshape(-1))
    np.testing.assert_array_equal((x.T + 1).numpy(), want.T + 1)
    np.testing.assert_array_equal(
        x.view(3, 100, 70).permute(2, 0, 1).reshape(70, 300).numpy(), want.reshape(3, 100, 70).transpose(2, 0, 1).reshape(70, 300)
    )


def assert_joined(given, axis):
    for function, wanted in ((copying.joined, np.concatenate), (copying.stacked, np.stack)):
        try:
            found, right = function(given, axis), wanted(given, axis)
        except ValueError:
            with pytest.raises(ValueError):
                wanted(given, axis)
            continue
        assert found.dtype == right.dtype
        np.testing.assert_array_equal(found, right)


@settings(max_examples=300)
@given(st.data())
def test_arrays_are_joined_and_stacked_as_numpy_does_however_they_lie(data):
    rank = data.draw(st.integers(1, 4))
    axis = data.draw(st.integers(-rank, rank - 1))
    shape = data.draw(st.lists(st.integers(0, 6) | st.sampled_from([20, 40]), min_size=rank, max_size=rank))
    dtype, given, alike = data.draw(st.sampled_from(DTYPES)), [], data.draw(st.booleans())
    for _ in range(data.draw(st.integers(1, 5))):
        own = list(shape)
        own[axis] = own[axis] if alike else data.draw(st.integers(0, 6))
        order = data.draw(st.permutations(range(rank)))
        wide = numbers([own[d] + 1 for d in order], dtype)
        turned = wide.transpose(np.argsort(order))
        part = [data.draw(st.sampled_from([slice(None, -1), slice(1, None), slice(None, 0, -1)])) for _ in range(rank)]
        given.append(turned[tuple(part)] if data.draw(st.booleans()) else np.ascontiguousarray(turned[tuple(part)]))
    assert_joined(given, axis)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_lies_in_many_short_pieces_is_joined(dtype):
    x = numbers((50, 3, 4), dtype)
    for axis in (0, 1, 2):
        assert_joined([x[:, :2, :2], x[:, 1:, :2], x[::-1, :2, 1:3]], axis)
        assert_joined([x.transpose(0, 2, 1)[:, :3], x[..., :3]], axis)
    assert_joined([np.broadcast_to(x[:1], x.shape), x], 1)


def test_arrays_that_do_not_fit_together_are_numpys_to_join():
    x = numbers((3, 4), np.float32)
    assert_joined([x, x.astype(np.float64)], 0)
    assert_joined([x, x[:2]], 1)
    assert_joined([x, x[0]], 0)
    assert_joined([x.astype(">f4"), x.astype(">f4")], 0)
    assert_joined([np.float32(1), np.float32(2)], 0)
    assert_joined([np.array(1.0), np.array(2.0)], 0)
    with pytest.raises(np.exceptions.AxisError):
        copying.joined([x, x], 2)


@pytest.mark.parametrize("shape", [(40_000,), (1, 300, 200), (200, 700), (33, 20, 70, 5), (2, 400, 300)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_what_is_large_is_put_into_a_part_in_pieces(shape, dtype):
    """As much as threads share."""
    x, memory = numbers(shape, dtype), numbers([2 * n + 3 for n in shape], dtype)
    for part in (tuple([slice(2, n + 2) for n in shape]), tuple([slice(2 * n, 0, -2) for n in shape])):
        expected, found = memory.copy(), memory.copy()
        expected[part] = x
        copying.written(found[part], x)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("by", [1, 999, -1, -999])
def test_what_overlaps_the_part_is_read_before_it_is_written(by):
    memory = numbers((50_000,), np.float32)
    source, part = (slice(by, None), slice(-by)) if by > 0 else (slice(by), slice(-by, None))
    expected = memory.copy()
    expected[part] = memory[source].copy()
    copying.written(memory[part], memory[source])
    np.testing.assert_array_equal(memory, expected)


def test_a_tensor_is_shifted_within_itself():
    x = torch.arange(50_000, dtype=torch.float32)
    y, expected = x.clone(), np.arange(50_000, dtype=np.float32)
    for turn in range(4):
        y[1:] = y[:-1].clone()
        y[:-7] = y[7:].clone()
        expected[1:] = expected[:-1].copy()
        expected[:-7] = expected[7:].copy()
        if turn % 2:
            assert y[-1].item() == expected[-1]
    np.testing.assert_array_equal(y.numpy(), expected)
