"""Writes into a part of an array of what is made of another part of it, where dimensions of one element come or go before or behind the write."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ways import WAYS

import torchgrad_jax as tj
from torchgrad_jax.runtime.compiling.for_xla import for_xla, misleads, traced_for_xla

pytestmark = pytest.mark.operators

N = 6
DATA = np.random.RandomState(0).randn(N).astype(np.float32)


def shifted(y):
    y[1:] = y[:-1].clone()


def turned(y):
    y[:2] = y[:2].flip(0)


def scaled(y):
    y[:3].mul_(y[0].clone())


def added(y):
    y.index_add_(0, tj.tensor([2]), y[1:2].flip(0))


def strided(y):
    y[::2] = y[::2].flip(0)


def rolled(y):
    y.copy_(y.roll(1, 0))


WRITES = (shifted, turned, scaled, added, strided, rolled)
BEFORE = {
    "a vector": lambda x: x * 1.5, "a column": lambda x: x.unsqueeze(1) * 1.5, "a sum of rows": lambda x: (x[:, None] * x).sum(1, keepdim=True),
    "a matrix": lambda x: x[:, None] * x, "a product": lambda x: (x[:, None] * x) @ x, "squeezed": lambda x: (x[:, None] * 1.5).squeeze(1),
}  # fmt: skip
BEHIND = {
    "as it is": lambda y: y, "cumsum": lambda y: y.cumsum(0), "in front": lambda y: y[None].softmax(1), "flat": lambda y: y.reshape(-1).exp(),
    "at the end": lambda y: y[..., None].sort(0)[0], "convolved": lambda y: tj.nn.functional.conv1d(y.reshape(1, 1, -1), tj.ones(1, 1, 3)),
}  # fmt: skip


def in_numpy(before, writes, behind):
    """What is to come out: one operation after the other, by the interpreter."""
    return run(tj.from_numpy(DATA.copy()), before, writes, behind).numpy()


def run(x, before, writes, behind):
    y = BEFORE[before](x)
    for write in writes:
        write(y)
    return BEHIND[behind](y)


@settings(max_examples=25)
@given(st.sampled_from(sorted(BEFORE)), st.lists(st.sampled_from(WRITES), min_size=1, max_size=3), st.sampled_from(sorted(BEHIND)))
def test_compiled_programs_write_what_was_there_before(before, writes, behind):
    expected = in_numpy(before, writes, behind)
    with WAYS["compiled"]():
        found = run(tj.from_numpy(DATA.copy()), before, writes, behind).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("before", ("a column", "a product"))
def test_so_do_functions_for_jax(before, write):
    expected = in_numpy(before, [write], "in front")
    found = jax.jit(tj.to_jax(lambda x: run(x, before, [write], "in front")))(DATA)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_and_loops_that_are_rolled():
    y = tj.from_numpy(DATA.copy())
    expected = DATA.copy()
    for _ in range(64):
        y = y.unsqueeze(1) * 1.0
        turned(y)
        shifted(y)
        y = y.squeeze(1)
        expected[:2] = expected[1::-1].copy()
        expected[1:] = expected[:-1].copy()
    with WAYS["compiled"]():
        np.testing.assert_array_equal(y.numpy(), expected)


def test_a_gradient_goes_through_them():
    with WAYS["compiled"]():
        x = tj.from_numpy(DATA.copy()).requires_grad_()
        weight = tj.arange(1.0, N + 1)
        y = x.unsqueeze(1) * 1.0
        turned(y)
        shifted(y)
        (y.squeeze(1) * weight).sum().backward()
    # y is x1, x1, x0, x2, x3, x4
    np.testing.assert_array_equal(x.grad.numpy(), [3, 1 + 2, 4, 5, 6, 0])


def test_equations_that_are_right_already_stay():
    def writes(x):
        return jax.lax.dynamic_update_slice(x, x[:2][::-1], (0,))[:, None]

    closed = jax.make_jaxpr(writes)(DATA)
    assert misleads(closed.jaxpr)
    assert not misleads(for_xla(closed).jaxpr)
    assert not misleads(jax.make_jaxpr(lambda x: jax.lax.dynamic_update_slice(jax.numpy.zeros(9), x, (2,)))(DATA).jaxpr)
    assert not misleads(jax.make_jaxpr(lambda x: jax.lax.dynamic_update_slice(x, x[3:4], (2,)))(DATA).jaxpr)
    np.testing.assert_array_equal(jax.jit(traced_for_xla(lambda x: (writes(x),)))(DATA)[0][:, 0], writes(DATA)[:, 0])
