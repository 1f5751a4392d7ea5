"""Long programs run in another thread while the caller records on: nothing is lost, in no order, and errors come out where somebody looks."""

from __future__ import annotations

import faulthandler
import gc
import os
import threading
import weakref

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.runtime import baseline_tier, execution_mode, program, worker
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.recorder import recorder
from torchgrad_jax.runtime.worker import Promised

pytestmark = pytest.mark.operators  # tries its own modes


@pytest.fixture
def all_are_long(monkeypatch):
    """Every program that nobody looks at is handed over."""
    monkeypatch.setattr(program, "LONG", 0.0)
    with execution_mode("fused"), baseline_tier(False):
        yield


def train(steps, look):
    tj.manual_seed(0)
    w = tj.randn(6, 4).requires_grad_()
    x = tj.randn(5, 6)
    losses = []
    for step in range(steps):
        loss = (tj.tanh(x @ w) ** 2).mean()
        loss.backward()
        with tj.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
        losses.append(loss.detach())
        if look and step % look == 0:
            losses[-1].item()
    return [v.item() for v in losses], w.detach().numpy()


@pytest.mark.parametrize("look", [None, 3])
def test_a_loop_computes_what_it_computes_in_one_thread(all_are_long, monkeypatch, look):
    handed = []
    monkeypatch.setattr(program, "hand_over", lambda *arguments: handed.append(1) or worker.hand_over(*arguments))
    losses, w = train(12, look)
    assert len(handed) >= 4
    monkeypatch.setattr(program, "LONG", float("inf"))
    expected, expected_w = train(12, look)
    np.testing.assert_array_equal(losses, expected)
    np.testing.assert_array_equal(w, expected_w)


def test_results_are_there_in_the_order_of_the_calls():
    promises = [hand_over(lambda k=k: [np.full(3, k), k], [], 2) for k in range(20)]
    assert [p[1].kept() for p in promises] == list(range(20))
    assert promises[7][0].kept().tolist() == [7, 7, 7]


def hand_over(function, arguments, outputs, epoch=None):
    """The promises of the outputs of a function that the other thread calls."""
    promises = [Promised(epoch, slot) for slot in range(outputs)]
    worker.hand_over(function, arguments, promises, lambda: None)
    return promises


def test_promised_arguments_are_waited_for():
    (first,) = hand_over(lambda: [np.arange(3)], [], 1)
    (second,) = hand_over(lambda x, y: [x + y], [first, 10], 1)
    assert second.kept().tolist() == [10, 11, 12]


def test_whoever_keeps_one_output_keeps_no_other():
    class Array:
        pass

    made = weakref.WeakValueDictionary()

    def two():
        outs = [Array(), Array()]
        made.update(enumerate(outs))
        return outs

    one, other = hand_over(two, [], 2)
    assert one.kept() is made[0]
    del other
    hand_over(lambda: [None], [], 1)[0].kept()  # the thread has let go of the last call's results
    gc.collect()
    assert list(made) == [0]


def test_an_error_under_way_is_the_program_to_be_computed_otherwise():
    class Otherwise:
        def outcome(self, slot):
            return f"result {slot}"

    def fail():
        raise MemoryError("no room")

    one, other = hand_over(fail, [], 2, Otherwise())
    assert [p.kept() for p in (one, other, one)] == ["result 0", "result 1", "result 0"]
    assert hand_over(lambda: [1], [], 1)[0].kept() == 1


def test_the_caller_does_not_run_ahead_for_ever():
    gate, begun = threading.Event(), []

    def wait(k):
        begun.append(k)
        gate.wait(10)
        return [k]

    promises = [hand_over(lambda k=k: wait(k), [], 1)[0] for k in range(worker.MOST_UNDER_WAY)]
    late = []
    thread = threading.Thread(target=lambda: late.append(hand_over(lambda: wait(99), [], 1)[0]))
    thread.start()
    thread.join(0.05)
    assert not late
    gate.set()
    thread.join(10)
    assert [p.kept() for p in [*promises, *late]] == [*range(worker.MOST_UNDER_WAY), 99]


def test_a_promised_value_is_looked_at_from_another_thread(all_are_long):
    losses, found = [], []
    w = tj.linspace(0, 1, 7).requires_grad_()
    for _ in range(5):
        loss = (w * 2).sin().sum()
        loss.backward()
        with tj.no_grad():
            w.grad = None
            losses.append(loss.detach())
    thread = threading.Thread(target=lambda: found.extend([v.item() for v in losses]))
    thread.start()
    thread.join()
    np.testing.assert_allclose(found, [np.sin(2 * np.linspace(0, 1, 7)).sum()] * 5, rtol=1e-6)


def test_a_check_under_way_does_not_hold_up_a_look_at_something_else(all_are_long, monkeypatch):
    gate = threading.Event()
    table, at = tj.linspace(0, 1, 7), tj.arange(3)

    def look_up():
        chosen = [table[at * k + 1] * 2 for k in range(8)]
        recorder().flush("turn")
        return chosen

    look_up()
    look_up()
    hand = program.hand_over

    def slowly(function, *rest):
        return hand(lambda *given: gate.wait(10) and function(*given), *rest)

    monkeypatch.setattr(program, "hand_over", slowly)
    chosen = look_up()
    assert type(chosen[0]._read().array) is Promised
    assert tj.tensor([1.0]).item() == 1.0
    gate.set()
    assert chosen[0].tolist() == (table[1:2].expand(3) * 2).tolist()
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 7"):
        chosen[4].tolist()
    assert chosen[1].tolist() == (table[1:4] * 2).tolist()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork:DeprecationWarning")
def test_a_forked_child_computes_what_can_be_interpreted_and_says_what_cannot(all_are_long, monkeypatch):
    def step(x):
        y = (x * 2).sin() + 1
        recorder().flush("turn")
        return y

    x = tj.linspace(0, 1, 5)
    expected = [step(x).tolist() for _ in range(3)][-1]
    gate = threading.Event()
    hand = program.hand_over
    monkeypatch.setattr(program, "hand_over", lambda function, *rest: hand(lambda *given: gate.wait(10) and function(*given), *rest))
    under_way = step(x)
    assert type(under_way._read().array) is Promised
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(30, exit=True)
        gate.set()
        with baseline_tier(True):
            found = [under_way.tolist(), step(x).tolist(), (x + 1).tolist()]
        try:
            tj.zeros(0, 0).det().item()
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) and np.allclose(found, [expected, expected, np.linspace(1, 2, 5)]) else 3)
        os._exit(4)
    gate.set()
    assert os.waitpid(child, 0)[1] == 0
    assert under_way.tolist() == expected


def test_a_reset_of_counters_does_not_hide_from_a_fork_what_was_compiled():
    with execution_mode("eager"):
        assert (tj.ones(3) * 2).sum().item() == 6
    counters.reset()
    assert counters.ever_compiled and not counters.compiled_ops
