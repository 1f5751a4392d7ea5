"""Matrix products by functions of our own, of each kind that this processor has: right, and the same bits whatever else is multiplied, by whoever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchgrad_jax.runtime.native import blas, handlers
from torchgrad_jax.runtime.native.handlers import multiplied

pytestmark = [
    pytest.mark.operators,
    pytest.mark.skipif(not blas.multiplies(), reason="the core in pure Python, or a NumPy whose BLAS is not found"),
    pytest.mark.skipif(not handlers.vector_bits(), reason="a processor or a compiler for which there are no such functions"),
]
KINDS = [bits for bits in (256, 512) if bits <= handlers.vector_bits()]


@pytest.fixture(params=KINDS)
def bits(request):
    thirds = handlers.by_thirds()
    blas.multiply_by(request.param)
    yield request.param
    blas.multiply_by(handlers.vector_bits(), thirds)


def numbers(shape, dtype="f", seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype(dtype)


def product(x, y, left=False, right=False):
    """Of x and y, which lie as their transposes if `left`, `right`."""
    return multiplied(np.ascontiguousarray(x.mT) if left else x, np.ascontiguousarray(y.mT) if right else y, left, right)


def is_close(found, x, y):
    """Whether the error is that of sums of so many rounded terms, at most: Higham, Accuracy and Stability of Numerical Algorithms, (3.13)."""
    wide = np.float64 if x.dtype == np.float32 else np.longdouble
    bound = (x.shape[-1] + 1) * np.finfo(x.dtype).eps * np.abs(x).astype(wide) @ np.abs(y).astype(wide)
    return found.dtype == x.dtype and bool((np.abs(found.astype(wide) - x.astype(wide) @ y.astype(wide)) <= bound).all())


SIZES = st.one_of(st.integers(4, 40), st.sampled_from([47, 48, 49, 64, 95, 96, 128, 129, 200]))


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(KINDS or [0]), m=SIZES, n=SIZES, k=st.one_of(st.integers(1, 40), st.sampled_from([255, 256, 257, 300, 600])),
       batch=st.integers(1, 3), dtype=st.sampled_from("fd"), left=st.booleans(), right=st.booleans())  # fmt: skip
def test_of_any_sizes(kind, m, n, k, batch, dtype, left, right):
    x, y = numbers((batch, m, k), dtype), numbers((batch, k, n), dtype, 1)
    thirds = handlers.by_thirds()
    blas.multiply_by(kind)
    try:
        assert is_close(product(x, y, left, right), x, y)
    finally:
        blas.multiply_by(handlers.vector_bits(), thirds)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("sizes", [(256, 512, 300), (130, 1030, 1024), (1, 40, 3000, 70), (40, 90, 64, 70), (12, 4, 9000), (9000, 4, 12)])
def test_large_ones_that_threads_share(bits, sizes, left, right):
    *batch, m, n, k = sizes
    x, y = numbers((*batch, m, k)), numbers((*batch, k, n), seed=1)
    found = product(x, y, left, right)
    assert is_close(found, x, y)
    assert all([(product(x, y, left, right) == found).all() for _ in range(5)])


@pytest.mark.parametrize("dtype", "fd")
def test_an_element_has_the_same_bits_wherever_it_is_computed(bits, dtype):
    """In the order of its terms: for rows alone, in a batch, for other columns, by any layout, and for wider vectors."""
    x, y = numbers((300, 700), dtype), numbers((700, 333), dtype, 1)
    whole = product(x, y)
    for left, right in [(False, True), (True, False), (True, True)]:
        assert (product(x, y, left, right) == whole).all()
    assert (product(x[17:21], y) == whole[17:21]).all()
    assert (product(x, np.ascontiguousarray(y[:, 100:107])) == whole[:, 100:107]).all()
    assert (product(np.stack([x, -x]), np.stack([y, y])) == np.stack([whole, -whole])).all()
    blas.multiply_by(KINDS[0])
    assert (product(x, y) == whole).all()


def test_what_is_no_number_stays_where_it_is(bits):
    """Elements beyond a matrix's edge are read, or copied, and must not be seen."""
    x, y = numbers((13, 37)), numbers((37, 35), seed=1)
    x[12], y[:, 34] = np.nan, np.inf
    found = product(x, y, False, True)
    assert np.isnan(found[12]).all() and not np.isfinite(found[:, 34]).any()
    assert is_close(found[:12, :34], x[:12], y[:, :34])


def test_parts_of_larger_arrays(bits):
    x, y = numbers((100, 90))[20:80, 10:70], numbers((90, 100), seed=1)[5:65, 30:80]
    assert is_close(handlers.multiplied(x, y, False, False), x, y)
    assert is_close(handlers.multiplied(x.T, y.T, True, True), x, y)
