"""Writes into a part of an array of what is made of another part of it, where dimensions of one element come or go before or behind the write."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ways import WAYS

import torchgrad_jax as tj
from torchgrad_jax.runtime.compiling import compiled
from torchgrad_jax.runtime.compiling.for_xla import for_xla, misleads, traced_for_xla
from torchgrad_jax.runtime.compiling.writes import Sizes, kept_apart, sizes_in
from torchgrad_jax.runtime.rolling import rolled as programs_with_loops

pytestmark = pytest.mark.operators

N = 6
DATA = np.random.RandomState(0).randn(N).astype(np.float32)
MATRIX = np.random.RandomState(1).randn(N, 5).astype(np.float32)


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


def sizes_of(function, *shapes):
    return sizes_in(jax.make_jaxpr(function)(*[jax.numpy.ones(shape) for shape in shapes]).jaxpr)


def written(x, part):
    return jax.lax.dynamic_update_slice(x, part, (0,) * x.ndim)


def test_what_an_operation_reshapes_is_known():
    assert sizes_of(lambda x: written(x, x[1:] * 2), (6,)) == Sizes(frozenset({6}), frozenset())
    assert sizes_of(lambda x: x[2].sum() + x.sum(1)[0], (6, 5)).reshaped == {5}  # a row is cut out, and its first dimension dropped
    assert sizes_of(lambda x, y: jax.numpy.tanh(x + 2 * y).sum(0), (6, 5), (6, 5)) == Sizes(frozenset(), frozenset())
    assert sizes_of(lambda x: x.T, (6, 5)).reshaped == {30}
    assert sizes_of(lambda x: x + 1, (6, 1)).reshaped == {6}
    assert sizes_of(lambda x, y: x @ y, (6, 5), (5, 4)).reshaped == {30, 20, 24}
    assert sizes_of(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: written(y, y[1:]), x), (6,)) == Sizes(frozenset({6}), frozenset({6}))


@pytest.fixture
def noted(monkeypatch):
    """How many operations of the compiled programs write into parts, and how many of them keep apart what they write: a pair for each program."""
    found = []

    def note(calls, reshaped):
        kept = kept_apart(calls, reshaped)
        found.append((sum([len(call.signature.sizes.written) > 0 for call in calls]), len(kept)))
        return kept

    monkeypatch.setattr(compiled, "kept_apart", note)
    monkeypatch.setattr(programs_with_loops, "kept_apart", note)
    return found


def test_only_what_is_reshaped_is_written_apart(noted):
    def of_rows(behind):
        y = tj.from_numpy(MATRIX) * 1.5
        y[1:] = y[:-1].clone()
        y[:3].mul_(y[3].clone())
        return behind(y).numpy()

    for behind in (lambda y: y.exp(), lambda y: y[None] * 2, lambda y: y @ tj.ones(5, 5)):
        expected = of_rows(behind)
        with WAYS["compiled"]():
            np.testing.assert_allclose(of_rows(behind), expected, rtol=1e-6)
    assert noted == [(2, 0), (2, 2), (2, 2)]


def flipped(y, at):
    y[at:] = y[at:].flip(0) * 0.9


def summed(y, at):
    y[at].add_(y[:at].sum(0), alpha=0.1)


def exchanged(y, at):
    y[[0, at]] = y[[at, 0]]


def columned(y, at):
    y[:, at - 1].sub_(y[:, -1 - at] * 0.2)


def shifted_on(y, at):
    y[at:] = y[:-at].clone()


MANY = (flipped, summed, exchanged, columned, shifted_on)


@settings(max_examples=3)
@given(st.lists(st.tuples(st.sampled_from(MANY), st.integers(1, 4)), min_size=1, max_size=4), st.integers(6, 8))
def test_writes_of_many_kinds_need_no_memory_where_nothing_is_reshaped(writes, rounds):
    """As one program, and with loops: of one length more each time."""

    def run(rounds):
        y = tj.from_numpy(MATRIX).sin()
        for _ in range(rounds):
            for write, at in writes:
                write(y, at)
            y.mul_(0.9)
        return (y * y).numpy()

    for more in range(4):
        expected = run(rounds + more)
        with WAYS["compiled"]():
            np.testing.assert_allclose(run(rounds + more), expected, rtol=1e-5, atol=1e-6)


def test_loops_that_are_rolled_write_in_place(noted):
    def run(rounds):
        y = tj.from_numpy(MATRIX).sin()
        for _ in range(rounds):
            y[1:] = y[:-1].clone()
            y.mul_(0.9)
        return y.numpy()

    for rounds in (20, 22, 24, 26):
        expected = run(rounds)
        with WAYS["compiled"]():
            np.testing.assert_allclose(run(rounds), expected, rtol=1e-6)
    assert (1, 0) in noted, "no loop was rolled, or one write was kept apart"
