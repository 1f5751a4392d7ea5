"""The baseline tier's gathers, scatters and slices against XLA: every mode, indices out of range, duplicates."""

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from test_baseline_agreement import BOOL, EVERY, FLOATS, INTEGERS, agree, values

from torchgrad_jax.runtime.baseline import blocks, plan_of

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]

MODES = ["clip", "fill", "promise_in_bounds"]
WILD = np.array([[0, 3], [-1, 2], [2, 9], [-7, -7], [1, 1], [2, 2**31 - 1], [3, 0], [1, 1]], np.int32)


def gather(dims, sizes, mode, **more):
    return lambda x, i: lax.gather(x, i, lax.GatherDimensionNumbers(**dims), sizes, mode=mode, **more)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("dims", "sizes"),
    [
        ({"offset_dims": (), "collapsed_slice_dims": (0, 1), "start_index_map": (0, 1)}, (1, 1)),
        ({"offset_dims": (), "collapsed_slice_dims": (0, 1), "start_index_map": (1, 0)}, (1, 1)),
        ({"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0, 1)}, (1, 2)),
        ({"offset_dims": (0,), "collapsed_slice_dims": (1,), "start_index_map": (0, 1)}, (3, 1)),
        ({"offset_dims": (0, 2), "collapsed_slice_dims": (), "start_index_map": (0, 1)}, (2, 3)),
        ({"offset_dims": (0, 1), "collapsed_slice_dims": (), "start_index_map": (0, 1)}, (4, 5)),
        ({"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0, 1)}, (1, 0)),
    ],
    ids=str,
)
def test_gathers_of_windows(dims, sizes, mode):
    agree(gather(dims, sizes, mode), values(np.float32, (4, 5)), WILD)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(5,), (2, 3), (), (0,)])
def test_taking_along_a_dimension(axis, shape, mode):
    index = np.resize(np.array([1, -1, 4, 0, 9, 2], np.int32), shape)
    x = values(np.float32, (4, 5, 6))
    agree(lambda x, i: jnp.take(x, i, axis, mode=mode if mode != "promise_in_bounds" else "clip"), x, index)
    agree(lambda x, i: x.at[(slice(None),) * axis + (i,)].get(mode=mode), x, np.abs(index) % 4)
    agree(lambda x, i: x.at[(slice(None),) * axis + (i,)].get(mode=mode), np.asarray(x, order="F"), np.abs(index) % 4)


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_what_is_filled_in(dtype):
    x, index = values(dtype, (4, 3)), np.array([0, 9, -9, 3], np.int64)
    agree(lambda x, i: [x.at[i].get(mode="fill"), x.at[i, 1].get(mode="fill"), x.at[:, i].get(mode="fill", fill_value=1)], x, index)


@pytest.mark.parametrize("index", [np.uint8, np.int8, np.uint32, np.int64, np.uint64])
def test_indices_of_each_dtype(index):
    for shape in ((100,), (100, 1), (100, 3)):
        agree(lambda x, i: [x[i], x.at[i].get(mode="clip")], values(np.float32, shape), np.array([0, 5, 99, 120], index))
        agree(lambda x, i: x.at[i].get(mode="promise_in_bounds"), values(np.float32, shape), np.array([0, 5, 99, 7], index))


@pytest.mark.parametrize("mode", MODES)
def test_gathers_with_batching_dimensions(mode):
    x, index = values(np.float32, (3, 4, 5)), np.array([[[0], [3]], [[-1], [2]], [[7], [1]]], np.int32)
    dims = {"collapsed_slice_dims": (1,), "start_index_map": (1,), "operand_batching_dims": (0,), "start_indices_batching_dims": (0,)}
    agree(gather({"offset_dims": (2,), **dims}, (1, 1, 5), mode), x, index)
    agree(gather({"offset_dims": (1,), **dims}, (1, 1, 2), mode), x, index)
    agree(lambda x, i: jnp.take_along_axis(x, i, 1, mode="clip"), x, np.repeat(index, 5, 2)[:, :, :5])
    agree(lambda x, i: jax.vmap(lambda a, b: a[b[:, 0]])(x, i), x, index)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", [(1, 2), (0, 4), (3, 5), (-1, 0), (9, 1)])
def test_one_window(mode, start):
    """As a slice is in a `vmap`."""
    x, start = values(np.float32, (4, 6, 3)), np.array(start, np.int32)
    kept = {"offset_dims": (0, 1, 2), "collapsed_slice_dims": (), "start_index_map": (0, 1)}
    agree(gather(kept, (2, 2, 3), mode), x, start)
    agree(gather({"offset_dims": (0, 1), "collapsed_slice_dims": (1,), "start_index_map": (1, 0)}, (2, 1, 3), mode), x, start[::-1])
    agree(gather({"offset_dims": (), "collapsed_slice_dims": (0, 1, 2), "start_index_map": (0, 1)}, (1, 1, 1), mode), x, start)
    mapped = jax.vmap(lambda row, at: lax.dynamic_slice(row, (at, jnp.int32(1)), (2, 2)), (0, None))
    agree(lambda x, start: mapped(x, start[0]), x, start)


def test_gathers_from_nothing():
    agree(lambda x, i: x.at[i].get(mode="fill"), values(np.int8, (4, 0)), np.array([0, 2]))


# ---------------------------------------------------------------------- scatter

METHODS = ["set", "add", "multiply", "min", "max"]
SCATTERS = {"set": lax.scatter, "add": lax.scatter_add, "multiply": lax.scatter_mul, "min": lax.scatter_min, "max": lax.scatter_max}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ({"update_window_dims": (), "inserted_window_dims": (0, 1), "scatter_dims_to_operand_dims": (0, 1)}, (8,)),
        ({"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0, 1)}, (8, 2)),
        ({"update_window_dims": (0,), "inserted_window_dims": (1,), "scatter_dims_to_operand_dims": (0, 1)}, (3, 8)),
        ({"update_window_dims": (0, 2), "inserted_window_dims": (), "scatter_dims_to_operand_dims": (1, 0)}, (2, 8, 3)),
    ],
    ids=str,
)
def test_scatters_of_windows(dims, shape, method, mode):
    function = SCATTERS[method]
    agree(
        lambda x, i, u: function(x, i, u, lax.ScatterDimensionNumbers(**dims), mode=mode),
        *(values(np.float64, (4, 5)), WILD, values(np.float64, shape, seed=1)),
        units=8,
    )


@pytest.mark.parametrize("dtype", [BOOL, *INTEGERS, *FLOATS, np.dtype(np.complex64)], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_scatters_of_each_dtype(dtype, method):
    if (dtype == BOOL and method in ("add", "multiply")) or (dtype.kind == "c" and method in ("min", "max")):
        pytest.skip("not in JAX, or not in NumPy")
    x, index, update = values(dtype, (6, 3)), np.array([0, 2, 2, 9, -1, -9, 2]), values(dtype, (7, 3), seed=1)

    def scatters(x, i, u):
        yield getattr(x.at[i], method)(u)
        yield getattr(x.at[i, 1], method)(u[:, 0])
        yield getattr(x.at[jnp.array([4, 1]), :], method)(u[:2], unique_indices=True)

    agree(lambda x, i, u: list(scatters(x, i, u)), x, index, update, units=4 * (method in ("add", "multiply")), least=4.0)


@pytest.mark.parametrize("length", [1, 5, 300])
def test_of_duplicates_the_last_counts_and_all_are_added(length):
    x, update = values(np.float64, (50, length)), values(np.float64, (400, length), seed=1)
    index = np.random.RandomState(0).randint(0, 50, 400)
    agree(lambda x, i, u: x.at[i].set(u), x, index, update)
    agree(lambda x, i, u: x.at[i].add(u), x, index, update, units=16, least=8.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", SCATTERS)
@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ({"update_window_dims": (0, 1), "inserted_window_dims": (), "scatter_dims_to_operand_dims": (1,)}, (4, 3)),
        ({"update_window_dims": (0,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (1,)}, (2,)),
        ({"update_window_dims": (0,), "inserted_window_dims": (1,), "scatter_dims_to_operand_dims": (1,)}, (4,)),
        ({"update_window_dims": (), "inserted_window_dims": (0, 1), "scatter_dims_to_operand_dims": (1, 0)}, ()),
    ],
)
def test_scatters_of_one_window(dims, shape, method, mode):
    """As the derivative of a slice in a vmap: inside, at both ends, and not wholly inside."""
    numbers = lax.ScatterDimensionNumbers(**dims)

    def scatter(x, i, u):
        return SCATTERS[method](x, i, u, numbers, mode=mode)

    for start in (0, 1, 2, 3, 4, 5, -1, 2**40):
        index = np.array([start] * len(dims["scatter_dims_to_operand_dims"]))
        agree(scatter, values(np.float32, (4, 5)), index, values(np.float32, shape, seed=1))


@pytest.mark.parametrize("mode", MODES)
def test_scatters_with_batching_dimensions(mode):
    x, index, update = values(np.float64, (3, 4)), np.array([[[0], [3]], [[-1], [2]], [[7], [1]]], np.int32), values(np.float64, (3, 2), seed=1)
    numbers = lax.ScatterDimensionNumbers((), (1,), (1,), operand_batching_dims=(0,), scatter_indices_batching_dims=(0,))
    agree(lambda x, i, u: [lax.scatter_add(x, i, u, numbers, mode=mode), lax.scatter(x, i, u, numbers, mode=mode)], x, index, update)


def test_scatters_of_nothing():
    agree(lambda x, i: x.at[i].add(1), values(np.float32, (0, 3)), np.array([0, 2]))
    agree(lambda x, i: x.at[i].set(1), values(np.float32, (4, 3)), np.zeros(0, np.int32))


def test_a_function_applied_at_indices_has_no_plan():
    assert plan_of(jax.make_jaxpr(lambda x, i: x.at[i].apply(jnp.sin))(np.ones(3), np.array([1]))) is None


def test_gradients_of_indexing():
    x, index = values(np.float64, (6, 3)), np.array([0, 2, 2, -1])
    agree(lambda x, i: jax.grad(lambda x: jnp.sum(jnp.sin(x[i]) * x[i, 1:2]))(x), x, index, units=32, least=4.0)


# ---------------------------------------------------------------------- slices


@pytest.mark.parametrize("start", [(0, 0), (1, 2), (9, 9), (-9, -1), (2**31 - 1, -(2**31))])
def test_slices_that_begin_anywhere(start):
    x, update = values(np.float32, (4, 5)), values(np.float32, (2, 3), seed=1)
    at = np.array(start, np.int32)
    agree(lambda x, s, u: [lax.dynamic_slice(x, s, (2, 3)), lax.dynamic_update_slice(x, u, s), lax.dynamic_slice(x, s, (4, 5))], x, at, update)
    agree(lambda x, s: [lax.dynamic_slice(x, s, (2, 0)), lax.dynamic_index_in_dim(x, s[0], 1), lax.dynamic_slice(x[:0], s, (0, 2))], x, at)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("length", [1, 7])
def test_rows_are_added_one_after_the_other(dtype, length):
    """To the bit as NumPy does it, whose `add.at` takes ten times as long and more."""
    random = np.random.default_rng(length)
    rows, updates = random.normal(size=(9, length)).astype(dtype), random.normal(size=(200, length)).astype(dtype)
    places = random.integers(0, 9, 200)
    expected = rows.copy()
    np.add.at(expected, places, updates)
    blocks.add_rows(rows, places, updates)
    assert rows.tobytes() == expected.tobytes()
    for wrong in ((rows, places.astype(np.int32), updates), (rows, places, updates[:, ::-1] if length > 1 else updates[::2])):
        with pytest.raises((BufferError, ValueError)):
            blocks.add_rows(*wrong)
