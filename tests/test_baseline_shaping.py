"""The baseline tier's moves, reductions and sorting against XLA."""

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from test_baseline_agreement import BFLOAT16, BOOL, COMPLEX, EVERY, FLOATS, INTEGERS, agree, edges, values

from torchgrad_jax.runtime.baseline import plan_of

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]

# ---------------------------------------------------------------------- moves


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_moves(dtype):
    x = values(dtype, (3, 4, 5))

    def moves(x):
        yield from (x.reshape(12, 5), x.transpose(2, 0, 1), lax.rev(x, (0, 2)), x[1], x[:, 1:4:2, ::-1], jnp.squeeze(x[:1], 0), x[None], x[..., None])
        yield from (jnp.concatenate([x, x[:1]], 0), jnp.stack([x, x], 1), lax.expand_dims(x, (1,)), jnp.tile(x[0], (2, 3)), jnp.moveaxis(x, 0, 2))
        yield from jnp.split(x, (1, 3), 1)
        yield from (lax.slice(x, (0, 1, 0), (3, 4, 5), (2, 1, 3)), lax.stop_gradient(x), jnp.broadcast_to(x[:, :1], (2, 3, 4, 5)))
        yield from lax.optimization_barrier((x, x[0]))

    agree(lambda x: list(moves(x)), x)
    agree(lambda x: list(moves(x)), np.asarray(x, order="F"))


PADDINGS = [(0, 0, 0), (2, 1, 0), (-1, 2, 0), (1, -2, 0), (0, 0, 2), (2, 3, 1), (-1, -1, 1), (-2, 0, 2), (-4, 4, 0), (-3, 9, 1)]


@pytest.mark.parametrize("config", PADDINGS)
@pytest.mark.parametrize("size", [0, 1, 5])
def test_padding(config, size):
    low, high, interior = config
    if low + high + size + max(size - 1, 0) * interior < 0:
        pytest.skip("a negative size")
    agree(lambda x: lax.pad(x, np.float32(7), (config,)), values(np.float32, size))
    agree(lambda x, v: lax.pad(x, v, (config, (1, 0, 0))), values(np.int8, (size, 2)), np.int8(-3))


def test_iota_and_constants():
    x = values(np.int32, 5)
    agree(lambda x: [x + lax.iota(np.int32, 5), lax.broadcasted_iota(np.float32, (3, 5), 0), jnp.full((2, 3), 7.0), jnp.arange(3)], x)


def test_views_of_what_has_no_elements_or_no_dimensions():
    nothing, scalar = values(np.float32, (0, 3)), values(np.float32, ())
    agree(lambda x: [x.reshape(3, 0), x.T, jnp.concatenate([x, x], 1), jnp.broadcast_to(x, (2, 0, 3)), lax.rev(x, (0,))], nothing)
    agree(lambda x: [x.reshape(1, 1), jnp.broadcast_to(x, (2, 3)), jnp.stack([x, x]), lax.expand_dims(x, (0,)), x[None, None] + 1], scalar)


# ---------------------------------------------------------------------- reductions


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX], ids=str)
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2), ()])
def test_sums_and_products(dtype, axes):
    x = values(dtype, (3, 4, 5))
    agree(lambda x: [lax.reduce_sum(x, axes), lax.reduce_prod(x, axes)], x, units=64, least=4.0)


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX], ids=str)
def test_signs_of_sums_of_zeros(dtype):
    x = np.array([[-0.0], [-0.0]], dtype)
    agree(lambda x: [lax.reduce_sum(x, axes) for axes in ((1,), (0,), ())], x)
    agree(lambda x: [lax.reduce_sum(x[:0], (0,)), lax.reduce_prod(x[:0], (0,))], x)


def test_long_sums_in_half_precision_keep_their_digits():
    for dtype in (np.float16, BFLOAT16):
        x = np.full(4096, 1, dtype)
        agree(lambda x: lax.reduce_sum(x, (0,)), x)


@pytest.mark.parametrize("dtype", [BOOL, *INTEGERS, *FLOATS], ids=str)
def test_extremes(dtype):
    x = np.stack([np.roll(edges(dtype), i) for i in range(edges(dtype).size)])

    def extremes(x):
        for axes in ((0,), (1,), (0, 1)):
            yield from (lax.reduce_max(x, axes), lax.reduce_min(x, axes))

    for part in (x, x[:, :1], x[:1, :3], x[:0], x[0, :3]):
        if part.ndim == 2:
            agree(lambda x: list(extremes(x)), part)
        else:
            agree(lambda x: [lax.reduce_max(x, (0,)), lax.reduce_min(x, (0,))], part)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_largest_and_smallest_of_zeros_of_both_signs(dtype):
    x = np.array([[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0], [0.0, 0.0], [-1.0, -0.0], [-0.0, 1.0]], dtype)
    agree(lambda x: [lax.reduce_max(x, (1,)), lax.reduce_min(x, (1,)), lax.cummax(x, 1), lax.cummin(x, 1)], x)
    agree(lambda x: [lax.reduce_max(x, (1,)), lax.reduce_min(x, (1,))], np.tile(x, 40))


@pytest.mark.parametrize("dtype", [BOOL, *INTEGERS], ids=str)
def test_bitwise_reductions(dtype):
    x = np.stack([edges(dtype), edges(dtype)[::-1]])
    reductions = [jnp.bitwise_or.reduce, jnp.bitwise_and.reduce, jnp.bitwise_xor.reduce]
    agree(lambda x: [f(x, axis) for f in reductions for axis in (0, 1)], x)
    agree(lambda x: [f(x, 0) for f in reductions], x[:0])
    agree(lambda x: [jnp.any(x, 1), jnp.all(x, 0), jnp.any(x), jnp.all(x[:0])], x)


@pytest.mark.parametrize("dtype", [BOOL, *INTEGERS, *FLOATS], ids=str)
def test_places_of_extremes(dtype):
    x = np.stack([np.roll(edges(dtype), i) for i in range(6)])
    x = np.concatenate([x, np.repeat(x[:1, :1], x.shape[1], 1)])

    def places(x):
        for index in (np.int32, np.int64):
            for axis in (0, 1):
                yield from (lax.argmax(x, axis, index), lax.argmin(x, axis, index))

    agree(lambda x: list(places(x)), x)
    agree(lambda x: [lax.argmax(x, 1, np.int32), lax.argmin(x, 1, np.int32)], x[:0])


# ---------------------------------------------------------------------- cumulative operations


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_sums_and_products(dtype, reverse):
    x = values(dtype, (4, 6))
    agree(lambda x: [f(x, axis, reverse) for f in (lax.cumsum, lax.cumprod) for axis in (0, 1)], x, units=32, least=8.0)
    agree(lambda x: [lax.cumsum(x, 0, reverse), lax.cumprod(x, 1, reverse)], x[:0])


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_cumulative_extremes(dtype):
    x = np.stack([np.roll(edges(dtype), i) for i in range(4)])
    agree(lambda x: [f(x, 1, r) for f in (lax.cummax, lax.cummin) for r in (False, True)], x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cumulative_log_of_sums(dtype):
    x = np.concatenate([values(dtype, (3, 5)), np.array([[-np.inf, -np.inf, 0, 100, 1]], dtype)])
    agree(lambda x: [lax.cumlogsumexp(x, 1), lax.cumlogsumexp(x, 1, True)], x, units=16, least=1.0)


# ---------------------------------------------------------------------- sorting


@pytest.mark.parametrize("dtype", [BOOL, *INTEGERS, *FLOATS], ids=str)
def test_sorting(dtype):
    x = np.stack([np.roll(edges(dtype), 3 * i) for i in range(4)])
    place = np.broadcast_to(np.arange(x.shape[1], dtype=np.int32), x.shape)
    agree(lambda x: [lax.sort(x, dimension=0), lax.sort(x, dimension=1), lax.sort(x[0]), lax.sort(x[:, :0])], x)
    agree(lambda x, i: [*lax.sort((x, i), dimension=1, num_keys=1), *lax.sort((x[0], i[0]), num_keys=1)], x, place)
    agree(lambda x, i: [*lax.sort((i // 3, x, i), dimension=1, num_keys=2), *lax.sort((x, i), dimension=0, num_keys=2)], x, place)


def test_equal_numbers_stay_in_order():
    x = values(np.int8, 200)
    agree(lambda x: lax.sort((x, jnp.arange(200)), num_keys=1), x)
    agree(lambda x: lax.sort((x.astype(np.float32), jnp.arange(200)), num_keys=1), x)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_the_largest_few(dtype):
    x = np.stack([np.roll(edges(dtype), 3 * i) for i in range(4)])
    if dtype in FLOATS:  # of zeros with two signs XLA takes 0.0 for the larger
        x = np.where(x == 0, np.zeros((), dtype), x)
    agree(lambda x: [*lax.top_k(x, 3), *lax.top_k(x, x.shape[1]), *lax.top_k(x[0], 1), *lax.top_k(x, 2, axis=0)], x)


@pytest.mark.parametrize(("shape", "axis", "count"), [((20, 150), 1, 9), ((20, 150), 1, 150), ((150, 4, 5), 0, 11), ((4000,), 0, 1)], ids=str)
def test_the_largest_few_of_many(shape, axis, count):
    """Those are sorted as integers, each with its place."""
    random = np.random.default_rng(0)
    x = random.integers(-20, 20, shape).astype(np.float32)  # many are equal
    x.flat[random.integers(0, x.size, 9)] = np.nan
    x.flat[random.integers(0, x.size, 9)] = np.inf
    x.flat[random.integers(0, x.size, 9)] = -np.inf
    agree(lambda x: lax.top_k(x, count, axis=axis), x)
    agree(lambda x: lax.top_k(x - 30, count, axis=axis), np.where(np.isnan(x), np.float32(1), x))  # all below zero


def test_complex_numbers_are_not_ordered():
    x = values(np.complex64, 4)
    for function in (lax.sort, lambda x: lax.max(x, x), lambda x: lax.cummax(x)):
        assert plan_of(jax.make_jaxpr(function)(x)) is None
