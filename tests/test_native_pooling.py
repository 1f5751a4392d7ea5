"""The largest elements of windows by loops of C's: what jax.numpy says they are, interpreted and compiled, and whatever transforms them."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.operators import pooling
from torchgrad_jax.runtime import baseline_tier
from torchgrad_jax.runtime._jax_compat import call_x64
from torchgrad_jax.runtime.baseline.loops import ADDED, GRADIENT, PLACES, PUT, TAKEN, VALUES, how_of_places, how_of_windows, how_within
from torchgrad_jax.runtime.compiling.foreign import POOLING, knows
from torchgrad_jax.runtime.native import handlers

F = torch.nn.functional
pytestmark = [pytest.mark.operators, pytest.mark.skipif(not knows(POOLING), reason="the core in pure Python")]


def numbers(shape, seed=0, repeated=True, dtype=np.float32):
    """Many equal ones, both zeros, and what is no number."""
    random = np.random.RandomState(seed)
    found = random.standard_normal(shape).astype(dtype)
    if repeated:
        found = np.round(found * 2) / 2
        found[random.random_sample(shape) < 0.05] = np.nan
        found[random.random_sample(shape) < 0.05] = -np.inf
    return found


def by_loops(of, x, *grad, **windows):
    shape = x.shape if grad else (*x.shape[: -len(windows["sizes"])], *windows["sizes"])
    made = [np.full(shape, 7, x.dtype), np.full(shape, 7)][: 2 if of == PLACES else 1]
    assert handlers.pool([x, *grad], made, how_of_windows(x, *grad, of=of, **windows))
    return made


def said(of, *given, **windows):
    return call_x64(jax.jit(partial(pooling._said_of, of=of, **windows)), *given)


def up_to(most, least=1):
    return st.lists(st.integers(least, most), min_size=3, max_size=3).map(tuple)


@settings(max_examples=12, deadline=None)  # each of which XLA compiles, here and below
@example([2, 3], 3, (1, 1, 1), (3, 3, 4), (1, 1, 2), (1, 1, 1), (1, 1, 1), True, False, 0)  # a window of -inf and padding alone
@given(
    planes=st.lists(st.integers(1, 3), min_size=1, max_size=2), dims=st.integers(1, 3), volume=up_to(11), kernel=up_to(4), stride=up_to(3),
    padding=up_to(1, 0), dilation=up_to(3), ceil_mode=st.booleans(), double=st.booleans(), seed=st.integers(0, 9),
)  # fmt: skip
def test_any_windows(planes, dims, volume, kernel, stride, padding, dilation, ceil_mode, double, seed):
    volume, kernel, stride, padding, dilation = (numbers[:dims] for numbers in (volume, kernel, stride, padding, dilation))
    padding = tuple(min(p, k // 2) for p, k in zip(padding, kernel, strict=True))
    sizes = pooling._sizes(np.empty(volume), kernel, stride, padding, dilation, ceil_mode)
    assume(min(sizes) > 0)
    inside = [pooling._coordinates(kernel, stride, padding, dilation, sizes, i) for i in range(dims)]
    assume(all([((at >= 0) & (at < n)).any(1).all() for at, n in zip(inside, volume, strict=True)]))  # else nobody says where a gradient goes
    windows = dict(kernel=kernel, stride=stride, padding=padding, dilation=dilation, sizes=sizes)
    dtype = np.float64 if double else np.float32
    x, grad = numbers((*planes, *volume), seed, dtype=dtype), numbers((*planes, *sizes), seed + 1, False, dtype)
    for of in (VALUES, PLACES):
        for found, wanted in zip(by_loops(of, x, **windows), said(of, x, **windows), strict=True):
            np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(by_loops(GRADIENT, x, grad, **windows)[0], said(GRADIENT, x, grad, **windows)[0], rtol=1e-6, atol=1e-6)


@settings(max_examples=14, deadline=None)
@given(planes=st.integers(1, 3), dims=st.integers(1, 3), volume=up_to(11), sizes=up_to(12), double=st.booleans(), seed=st.integers(0, 9))
def test_windows_that_cover_evenly(planes, dims, volume, sizes, double, seed):
    x = numbers((planes, *volume[:dims]), seed, dtype=np.float64 if double else np.float32)
    windows = dict(kernel=(), stride=(), padding=(), dilation=(), sizes=sizes[:dims])
    for found, wanted in zip(by_loops(PLACES, x, **windows), said(PLACES, x, **windows), strict=True):
        np.testing.assert_array_equal(found, wanted)


@settings(max_examples=12, deadline=None)
@given(
    planes=st.integers(1, 3),
    dims=st.integers(2, 3),
    volume=up_to(9, 4),
    kernel=up_to(4),
    sizes=up_to(8),
    double=st.booleans(),
    seed=st.integers(0, 9),
)
def test_windows_where_an_operand_says(planes, dims, volume, kernel, sizes, double, seed):
    volume, windows = volume[:dims], dict(kernel=kernel[:dims], sizes=sizes[:dims])
    dtype = np.float64 if double else np.float32
    x, random = numbers((planes, 2, *volume), seed, dtype=dtype), np.random.RandomState(seed)
    starts = [random.randint(0, n - k + 1, (planes, 2, m)) for n, k, m in zip(volume, *windows.values(), strict=True)]
    bounds = np.concatenate([np.stack([at, at + k], -1) for at, k in zip(starts, kernel, strict=False)], 2)
    made = [np.full((planes, 2, *windows["sizes"]), 7, dtype), np.full((planes, 2, *windows["sizes"]), 7)]
    assert handlers.pool([x, bounds], made, how_within(x, bounds, **windows))
    for found, wanted in zip(made, call_x64(jax.jit(partial(pooling._said_within, **windows)), x, bounds), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("of", [ADDED, PUT, TAKEN])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_elements_at_places(of, dtype):
    places, shape = np.random.RandomState(0).randint(0, 6, (3, 4, 5)), (3, 2, 3)
    given, made = (shape, places.shape) if of == TAKEN else (places.shape, shape)
    x, found = numbers(given, dtype=dtype, repeated=False), np.full(made, 7, dtype)
    assert handlers.pool([x, places], [found], how_of_places(x, places, of=of, spatial=(2, 3)))
    np.testing.assert_allclose(found, call_x64(jax.jit(partial(pooling._said_at_places, of=of, spatial=(2, 3))), x, places)[0], rtol=1e-6)


WHOLE = {
    "image": lambda x: F.max_pool2d(x, 9, return_indices=True),
    "volume": lambda x: F.max_pool3d(x[None], (1, 9, 9), return_indices=True),
    "evenly": lambda x: F.adaptive_max_pool2d(x, 1, return_indices=True),
}


@pytest.mark.parametrize("windows", sorted(WHOLE))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_the_last_one_that_is_no_number_is_the_largest(windows, dtype):
    """In half precision jax.numpy says which it is."""
    x = torch.zeros(1, 1, 9, 9, dtype=dtype)
    x[0, 0, 1, 2] = x[0, 0, 7, 1] = np.nan
    value, place = WHOLE[windows](x)
    assert value.isnan().all() and place.item() == 64


BY_PLACES = {
    "windows": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[0],
    "evenly": lambda x: F.adaptive_max_pool2d(x, (4, 3)),
    "by chance": lambda x: F.fractional_max_pool2d(x, 2, (3, 4), _random_samples=torch.tensor([[[0.2, 0.7]]], dtype=x.dtype)),
    "put back": lambda x: F.max_unpool2d(x, torch.arange(84, 0, -2).reshape(x.shape), 2, output_size=(12, 14)),
}


@pytest.mark.parametrize("windows", sorted(BY_PLACES))
def test_derivatives_by_places(windows):
    pool = BY_PLACES[windows]
    x = torch.tensor(numbers((1, 1, 6, 7), repeated=False), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(pool, x, check_forward_ad=True) and torch.autograd.gradgradcheck(pool, x)
    single = x.detach().float()
    assert_close(torch.func.grad(lambda x: pool(x).pow(2).sum())(single), torch.autograd.grad(pool(x).pow(2).sum(), x)[0])


@pytest.mark.parametrize("options", [dict(kernel_size=2), dict(kernel_size=3, stride=2, padding=1), dict(kernel_size=2, ceil_mode=True)])
def test_both_tiers_and_many_threads(options):
    x = numbers((8, 16, 31, 31), repeated=False)

    def step():
        t = torch.tensor(x, requires_grad=True)
        y = F.max_pool2d(t, **options)
        (y * y).sum().backward()
        return y.detach().numpy(), t.grad.numpy()

    with torch.explain() as report, baseline_tier(True):
        first = step()
    assert "interpreted" in report.programs[0].runs
    compiled = torch.jit(lambda t: F.max_pool2d(t, **options))
    for _ in range(3):
        np.testing.assert_array_equal(compiled(torch.tensor(x)).numpy(), first[0])
    with torch.explain() as report, baseline_tier(False):
        for _ in range(3):
            last = step()
    assert "compiled" in report.programs[-1].runs
    np.testing.assert_array_equal(last[0], first[0])
    np.testing.assert_allclose(last[1], first[1], rtol=1e-6)


def test_derivatives_of_every_kind():
    x = numbers((2, 3, 6, 7), repeated=False)
    windows = dict(kernel=(2, 2), stride=(1, 1), padding=(1, 1), dilation=(1, 1), sizes=(7, 8))

    def pool(t):
        return (F.max_pool2d(t, 2, stride=1, padding=1) ** 3).sum()

    def wanted(t):
        return (pooling._said(t, **windows) ** 3).sum()

    found = torch.tensor(x)
    assert_close(torch.func.grad(pool)(found), call_x64(jax.grad(wanted), x))
    assert_close(torch.func.hessian(pool)(found), call_x64(jax.hessian(wanted), x))
    twice = torch.func.grad(lambda t: torch.func.grad(pool)(t).pow(2).sum())(found)
    assert_close(twice, call_x64(jax.grad(lambda t: (jax.grad(wanted)(t) ** 2).sum()), x))
    tangent = torch.func.jvp(pool, (found,), (torch.ones_like(found),))[1]
    assert_close(tangent, call_x64(lambda t: jax.jvp(wanted, (t,), (np.ones_like(t),))[1], x))


def assert_close(found, wanted):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dims", [0, 1, 3])
def test_mapped_over_any_dimension(dims):
    x = torch.tensor(numbers((2, 3, 4, 5, 6), repeated=False))
    images = x.movedim(0, dims)
    found = torch.vmap(lambda t: F.max_pool2d(t, 2), in_dims=dims)(images)
    assert torch.equal(found, torch.stack([F.max_pool2d(one, 2) for one in x]))
    grads = torch.vmap(torch.func.grad(lambda t: F.max_pool2d(t, 2).sum()), in_dims=dims)(images)
    assert torch.equal(grads, torch.stack([torch.func.grad(lambda t: F.max_pool2d(t, 2).sum())(one) for one in x]))


def test_a_window_without_an_element():
    x = torch.ones(1, 1, 2, 2, requires_grad=True)
    F.max_pool2d(x, (1, 2), stride=1, padding=(0, 1), dilation=(1, 3)).sum().backward()
    assert x.grad.tolist() == [[[[0, 0], [0, 0]]]]
    assert F.max_pool2d(torch.ones(1, 1, 1, 4), (2, 1), padding=(1, 0), dilation=(2, 1)).tolist() == [[[[-np.inf] * 4]]]


def test_jax_gets_what_it_can_export():
    """A foreign function is known in this process alone."""
    function = torch.to_jax(lambda t: F.max_pool2d(t, 2))
    x = numbers((1, 2, 6, 6), repeated=False)
    exported = jax.export.export(jax.jit(function))(x)
    np.testing.assert_array_equal(exported.call(x), F.max_pool2d(torch.tensor(x), 2).numpy())
    assert "torchgrad_jax_pooling" not in exported.mlir_module()
