"""Arrays of many short rows: joined, padded and copied run by run, reduced and ordered one after the other, and picked from by masks: what NumPy and
PyTorch give of them, to the bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.memory.at_hand import places_in, taken
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.baseline import reducing
from torchgrad_jax.runtime.baseline.copying import LEAST, copied, joined, stacked, written

DTYPES = ["bool", "int16", "int32", "int64", "float16", ml_dtypes.bfloat16, "float32", "float64", "complex64", "complex128"]


def numbers(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


def assert_same(found, wanted):
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


# ---------------------------------------------------------------------- written and joined


@settings(max_examples=100, deadline=None)
@given(
    lead=st.sampled_from([(2100,), (40, 60), (7, 5, 80), (2,)]), widths=st.lists(st.integers(0, 20), min_size=1, max_size=4),
    tail=st.sampled_from([(), (1,), (3,), (2, 2)]), dtype=st.sampled_from(DTYPES), last=st.booleans(), turned=st.booleans(),
)  # fmt: skip
def test_arrays_are_joined_as_numpy_joins_them(lead, widths, tail, dtype, last, turned):
    given_ = [numbers(*lead, n, *tail, dtype=dtype, seed=i) for i, n in enumerate(widths)]
    if turned:
        given_[0] = np.asfortranarray(given_[0])
    axis = len(lead) if last else -1 - len(tail)
    assert_same(joined(given_, axis), np.concatenate(given_, axis))
    alike = [numbers(*lead, 3, *tail, dtype=dtype, seed=i) for i in range(3)]
    for at in range(-alike[0].ndim - 1, alike[0].ndim + 1):
        assert_same(stacked(alike, at), np.stack(alike, at))


def test_what_does_not_fit_is_refused_as_numpy_refuses_it():
    x = numbers(3000, 2)
    for given_ in ([x, numbers(3001, 2)], [x, numbers(3000)], [numbers(3000, 2, 2), numbers(3000, 2, 3)]):
        with pytest.raises(ValueError):
            np.concatenate(given_, 1)
        with pytest.raises(ValueError):
            joined(given_, 1)
    with pytest.raises(ValueError):
        joined([x, x], 2)
    assert_same(joined([x, x.astype(np.float64)], 1), np.concatenate([x, x.astype(np.float64)], 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [*range(1, 18), 24, 31, 40])
def test_parts_are_written(dtype, width):
    x = numbers(LEAST // width + 1, width, dtype=dtype)
    for whole, part in (
        (np.zeros((x.shape[0], width + 3), x.dtype), np.s_[:, 1 : width + 1]),
        (np.zeros((x.shape[0] * 2, width, 2), x.dtype), np.s_[::2, :, 1]),
        (np.zeros((width, x.shape[0]), x.dtype).T, np.s_[:]),
        (np.zeros((x.shape[0] + 5, width), x.dtype), np.s_[3:-2]),
    ):
        wanted = whole.copy()
        wanted[part] = x
        written(whole[part], x)
        np.testing.assert_array_equal(whole, wanted)
    written(whole[3:-2], numbers(width, dtype=dtype))  # as NumPy does
    np.testing.assert_array_equal(whole[3:-2], np.broadcast_to(numbers(width, dtype=dtype), x.shape))


@settings(max_examples=100, deadline=None)
@given(
    shape=st.sampled_from([(70, 80), (5000, 3), (3, 5000), (40, 5, 30), (9, 4, 6, 30), (2, 3, 1, 900)]), order=st.permutations(range(4)),
    repeat=st.lists(st.booleans(), min_size=4, max_size=4), steps=st.lists(st.sampled_from([1, 2, 3, -1, -2]), min_size=4, max_size=4),
    dtype=st.sampled_from(DTYPES),
)  # fmt: skip
def test_whatever_is_looked_at_is_copied(shape, order, repeat, steps, dtype):
    """Turned, with gaps, backwards, and with elements again and again."""
    x = numbers(*[1 if again else n for n, again in zip(shape, repeat, strict=False)], dtype=dtype)
    x = np.broadcast_to(x, shape)[tuple([slice(None, None, step) for step, _ in zip(steps, shape, strict=False)])]
    x = x.transpose([d for d in order if d < len(shape)])
    found = copied(x)
    assert found.flags.c_contiguous and not np.shares_memory(found, x)
    assert_same(found, np.array(x, order="C"))


@pytest.mark.operators
@pytest.mark.parametrize("shape", [(3,), (2000, 3), (50, 60), (7, 1, 9)])
@pytest.mark.parametrize("repeats", [(2,), (1, 2), (3, 1), (2, 2), (2, 1, 3), (1, 1, 1), (2, 3, 1, 2), (0, 2, 1, 1)])
def test_what_is_repeated_and_its_gradient(shape, repeats):
    if len(repeats) < len(shape):
        return
    x = torch.tensor(numbers(*shape)).requires_grad_()
    found = x.repeat(*repeats)
    assert_same(found.detach().numpy(), np.tile(numbers(*shape), repeats))
    weights = numbers(*found.shape, seed=1)
    (found * torch.tensor(weights)).sum().backward()
    split = weights.reshape([n for pair in zip(repeats, (1,) * (len(repeats) - len(shape)) + shape, strict=True) for n in pair])
    assert_same(x.grad.numpy(), split.sum(tuple(range(0, 2 * len(repeats), 2))).reshape(shape))


# ---------------------------------------------------------------------- reduced


AXES = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]
SHAPES = [(40, 33, 3), (3, 17, 31), (1, 16, 32), (5, 300, 2), (150, 1, 17), (2, 3, 400)]


@pytest.mark.operators
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("shape", SHAPES)
def test_integers_and_booleans(shape, axes):
    rng = np.random.default_rng(0)
    x = rng.integers(-(1 << 62), 1 << 62, shape)  # sums wrap around
    assert_same(np.asarray(reducing.summing(axes, x.dtype)(x)), np.add.reduce(x, axes))
    tensor = torch.tensor(x)
    assert_same(tensor.sum(axes).numpy(), np.add.reduce(x, axes))
    for share in (0.0, 0.02, 0.5, 0.98, 1.0):
        mask = rng.random(shape) < share
        assert_same(torch.tensor(mask).any(axes).numpy(), mask.any(axes))
        assert_same(torch.tensor(mask).all(axes).numpy(), mask.all(axes))
        assert_same(torch.tensor(mask).sum(axes).numpy(), mask.sum(axes))


@pytest.mark.operators
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("shape", SHAPES)
def test_products(shape, axes, dtype):
    rng = np.random.default_rng(0)
    x = np.exp(rng.normal(size=shape) * 0.1).astype(dtype) * rng.choice([1, -1], shape).astype(dtype)
    np.testing.assert_allclose(reducing.multiplying(axes, x.dtype)(x), np.multiply.reduce(x.astype(np.float64), axes), rtol=3e-4)
    x.flat[:: x.size // 3] = [0, np.nan, -0.0, np.inf][: len(x.flat[:: x.size // 3])]
    with np.errstate(all="ignore"):
        found, wanted = reducing.multiplying(axes, x.dtype)(x), np.multiply.reduce(x, axes)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_array_equal(found == 0, wanted == 0)


@pytest.mark.parametrize("name", ["sum", "amax", "amin", "prod"])
def test_what_does_not_lie_in_a_row_is_reduced_alike(name):
    """The bits are those of a copy, but for what XLA makes of products."""
    x = torch.tensor(np.random.default_rng(0).normal(size=(90, 80)).astype(np.float32) * 0.1 + 1)
    for dim in (0, 1):
        for view in (x.t(), x[::2], x[:, 1::2], x.flip(1)):
            found, wanted = getattr(view, name)(dim).numpy(), getattr(view.contiguous().clone(), name)(dim).numpy()
            if name == "prod":
                np.testing.assert_allclose(found, wanted, rtol=1e-5)
            else:
                assert_same(found, wanted)


# ---------------------------------------------------------------------- masks


@settings(max_examples=80, deadline=None)
@given(
    shape=st.sampled_from([(), (5,), (0,), (3, 4), (0, 4), (4, 0), (2, 3, 4), (70, 90), (2, 1, 3, 2)]),
    rest=st.sampled_from([(), (3,), (2, 2), (0,)]),
    share=st.sampled_from([0.0, 0.3, 1.0]), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 5),
)  # fmt: skip
def test_places_are_those_of_numpy(shape, rest, share, dtype, seed):
    mask = np.asarray(np.random.default_rng(seed).random(shape) < share)
    if mask.ndim:
        for found, wanted in zip(places_in(mask), np.nonzero(mask), strict=True):
            assert_same(found, wanted)
        turned = np.asfortranarray(mask)
        for found, wanted in zip(places_in(turned), np.nonzero(turned), strict=True):
            assert_same(found, wanted)
    x = numbers(*shape, *rest, dtype=dtype, seed=seed)
    assert_same(taken(x, mask), x[mask])


def test_large_masks_with_and_without_a_graph():
    """Where nobody follows it is taken at once; else by places, whose gradient puts it back."""
    x = torch.arange(60_000.0).reshape(300, 200)
    mask = (x % 3 == 0) & (x > 7)
    expected = x.numpy()[mask.numpy()]
    assert_same(x[mask].numpy(), expected)
    followed = x.clone().requires_grad_()
    picked = followed[mask]
    assert type(picked.grad_fn).__name__ == "IndexBackward0"
    (picked * 2).sum().backward()
    assert_same(picked.detach().numpy(), expected)
    assert_same(followed.grad.numpy(), 2 * mask.numpy().astype(np.float32))
    rows = mask[:, 3]
    assert_same(x[rows].numpy(), x.numpy()[rows.numpy()])
    assert_same(mask.nonzero().numpy(), np.stack(np.nonzero(mask.numpy()), 1))


# ---------------------------------------------------------------------- ordered


@pytest.mark.operators
@pytest.mark.parametrize("n", [1, 2, 3, 15, 16, 17])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("descending", [False, True])
def test_many_short_rows_are_sorted(n, dtype, descending):
    x = np.random.default_rng(n).integers(-3, 4, (1500, n)).astype(dtype)
    if dtype.startswith("float"):
        x[::7, 0], x[3::5, -1] = np.nan, -0.0
    values, order = torch.tensor(x).sort(dim=1, descending=descending, stable=True)
    key = np.where(np.isnan(x), np.inf, x)
    wanted = np.argsort(-key if descending else key, 1, kind="stable")
    assert_same(order.numpy(), wanted)
    assert_same(values.numpy(), np.take_along_axis(x, wanted, 1))
    assert_same(torch.tensor(x).topk(n, 1).values.numpy()[:, 0], np.take_along_axis(x, np.argsort(-key, 1, kind="stable"), 1)[:, 0])


# XLA takes numbers below the least normal one for 0, and for `topk` of the least infinite ones for NaN.
BY_XLA = modes.execution == "eager" or not modes.baseline


def extremes(dtype):
    if dtype.startswith("int"):
        bounds = np.iinfo(dtype)
        return np.array([0, -1, bounds.max, bounds.min, bounds.max - 1, bounds.min + 1], dtype)
    bounds = np.finfo(dtype)
    least = bounds.tiny if BY_XLA else bounds.smallest_subnormal
    return np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, least, -least, bounds.max, bounds.min], dtype)


@pytest.mark.operators
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", [(96,), (97,), (4097,), (70_000,), (5, 700), (700, 5), (3, 200, 2)])
def test_however_many_are_sorted(shape, dtype, descending):
    """Buckets for one byte after the other give what comparisons give: numbers of all sizes, of few, and of one byte alone, extremes among them."""
    random = np.random.default_rng(len(shape) + shape[0])
    kind = np.dtype(dtype).kind
    wide = random.standard_normal(shape) * 10.0 ** random.integers(-30, 30, shape) if kind == "f" else random.integers(-(2**31), 2**31, shape)
    for x in (wide.astype(dtype), random.integers(-300, 300, shape).astype(dtype), np.full(shape, 7, dtype)):
        x.reshape(-1)[:: shape[0] // 11 or 1] = random.choice(extremes(dtype), x.reshape(-1)[:: shape[0] // 11 or 1].shape)
        dim = 0 if shape[0] >= shape[-1] else len(shape) - 1
        values, order = torch.tensor(x).sort(dim=dim, descending=descending, stable=True)
        # Places from the end, with the elements from the end, are those of a descending order.
        given_ = np.flip(x, dim) if descending else x
        wanted = given_.argsort(dim, "stable")
        wanted = x.shape[dim] - 1 - np.flip(wanted, dim) if descending else wanted
        assert_same(order.numpy(), wanted)
        assert_same(values.numpy().view(f"i{x.itemsize}"), np.take_along_axis(x, wanted, dim).view(f"i{x.itemsize}"))
        assert_same(torch.tensor(x).argsort(dim=dim, descending=descending, stable=True).numpy(), wanted)
        k = 0 if BY_XLA and kind == "f" and not descending else min(100, x.shape[dim])
        assert_same(torch.tensor(x).topk(k, dim, descending).indices.numpy(), wanted.take(range(k), dim))
