"""Operators' forms as steps of merged programs: the same bits at the first run and at every other, and no trace for a size that is new."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.runtime.baseline import Forms, Merged, NumPyForm, Part
from torchgrad_jax.runtime.operation import Signature

MEANS = [(shape, dim, keepdim) for shape in ((7, 5), (300, 3), (3, 300), (4, 5, 6), (64,), (2, 3, 4, 5))
         for dim in (None, 0, -1, (0, -1)) for keepdim in (False, True) if len(shape) > 1 or dim != (0, -1)]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "dim", "keepdim"), MEANS)
def test_a_mean_has_the_same_bits_in_each_run(shape, dim, keepdim, dtype):
    x = tj.from_numpy(np.random.default_rng(1).standard_normal(shape).astype(dtype))
    found = []
    for _ in range(6):
        y = x.mean(dim, keepdim=keepdim)
        z = (x - y) * 2 if keepdim else y * 3 + 1
        found.append((y.numpy().tobytes(), z.numpy().tobytes()))
    assert found == found[:1] * 6
    expected = np.asarray(x.numpy().mean(dim, keepdims=keepdim))
    y = x.mean(dim, keepdim=keepdim).numpy()
    assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(y, expected, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-6 if dtype == "float32" else 1e-14)


def test_a_mean_of_a_size_that_is_new_is_not_traced(monkeypatch):
    def run(n):
        x = tj.ones(n, 3, requires_grad=True)
        for _ in range(8):
            x.mean(0).sum().backward()
            x.mean().item()
        return x.grad

    run(5)
    traced = []
    monkeypatch.setattr(Signature, "_trace", lambda self: traced.append(self.bop.name))
    monkeypatch.setattr(Signature, "_plan", lambda self: traced.append(self.bop.name))
    np.testing.assert_allclose(run(1013).numpy(), np.full((1013, 3), 8 / 1013), rtol=1e-6)
    assert not traced


def test_steps_may_be_of_operands_of_earlier_ones_and_of_constants():
    ten = np.array(10.0)
    steps = [(np.add, (0, 1)), (np.multiply, (-1, ten)), (np.subtract, (-2, 0)), (np.negative, (-1,))]
    form = NumPyForm(Forms(lambda a, b: ((a + b) * ten - a, -(a + b))), False, 0, 1)
    form.steps = steps
    merged = Merged([Part(form, ["a", "b"], ["c", "d"]), Part(form, ["d", "c"], ["e", "f"])], ["a", "b"], ["c", "d", "e", "f"])
    a, b = np.arange(3.0), np.arange(3.0) ** 2
    for _ in range(3):
        c, d, e, f = merged([a, b])
        np.testing.assert_array_equal(c, (a + b) * 10 - a)
        np.testing.assert_array_equal(d, -(a + b))
        np.testing.assert_array_equal(e, (c + d) * 10 - d)
        np.testing.assert_array_equal(f, -(c + d))
