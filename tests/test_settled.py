"""The short way of programs about which nothing is left to be decided gives what the long one gives, and is left where something is unusual."""

from __future__ import annotations

import math

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.runtime import baseline_tier, counters, execution_mode, keeping, tiers, value
from torchgrad_jax.runtime.observing import observer
from torchgrad_jax.runtime.recorder import recorder


@pytest.fixture(autouse=True)
def fused():
    with execution_mode("fused"), baseline_tier(True):
        yield


class Short:
    """How often the short way was taken since the last `reset`."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.before = counters.settled

    def __len__(self):
        return counters.settled - self.before


@pytest.fixture
def short():
    return Short()


def small(x, k):
    return ((x * x + k).sin() - x).sum()


def hot(x=None):
    """A function of one tensor that is soon compiled, and compiled; with its tensor, which is `x` or another one."""
    x = tj.linspace(0, 1, 64).reshape(8, 8) if x is None else x

    def function(x):
        for _ in range(30):
            x = (x @ x).tanh() + 0.5
        return x

    for _ in range(8000):
        before = counters.ran
        function(x).sum().item()
        if counters.ran > before:
            break
    else:
        raise AssertionError("it was never compiled")
    return lambda: function(x).sum().item()


def test_small_programs_are_run_the_short_way_from_the_third_time_on(short):
    x = tj.arange(6.0)
    found = [small(x, k).item() for k in (0.5, 1.5, -2.5, 1e300)]
    assert len(short) == 2
    a = np.arange(6, dtype=np.float32)
    for number, k in zip(found[:3], (0.5, 1.5, -2.5), strict=False):
        assert number == pytest.approx(float((np.sin(a * a + np.float32(k)) - a).sum()), rel=1e-5)
    assert np.isnan(found[3])


def test_compiled_programs_are_run_the_short_way_too(short):
    again = hot()
    expected = again()
    short.reset()
    assert again() == again() == expected and len(short) == 2


@pytest.mark.parametrize("kind", ["small", "compiled"])
def test_other_results_that_are_held_are_computed(short, kind):
    x = tj.arange(6.0)
    for turn in range(4):
        y = x * 3
        z = y + turn
        if kind == "compiled":
            for _ in range(20):
                z = z * 1.5
        short.reset()
        if turn < 3:
            del y
        assert z.sum().item() == pytest.approx(float((np.arange(6) * 3.0 + turn).sum()) * (1.5**20 if kind == "compiled" else 1))
    assert y.tolist() == [0, 3, 6, 9, 12, 15] and z[0].item() == pytest.approx(3 * (1.5**20 if kind == "compiled" else 1))


def test_somebody_who_watches_is_told_of_every_run(short):
    x = tj.arange(6.0)
    for _ in range(3):
        small(x, 0.5).item()
    assert short

    class Watcher(observer.Observer):
        seen = 0

        def program(self, step, alive, program, new):
            self.seen += 1

    watcher = Watcher()
    observer.watch(watcher)
    try:
        short.reset()
        small(x, 0.5).item()
    finally:
        observer.leave(watcher)
    assert watcher.seen == 1 and not short


def test_modes_decide_anew(short):
    x = tj.arange(6.0)
    for _ in range(3):
        small(x, 0.5).item()
    short.reset()
    before = counters.interpreted
    with baseline_tier(False):
        small(x, 0.5).item()
    with execution_mode("eager"):
        small(x, 0.5).item()
    assert not short and counters.interpreted == before
    small(x, 0.5).item()
    small(x, 0.5).item()
    assert short


def test_host_data_stays_on_the_host_until_compiled_programs_have_read_it_often(short):
    x = tj.linspace(0, 1, 64).reshape(8, 8) * 1
    x.tolist()  # a result of the interpreter's
    again = hot(x)
    short.reset()
    found = [again() for _ in range(value.OFTEN_CARRIED - 1)]
    assert isinstance(x._value.array, np.ndarray) and len(short) == len(found)
    found += [again() for _ in range(4)]
    assert not isinstance(x._value.array, np.ndarray)
    assert len(set(found)) == 1


def test_what_was_let_go_is_made_again(short):
    again = hot()
    expected = again()
    for owner in keeping.executables():
        owner.let_go()
    short.reset()
    assert again() == pytest.approx(expected, rel=1e-5)
    assert not short


def test_checks_of_values_are_told_on_the_short_way(short):
    """What fails is told where it is looked at, what does not depend on it is there, and the next run is as any."""
    x, good, bad = tj.arange(6.0), tj.tensor([[2.0, 0.0], [0.0, 4.0]]), tj.zeros(2, 2)

    def both(a):
        return tj.linalg.inv(a * 1), x + a[0, 0]

    for _ in range(4):
        inverse, other = both(good)
        assert inverse.tolist() == [[0.5, 0.0], [0.0, 0.25]] and other[1].item() == 3
    short.reset()
    inverse, other = both(bad)
    with pytest.raises(tj.linalg.LinAlgError, match="singular"):
        inverse.tolist()
    assert other.tolist() == x.tolist()
    with pytest.raises(tj.linalg.LinAlgError, match="singular"):
        inverse.tolist()
    inverse, other = both(good)
    assert inverse.tolist() == [[0.5, 0.0], [0.0, 0.25]] and short


def test_an_index_out_of_range_is_told_on_the_short_way(short):
    x, rows = tj.arange(6.0), tj.tensor([1, 4])
    for n in (0, 1, 0, 1):
        assert (x * 2)[(rows * 1) + n].tolist() == [2 + 2 * n, 8 + 2 * n]
    short.reset()
    found = (x * 2)[(rows * 1) + 2]
    with pytest.raises(IndexError, match="out of bounds for dimension 0 with size 6"):
        found.tolist()
    assert (x * 2)[(rows * 1) + 1].tolist() == [4, 10] and short


@pytest.mark.failing_programs
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_nothing_is_lost_where_it_is_interrupted(short, monkeypatch, error):
    x = tj.arange(6.0)
    for _ in range(3):
        expected = small(x, 0.5).item()
    y = small(x, 0.5)
    settled = recorder().epoch.step.settled

    def raising(*given):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(settled, "calls", [(raising, len(call[5]), *call[2:]) for call in settled.calls])
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                y.item()
        else:
            assert y.item() == expected
    assert y.item() == expected == small(x, 0.5).item()


def test_numbers_of_each_kind(short):
    x = tj.arange(3)
    for turn in range(5):
        assert (x + turn).tolist() == [turn, 1 + turn, 2 + turn]
        assert (x * True).tolist() == [0, 1, 2]
        assert (x + 2j * turn)[0].item() == 2j * turn
        assert (x + 2**62).tolist() == [2**62, 2**62 + 1, 2**62 + 2]
    assert len(short) >= 6


def test_a_number_that_stays_one_that_changes_and_one_that_comes_back(short):
    """What a number became is kept from one run to the next, for the same object alone."""
    x, stays = tj.arange(3.0), 0.5
    for other in (1.25, 2.5, 2.5, 2, 1.25, -0.0, 0.0, 1.25):
        found = (x * stays + other).tolist()
        assert found == [other, 0.5 + other, 1 + other] and str(found[0]) == str(0.0 + other)
    assert len(short) >= 4


@pytest.mark.parametrize("name", ["sum", "mean"])
@pytest.mark.parametrize("dim, keepdim", [(None, False), (0, False), (1, True), ((0, 2), False), (-1, False), ((0, 1, 2), True)])
@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 1, 4), (2, 3, 4000), (0, 2, 3)])
def test_gradients_of_sums_on_the_short_way_are_those_of_the_first_run(short, name, dim, keepdim, shape):
    """Where they are memory of their own, and where they look at the same elements again and again."""
    x = tj.linspace(-1, 1, math.prod(shape)).reshape(shape).requires_grad_()
    found = []
    for _ in range(10):  # a mean becomes part of a list of calls later, and among all tests a run has been another program
        x.grad = None
        getattr(x.exp(), name)(*(() if dim is None else (dim, keepdim))).sin().sum().backward()
        found.append(x.grad.numpy())
        assert x.grad.shape == shape
    assert all([np.array_equal(f, found[0], equal_nan=True) for f in found]) and len(short) >= 2


def test_inputs_that_another_program_still_computes(short):
    again = hot()
    x = tj.rand(300, 300)
    for _ in range(40):  # long enough to be handed over where a loop cuts it
        y = x
        for _ in range(12):
            y = (y @ x).tanh()
        z = (y[0, :4] * 2).sum()
        assert z.item() == pytest.approx(2 * float(y.numpy()[0, :4].sum()), rel=1e-4)
    assert again()


# ---------------------------------------------------------------------- large inputs that nobody else holds


def test_what_numpy_computed_is_given_away_as_what_xla_did(monkeypatch):
    """Else a training step with large weights would be two programs in turn: one of NumPy's arrays, one of XLA's."""
    x, w, m = tj.linspace(0, 1, 1 << 20), tj.zeros(1 << 20), tj.zeros(1 << 20)
    expected = [np.zeros(1 << 20, np.float32) for _ in range(2)]
    before = counters.compiled
    monkeypatch.setattr(tiers, "PATIENCE", 0.1)
    for _ in range(120):
        m.mul_(0.5).add_(x)
        for _ in range(16):
            w.add_(m, alpha=0.0625)
        w[7].item()
        expected[1] = expected[1] * np.float32(0.5) + x.numpy()
        expected[0] = expected[0] + expected[1]
    assert counters.compiled == before + 1
    np.testing.assert_allclose(w.numpy(), expected[0], rtol=1e-4)


def test_memory_that_a_view_of_numpys_shares_is_not_given_away():
    x = tj.linspace(0, 1, 1 << 20) + 1
    part = x.view(1024, 1024)
    assert part.sum().item() > 0  # interpreted: NumPy's views share memory
    before = x.numpy()
    for _ in range(40):
        y = part
        for _ in range(6):
            y = y * 1.01 + 0.5
        part = y
        part[0, 0].item()
    np.testing.assert_array_equal(x.numpy(), before)


# ---------------------------------------------------------------------- results with aliases


def test_one_result_with_an_alias_is_run_the_short_way_and_writes_to_nobodys_memory():
    """Bytes of length 1 are shared by all of Python: which results are held is noted in bytes of their own."""

    class Same(tj.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            Same.kept = g
            return g

    x = tj.ones(3, requires_grad=True)
    before = counters.settled
    for _ in range(30):
        x.grad = None
        Same.apply(x).sum().backward()
        assert Same.kept.sum().item() == 3
    assert counters.settled > before
    leaf = tj.tensor(1.0, requires_grad=True)  # its gradient is all that is recorded
    for _ in range(30):
        leaf.grad = None
        leaf.backward()
        assert leaf.grad.item() == 1
    assert [int.from_bytes(bytes([n]), "big") for n in range(256)] == list(range(256))
