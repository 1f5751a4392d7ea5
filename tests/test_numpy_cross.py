"""The vector product's form on NumPy arrays gives what NumPy's gives, to the bit, and nothing is traced for a shape that is new."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.operation import Signature

pytestmark = [pytest.mark.operators, pytest.mark.skipif(not modes.interprets(), reason="there are no forms where everything is XLA's")]


def numbers(shape, dtype, seed):
    found = np.random.default_rng(seed).normal(size=shape) * 10
    return torch.from_numpy(found.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize(("shape", "dim"), [((3,), 0), ((7, 3), 1), ((3, 7), 0), ((2, 3, 5), 1), ((2, 3, 5), -2), ((0, 3), -1)])
def test_products_and_their_gradients(shape, dim, dtype, monkeypatch):
    monkeypatch.setattr(Signature, "_trace", lambda self: pytest.fail(f"traced: {self.bop}"))
    x, y, g = [numbers(shape, dtype, seed) for seed in range(3)]
    expected = np.cross(x.numpy(), y.numpy(), axis=dim)
    for given in (x, x.transpose(0, -1).contiguous().transpose(0, -1)):
        np.testing.assert_array_equal(torch.linalg.cross(given, y, dim=dim).numpy(), expected)
    if dtype.startswith("int"):
        return
    for wanted in ((x,), (y,), (x, y)):
        for t in (x, y):
            t.requires_grad_(any(t is w for w in wanted))
        found = torch.autograd.grad(torch.linalg.cross(x, y, dim=dim), wanted, g)
        right = {id(x): np.cross(y.detach().numpy(), g.numpy(), axis=dim), id(y): np.cross(g.numpy(), x.detach().numpy(), axis=dim)}
        for t, grad in zip(wanted, found, strict=True):
            np.testing.assert_array_equal(grad.numpy(), right[id(t)])


def test_other_operands_and_higher_derivatives():
    x, y = numbers((4, 1, 3), "float32", 0), numbers((5, 3), "float32", 1)
    np.testing.assert_allclose(torch.linalg.cross(x, y.expand(4, 5, 3)).numpy(), np.cross(x.numpy(), y.numpy()), rtol=1e-5)
    z = torch.complex(x, x * 2)
    assert torch.autograd.gradcheck(torch.linalg.cross, (z.to(torch.complex128).requires_grad_(), z.flip(0).to(torch.complex128).requires_grad_()))
    a, b = (numbers((2, 3), "float64", seed).requires_grad_() for seed in range(2))
    assert torch.autograd.gradgradcheck(torch.linalg.cross, (a, b))
