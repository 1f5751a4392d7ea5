"""Rolling: what repeats in a program becomes a loop, with the values of the program as it was recorded, and one compilation for all lengths."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.operators.indexing import unpack_outside
from torchgrad_jax.runtime import execution_mode
from torchgrad_jax.runtime.compiling import compiled
from torchgrad_jax.runtime.compiling.kept import slots_to_keep
from torchgrad_jax.runtime.interpreted import Interpreted
from torchgrad_jax.runtime.recorder import recorder
from torchgrad_jax.runtime.rolling.looped import Looped
from torchgrad_jax.runtime.rolling.repeats import flat, stretches
from torchgrad_jax.runtime.rolling.roll import roll
from torchgrad_jax.runtime.rolling.rolled import Operation, RolledLoop
from torchgrad_jax.runtime.structure import calls_to, inputs_of

# Functions of rolled programs are called by themselves.
pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]  # tries its own modes

F = torch.nn.functional


@pytest.fixture(autouse=True)
def fused():
    """What is recorded stays pending whatever mode the run of the tests is in."""
    with execution_mode("fused"):
        yield


def normal(*shape, seed=0, scale=1.0):
    return np.random.RandomState(seed).randn(*shape) * scale


def leaf(*shape, seed=0, scale=1.0):
    return torch.tensor(normal(*shape, seed=seed, scale=scale), requires_grad=True)


def pending(tensors):
    """The calls, outputs, inputs and arguments of what is pending for these tensors."""
    rec = recorder()
    values = [t._read() for t in tensors]
    slots = [v.slot if v.epoch is rec.epoch else rec.enter(v) for v in values]
    calls, outputs = calls_to(rec.epoch.step, slots)
    inputs = inputs_of(calls, outputs)
    return calls, outputs, inputs, [*rec.epoch.arrays_of_numbers(), *[rec.epoch.leaves[i].concrete() for i in inputs]]


class Compiled:
    """Rolled programs by key, and how often each was traced."""

    def __init__(self):
        self.functions = {}
        self.traced = 0

    def __call__(self, rolled, arguments):
        if rolled.key not in self.functions:
            function = rolled.function()

            def counted(*given):
                self.traced += 1
                return function(*given)

            self.functions[rolled.key] = jax.jit(counted)
        return rolled.results(self.functions[rolled.key](rolled.sizes, *rolled.arguments(arguments)))


def begin():
    """Begin a program that nothing cuts."""
    recorder().flush("test")
    recorder().turned = 0  # where a backward pass has ended, the next operation of a graph would cut it


def by_rolling(program, compiled=None, *args):
    """The results of a program of tensors, computed by its rolled form; None if nothing in it is rolled. And the rolled form."""
    begin()
    tensors = program(*args)
    calls, outputs, inputs, arguments = pending(tensors)
    rolled = roll(calls, outputs, inputs)
    found = None if rolled is None else [np.asarray(a) for a in (compiled or Compiled())(rolled, arguments)]
    if rolled is not None:
        assert_interpreted_alike(rolled, calls, outputs, inputs, arguments, found)
    recorder().begin()
    return found, rolled


def assert_interpreted_alike(rolled, calls, outputs, inputs, arguments, compiled):
    """The interpreter gives the same with loops as without, to the bit: when it sees a body for the first time, and afterwards."""
    plans = [c.signature.baseline for c in calls]
    numbers = {a.dtype.kind: np.asarray(a) for a in arguments[: len(arguments) - len(inputs)]}
    expected = Interpreted(calls, plans, inputs, outputs)(numbers, arguments[len(arguments) - len(inputs) :])
    looped = Looped(rolled.key, dict(zip([c.signature for c in calls], plans, strict=True)))
    before = [np.array(a) for a in arguments]
    for _ in range(3):
        found = rolled.interpreted(looped, arguments)
        assert len(found) == len(expected) == len(compiled)
        for a, b, c in zip(found, expected, compiled, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)
            np.testing.assert_allclose(a, c, rtol=1e-9, atol=1e-12)
            assert np.asarray(a).dtype == np.asarray(b).dtype == c.dtype
    for a, b in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(a, b)


def by_steps(program, *args):
    """The results of a program run operation by operation."""
    with execution_mode("eager"):
        return [t.detach().numpy() for t in program(*args)]


def assert_rolls(program, *args, compiled=None):
    """A program is rolled, and to rounding its results are those of its operations one by one. Returns the rolled form."""
    found, rolled = by_rolling(program, compiled, *args)
    assert rolled is not None
    for a, b in zip(found, by_steps(program, *args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        assert a.dtype == b.dtype
    return rolled


def loops(rolled):
    return [item for item in rolled.key.items if type(item) is RolledLoop]


def trips(rolled):
    return [int(rolled.sizes[loop.trip]) for loop in loops(rolled)]


def names(operations):
    return [op.signature.bop.name for op in operations if type(op) is Operation]


# ---------------------------------------------------------------------- lengths


def rnn(length, zeros=False):
    wx, wh, xs = leaf(3, 4, scale=0.3), leaf(4, 4, seed=1, scale=0.3), torch.tensor(normal(96, 2, 3, seed=2))
    h = torch.zeros(2, 4, dtype=torch.float64) if zeros else torch.tensor(normal(2, 4, seed=3))
    for i in range(length):
        h = torch.tanh(xs[i] @ wx + h @ wh)
    loss = (h**2).mean()
    loss.backward()
    return [loss, wx.grad, wh.grad, h]


@pytest.mark.parametrize("zeros", [False, True])
def test_an_rnn_of_any_length_is_one_function_traced_once(zeros):
    compiled = Compiled()
    for length in (5, 6, 9, 17, 60, 33):
        assert_rolls(rnn, length, zeros, compiled=compiled)
    assert len(compiled.functions) == 1
    assert compiled.traced == 1


def test_an_rnn_that_is_walked_and_one_that_is_replayed_as_a_tape_are_the_same_function():
    assert len({assert_rolls(rnn, 21).key for _ in range(3)}) == 1


def test_the_passes_of_an_rnn_are_two_loops_and_few_operations_stay_outside():
    rolled = assert_rolls(rnn, 40)
    forward, backward = trips(rolled)
    assert forward == 40
    assert backward >= 38
    assert rolled.compiling < 35


def test_a_length_past_the_capacity_is_another_function():
    assert assert_rolls(rnn, 64).key != assert_rolls(rnn, 90).key


def test_programs_of_other_operations_have_other_keys():
    def steps(function, length=8):
        x = torch.tensor(normal(3))
        for _ in range(length):
            x = function(x) * 0.5 + 1.0
        return [x]

    assert by_rolling(steps, None, torch.sin)[1].key == by_rolling(steps, None, torch.sin, 11)[1].key
    assert by_rolling(steps, None, torch.sin)[1].key != by_rolling(steps, None, torch.cos)[1].key


# ---------------------------------------------------------------------- what is rolled and what is not


def test_short_and_irregular_programs_are_not_rolled():
    def irregular():
        x, seen = torch.tensor(normal(3)), []
        for f in (torch.sin, torch.cos, torch.tanh, torch.exp, torch.sigmoid, torch.neg, torch.abs):
            x = f(x)
            seen.append(x.sum())
        return seen

    assert by_rolling(rnn, None, 2)[1] is None
    assert by_rolling(irregular)[1] is None


def test_a_solver_takes_its_own_numbers_at_each_step():
    def euler(length):
        x, a = torch.tensor(normal(3)), torch.tensor(normal(3, 3, seed=1))
        for i in range(length):
            x = x + (0.1 / (i + 1)) * torch.sin(a @ x) - i
        return [x]

    compiled = Compiled()
    for length in (6, 20, 63):
        assert_rolls(euler, length, compiled=compiled)
    assert compiled.traced == 1


def test_numbers_after_loops_of_changing_length_are_found():
    def program(first, second):
        x = torch.tensor(normal(3))
        for i in range(first):
            x = torch.sin(x * (0.1 + 0.01 * i)) + 0.5  # the last digits do not grow
        x = x * 3.25 + 7
        for i in range(second):
            x = torch.cos(x - 0.25 * i) * 0.5
        return [x * -2.5, x + 11]

    compiled = Compiled()
    for lengths in ((9, 12), (12, 9), (30, 5), (5, 50)):
        assert len(loops(assert_rolls(program, *lengths, compiled=compiled))) == 2
    assert compiled.traced == 1


def test_complex_numbers_and_several_kinds_of_numbers_go_round():
    def program(length):
        x = torch.tensor(normal(3) + 1j)
        for i in range(length):
            x = torch.sin(x * (0.5 + 0.1j * i)) * 0.5 + i
        return [x]

    assert_rolls(program, 12)


def test_results_of_two_iterations_before_are_carried():
    def leapfrog(length):
        w = leaf(3, 3, scale=0.3)
        older, old = torch.tensor(normal(3)), torch.tensor(normal(3, seed=1))
        for _ in range(length):
            older, old = old, torch.tanh(w @ old) * 0.5 + older
        (old * older).sum().backward()
        return [old, older, w.grad]

    rolled = assert_rolls(leapfrog, 20)
    assert max(len(loop.carries) for loop in loops(rolled)) >= 2


def test_loops_in_sequence_read_each_other_forwards_and_backwards():
    def program(length):
        w, xs = leaf(4, 4, scale=0.3), torch.tensor(normal(64, 4, seed=2))
        h, states = torch.tensor(normal(4, seed=3)), []
        for i in range(length):
            h = torch.tanh(xs[i] + w @ h)
            states.append(h)
        g, other = torch.zeros(4, dtype=torch.float64), []
        for i in range(length):
            g = torch.sin(states[length - 1 - i] * 2.0 + w @ g)
            other.append(g)
        total = torch.zeros(4, dtype=torch.float64)
        for i in range(length):
            total = total + states[i] * other[i]
        total.sum().backward()
        return [total, w.grad]

    compiled = Compiled()
    for length in (9, 20, 51):
        assert len(loops(assert_rolls(program, length, compiled=compiled))) >= 4
    assert compiled.traced == 1


def test_layers_of_one_size_within_the_body_are_told_apart():
    def program(length):
        ws = [leaf(4, 4, seed=s, scale=0.3) for s in range(6)]
        xs = torch.tensor(normal(64, 2, 4, seed=9))
        hs = [torch.tensor(normal(2, 4, seed=s)) for s in range(3)]
        for i in range(length):
            x = xs[i]
            for layer in range(3):
                x = hs[layer] = torch.tanh(x @ ws[2 * layer] + hs[layer] @ ws[2 * layer + 1])
        (hs[2] ** 2).sum().backward()
        return [hs[0], hs[2], *[w.grad for w in ws]]

    compiled = Compiled()
    for length in (8, 21):
        assert_rolls(program, length, compiled=compiled)
    assert compiled.traced == 1


def test_an_option_that_this_xla_has_not_is_left_out(monkeypatch):
    monkeypatch.setitem(compiled._QUICKLY, "xla_cpu_an_option_of_tomorrow", True)
    monkeypatch.setattr(compiled, "_missing", set())
    found = compiled.ahead_of_time(jax.jit(lambda x: x + 1), [jax.ShapeDtypeStruct((3,), np.float32)], quickly=True)
    assert "xla_cpu_an_option_of_tomorrow" in compiled._missing and "xla_backend_optimization_level" not in compiled._missing
    np.testing.assert_array_equal(found(np.ones(3, np.float32)), np.full(3, 2.0))


def test_work_that_is_the_same_in_all_iterations_is_done_once():
    def program():
        w, x = torch.tensor(normal(4, 4, scale=0.1)), torch.tensor(normal(4, 4, seed=1))
        for _ in range(10):
            x = torch.tanh(torch.exp(w) @ x) + torch.ones(4, dtype=torch.float64)
        return [x]

    rolled = assert_rolls(program)
    assert sorted(names(loops(rolled)[0].body)) == ["add", "mm", "tanh"]
    assert "exp" in names(rolled.key.items)


def test_what_is_the_same_in_all_iterations_may_be_read_an_iteration_later():
    def program():
        w, x = torch.tensor(normal(4, 4, scale=0.1)), torch.tensor(normal(4, 4, seed=1))
        same = torch.sin(w)
        for _ in range(10):
            x = torch.tanh(same @ x) + torch.ones(4, dtype=torch.float64)
            same = torch.exp(w)
        return [x, same]

    assert "exp" in names(assert_rolls(program).key.items)


def test_inputs_of_single_iterations_are_stacked():
    data = [torch.tensor(normal(2, 3, seed=s)) for s in range(40)]

    def program(length):
        w, h = leaf(3, 3, scale=0.3), torch.tensor(normal(2, 3, seed=99))
        for i in range(length):
            h = torch.tanh(data[i] + h @ w) * data[i]
        h.sum().backward()
        return [h, w.grad]

    compiled = Compiled()
    for length in (12, 40, 25):
        assert_rolls(program, length, compiled=compiled)
    assert compiled.traced == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_iterations_that_read_one_result_each_of_an_operation_with_many(reverse):
    """As a tensor that is walked along has."""

    def program(length):
        w, xs = leaf(3, 3, scale=0.3), leaf(length, 2, 3, seed=1)
        h = torch.tensor(normal(2, 3, seed=9))
        for x in reversed(list(xs * 2)) if reverse else xs * 2:
            h = torch.tanh(x + h @ w)
        (h**2).sum().backward()
        return [h, w.grad, xs.grad]

    for length in (6, 17):
        assert trips(assert_rolls(program, length)) == [length, length - 2]


def test_an_operation_that_makes_as_many_results_in_an_earlier_loop():
    def program():
        w, x, parts = leaf(2, 4, 4, scale=0.3), torch.tensor(normal(4, seed=1)), ()
        for _ in range(6):
            parts = torch.sin(x).unbind()
            x = torch.stack(parts) * 0.5
        for part in parts:
            x = torch.tanh(w[0] @ x + part)
        return [x]

    assert_rolls(program)


def test_large_inputs_of_single_iterations_are_not_stacked():
    data = [torch.tensor(normal(100, 100, seed=s)) for s in range(10)]

    def program():
        h = torch.zeros(100, 100, dtype=torch.float64)
        for x in data:
            h = torch.tanh(torch.sin(h) + torch.cos(x))
        return [h]

    assert by_rolling(program)[1] is None


@pytest.mark.parametrize("shape", [(3,), ()])
def test_results_of_all_iterations_may_be_wanted(shape):
    def program(length):
        x, seen = torch.tensor(normal(*shape)), []
        for _ in range(length):
            x = torch.sin(x) * 0.5 + 1.0
            seen.append(x)
        return seen

    compiled = Compiled()
    for length in (10, 23):
        rolled = assert_rolls(program, length, compiled=compiled)
        assert [r.shape for r in rolled.results([np.zeros((64, *shape))])] == [shape] * length
    assert compiled.traced == 1


def test_results_of_single_iterations_are_picked_at_run_time():
    def program(length, at):
        x, seen = torch.tensor(normal(3)), []
        for _ in range(length):
            x = torch.sin(x) * 0.5 + 1.0
            seen.append(x)
        return [seen[at] * 2.0, seen[length // 2], x]

    compiled = Compiled()
    for length, at in ((12, 3), (30, 28), (30, 5)):
        assert_rolls(program, length, at, compiled=compiled)
    assert compiled.traced == 1


# ---------------------------------------------------------------------- checks


def lookups(length, good=True):
    """The `length`-th of these finds its index out of bounds unless `good`."""
    table, at = torch.tensor(normal(length - 1 + good, 2)), torch.tensor([0]) * 1  # what is not known on the host is checked when it is computed
    x = torch.zeros(1, 2, dtype=torch.float64)
    for _ in range(length):
        x = torch.sin(x) + table[at]
        at = at + 1
    return [x, table[at * 0]]


def test_failed_checks_in_loops_are_the_first_in_the_order_of_the_program():
    found, rolled = by_rolling(lookups, None, 14)
    assert trips(rolled) == [14]
    assert found[-1].tolist() == [0, 0]
    which, packed = by_rolling(lookups, None, 14, False)[0][-1].tolist()
    assert which == 14 and unpack_outside(packed)[0] == 13


def test_checks_after_loops_are_counted():
    def program(length):
        x, _ = lookups(length)
        return [x, torch.tensor(normal(3))[torch.tensor([1]) + 7]]

    for length in (9, 20):
        assert by_rolling(program, None, length)[0][-1].tolist()[0] == length + 2


# ---------------------------------------------------------------------- any program


class Random:
    """A program of loops over a few variables, drawn by chance: its structure by `seed` alone, whatever the lengths."""

    def __init__(self, seed):
        self.seed = seed

    def __call__(self, lengths, differentiate=True):
        rng = np.random.RandomState(self.seed)
        w = [leaf(3, 3, seed=s, scale=0.4) for s in range(2)]
        variables = [torch.tensor(normal(2, 3, seed=10 + s)) for s in range(3)]
        xs = torch.tensor(normal(64, 2, 3, seed=20), requires_grad=False)
        history = []
        for length in lengths:
            body = [self._draw(rng, bool(history)) for _ in range(rng.randint(3, 6))]
            target, kept = rng.randint(3), []
            for t in range(length):
                for choice, a, b, number in body:
                    variables[a] = self._apply(choice, variables, a, b, number, t, w, xs, history, length)
                kept.append(variables[target])
            history = kept
        results = list(variables) + [history[len(history) // 3]]
        if differentiate:
            loss = sum((v**2).mean() for v in results) + (w[0] * w[1]).sum()
            loss.backward()
            results += [g.grad for g in w if g.grad is not None] + [loss]
        return results

    def _draw(self, rng, reads):
        return rng.randint(9 if reads else 7), rng.randint(3), rng.randint(3), rng.rand()

    def _apply(self, choice, variables, a, b, number, t, w, xs, history, length):
        x, y = variables[a], variables[b]
        if choice == 0:
            return torch.tanh(x @ w[b % 2])
        if choice == 1:
            return torch.sin(x) * (0.5 + number * t / 64) + y * 0.1
        if choice == 2:
            return torch.tanh(x + xs[t])
        if choice == 3:
            return torch.sigmoid(y) * x
        if choice == 4:
            return x * 0.5 + w[a % 2].exp().sum() * 0.01
        if choice == 5:
            return torch.softmax(x, -1) - y.mean(0)
        if choice == 6:
            return torch.cos(x - y)
        past = history[t % len(history)] if choice == 7 else history[-1 - t % len(history)]
        return torch.tanh(x * past)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_with_loops_have_the_values_of_their_operations_one_by_one(seed):
    rng = np.random.RandomState(1000 + seed)
    program, count = Random(seed), rng.randint(1, 3)
    rolled = 0
    for _ in range(2):
        length = int(rng.randint(8, 40))
        lengths = [length if rng.rand() < 0.7 else int(rng.randint(8, 40)) for _ in range(count)]
        found, form = by_rolling(program, None, lengths, seed % 3 > 0)
        if form is not None:
            rolled += 1
            for a, b in zip(found, by_steps(program, lengths, seed % 3 > 0), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-11)
    assert rolled == 2, "a loop of at least three operations was not recognised"


@pytest.mark.parametrize("seed", range(3))
def test_random_programs_of_other_lengths_are_traced_once(seed):
    compiled, program = Compiled(), Random(seed)
    for length in (24, 31, 45):
        by_rolling(program, compiled, [length] * (1 + seed % 2))
    assert compiled.traced == 1


def test_stretches_cover_what_repeats_and_do_not_overlap():
    begin()
    found = stretches(flat(pending(rnn(30))[0]))
    recorder().begin()
    assert [s.count for s in found] == [30, 28]
    assert all(a.end <= b.begin for a, b in zip(found, found[1:], strict=False))


# ---------------------------------------------------------------------- sums that many read


def recurrence(length):
    """Steps in which the gradient of the state is a sum that several operations read, and a product of the sum of the step before."""
    w, h = leaf(3, 3, scale=0.3), torch.tensor(normal(2, 3, seed=1))
    for _ in range(length):
        z = torch.sigmoid(h @ w)
        h = (1 - z) * torch.tanh(h * 0.9) + z * h
    (h**2).mean().backward()
    return [h, w.grad]


def test_sums_that_many_read_at_the_end_of_long_chains_are_kept_in_memory():
    kept = {}
    for length in (1, 10, 20):
        begin()
        calls, outputs, _, _ = pending(recurrence(length))
        recorder().begin()
        found = slots_to_keep(calls, outputs)
        assert {c.signature.bop.name for c in calls if c.slot in found} <= {"add"}
        kept[length] = len(found)
    assert kept[1] == 0
    assert 10 <= kept[20] - kept[10] <= 20, "one or two a step"


def test_gradients_of_windows_are_kept_in_memory():
    begin()
    x, scale = leaf(2, 3, 8, 8), leaf(3, 1, 1)
    torch.nn.functional.max_pool2d((x * scale).relu(), 2).square().sum().backward()
    calls, outputs, _, _ = pending([x.grad, scale.grad])
    recorder().begin()
    assert [c.signature.bop.name for c in calls if c.slot in slots_to_keep(calls, outputs)] == ["MaxPool2DWithIndicesBackward0"]


def test_chains_without_a_sum_that_many_read_stay_one():
    def chain():
        x, a = leaf(4, 4), torch.tensor(normal(4, 4, seed=1))
        y = x
        for _ in range(40):
            y = y * 0.5 + a
        y.sum().backward()
        return [y, x.grad]

    begin()
    calls, outputs, _, _ = pending(chain())
    recorder().begin()
    assert not slots_to_keep(calls, outputs)
