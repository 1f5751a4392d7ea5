"""`torch.nn.grad`: what `torch.autograd.grad` of a convolution gives."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.nn import functional as F

pytestmark = pytest.mark.operators

try:
    import torch
except ImportError:
    torch = None

CASES = [(1, {"stride": 2}), (2, {"padding": (1, 0), "dilation": 2}), (3, {"groups": 2}), (2, {})]


def given(dims, groups=1):
    tj.manual_seed(0)
    x = tj.randn(2, 4, *[6] * dims, dtype=tj.float64, requires_grad=True)
    return x, tj.randn(6, 4 // groups, *[2] * dims, dtype=tj.float64, requires_grad=True)


@pytest.mark.parametrize(("dims", "how"), CASES, ids=str)
def test_gradients_and_their_gradients_are_those_of_the_convolution(dims, how):
    x, w = given(dims, how.get("groups", 1))
    y = getattr(F, f"conv{dims}d")(x, w, **how)
    g = tj.randn_like(y).requires_grad_()
    found = getattr(tj.nn.grad, f"conv{dims}d_input")(x.shape, w, g, **how), getattr(F.grad, f"conv{dims}d_weight")(x, w.shape, g, **how)
    expected = tj.autograd.grad(y, (x, w), g, create_graph=True)
    for mine, other, operands in zip(found, expected, ((w, g), (x, g)), strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=1e-12)
        pairs = zip(*[tj.autograd.grad((t**2).sum(), operands, retain_graph=True) for t in (mine, other)], strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)


def test_nothing_is_followed_where_gradients_are_off():
    x, w = given(2)
    g = tj.ones(2, 6, 5, 5, dtype=tj.float64)
    assert tj.nn.grad.conv2d_input(x.shape, w, g).requires_grad and tj.nn.grad.conv2d_weight(x, w.shape, g).requires_grad
    with tj.no_grad():
        assert not tj.nn.grad.conv2d_input(x.shape, w, g).requires_grad
        assert not any(
            t.requires_grad
            for t in tj.ops.aten.convolution_backward(g, x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])[:2]
        )


def test_sizes_that_do_not_fit():
    _, w = given(2)
    with pytest.raises(RuntimeError):
        tj.nn.grad.conv2d_input((2, 4, 9, 9), w, tj.ones(2, 6, 5, 5, dtype=tj.float64))


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("name", tj.nn.grad.__all__)
def test_they_are_called_as_in_pytorch(name):
    mine, other = getattr(tj.nn.grad, name), getattr(torch.nn.grad, name)
    assert [(p.name, p.default) for p in inspect.signature(mine).parameters.values()] == [
        (p.name, p.default) for p in inspect.signature(other).parameters.values()
    ]
    assert mine.__name__ == name and mine.__doc__
