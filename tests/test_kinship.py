"""Signatures that differ in sizes alone: what is learned of them, and what is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax import numpy as jnp

import torchgrad_jax as tj
from torchgrad_jax.runtime import baseline_tier, execution_mode
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.value import aval_of

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]  # tries its own modes


class Bound:
    """A BoundOp of a JAX function."""

    def __init__(self, function):
        self.name, self.device, self.function = "bound", None, function
        self.signatures, self.kindred = {}, {}

    def specialize(self, specs):
        return self.function

    def check(self, specs):
        return None

    def kin(self, specs):
        return self.kindred, specs


@pytest.fixture
def traced(monkeypatch):
    """The signatures that were traced."""
    found = []
    trace = Signature._trace

    def noted(self):
        found.append(self)
        trace(self)

    monkeypatch.setattr(Signature, "_trace", noted)
    return found


def at(bound, *shapes):
    sig = signature(bound, tuple([aval_of(shape, np.dtype(np.float32)) for shape in shapes]))
    arrays = [np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape) / 7 for shape in shapes]
    expected = np.asarray(bound.function(*[jnp.asarray(a) for a in arrays]))
    assert sig.avals[0].shape == expected.shape and sig.avals[0].dtype == expected.dtype
    np.testing.assert_allclose(np.asarray(sig.baseline(*arrays)[0]), expected, rtol=1e-6)
    return sig


def test_the_third_size_is_not_traced(traced):
    bound = Bound(lambda x, y: jnp.sum(jnp.tanh(x) * y + 1, axis=0))
    for n in range(4, 12):
        at(bound, (n, 17), (n, 17))
    assert len(traced) == 2


def test_a_size_that_did_not_vary_is_not_taken_to_be_free(traced):
    bound = Bound(lambda x: lax.reduce_sum_p.bind(x, axes=(0, 1), out_sharding=None))
    at(bound, (8, 5))
    at(bound, (9, 5))
    at(bound, (11, 5))
    assert len(traced) == 2
    at(bound, (11, 7))
    assert len(traced) == 3
    at(bound, (12, 10))
    assert len(traced) == 3


def test_a_number_made_of_a_size_is_not_shared(traced):
    bound = Bound(lambda x: jnp.mean(x, axis=1))
    for shape in ((4, 5), (5, 5), (6, 5), (6, 7), (8, 9), (9, 10)):
        at(bound, shape)


def test_a_number_made_of_two_sizes_whose_product_stayed_is_not_shared(traced):
    bound = Bound(lambda x: jnp.sum(x) / (x.shape[0] * x.shape[1]))
    for shape in ((2, 6), (3, 4), (5, 7), (7, 5), (6, 9)):
        at(bound, shape)


def test_other_dtypes_ranks_ones_and_equal_sizes_are_other_patterns():
    bound = Bound(lambda x, y: x + y)
    at(bound, (4, 5), (4, 5))
    for second in ((6, 7), (1, 7), (7,), (1, 1)):
        at(bound, (6, 7), second)
    at(bound, (8, 9), (1, 9))
    at(bound, (5, 5), (5, 5))
    at(bound, (0, 5), (0, 5))


def test_a_coincidence_of_sizes_is_found_out(traced):
    bound = Bound(lambda x: jnp.concatenate([x, x]))  # 4 rows of 2, and there are 4 columns
    for shape in ((2, 4), (3, 5), (4, 7), (5, 10)):
        at(bound, shape)


def test_sizes_that_branch_in_python_at_one_are_told_apart():
    bound = Bound(lambda x: x if x.shape[0] == 1 else jnp.flip(x, 0))
    for shape in ((3, 4), (5, 6), (1, 6), (7, 8), (1, 9)):
        at(bound, shape)


@settings(max_examples=3)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6), st.integers(1, 6)), min_size=3, max_size=4))
def test_programs_of_changing_sizes_agree_with_eager_execution(sizes):
    def work():
        found = []
        for n, m, k in sizes:
            x = tj.arange(n * m, dtype=tj.float64).reshape(n, m).div(7).requires_grad_()
            w = tj.linspace(-1, 1, m * k, dtype=tj.float64).reshape(m, k)
            y = tj.softmax((x @ w).tanh() + x.sum(1, keepdim=True), dim=1)
            z = (y.t() * y.mean()).amax(0) if n else y.sum(0)
            z.sum().backward()
            found += [z.detach().numpy(), x.grad.numpy()]
        return found

    with execution_mode("fused"), baseline_tier(True):
        ours = work()
    with execution_mode("eager"):
        expected = work()
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
