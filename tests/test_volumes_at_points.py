"""Volumes at the points of a grid, by a loop of C's where there is one, against PyTorch."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.operators
PADDINGS, DTYPES = ("zeros", "border", "reflection"), ("float32", "float64")
KINDS = list(itertools.product(("bilinear", "nearest"), PADDINGS, (False, True)))
ODD = np.array([np.nan, np.inf, -np.inf, 1e9, -77.25, 2.0**100, -1, 1, 0, 0.999])


def volume(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape)


def points(*shape, far=1.1, seed=0):
    return np.random.RandomState(seed).uniform(-far, far, (*shape, 3))


def sampled(m, x, grid, kind, dtype="float32"):
    """The values, and the gradients of the volume and of the grid."""
    x, grid = (m.tensor(a.astype(dtype), requires_grad=True) for a in (x, grid))
    out = m.nn.functional.grid_sample(x, grid, *kind)
    grad = m.tensor(volume(*out.shape, seed=1).astype(dtype))
    return [a.detach().numpy() for a in (out, *m.autograd.grad(out, (x, grid), grad))]


def check(x, grid, kind, dtype):
    rounding = 1e-4 if dtype == "float32" else 1e-10
    for found, wanted in zip(*[sampled(m, x, grid, kind, dtype) for m in (tj, torch)], strict=True):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_values_and_gradients(kind, dtype):
    for sizes, made in (((3, 4, 5), (2, 3, 4)), ((1, 1, 1), (2, 2, 2)), ((1, 5, 2), (7, 8, 9))):
        # Inside, about the edges, and mostly outside.
        for far in (0.7, 1.3, 4):
            check(volume(2, 3, *sizes), points(2, *made, far=far), kind, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_points_that_are_no_numbers_or_far_away(kind, dtype):
    for sizes in ((3, 4, 5), (1, 2, 3)):
        grid = points(1, 1, len(ODD), 3, far=1)
        for i, number in enumerate(ODD):
            grid[0, 0, i, [0, 1, 2], [0, 1, 2]] = number
        check(volume(1, 2, *sizes), grid, kind, dtype)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_points_channels_or_samples(kind):
    for shape, made in (((2, 0, 3, 4, 5), (2, 2, 2, 2)), ((0, 2, 3, 4, 5), (0, 2, 2, 2)), ((2, 2, 3, 4, 5), (2, 0, 2, 2))):
        check(volume(*shape), points(*made), kind, "float32")


def test_what_is_not_contiguous():
    def program(m):
        x = m.tensor(volume(2, 5, 4, 6, 3).astype("f")).permute(0, 4, 2, 1, 3)[..., ::2]
        grid = m.tensor(points(2, 3, 8, 4).astype("f")).transpose(1, 3)[:, :, ::3]
        return m.nn.functional.grid_sample(x, grid, "bilinear", "border", False).numpy()

    np.testing.assert_allclose(program(tj), program(torch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [11, 18, 19, 25, 29, 38, 50, 225, 299])
def test_points_on_pixels_lie_on_pytorchs_side_of_them(size):
    def program(m):
        # The slope between two pixels tells which they are.
        theta, x = m.eye(3, 4)[None], (m.arange(size) ** 2 % 1024).float().expand(1, 1, 2, 3, size).contiguous()
        grid = m.nn.functional.affine_grid(theta, (1, 1, 2, 3, size), False).requires_grad_()
        slopes = m.autograd.grad(m.nn.functional.grid_sample(x, grid, align_corners=False).sum(), grid)[0]
        return (slopes[0, 0, 1, :, 0] * 2 / size).round().numpy()

    np.testing.assert_array_equal(program(tj), program(torch))


@pytest.mark.parametrize("padding", PADDINGS)
def test_gradients_are_differences(padding):
    x = tj.tensor(volume(1, 2, 3, 3, 4), requires_grad=True)
    grid = tj.tensor(points(1, 2, 2, 1, far=0.6), requires_grad=True)

    def sample(x, grid):
        return tj.nn.functional.grid_sample(x, grid, "bilinear", padding, False)

    assert tj.autograd.gradcheck(sample, (x, grid)) and tj.autograd.gradgradcheck(sample, (x, grid))


_BITS = """
import hashlib, numpy as np, torchgrad_jax as tj
random = np.random.RandomState(0)
x, grid = (tj.tensor(random.standard_normal(s).astype("f"), requires_grad=True) for s in ((2, 5, 9, 10, 11), (2, 20, 21, 22, 3)))
for kind in (("bilinear", "zeros"), ("bilinear", "reflection"), ("nearest", "border")):
    out = tj.nn.functional.grid_sample(x, grid, *kind, align_corners=False)
    found = out.detach(), *tj.autograd.grad((out * out).sum(), (x, grid))
    print(*[hashlib.sha256(a.numpy().tobytes()).hexdigest() for a in found])
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a process's processors cannot be chosen")
def test_how_many_threads_there_are_changes_no_bit():
    one = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\n"
    told = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for code in (one + _BITS, _BITS)]
    assert told[0] == told[1] and len(told[0].split()) == 9
