"""Convolutions of volumes and of small images, in groups of channels, and dilated ones, by loops of C's: what they are of double precision,
interpreted and compiled, and whatever transforms them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.runtime.baseline.convolutions import has_loops
from torchgrad_jax.runtime.compiling.foreign import CONVOLUTION, knows

F = torch.nn.functional
pytestmark = [pytest.mark.operators, pytest.mark.skipif(not (has_loops() and knows(CONVOLUTION)), reason="the core in pure Python")]


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype("f")


def results(convolve, x, w, dtype):
    """The result, and both gradients."""
    x, w = (torch.tensor(array, dtype=dtype, requires_grad=True) for array in (x, w))
    y = convolve(x, w)
    (y * torch.tensor(numbers(*y.shape, seed=7), dtype=dtype)).sum().backward()
    return [t.detach().numpy() for t in (y, x.grad, w.grad)]


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 9), groups=st.integers(1, 5), channels=st.tuples(st.integers(1, 3), st.sampled_from([1, 1, 2, 5, 9])),
    dims=st.lists(st.tuples(st.integers(1, 14), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.integers(1, 2)), min_size=1, max_size=3),
    transposed=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_geometry(batch, groups, channels, dims, transposed, seed):
    sizes, kernel, stride, padding, dilation = (list(numbers) for numbers in zip(*dims, strict=True))
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if transposed:
        assume(all([(n - 1) * s + r + 1 > 2 * p for n, s, r, p in zip(sizes, stride, reach, padding, strict=True)]))
    else:
        assume(all([n + 2 * p > r for n, p, r in zip(sizes, padding, reach, strict=True)]))
    x = numbers(batch, groups * channels[1 if transposed else 0], *sizes, seed=seed)
    w = numbers(groups * channels[1], channels[0], *kernel, seed=seed + 1)
    function = getattr(F, f"conv{'_transpose' if transposed else ''}{len(dims)}d")

    def convolve(x, w):
        return function(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)

    for found, wanted in zip(results(convolve, x, w, torch.float32), results(convolve, x, w, torch.float64), strict=True):
        assert found.dtype == np.float32
        most = np.abs(wanted).max(initial=0)  # a sum of thousands of terms may be next to nothing
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 + 2e-6 * most)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 9), channels=st.tuples(st.integers(1, 20), st.integers(1, 40)), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    kernel=st.sampled_from([1, 3]), stride=st.integers(1, 2), transposed=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_small_images_and_volumes(batch, channels, sizes, kernel, stride, transposed, seed):
    """Several of them are computed together."""
    x, function = numbers(batch, channels[0], *sizes, seed=seed), getattr(F, f"conv{'_transpose' if transposed else ''}{len(sizes)}d")
    w = numbers(*channels[:: 1 if transposed else -1], *[kernel] * len(sizes), seed=seed + 1)

    def convolve(x, w):
        return function(x, w, stride=stride, padding=kernel // 2)

    for found, wanted in zip(results(convolve, x, w, torch.float32), results(convolve, x, w, torch.float64), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels, groups, kernel", [(16, 16, 3), (32, 4, 3), (12, 12, 7)])
def test_both_tiers_and_many_threads(channels, groups, kernel):
    x, w = numbers(8, channels, 29, 31), numbers(channels, channels // groups, kernel, kernel)

    def step():
        return results(lambda x, w: F.conv2d(x, w, padding=kernel // 2, groups=groups), x, w, torch.float32)

    first = step()

    def pulled(x, w):
        y, pull = torch.func.vjp(lambda x, w: F.conv2d(x, w, padding=kernel // 2, groups=groups), x, w)
        return y, *pull(torch.tensor(numbers(*y.shape, seed=7)))

    compiled = torch.jit(pulled)
    for _ in range(3):
        last = compiled(torch.tensor(x), torch.tensor(w))
    for found, wanted in zip(last, first, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-3)


def test_what_is_not_finite_stays_where_windows_have_it():
    """Columns beyond the last window, which a stride leaves over, are read with the others."""
    x, w = torch.zeros(1, 2, 4, 12), torch.ones(2, 1, 1, 2, requires_grad=True)
    x[..., 11] = np.inf
    F.conv2d(x, w, stride=(1, 3), groups=2).sum().backward()
    assert torch.equal(w.grad, torch.zeros(2, 1, 1, 2))


@pytest.mark.parametrize("function, shapes, groups", [
    (F.conv2d, ((2, 4, 6, 7), (4, 1, 3, 3)), 4), (F.conv3d, ((2, 3, 5, 4, 7), (2, 3, 3, 2, 3)), 1),
    (F.conv_transpose3d, ((2, 3, 2, 3, 4), (3, 2, 3, 2, 3)), 1),
])  # fmt: skip
def test_derivatives_of_every_kind(function, shapes, groups):
    x, w = (torch.tensor(numbers(*shape)) for shape in shapes)
    same = [t.double() for t in (x, w)]

    def convolve(x, w):
        return (function(x, w, padding=1, stride=2, groups=groups) ** 3).sum()

    def twice(x, w):
        return sum(g.pow(2).sum() for g in torch.func.grad(convolve, (0, 1))(x, w))

    for of in (convolve, twice):
        for found, wanted in zip(torch.func.grad(of, (0, 1))(x, w), torch.func.grad(of, (0, 1))(*same), strict=True):
            assert found.dtype == torch.float32 and torch.allclose(found.double(), wanted, rtol=1e-3, atol=1e-2)
    tangents = [torch.func.jvp(convolve, tuple(ts), tuple(torch.ones_like(t) for t in ts))[1] for ts in ((x, w), same)]
    assert torch.allclose(tangents[0].double(), tangents[1], rtol=1e-4)


def test_mapped_over_images_and_kernels():
    x, w = torch.tensor(numbers(3, 2, 4, 6, 6)), torch.tensor(numbers(3, 4, 1, 3, 3))
    found = torch.vmap(lambda x, w: F.conv2d(x, w, groups=4))(x, w)
    assert torch.allclose(found, torch.stack([F.conv2d(one, kernel, groups=4) for one, kernel in zip(x, w, strict=True)]), atol=1e-5)


def test_jax_gets_what_it_can_export():
    """A foreign function is known in this process alone."""
    function = torch.to_jax(lambda x, w: F.conv2d(x, w, groups=2))
    x, w = numbers(1, 4, 6, 6), numbers(2, 2, 3, 3)
    exported = jax.export.export(jax.jit(function))(x, w)
    np.testing.assert_allclose(exported.call(x, w), F.conv2d(torch.tensor(x), torch.tensor(w), groups=2).numpy(), rtol=1e-5, atol=1e-5)
    assert "torchgrad_jax_convolution" not in exported.mlir_module()
