"""The two loops of L-BFGS as one operation: by its form for NumPy arrays and by XLA it gives what the loops themselves give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.declaration.numpy_products import lbfgs_direction as form
from torchgrad_jax.declaration.operator import ARRAY
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime import baseline_tier, execution_mode

TOLERANCE = {np.float32: 2e-4, np.float64: 1e-11}


def given_pairs(size, room, count, dtype, seed=0):
    """A gradient, a scale, and pairs with positive products, of which those from `count` on have no meaning."""
    random = np.random.RandomState(seed)
    changes = [random.standard_normal(size).astype(dtype) for _ in range(room)]
    steps = [(0.1 * y + 0.02 * random.standard_normal(size)).astype(dtype) for y in changes]
    ro = [np.asarray(1 / (float(y @ s) + 0.1), dtype) for y, s in zip(changes, steps, strict=True)]
    return random.standard_normal(size).astype(dtype), np.asarray(0.3, dtype), changes, steps, ro, np.int64(count)


def by_loops(grad, scale, changes, steps, ro, count):
    """In double precision."""
    q, factors = -grad.astype(np.float64), np.zeros(len(ro))
    for i in range(int(count) - 1, -1, -1):
        factors[i] = steps[i].astype(np.float64) @ q * float(ro[i])
        q = q - changes[i] * factors[i]
    q = q * float(scale)
    for i in range(int(count)):
        q = q + steps[i] * (factors[i] - changes[i].astype(np.float64) @ q * float(ro[i]))
    return q, factors


def close(found, wanted, dtype):
    found = np.asarray(found)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * (1 + np.abs(wanted).max(initial=0)))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 150), st.integers(1, 12), st.data(), st.sampled_from([np.float32, np.float64]))
def test_the_form_is_the_two_loops(size, room, data, dtype):
    arrays = given_pairs(size, room, data.draw(st.integers(0, room)), dtype, seed=size)
    assert [(r.shape, r.dtype) for r in form.result(*arrays)] == [((size,), dtype), ((room,), dtype)]
    before = [a.copy() for a in (arrays[0], *arrays[2], *arrays[3])]
    for found, wanted in zip(form.function(*arrays), by_loops(*arrays), strict=True):
        close(found, wanted, dtype)
    for a, was in zip((arrays[0], *arrays[2], *arrays[3]), before, strict=True):
        np.testing.assert_array_equal(a, was)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("mode", "baseline"), [("fused", True), ("fused", False), ("eager", False)])
def test_vectors_that_do_not_lie_in_a_row(mode, baseline, dtype):
    """By the form, and by XLA."""
    arrays = grad, scale, changes, steps, ro, count = given_pairs(40, 8, 6, dtype)
    wide = torch.tensor(np.stack([np.repeat(a, 2) for a in (grad, *changes, *steps)]))
    vectors = list(wide[:, ::2].unbind())
    with execution_mode(mode), baseline_tier(baseline):
        bound = registry["_lbfgs_direction"].bind((ARRAY, ARRAY, 8, 8, 8, ARRAY))
        direction, factors = apply(bound, (vectors[0], torch.tensor(scale), *vectors[1:], *[torch.tensor(r) for r in ro], int(count)))
        wanted = by_loops(*arrays)
        close(direction.numpy(), wanted[0], dtype)
        close(factors.numpy()[:count], wanted[1][:count], dtype)


@pytest.mark.parametrize("change", ["half", "unlike", "complex", "empty"])
def test_what_has_no_form(change):
    grad, scale, changes, steps, ro, count = given_pairs(6, 2, 1, np.float32)
    if change == "half":
        grad, changes, steps, ro = [a.astype(np.float16) if isinstance(a, np.ndarray) else [v.astype(np.float16) for v in a]
                                    for a in (grad, changes, steps, ro)]  # fmt: skip
    elif change == "complex":
        scale = scale.astype(np.complex64)
    else:
        steps = [s[:5] if change == "unlike" else s for s in steps]
        if change == "empty":
            grad, changes, steps = grad[:0], [y[:0] for y in changes], [s[:0] for s in steps]
    assert form.result(grad, scale, changes, steps, ro, count) is None
