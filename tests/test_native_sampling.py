"""Images and volumes at points by a loop of C's: what jax.numpy says they are, interpreted and compiled, and whatever transforms them."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.operators import grid as sampling
from torchgrad_jax.runtime import baseline_tier
from torchgrad_jax.runtime._jax_compat import call_x64
from torchgrad_jax.runtime.baseline.loops import how_of_points
from torchgrad_jax.runtime.compiling.foreign import SAMPLING, knows
from torchgrad_jax.runtime.native import handlers

F = torch.nn.functional
pytestmark = [pytest.mark.operators, pytest.mark.skipif(not knows(SAMPLING), reason="the core in pure Python")]
MODES, PADDINGS = ("bilinear", "nearest"), ("zeros", "border", "reflection")


def numbers(shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype("f")


def points(shape, seed=0, corners=False):
    """Inside and outside of the image, on its edges and beside them; of as many coordinates as there are dimensions of points."""
    random = np.random.RandomState(seed)
    found = random.uniform(-1.6, 1.6, (*shape, len(shape) - 1)).astype("f")
    if corners:
        odd = random.choice(np.array([-1, 0, 1, 0.999, -77.25, 1e9, np.nan, np.inf, -np.inf], "f"), found.shape)
        found = np.where(random.random_sample(found.shape) < 0.2, odd, found)
    return found


def by_loop(image, grid, *grad, **options):
    out = np.full(sampling._shapes(image, grid, **options)[0], 7, np.float32)
    assert handlers.sample(image, grid, *(grad or [None]), out, how_of_points(image, grid, **options))
    return out


def _sizes(dims):
    """Of images or volumes, and of as many points."""
    return st.tuples(st.tuples(*[st.integers(1, 9)] * dims), st.tuples(*[st.integers(1, 25 if dims == 2 else 9)] * dims))


@settings(max_examples=8, deadline=None)  # each of which XLA compiles
@given(
    batch=st.integers(1, 5), channels=st.integers(1, 5), sizes=st.sampled_from((2, 3)).flatmap(_sizes), mode=st.integers(0, 1),
    padding=st.integers(0, 2), align=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_images_and_points(batch, channels, sizes, mode, padding, align, seed):
    image, grid = sizes
    x, grad = numbers((batch, channels, *image), seed), numbers((batch, channels, *grid), seed + 1)
    options = dict(interpolation_mode=mode, padding_mode=padding, align_corners=align)
    at, odd = points((batch, *grid), seed), points((batch, *grid), seed, corners=True)

    def said(x, at, odd, grad):
        values, pull = jax.vjp(partial(sampling._said, **options), x, at)
        return values, *pull(grad), sampling._said(x, odd, **options)

    wanted = call_x64(jax.jit(said), x, at, odd, grad)
    found = by_loop(x, at, of=0, **options), *[by_loop(x, at, grad, of=of, **options) for of in (1, 2)], by_loop(x, odd, of=0, **options)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(8, 3, 32, 32), (1, 6, 90, 70), (3, 6, 12, 16, 20)])
def test_both_tiers_and_many_threads(shape):
    x, at = numbers(shape), points((shape[0], 50, 40) if len(shape) == 4 else (shape[0], 10, 20, 10))

    def step():
        image, grid = torch.tensor(x, requires_grad=True), torch.tensor(at, requires_grad=True)
        y = F.grid_sample(image, grid, align_corners=False)
        (y * y).sum().backward()
        return y.detach().numpy(), image.grad.numpy(), grid.grad.numpy()

    with torch.explain() as report, baseline_tier(True):
        first = step()
    assert "interpreted" in report.programs[0].runs

    def pulled(image, grid):
        y, pull = torch.func.vjp(lambda image, grid: F.grid_sample(image, grid, align_corners=False), image, grid)
        return y, *pull(2 * y)

    compiled = torch.jit(pulled)
    for _ in range(3):
        last = compiled(torch.tensor(x), torch.tensor(at))
    for found, wanted in zip(last, first, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("sizes", [(5, 6), (3, 4, 5)], ids=["images", "volumes"])
def test_derivatives_of_every_kind(mode, padding, sizes):
    image, grid = torch.tensor(numbers((2, 3, *sizes))), torch.tensor(points((2, 4, 3) if len(sizes) == 2 else (2, 4, 3, 2)))
    same = [t.double() for t in (image, grid)]  # goes by what jax.numpy says

    def sample(image, grid):
        return (F.grid_sample(image, grid, mode, padding, align_corners=True) ** 3).sum()

    def twice(image, grid):
        return sum(g.pow(2).sum() for g in torch.func.grad(sample, (0, 1))(image, grid))

    for function in (sample, twice):
        found, wanted = torch.func.grad(function, (0, 1))(image, grid), torch.func.grad(function, (0, 1))(*same)
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == torch.float32 and torch.allclose(one.double(), other, rtol=1e-3, atol=1e-3)
    tangents = torch.ones_like(image), torch.ones_like(grid)
    found, wanted = (torch.func.jvp(sample, primals, tuple(t.to(primals[0].dtype) for t in tangents))[1] for primals in ((image, grid), tuple(same)))
    assert torch.allclose(found.double(), wanted, rtol=1e-4, atol=1e-4)


def test_mapped_over_images_and_grids():
    for sizes in ((5, 5), (3, 4, 5)):
        images = torch.tensor(numbers((3, 2, 1, *sizes)))
        grids = torch.tensor(np.stack([points((2, *sizes), seed) for seed in range(3)]))
        found = torch.vmap(lambda image, grid: F.grid_sample(image, grid, align_corners=False))(images, grids)
        wanted = torch.stack([F.grid_sample(x, g, align_corners=False) for x, g in zip(images, grids, strict=True)])
        assert torch.allclose(found, wanted, atol=1e-6)


def test_a_gradient_that_nobody_wants_is_not_computed(interpreted, monkeypatch):
    asked, sample = [], handlers.sample
    monkeypatch.setattr(handlers, "sample", lambda *arrays: asked.append(int(arrays[-1][1])) or sample(*arrays))
    image, grid = torch.tensor(numbers((2, 3, 5, 7))), torch.tensor(points((2, 4, 3)), requires_grad=True)
    y = F.grid_sample(image, grid, align_corners=False)
    y.sum().backward()
    assert grid.grad.numpy().shape == (2, 4, 3, 2) and asked == [0, 2]
    node = F.grid_sample(image, grid, align_corners=False).grad_fn
    assert node.name() == "GridSampler2DBackward0"
    assert (node._saved_interpolation_mode, node._saved_padding_mode, node._saved_align_corners) == (0, 0, False)


def test_jax_gets_what_it_can_export():
    """A foreign function is known in this process alone."""
    function = torch.to_jax(lambda image, grid: F.grid_sample(image, grid, align_corners=False))
    x, at = numbers((1, 2, 6, 6)), points((1, 3, 3))
    exported = jax.export.export(jax.jit(function))(x, at)
    np.testing.assert_allclose(exported.call(x, at), F.grid_sample(torch.tensor(x), torch.tensor(at), align_corners=False).numpy(), atol=1e-6)
    assert "torchgrad_jax_sampling" not in exported.mlir_module()
