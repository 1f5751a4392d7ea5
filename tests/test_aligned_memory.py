"""Arrays that C makes, and NumPy for the interpreter, begin at lines of the processor's caches; the user's own are NumPy's affair."""

from __future__ import annotations

import pickle
import threading
import tracemalloc

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.runtime.baseline import blocks, lanes, quiet_context
from torchgrad_jax.runtime.native import blas
from torchgrad_jax.runtime.native.handlers import multiplied

pytestmark = pytest.mark.skipif(not torch.runtime.typed_core(), reason="the core in pure Python")
LINE = 64


def begins_at_a_line(array):
    return array.ctypes.data % LINE == 0


def in_context(function, *arguments):
    return quiet_context().run(function, *arguments)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (40, 50), (1000, 1000)])
def test_what_numpy_makes_for_the_interpreter(shape):
    kept = []  # else the same memory would be given again
    for make in (np.empty, np.zeros, np.ones):
        for dtype in (np.bool_, np.float16, np.float32, np.complex128):
            kept += [in_context(make, shape, dtype) for _ in range(5)]
            assert all(begins_at_a_line(array) for array in kept)
    assert all(not array.any() for array in in_context(lambda: [np.zeros(shape) for _ in range(10)]))


def test_results_of_c():
    kept = []
    x = np.ones((17, 17), np.float32)
    for _ in range(10):
        kept.append(blocks.Function(lanes.SQUARE)(x))
        if blas.multiplies():
            kept.append(multiplied(x, x, False, False))
    assert all(begins_at_a_line(array) and array.flags.owndata and array.flags.writeable for array in kept)


def test_they_are_arrays_like_others():
    array = blocks.Function(lanes.SQUARE)(np.arange(1000, dtype=np.float32))
    wanted = array.copy()
    array.resize(5000, refcheck=False)
    assert begins_at_a_line(array) and (array[:1000] == wanted).all() and not array[1000:].any()
    array.resize(10, refcheck=False)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)), wanted[:10])
    freed = []
    thread = threading.Thread(target=lambda: freed.append(in_context(np.ones, 100000)))
    thread.start()
    thread.join()
    assert freed.pop().sum() == 100000


def test_memory_that_there_is_not():
    for size in (1 << 45, np.iinfo(np.intp).max // 8):
        for make in (np.empty, np.zeros):
            with pytest.raises((MemoryError, ValueError)):
                in_context(make, size)


def test_memory_is_traced():
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        array = blocks.Function(lanes.SQUARE)(np.ones(1 << 18, np.float32))
        traced = tracemalloc.get_traced_memory()[0] - before
        assert (1 << 20) <= traced < (3 << 19)
        del array
        assert tracemalloc.get_traced_memory()[0] - before < 1 << 19
    finally:
        tracemalloc.stop()


def test_the_users_own_arrays_are_numpys():
    name = np._core.multiarray.get_handler_name if hasattr(np, "_core") else np.core.multiarray.get_handler_name
    before = name()
    x = torch.ones(100, 100)
    (x @ x + 1).sum().item()
    in_context(np.ones, 10)
    assert name() == before == name(np.ones(10))
