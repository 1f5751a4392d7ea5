"""What was not used for long is let go, and comes back when it is met again."""

from __future__ import annotations

import gc
import random
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.autograd import tape
from torchgrad_jax.declaration import operator
from torchgrad_jax.runtime import baseline_tier, counters, execution_mode, keeping, recorder
from torchgrad_jax.runtime.program import Program
from torchgrad_jax.runtime.recording.step import Step
from torchgrad_jax.runtime.value import _interned, aval_of


@pytest.fixture(autouse=True)
def fused():
    with execution_mode("fused"), baseline_tier(True):
        yield


@pytest.fixture
def few(monkeypatch):
    """A small bound on structures, and what was there before let go."""
    monkeypatch.setattr(keeping, "MOST_STEPS", 3_000)
    monkeypatch.setattr(keeping, "MOST_SIGNATURES", 400)
    monkeypatch.setattr(keeping, "signature_limit", 0)
    monkeypatch.setattr(keeping, "step_limit", 0)
    for owner in keeping.executables():  # what is compiled stays first, and so little may stay
        owner.let_go()
    tj.ones(3).sum().item()
    gc.collect()
    return len(steps())


@pytest.fixture
def elsewhere(few):
    """How many Steps and Programs there are before, which other tests have compiled or keep. (Of what they left some is frozen, and not counted.)"""
    return alive(Step), alive(Program)


def steps():
    """The Steps that programs can be found by."""
    found, stack = [], list(recorder.roots.values())
    while stack:
        found.append(stack.pop())
        stack.extend(found[-1].following())
    return found


def programs():
    return [program for step in steps() for program in (step.programs or {}).values()]


def alive(kind):
    return sum(type(o) is kind for o in gc.get_objects())


OPERATORS = [tj.sin, tj.cos, tj.tanh, lambda y: y * 0.5, lambda y: y - y.mean(), lambda y: y.t().sum(1), lambda y: tj.softmax(y, 0)]


def turn(choices, weights, size=4):
    """The loss of a forward pass of these operators, after a backward pass and an update."""
    y = tj.linspace(0.0, 1.0, size * size).reshape(size, size) * weights[0]
    for choice in choices:
        y = OPERATORS[choice](y)
        if y.ndim == 1:
            y = y.unsqueeze(1) * weights[1].detach()
    loss = (y**2).mean()
    loss.backward()
    with tj.no_grad():
        weights.grad = None
    return loss


def choices_of(generator):
    return [generator.randrange(len(OPERATORS)) for _ in range(generator.randint(3, 12))]


def weights(size=4):
    return tj.full((2, size), 0.7).requires_grad_()


def test_steps_and_programs_of_structures_that_never_come_back_stay_few(few, elsewhere):
    generator, w = random.Random(0), weights()
    recorded = counters.recorded
    most = 0
    for _ in range(400):
        turn(choices_of(generator), w).item()
        most = max(most, len(steps()))
    assert counters.recorded - recorded > 4 * keeping.MOST_STEPS
    assert most <= 1.5 * keeping.MOST_STEPS + 2 * few  # a program that is kept may be as long as all that was there
    gc.collect()
    assert alive(Step) - elsewhere[0] <= 2 * keeping.MOST_STEPS + few
    assert alive(Program) - elsewhere[1] <= 300
    assert len(tape._tapes) <= 300


def test_what_was_let_go_comes_back(few):
    generator, w = random.Random(1), weights()
    choices = choices_of(generator)
    before = {id(program) for program in programs()}
    first = turn(choices, w).item()
    assert turn(choices, w).item() == first
    forms = [weakref.ref(program.form) for program in programs() if id(program) not in before]
    assert forms
    for _ in range(300):
        turn(choices_of(generator), w).item()
    gc.collect()
    assert not any(form() for form in forms)
    for _ in range(3):
        assert turn(choices, w).item() == first
    met = keeping.now
    assert turn(choices, w).item() == first
    assert keeping.now == met


def test_what_is_used_stays(few):
    generator, w = random.Random(2), weights()
    steady = [0, 1, 2, 3]
    expected = turn(steady, w).item()
    for _ in range(3):
        turn(steady, w).item()
    for _ in range(300):
        turn(choices_of(generator), w).item()
        met = keeping.now
        assert turn(steady, w).item() == expected
        assert keeping.now == met


def test_results_that_are_held_do_not_hold_the_steps_to_them(few, elsewhere):
    generator, w = random.Random(3), weights()
    held = []
    for _ in range(300):
        held.append(turn(choices_of(generator), w).detach())
        held[-1].item()
    gc.collect()
    assert alive(Step) - elsewhere[0] <= 2 * keeping.MOST_STEPS + few


def test_a_program_that_is_pending_when_others_are_let_go_is_found_again(few):
    def recorded():
        return ((tj.ones(3) * 2.0 + 1.0).sin() * 3.0).sum()

    expected = recorded().item()
    keeping.step_limit = 0
    assert recorded().item() == expected
    met = keeping.now
    assert recorded().item() == expected
    assert keeping.now == met


def generated(length):
    """What is looked at after so many steps, each of which reads more than the one before."""
    cache, x = tj.zeros(64, 4), tj.ones(4)
    for i in range(length):
        cache[i] = x * 0.5
        x = (cache[: i + 1].t() @ tj.softmax(cache[: i + 1] @ x, 0)) + 0.1
    return x.sum().item()


def test_calls_of_programs_that_begin_alike_stay_few(few, monkeypatch):
    monkeypatch.setattr(keeping, "MOST_CALLS", 2_000)
    monkeypatch.setattr(keeping, "call_limit", 0)

    def held():
        ready = [program.interpreted for program in programs() if program.interpreted and program.interpreted.merged]
        return sum(len(interpreted.calls) for interpreted in ready)

    lengths = [*range(1, 41)] * 2
    expected = [generated(n) for n in lengths]
    assert sum(8 * n for n in range(1, 41)) > 3 * keeping.MOST_CALLS
    for _ in range(2):
        for n, value in zip(lengths, expected, strict=True):
            assert generated(n) == pytest.approx(value, rel=1e-5)
            assert held() <= 1.5 * keeping.MOST_CALLS
    assert held() > 0


def test_calls_may_be_let_go_of_while_other_threads_make_them(few, monkeypatch):
    monkeypatch.setattr(keeping, "MOST_CALLS", 300)
    monkeypatch.setattr(keeping, "call_limit", 0)
    expected = {n: generated(n) for n in range(1, 12)}

    def look(seed):
        generator = random.Random(seed)
        return [(n, generated(n)) for n in (generator.randint(1, 11) for _ in range(60))]

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(look, range(3)))
    assert all(value == pytest.approx(expected[n], rel=1e-5) for pairs in found for n, value in pairs)


def test_what_was_interpreted_holds_no_calls_once_it_is_compiled(few):
    x = tj.linspace(0.0, 1.0, 10_000)
    before = {id(program) for program in programs()}
    for _ in range(300):
        y = x
        for _ in range(30):
            y = (y * 0.9).tanh()
        y.sum().item()
    made = [program for program in programs() if id(program) not in before]
    assert any(program.form.executable or program.common for program in made)
    assert not any(program.interpreted for program in made if program.tier != "interpreted")


def test_signatures_and_operators_with_their_arguments_stay_few(few, monkeypatch):
    monkeypatch.setattr(operator, "FEW", 8)
    signatures = lambda: sum(len(bound.signatures) for bound in operator.all_bound())  # noqa: E731
    before, operators = signatures(), len(operator.registry["select"].bound)
    most = bound = 0
    for n in range(1, 300):
        x = tj.ones(n + 1, 3).requires_grad_()
        (x.narrow(0, n // 2, n // 3 + 1) ** (n + 2)).sum().backward()
        assert x.grad[n // 2, 0].item() == n + 2
        most = max(most, signatures())
        bound = max(bound, len(operator.registry["pow_scalar"].bound))
    assert most <= before + 2 * keeping.MOST_SIGNATURES
    assert bound < 290
    assert operators <= len(operator.registry["select"].bound) + 1


def test_an_aval_in_use_is_the_one_of_its_shape_whatever_is_forgotten():
    held = tj.ones(7, 12_345)._aval
    for n in range(5_000):
        aval_of((n, 54_321), np.dtype(np.float32))
    assert len(_interned) <= 4096
    assert aval_of((7, 12_345), np.dtype(np.float32)) is held


# ---------------------------------------------------------------------- executables


@pytest.fixture
def by_xla(monkeypatch):
    """Everything by XLA, and little room for executables."""
    monkeypatch.setattr(keeping, "SOFT", 160)
    monkeypatch.setattr(keeping, "HARD", 320)
    monkeypatch.setattr(keeping, "AGE", 3)
    with baseline_tier(False):
        yield


def powers(n):
    """A program of its own for each `n`, met three times: with these it is compiled."""
    x = tj.linspace(0.0, 1.0, 5)
    return [((x ** (n + 2)).sin() + x).sum().item() for _ in range(3)][-1]


def test_executables_that_are_not_used_are_let_go_and_come_back(by_xla):
    generator = np.linspace(0.0, 1.0, 5, dtype=np.float32)
    compiled, most = counters.compiled, 0
    for n in range(24):
        assert powers(n) == pytest.approx((np.sin(generator ** (n + 2)) + generator).sum(), rel=1e-5)
        most = max(most, sum(one.executable for one in keeping.executables()))
    assert counters.compiled - compiled >= 24
    assert most <= keeping.HARD + keeping.EXECUTABLE + 10
    compiled = counters.compiled
    first = powers(0)
    assert counters.compiled == compiled + 1
    assert powers(0) == first
    assert counters.compiled == compiled + 1


def test_an_executable_that_was_let_go_is_freed(by_xla):
    others = keeping.executables()  # of other tests, which may hold theirs
    powers(100)
    owners = [weakref.ref(one.function) for one in keeping.executables() if one not in others and getattr(one, "function", None) is not None]
    assert owners
    del others
    for n in range(101, 125):
        powers(n)
    gc.collect()
    assert not any(reference() is not None for reference in owners)


def test_executables_in_use_stay_whatever_their_number_up_to_the_hard_bound(by_xla, monkeypatch):
    monkeypatch.setattr(keeping, "HARD", 10_000)
    for n in range(200, 216):
        powers(n)
    for n in range(200, 216):  # met again, they are compiled again: from here on nothing new is met
        powers(n)
    compiled = counters.compiled
    for _ in range(2):
        for n in range(200, 216):
            powers(n)
    assert counters.compiled == compiled


@pytest.mark.operators
def test_operations_compiled_by_themselves_are_let_go_and_come_back(by_xla):
    with execution_mode("eager"):
        found = [(tj.ones(n, 2) * 3.0).sum().item() for n in range(1, 25)]
        assert sum(one.executable for one in keeping.executables()) <= keeping.HARD + keeping.EXECUTABLE + 10
        assert found == [(tj.ones(n, 2) * 3.0).sum().item() for n in range(1, 25)] == [6.0 * n for n in range(1, 25)]


def test_programs_of_loops_of_other_lengths_come_back(by_xla):
    def looped(count, scale):
        x = tj.full((3,), 0.5)
        for _ in range(count):
            x = (x * scale).sin() + 0.1
        return x.sum().item()

    expected = {count: looped(count, 0.9) for count in range(30, 40)}
    for n in range(24):
        powers(300 + n)
    assert {count: looped(count, 0.9) for count in range(30, 40)} == pytest.approx(expected, rel=1e-6)
