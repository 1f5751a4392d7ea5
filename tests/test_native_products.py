"""Matrix products of the interpreter, by C and NumPy's BLAS: wherever the matrices lie, and whoever helps."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchgrad_jax.runtime.native import blas, handlers
from torchgrad_jax.runtime.native.handlers import added, multiplied

pytestmark = [
    pytest.mark.operators,
    pytest.mark.skipif(not blas.multiplies(), reason="the core in pure Python, or a NumPy whose BLAS is not found"),
]


def numbers(shape, dtype="f", seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype(dtype)


def close(found, wanted):
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    tolerance = 1e-4 if found.dtype == np.float32 else 1e-11
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@st.composite
def operands(draw):
    """An array of any layout: dimensions in any order, more memory between its rows, and perhaps a batch that is one matrix again and again."""
    few = st.one_of(st.integers(1, 3), st.integers(1, 70))  # vectors have functions of their own
    batch, m, n = draw(st.lists(st.integers(1, 3), max_size=2)), draw(few), draw(few)
    k, dtype = draw(st.integers(1, 70)), draw(st.sampled_from("fd"))
    left, right = draw(st.booleans()), draw(st.booleans())

    def array(shape, seed):
        order = draw(st.permutations(range(len(shape))))
        whole = numbers([shape[i] + draw(st.integers(0, 2)) for i in order], dtype, seed).transpose(np.argsort(order))
        found = whole[tuple([slice(n) for n in shape])]
        return np.broadcast_to(found[0], found.shape) if batch and draw(st.booleans()) else found

    return array((*batch, *((k, m) if left else (m, k))), 0), array((*batch, *((n, k) if right else (k, n))), 1), left, right


@settings(max_examples=200, deadline=None)
@given(operands())
def test_of_any_layout(given):
    x, y, left, right = given
    found = multiplied(x, y, left, right)
    if found is not None:
        wanted = np.matmul(x.mT if left else x, y.mT if right else y)
        close(found, wanted)
        bias = numbers(wanted.shape[-1:], x.dtype, 2)
        assert (multiplied(x, y, left, right, bias) == found + bias).all()
        rest = numbers(wanted.shape, x.dtype, 4)
        assert (multiplied(x, y, left, right, None, rest) == found + rest).all()
        assert (multiplied(x, y, left, right, bias, rest) == found + bias + rest).all()
        if x.ndim == 2:
            onto = numbers(wanted.shape, x.dtype, 3)
            whole = onto + found
            assert added(x, y, left, right, onto) is None or (onto == whole).all()


@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize(("m", "k", "n"), [(5, 600, 33), (40, 300, 128), (70, 257, 7), (1, 500, 40), (200, 700, 90)])
def test_a_bias_and_a_rest_are_added_once_whatever_the_number_of_terms(m, k, n, dtype):
    for batch in ((), (3,)):
        x, y, bias = numbers((*batch, m, k), dtype), numbers((*batch, k, n), dtype, 1), numbers((n,), dtype, 2)
        found = multiplied(x, y, False, False)
        assert found is not None and (multiplied(x, y, False, False, bias) == found + bias).all()
        rest = numbers(found.shape, dtype, 3)
        assert (multiplied(x, y, False, False, bias, rest) == found + bias + rest).all()
        assert (multiplied(x, y, False, False, None, rest.reshape(-1)) == found + rest).all()


@pytest.mark.skipif(not handlers.vector_bits(), reason="tiles are for processors whose vectors are known")
def test_what_is_added_is_summed_first():
    """Of many terms, which are summed in parts, none is added to what is there; nor to what may not be written to."""
    onto = numbers((30, 40))
    before = onto.copy()
    assert added(numbers((30, 300)), numbers((300, 40), seed=1), False, False, onto) is None and (onto == before).all()
    x, y = numbers((30, 256)), numbers((256, 40), seed=1)
    assert added(x, y, False, False, onto) is onto and (onto == before + multiplied(x, y, False, False)).all()
    onto.flags.writeable = False
    assert added(x, y, False, False, onto) is None


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_of_usual_layouts_by_no_detour(left, right):
    queries, keys = numbers((2, 9, 4, 8)).swapaxes(1, 2), numbers((2, 9, 4, 8), seed=1).transpose(0, 2, 3, 1)  # as attention has them: two strides
    for x, y in ((numbers((7, 8)), numbers((8, 9))), (numbers((3, 7, 8)), numbers((3, 8, 9))), (queries, keys)):
        given_x, given_y = np.asarray(x.mT if left else x), np.asarray(y.mT if right else y)
        found = multiplied(given_x, given_y, left, right)
        assert found is not None
        close(found, x @ y)


@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    # several blocks of terms; rows whole pages apart, by few columns and by many; narrow rows; more rows, and more columns, than are done at once;
    # few rows and a matrix that is in no cache
    [(70, 600, 300), (50, 1024, 70), (130, 1024, 200), (90, 300, 40), (600, 40, 100), (40, 300, 700), (1024, 260, 33), (10, 2100, 700)],
)
def test_large_ones_are_read_where_they_lie_or_copied(m, k, n, left, right, dtype):
    x, y = numbers((k, m) if left else (m, k), dtype), numbers((n, k) if right else (k, n), dtype, 1)
    wide_x, wide_y = x.astype("d"), y.astype("d")
    found = multiplied(x, y, left, right)
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found, (wide_x.T if left else wide_x) @ (wide_y.T if right else wide_y), atol=4 * k * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize(
    ("m", "k", "n"), [(700, 400, 1), (3, 90_000, 1), (90_000, 3, 1), (1, 400, 700), (1, 100_003, 3), (1, 3, 100_003), (1, 5000, 61)]
)
def test_a_vector_and_a_large_matrix(m, k, n, dtype):
    """Shared by rows, by columns, or by terms, whose sums are added up in their order: the same bits whoever helps."""
    for left, right in ((False, False), (True, False), (False, True), (True, True)):
        x, y = numbers((k, m) if left else (m, k), dtype), numbers((n, k) if right else (k, n), dtype, 1)
        found = multiplied(x, y, left, right)
        wanted = (x.T if left else x).astype("d") @ (y.T if right else y).astype("d")
        np.testing.assert_allclose(found, wanted, atol=4 * k * np.finfo(dtype).eps)
        assert all([(multiplied(x, y, left, right) == found).all() for _ in range(5)])
        bias = numbers((n,), dtype, 2)
        assert (multiplied(x, y, left, right, bias) == found + bias).all()
        apart = np.stack([y, y], -1)[..., 0]  # a vector whose numbers do not lie together
        if n == 1 and not right and (found := multiplied(x, apart, left, False)) is not None:
            np.testing.assert_allclose(found, wanted, atol=4 * k * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_many_matrices_by_one_and_the_same_are_one(order, dtype):
    """As a layer's input whose batch is not the first dimension, which is read where it lies or copied, and its weights, expanded."""
    shape = [60, 4, 65]
    x = numbers([shape[i] for i in order], dtype).transpose(np.argsort(order))
    weights, bias = numbers((90, 65), dtype, 1), numbers((90,), dtype, 2)
    for right, y in ((True, weights), (False, weights.T), (False, np.ascontiguousarray(weights.T))):
        found = multiplied(x, np.broadcast_to(y, (60, *y.shape)), False, right)
        if order == (1, 2, 0):
            assert found is None or np.allclose(found, x @ weights.T, atol=1e-4)
            continue
        close(found, x @ weights.T)
        assert (multiplied(x, np.broadcast_to(y, (60, *y.shape)), False, right, bias) == found + bias).all()


@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize("n", [4, 10, 32, 33])
def test_few_columns_by_the_transpose_of_a_long_matrix(n, dtype):
    x, y, bias = numbers((3000, 150), dtype), numbers((3000, n), dtype, 1), numbers((n,), dtype, 2)
    found = multiplied(x, y, True, False)
    np.testing.assert_allclose(found, x.T.astype("d") @ y.astype("d"), atol=4 * 3000 * np.finfo(dtype).eps)
    assert (multiplied(x, y, True, False, bias) == found + bias).all()


@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize("m", [2, 3, 5, 8, 9])
def test_few_rows_by_the_transpose_of_a_matrix(m, dtype):
    """As a layer's of a small batch: by dot products, also of a number of terms that vectors do not divide."""
    for k, n in ((32, 4), (40, 50), (300, 37), (1031, 90)):
        x, y, bias = numbers((2, m, k), dtype), numbers((2, n, k), dtype, 1), numbers((n,), dtype, 2)
        found = multiplied(x, y, False, True)
        np.testing.assert_allclose(found, x.astype("d") @ y.astype("d").mT, atol=4 * k * np.finfo(dtype).eps)
        assert (multiplied(x, y, False, True, bias) == found + bias).all()
        assert all([(multiplied(x[i], y[i], False, True) == found[i]).all() for i in range(2)])


def test_what_it_leaves_to_numpy():
    x = numbers((4, 6))
    assert multiplied(numbers((200, 4)), x[:, :1], False, False) is None  # BLAS has functions for vectors
    assert multiplied(x[::-1], x.T, False, False) is None
    assert multiplied(x[:, ::2], x.T[::2], False, False) is None
    assert multiplied(np.empty((4, 0), np.float32), np.empty((0, 6), np.float32), False, False) is None


LARGE = (numbers((300, 500)), numbers((500, 400), seed=1))


def test_large_products_have_the_same_bits_whoever_helps():
    x, y = LARGE
    first = multiplied(x, y, False, False)
    close(first, x @ y)
    with ThreadPoolExecutor(4) as pool:  # one of them has the helpers, if any
        for found in pool.map(lambda _: multiplied(x, y, False, False), range(40)):
            np.testing.assert_array_equal(found, first)


def test_small_products_in_a_row_have_the_same_bits_whoever_helps():
    """Helpers are woken by the second one and may join any later one: on a machine with one processor, or where they are not near, never."""
    shapes = [(32, 64, 64), (64, 128, 128), (16, 256, 256), (200, 40, 33)]
    operands = [(numbers((m, k)), numbers((k, n), seed=1)) for m, k, n in shapes]
    first = [multiplied(x, y, False, False) for x, y in operands]
    for found, (x, y) in zip(first, operands, strict=True):
        close(found, x @ y)

    def again(turns):
        for turn in range(turns):
            x, y = operands[turn % 4]
            np.testing.assert_array_equal(multiplied(x, y, False, False), first[turn % 4])

    again(2000)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(again, [300] * 8))


def test_python_goes_on_meanwhile():
    """It may not come to its turn while the machine is busy: so it is tried more than once."""
    x, y = numbers((1500, 1500)), numbers((1500, 1500), seed=1)
    turns = 0
    for _ in range(50):
        begun = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(lambda begun=begun: begun.set() or multiplied(x, y, False, False))
            begun.wait()
            while not job.done():
                turns += 1
        close(job.result()[:2], x[:2] @ y)
        if turns:
            break
    assert turns > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.parametrize("before", [False, True])
def test_a_forked_process_works_alone(before):
    code = f"""
import os, numpy as np
from torchgrad_jax.runtime.native import blas, handlers
from torchgrad_jax.runtime.native.handlers import added, multiplied
assert blas.multiplies()
def threads():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
x = np.random.RandomState(0).standard_normal((700, 700)).astype("f")
found = multiplied(x, x, False, True) if {before} else None
child = os.fork()
if not child:
    own = multiplied(x, x, False, True)
    same = found is None or (own == found).all()
    os._exit(0 if same and threads() == 1 and abs(own - x @ x.T).max() < 1e-2 else 1)
assert os.waitpid(child, 0)[1] == 0
assert abs(multiplied(x, x, False, True) - x @ x.T).max() < 1e-2
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
