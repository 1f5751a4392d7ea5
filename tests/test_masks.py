"""A boolean that becomes a number is 0 or 1, and 0 times NaN or infinity is NaN, whichever way it runs, in gradients too."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from ways import WAYS

import torchgrad_jax as tj
from torchgrad_jax.runtime.compiling.for_xla import for_xla, misleads, traced_for_xla

pytestmark = pytest.mark.operators

inf, nan = float("inf"), float("nan")

PRODUCTS = {
    "mask * x": (lambda m, x: m * x, [nan, nan, 1.0]),
    "x * mask": (lambda m, x: x * m, [nan, nan, 1.0]),
    "number of the mask": (lambda m, x: m * inf, [nan, nan, inf]),
    "float": (lambda m, x: m.float() * x, [nan, nan, 1.0]),
    "double": (lambda m, x: m.double() * x.double(), [nan, nan, 1.0]),
    "half": (lambda m, x: m.half() * x.half(), [nan, nan, 1.0]),
    "complex": (lambda m, x: (m.to(tj.complex64) * x).real, [nan, nan, 1.0]),
    "long": (lambda m, x: m.long() * x, [nan, nan, 1.0]),
    "byte, then float": (lambda m, x: m.byte().float() * x, [nan, nan, 1.0]),
    "negated": (lambda m, x: (1 - (~m).float()) * x, [nan, nan, 1.0]),
    "negative": (lambda m, x: -m.float() * x, [nan, nan, -1.0]),
    "written": (lambda m, x: x.clone().mul_(m), [nan, nan, 1.0]),
    "addcmul": (lambda m, x: tj.addcmul(tj.zeros(3), m, x), [nan, nan, 1.0]),
    "where": (lambda m, x: tj.where(m, 1.0, 0.0) * x, [nan, nan, 1.0]),
    "vector product": (lambda m, x: m.float() @ x, nan),
    "matrix product": (lambda m, x: (m.float()[None] @ x[:, None])[0], [nan]),
    "batched": (lambda m, x: (m.float()[None, None] @ x[None, :, None])[0, 0], [nan]),
    "einsum": (lambda m, x: tj.einsum("i,i->", m.float(), x), nan),
    "linear": (lambda m, x: tj.nn.functional.linear(m.float()[None], x[None])[0], [nan]),
    "convolution": (lambda m, x: tj.nn.functional.conv1d(x[None, None], m.float()[None, None])[0, 0], [nan]),
    "lerp": (lambda m, x: tj.lerp(tj.zeros(3), x, m.float()), [nan, nan, 1.0]),
    "prod": (lambda m, x: tj.stack([m.float(), x]).prod(0), [nan, nan, 1.0]),
    "sum": (lambda m, x: (m.float() * x).sum(), nan),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_masked_nan_is_nan(name, way):
    program, expected = PRODUCTS[name]
    with WAYS[way]():
        x = tj.tensor([inf, nan, 1.0])
        np.testing.assert_equal(program(tj.tensor([-1.0, -2.0, 3.0]) > 0, x).tolist(), expected)


@pytest.mark.parametrize("way", WAYS)
def test_a_gradient_that_a_mask_multiplies_is_nan(way):
    with WAYS[way]():
        x = tj.tensor([-1.0, 2.0], requires_grad=True)
        m = (x > 0).float()
        (m * x.log()).sum().backward()
        np.testing.assert_equal(x.grad.tolist(), [-0.0, 0.5])
        (gradient,) = tj.autograd.grad((x * m / m).sum(), x)
        np.testing.assert_equal(gradient.tolist(), [nan, 1.0])


def test_a_masked_nan_is_nan_in_a_jitted_function_of_the_users():
    found = jax.jit(lambda t: (t > 1) * t)(tj.tensor([-inf, 2.0]))
    np.testing.assert_equal(found.tolist(), [nan, 2.0])


def test_masks_within_loops_and_branches_are_selected():
    def function(m, x):
        found = jax.lax.fori_loop(0, 2, lambda i, y: y * m.astype(y.dtype), x)
        return found, jax.lax.cond(x[0] > 0, lambda: m.astype(x.dtype) @ x, lambda: x[1]), jax.lax.map(lambda a: a * m[0].astype(x.dtype), x)

    m, x = np.array([False, True]), np.array([inf, 2.0], np.float32)
    closed = jax.make_jaxpr(function)(m, x)
    assert misleads(closed.jaxpr)
    assert not misleads(for_xla(closed).jaxpr)
    found = jax.jit(traced_for_xla(function))(m, x)
    np.testing.assert_equal([np.asarray(f).tolist() for f in found], [[nan, 2.0], nan, [nan, 0.0]])
