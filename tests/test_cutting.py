"""Loops whose turns begin otherwise each time and go on alike: where what is alike begins, a program is cut."""

from __future__ import annotations

import random

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.runtime import baseline_tier, counters, execution_mode
from torchgrad_jax.runtime.recorder import recorder
from torchgrad_jax.runtime.recording import cutting

F = torch.nn.functional
TURNS = 24


@pytest.fixture(autouse=True)
def begun_anew():
    """What other tests have run is not compared with."""
    recorder().cutting = cutting.Cutting()
    with execution_mode("fused"), baseline_tier(True):
        yield
    recorder().cutting = cutting.Cutting()


def training(width):
    """A step of training on a batch that is put together by other operations each time, of sizes that no other test has. Its loss, and a weight."""
    torch.manual_seed(0)
    order = random.Random(1)
    images, net = torch.randn(16, width, width), torch.nn.Sequential(torch.nn.Linear(width**2, 9), torch.nn.Tanh(), torch.nn.Linear(9, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def step():
        parts = []
        for _ in range(4):
            image = images[order.randrange(16)]
            for _ in range(order.randrange(2, 9)):
                image = order.choice([lambda t: t.flip(0), lambda t: t.mT, lambda t: t * 0.5, torch.sin])(image)
            parts.append(image)
        loss = F.cross_entropy(net(torch.stack(parts).flatten(1)), torch.tensor([0, 1, 1, 0]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), net[0].weight.detach().numpy().copy()

    return step


def cuts():
    return counters.reasons.get("cut", 0)


def test_what_comes_back_is_known_whatever_it_begins_with():
    step = training(7)
    for _ in range(TURNS):
        step()
    before, settled = cuts(), counters.settled
    for _ in range(10):
        step()
    assert cuts() - before >= 10 and counters.settled - settled >= 8


def test_the_numbers_are_those_of_whole_programs():
    before, step = cuts(), training(6)
    found = [step() for _ in range(TURNS)]
    assert cuts() > before
    with execution_mode("eager"):
        step = training(6)
        whole = [step() for _ in range(TURNS)]
    for one, other in zip(found, whole, strict=True):
        assert one[0] == pytest.approx(other[0], rel=1e-6)
        np.testing.assert_allclose(one[1], other[1], rtol=1e-5, atol=1e-6)


def test_programs_that_keep_their_tier_are_not_cut():
    torch.use_deterministic_algorithms(True)
    try:
        assert cuts_of(training(8), TURNS) == 0  # of parts XLA could make other bits
    finally:
        torch.use_deterministic_algorithms(False)


def test_all_runs_are_cut_alike():
    """So that they have the same bits."""
    runs = []
    for _ in range(2):
        recorder().cutting = cutting.Cutting()
        step, before = training(5), cuts()
        runs.append(([step()[0] for _ in range(TURNS)], cuts() - before))
    assert runs[0][1] > 0
    assert runs[0][0] == runs[1][0]


def test_where_what_follows_is_always_new_nothing_is_cut_any_more():
    x, order = torch.randn(11, 3), random.Random(0)

    def step():
        y = x
        for _ in range(order.randrange(1, 20)):
            y = order.choice([torch.sin, torch.cos, torch.exp])(y)
        y = y.reshape(3, 11)  # begins what they have in common
        for _ in range(30):
            y = order.choice([torch.sin, torch.cos, torch.tanh])(y) if changing else y.tanh()
        return y.sum().item()

    changing = False
    for _ in range(12):
        step()
    assert cuts_of(step, 5) >= 5
    changing = True
    for _ in range(60):
        step()
    assert cuts_of(step, 10) == 0


def cuts_of(step, turns):
    before = cuts()
    for _ in range(turns):
        step()
    return cuts() - before


def test_a_backward_pass_that_is_cut():
    """Its gradients are those of one that is not: it is rehearsed, and recorded as one operation, in one of the parts."""
    weight, order = torch.randn(5, 4, requires_grad=True), random.Random(0)
    points = torch.randn(30, 5)

    def step():
        count = order.randrange(3, 28)
        weight.grad = None
        made = torch.tanh(points @ weight)
        loss = (made[:count].exp().sum() + made.square().mean()) * 0.1
        loss.backward()
        grad = -weight.grad  # of this there is one
        for _ in range(9):
            grad = grad * 0.9 + weight.detach() * 0.01
        found = grad.sum().item()
        wanted = points.numpy().astype(np.float64)
        tanh = np.tanh(wanted @ weight.detach().numpy())
        inner = 0.1 * (np.where(np.arange(30)[:, None] < count, np.exp(tanh), 0) + 2 * tanh / tanh.size) * (1 - tanh**2)
        grad = -wanted.T @ inner
        for _ in range(9):
            grad = grad * 0.9 + weight.detach().numpy() * 0.01
        assert found == pytest.approx(grad.sum(), rel=1e-4)

    assert cuts_of(step, 40) > 20


def test_an_error_is_told_where_its_results_are_looked_at():
    table, order = torch.randn(10, 6), random.Random(0)

    def step(index):
        rows = table[:, :3]
        for _ in range(order.randrange(4, 12)):
            rows = order.choice([torch.sin, torch.cos])(rows)
        rows = rows[torch.tensor([index, 1]) * 1]  # its check is in the part that is run first
        y = rows.reshape(6, 1)
        for _ in range(20):
            y = y.tanh()
        return y

    for _ in range(20):
        step(3).tolist()
    before, bad = cuts(), step(10)
    assert cuts() > before
    with pytest.raises(IndexError, match="index 10 is out of bounds for dimension 0 with size 10"):
        bad.tolist()
    assert np.isfinite(step(3).numpy()).all()


def test_programs_are_not_cut_where_loops_are_found():
    cell, order = torch.nn.RNNCell(3, 4), random.Random(0)

    def step():
        state = torch.zeros(2, 4)
        for _ in range(order.randrange(20, 60)):
            state = cell(torch.ones(2, 3), state)
        return state.sum().item()

    assert cuts_of(step, TURNS) == 0


def test_it_is_told_why_a_program_was_run():
    step = training(4)
    for _ in range(TURNS):
        step()
    with torch.explain() as report:
        step()
    assert "cut" in [flush.reason for flush in report.flushes]
    assert "what comes next is known" in str(report)
