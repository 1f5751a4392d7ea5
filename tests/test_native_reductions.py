"""Sums, and largest and smallest elements, by loops of C's: what NumPy says they are, however they are cut and shared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.runtime import execution_mode
from torchgrad_jax.runtime.baseline import blocks
from torchgrad_jax.runtime.native.handlers import reduced
from torchgrad_jax.runtime.native.reducing import LARGEST, SMALLEST, SUM

pytestmark = pytest.mark.skipif(not blocks.by_numbers, reason="the core in pure Python")


def numbers(shape, dtype, seed=0, special=False):
    random = np.random.RandomState(seed)
    found = random.standard_normal(shape).astype(dtype)
    if special:
        found[random.random_sample(shape) < 0.3] = 0
        found[random.random_sample(shape) < 0.3] *= -1
        found[random.random_sample(shape) < 0.02] = np.nan
        found[random.random_sample(shape) < 0.02] = np.inf
    return found


def extreme(x, axes, largest):
    """With 0 larger than -0."""
    found = np.asarray((np.max if largest else np.min)(x, axes))
    zeros = np.logical_or.reduce((x == 0) & (np.signbit(x) != largest), axes)
    return np.where(found == 0, np.where(zeros == largest, np.zeros((), x.dtype), -np.zeros((), x.dtype)), found)


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_array_equal(a, b)
    number = ~np.isnan(b)
    np.testing.assert_array_equal(np.signbit(a)[number], np.signbit(b)[number])


# Lengths around where rows become lanes, sums begin anew, and columns another block.
LENGTHS = st.sampled_from([1, 2, 3, 7, 8, 9, 31, 32, 33, 63, 65, 100, 127, 128, 129, 257])


@settings(max_examples=150)
@given(st.tuples(LENGTHS, LENGTHS, LENGTHS), st.sampled_from(["f", "d"]), st.integers(0, 2), st.integers(0, 100), st.booleans())
def test_along_any_dimensions(shape, letter, first, seed, special):
    shape = tuple([min(n, 33) if d != seed % 3 else n for d, n in enumerate(shape)])
    x = numbers(shape, letter, seed, special)
    for after in range(first + 1, 4):
        axes = tuple(range(first, after))
        for which in (LARGEST, SMALLEST):
            same(reduced(x, which, first, after), extreme(x, axes, which == LARGEST))
        sums = reduced(x, SUM, first, after)
        with np.errstate(invalid="ignore"):
            exact, sizes = np.sum(x, axes, np.longdouble), np.sum(np.abs(x), axes, np.longdouble)
        assert sums.dtype == x.dtype and sums.shape == exact.shape
        finite = np.isfinite(exact)
        assert np.all(np.abs(sums[finite] - exact[finite]) <= 16 * np.finfo(letter).eps * sizes[finite])
        np.testing.assert_array_equal(np.isnan(sums), np.isnan(exact))


# Shared by pieces, and cut where little is made of much.
@pytest.mark.parametrize("shape", [(1 << 18,), (262145,), (2, 70_001), (70_001, 3), (300, 1200), (4, 300, 700), (2000, 100), (3, 5000, 40)])
@pytest.mark.parametrize("letter", ["f", "d"])
def test_large_ones(shape, letter):
    x = numbers(shape, letter)
    for first in range(len(shape)):
        for after in range(first + 1, len(shape) + 1):
            axes = tuple(range(first, after))
            sums = reduced(x, SUM, first, after)
            exact, sizes = np.sum(x, axes, np.longdouble), np.sum(np.abs(x), axes, np.longdouble)
            assert np.all(np.abs(sums - exact) <= 4 * np.finfo(letter).eps * sizes)
            same(reduced(x, LARGEST, first, after), x.max(axes))
            x[tuple([n // 2 for n in shape])] = np.nan
            same(reduced(x, SMALLEST, first, after), x.min(axes))
            x[tuple([n // 2 for n in shape])] = 1


def test_the_same_bits_each_time():
    x = numbers((500, 3000), "f")
    for first, after in ((0, 1), (1, 2), (0, 2)):
        bits = [reduced(x, SUM, first, after).tobytes() for _ in range(20)]
        assert len(set(bits)) == 1
    # An element's order of adding is that of its row, wherever this stands.
    np.testing.assert_array_equal(reduced(x, SUM, 1, 2)[123:131], reduced(x[123:131].copy(), SUM, 1, 2))


def test_what_is_not_for_them():
    x = numbers((6, 8), "f")
    assert reduced(x.T, SUM, 0, 1) is None
    assert reduced(x[:0], SUM, 0, 1) is None
    assert reduced(x.astype(np.int32), SUM, 0, 1) is None
    assert reduced(x.astype(np.float16), LARGEST, 0, 1) is None
    assert reduced(np.float32(3), SUM, 0, 0) == 3


def test_tensors_that_lie_otherwise():
    t = torch.from_numpy(numbers((12, 40), "f"))
    expected = np.asarray(t.numpy().sum(0, np.float64), "f")
    np.testing.assert_allclose(t.t().sum(1).numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(t[:, ::2].amax(1).numpy(), t.numpy()[:, ::2].max(1))
    np.testing.assert_array_equal(t[None].expand(5, 12, 40).amin((0, 2)).numpy(), t.numpy().min(1))


@pytest.mark.parametrize("shape, dims", [((0, 600), (0,)), ((30, 0, 40), (1,)), ((0, 2, 600), (0, 1)), ((20, 0, 40, 3), (1, 3))])
def test_sums_of_nothing_in_programs_of_xlas(shape, dims):
    """Of no elements there are no loops, however many sums they come to."""
    with execution_mode("eager"):
        t = torch.zeros(shape, requires_grad=True)
        found = t.sum(dims)
        found.sum().backward()
        assert not found.detach().numpy().any() and found.shape == np.zeros(shape).sum(dims).shape and t.grad.shape == t.shape
