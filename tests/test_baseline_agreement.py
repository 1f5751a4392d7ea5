"""The comparison that the tests of the baseline tier are made with: a plan against `jax.jit` of the same function. It notices what is wrong."""

import warnings
from functools import lru_cache

import jax
import ml_dtypes
import numpy as np
import pytest

from torchgrad_jax.runtime.baseline import plan_of
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import rounding_options

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float16), BFLOAT16, np.dtype(np.float32), np.dtype(np.float64)]
COMPLEX = [np.dtype(np.complex64), np.dtype(np.complex128)]
INTEGERS = [np.dtype(name) for name in ("uint8", "int8", "int16", "int32", "int64")]
BOOL = np.dtype(bool)
EVERY = [BOOL, *INTEGERS, *FLOATS, *COMPLEX]
# What an operation gives is not LLVM's to choose, whose passes take half of the time.
OPTIONS = {**rounding_options(CPU), "xla_backend_optimization_level": 0}


def values(dtype, shape, seed=0):
    """Ordinary numbers of a dtype: no two computations of a sum differ by more than rounding."""
    random, dtype = np.random.RandomState(seed), np.dtype(dtype)
    if dtype.kind in "biu":
        return random.randint(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype)
    found = random.standard_normal(shape)
    return (found + 1j * random.standard_normal(shape) if dtype.kind == "c" else found).astype(dtype)


def edges(dtype):
    """Numbers at which functions are special."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([True, False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min // 2, info.max // 3], dtype)
    real = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 2.5, 3.0, np.inf, -np.inf, np.nan, 100.0, -7.25, 0.1])
    return real.astype(dtype)


def read_only(array):
    array = np.asarray(array).view()
    array.flags.writeable = False
    return array


@lru_cache(8)
def compiled(function):
    """A function's results as a list, compiled: once for all that it is called with in a row."""
    return jax.jit(lambda *xs: jax.tree.leaves(function(*xs)), compiler_options=OPTIONS)


def both(function, *arrays):
    """The results of the plan and of the compiled function, as two lists."""
    arrays = [np.asarray(a) for a in arrays]
    as_list = lambda *xs: jax.tree.leaves(function(*xs))  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)  # JAX's own, at tracing
        closed = jax.make_jaxpr(as_list)(*arrays)
        expected = compiled(function)(*arrays)
    plan = plan_of(closed)
    assert plan is not None, "no plan"
    with np.errstate(all="ignore"):
        found = plan(*[read_only(a) for a in arrays])
        again = plan(*[read_only(a) for a in arrays])
    for one, other in zip(found, again, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes(), "two calls differ"
    return [np.asarray(a) for a in found], [np.asarray(a) for a in expected]


def flushed(array):
    """XLA takes numbers below the smallest normal one for zeros, on some processors."""
    if array.dtype.kind == "c":
        return flushed(array.real) + 1j * flushed(array.imag)
    if array.dtype.kind not in "fV":
        return array
    tiny = float(ml_dtypes.finfo(array.dtype).tiny)
    return np.where(np.abs(array.astype(np.float64)) < tiny, np.copysign(np.zeros((), array.dtype), array), array).astype(array.dtype)


def parts(array):
    return [array.real, array.imag] if array.dtype.kind == "c" else [array]


def assert_same(found, expected):
    """Equal in every bit but for the payload of NaN."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    for a, b in zip(parts(found), parts(expected), strict=True):
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
            continue
        a, b = flushed(a).astype(np.float64), flushed(b).astype(np.float64)
        np.testing.assert_array_equal(a, b)
        number = ~np.isnan(a)
        np.testing.assert_array_equal(np.signbit(a)[number], np.signbit(b)[number], "sign of zero")


def assert_close(found, expected, units, least=0.0):
    """Within so many units of the last place of a number (for complex ones, of its magnitude), or of `least` if that is larger."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    step = float(ml_dtypes.finfo(parts(found)[0].dtype).eps)
    if found.dtype.kind == "c":
        scale = np.hypot(expected.real, expected.imag)
    else:
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        scale = np.abs(expected)
    for a, b in zip(parts(found), parts(expected), strict=True):
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite & ~np.isnan(b)], b[~finite & ~np.isnan(b)])
        with np.errstate(invalid="ignore"):
            wrong = (np.abs(a - b) > units * step * np.maximum(scale, least) + 2e-38)[finite]
        assert not wrong.any(), (a[finite][wrong][:5], b[finite][wrong][:5])


def agree(function, *arrays, units=0, least=0.0):
    """Assert that the plan of `function` gives what the compiled function gives; within `units` of the last place, if they are given."""
    for found, expected in zip(*both(function, *arrays), strict=True):
        if units:
            assert_close(found, expected, units, least)
        else:
            assert_same(found, expected)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (np.float32([1.0]), np.float64([1.0])),
        (np.float32([1.0]), np.float32(1.0)),
        (np.float32([0.0]), np.float32([-0.0])),
        (np.float32([np.nan]), np.float32([1.0])),
        (np.float32([1.0]), np.nextafter(np.float32([1.0]), np.float32(2))),
        (np.complex64([complex(0.0, 1.0)]), np.complex64([complex(-0.0, 1.0)])),
        (np.int32([1]), np.int32([2])),
    ],
)
def test_what_differs_in_a_bit_is_not_the_same(found, expected):
    assert_same(found, found)
    with pytest.raises(AssertionError):
        assert_same(found, expected)


def test_what_is_near_is_within_units_only():
    one, next_one = np.float32([1.0]), np.nextafter(np.float32([1.0]), np.float32(2))
    assert_close(one, next_one, 1)
    for other in (one + 1e-5, one * np.nan, one * np.inf, one.astype(np.float64)):
        with pytest.raises(AssertionError):
            assert_close(other, one, 1)


def test_a_plan_that_writes_to_its_input_is_noticed():
    x = read_only(values(np.float32, 3))
    with pytest.raises(ValueError, match="read-only"):
        np.add(x, x, out=x)
