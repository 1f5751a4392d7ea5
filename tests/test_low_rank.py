"""`svd_lowrank` and `pca_lowrank`: PyTorch's numbers from PyTorch's random columns, and what they are approximations of."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as tj

try:
    import torch
except ImportError:
    torch = None

pytestmark = pytest.mark.operators

CASES = {
    "tall": ((7, 5), 3, None), "wide": ((5, 7), 3, None), "a batch": ((2, 9, 20), 4, None), "all of it": ((6, 6), None, None),
    "more than there is": ((4, 5), 9, None), "less its mean": ((30, 12), 5, (1, 12)), "wide, less another": ((12, 30), 5, (12, 30)),
}  # fmt: skip


def normal(shape, seed=0, complex_numbers=False):
    draw = np.random.RandomState(seed)
    return draw.randn(*shape) + 1j * draw.randn(*shape) if complex_numbers else draw.randn(*shape)


def assert_same(expected, made):
    """But for the signs of singular vectors, or their phases, which no two libraries need choose alike."""
    u, s, v = [[t.resolve_conj().numpy() for t in found] for found in zip(expected, made, strict=True)]
    for name, (a, b) in {"U": map(np.abs, u), "S": s, "V": map(np.abs, v)}.items():
        assert a.shape == b.shape, name
        np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-10, err_msg=name)
    a, b = [(u[i] * s[i][..., None, :]) @ v[i].swapaxes(-1, -2).conj() for i in (0, 1)]
    np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-10)


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("complex_numbers", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_svd_is_that_of_pytorch(case, complex_numbers):
    shape, q, other = CASES[case]
    found = []
    for library in (torch, tj):
        library.manual_seed(3)
        m = None if other is None else library.tensor(normal(other, 1, complex_numbers))
        found.append(library.svd_lowrank(library.tensor(normal(shape, 0, complex_numbers)), q, M=m))
    assert_same(*found)


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("options", [{}, {"q": 3}, {"center": False, "niter": 0}], ids=str)
def test_components_are_those_of_pytorch(options):
    found = []
    for library in (torch, tj):
        library.manual_seed(3)
        found.append(library.pca_lowrank(library.tensor(normal((20, 8))), **options))
    assert_same(*found)


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (2, 9, 7)])
def test_a_matrix_of_low_rank_is_found_again(shape):
    a = tj.tensor(normal((*shape[:-1], 3)) @ normal((*shape[:-2], 3, shape[-1]), 1), requires_grad=True)
    u, s, v = tj.svd_lowrank(a, 3)
    np.testing.assert_allclose((u * s[..., None, :] @ v.mT).detach().numpy(), a.detach().numpy(), atol=1e-9)
    (grad,) = tj.autograd.grad((s**2).sum(), a)
    np.testing.assert_allclose(grad.numpy(), 2 * a.detach().numpy(), atol=1e-8)  # the sum is that of all squares


def test_what_cannot_be_asked_for():
    a = tj.ones(4, 3)
    for q in (4, -1):
        with pytest.raises(ValueError, match=rf"q\(={q}\) must be non-negative integer and not greater than min\(m, n\)=3"):
            tj.pca_lowrank(a, q)
    with pytest.raises(ValueError, match=r"niter\(=-1\) must be non-negative integer"):
        tj.pca_lowrank(a, 2, niter=-1)
    with pytest.raises(ValueError, match="not enough values to unpack"):
        tj.svd_lowrank(tj.ones(3))
