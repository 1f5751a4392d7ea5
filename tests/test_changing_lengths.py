"""Loops whose length changes: which programs are searched for loops, and how the interpreter runs those in which there are some."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from test_rolling import begin, by_steps, normal, pending
from test_rolling import fused as fused  # a fixture of this file, too

import torchgrad_jax as torch
from torchgrad_jax.runtime import counters, modes, program, tiers
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.program import _Forms
from torchgrad_jax.runtime.recorder import recorder
from torchgrad_jax.runtime.rolling.looped import Looped
from torchgrad_jax.runtime.rolling.roll import roll

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]  # tries its own modes


def test_one_in_four_is_searched_after_many_in_vain_and_not_the_first_two():
    forms = _Forms()
    assert [forms.are_worth_a_search() for _ in range(20)] == [False] * 2 + [True] * 10 + [False, False, False, True] * 2
    forms.common("a loop"), forms.common("another")
    assert not forms.are_worth_a_search()
    forms.common("a loop")
    assert all([forms.are_worth_a_search() for _ in range(12)]) and not forms.are_worth_a_search()


def test_fewer_are_searched_after_more_in_vain():
    forms = _Forms()
    assert sum([forms.are_worth_a_search() for _ in range(64)]) == 10 + 13
    assert sum([forms.are_worth_a_search() for _ in range(160)]) == 10


def test_what_was_not_searched_for_loops_is_when_it_comes_back_again_and_little_is_kept_of_what_was_met_once(monkeypatch):
    forms = _Forms()
    forms.in_vain = 12
    monkeypatch.setattr(program, "_forms", forms)
    x = torch.tensor(normal(3, seed=12))

    def found(length):
        y = x
        for _ in range(length):
            y = (y * 0.53125).sin().exp()
        result, step = y.sum(), recorder().epoch.step
        assert np.isfinite(result.item())
        (one,) = step.programs.values()
        return one

    first = found(50)
    assert type(first) is program.Once
    second = found(50)
    assert second.form is first.form and second.seen == 2 and not second.searched and second.common is None
    third = found(50)
    assert third is second and third.seen == 3 and third.searched and third.common.members == 1
    assert (forms.once, forms.back) == (1, 1)
    assert type(found(51)) is program.Program  # what was met comes back: all is kept


# ---------------------------------------------------------------------- by the interpreter


@pytest.mark.skipif(not modes.baseline, reason="there is no interpreter")
def test_lengths_in_turn_are_interpreted_with_their_loops_and_give_the_bits_of_lists_of_their_own():
    w = torch.tensor(normal(6, 6, seed=21, scale=0.3))
    forms = _Forms()

    def run(length):
        h = w
        for t in range(length):
            h = torch.tanh(h @ w + 0.25 * t)
        result, step = h.sum(), recorder().epoch.step
        found = result.item()
        (one,) = step.programs.values()
        return found, one

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_forms", forms)
        patch.setattr(program, "FIRST", 0)
        before = counters.compiled
        first = {length: run(length)[0] for length in range(20, 30)}
        assert recorder().rolling  # so that a backward pass becomes one operation at its first sighting
        for _ in range(program.SELDOM + 3):
            for length, value in first.items():
                again, one = run(length)
                assert again == value and one.tier == "interpreted"
        assert counters.compiled == before
        # Those that came back often have become lists of their own by then.
        assert one.lengths.members == len(first) and one.lengths.looped is not None
        assert one.interpreted is not None and one.interpreted.merged is not None


@pytest.mark.skipif(not modes.baseline, reason="there is no interpreter")
def test_what_a_loop_without_a_plan_holds_is_xlas():
    x = torch.tensor(normal(5, seed=22))

    def solved(length):
        h = x
        for _ in range(length):
            h = torch.special.i1e(h) + 0.5
        return [h, h.sum()]

    begin()
    calls, outputs, inputs, arguments = pending(solved(8))
    rolled = roll(calls, outputs, inputs)
    # As if there were none for one of the operations.
    plans = {c.signature: None if c.signature.bop.name == "special_i1e" else c.signature.baseline for c in calls}
    assert None in plans.values() and any(plans.values())
    found = rolled.interpreted(Looped(rolled.key, plans), arguments)
    recorder().begin()
    for a, b in zip(found, by_steps(lambda: solved(8)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


# ---------------------------------------------------------------------- when the program with its loops is compiled


def long_program(interpreting, calling, members=1):
    """One of 1,800 operations of which 150 are left with its loops: compiling it without them would take 1.9 s. Times of a run in ms."""
    estimate = SimpleNamespace(interpreting=1e6 * interpreting, calling=1e6 * calling, compiling=1.9e9, whole=False, refined=True)
    form = SimpleNamespace(members=members, spent=0.0, turns=0)
    rolled = SimpleNamespace(compiling=150, packed=0)
    return SimpleNamespace(common=form, estimate=estimate, rolled=rolled, calls=[None] * 1800, seen=0, device=CPU)


def turns_until_rolled(program, most=400):
    for program.seen in range(most):
        if tiers._is_rolled_now(program, program.estimate.interpreting - program.estimate.calling):
            return program.seen
    return None


def test_a_program_of_one_length_is_not_compiled_with_its_loops_where_it_gains_nothing():
    assert turns_until_rolled(long_program(1.9, 1.7)) is None
    assert turns_until_rolled(long_program(1.9, 1.7, members=tiers.LENGTHS)) is not None


def test_a_program_of_one_length_is_compiled_with_its_loops_once_it_has_taken_that_long():
    quick, slow = turns_until_rolled(long_program(8.0, 4.0)), turns_until_rolled(long_program(80.0, 40.0))
    price = tiers._rolled_price(long_program(8.0, 4.0)) / 1e6
    assert price / 2 <= 8 * quick <= price and slow < quick  # half of it, as it will take half of its time
