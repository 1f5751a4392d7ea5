"""Results written over arrays that nothing reads any more: what comes out is what comes out without, and nobody's arrays change."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import torchgrad_jax as tj
from torchgrad_jax.runtime import baseline_tier, counters, execution_mode
from torchgrad_jax.runtime.baseline import carry_out, places
from torchgrad_jax.runtime.baseline.carrying import RESHAPED, TURNED


class Step(NamedTuple):
    function: Any
    operands: list[int]
    results: list[int]
    fresh: bool = False
    overwriting: Any = {}  # noqa: RUF012 - nobody writes to it


def written(x, src):
    return written_over(np.array(x), src)


def written_over(x, src):
    x[1:3] = src[0:2]
    return x


def either(x, y):  # what may be one operand or the other is no new memory
    return x if x[0, 0] > y[0, 0] else y


KINDS = {
    "add": (np.add, 2, True, {0: places.into(np.add, 0), 1: places.into(np.add, 1)}),
    "negative": (np.negative, 1, True, {0: places.into(np.negative, 0)}),
    "subtract into the second": (np.subtract, 2, True, {1: places.into(np.subtract, 1)}),
    "write": (written, 2, True, {0: written_over}),
    "product": (np.matmul, 2, True, {}),
    "transposed": (lambda x: x.T, 1, False, {}),
    "flipped": (lambda x: x[::-1], 1, False, {}),
    "same": (lambda x: x, 1, False, {}),
    "either": (either, 2, False, {}),
}


@st.composite
def programs(draw):
    inputs = draw(st.integers(1, 3))
    steps, last = [], inputs
    for _ in range(draw(st.integers(1, 14))):
        function, arity, fresh, overwriting = KINDS[draw(st.sampled_from(sorted(KINDS)))]
        # Mostly what was just made: chains are where something is written over.
        operands = [draw(st.integers(max(0, last - 3), last - 1)) for _ in range(arity)]
        steps.append(Step(function, operands, [last], fresh, overwriting))
        last += 1
    outputs = draw(st.lists(st.integers(0, last - 1), min_size=1, max_size=3))
    return inputs, steps, outputs


def run(inputs, steps, outputs, arrays):
    calls, template, where = places.assigned(steps, range(inputs), {}, outputs)
    values = template.copy()
    values[:inputs] = arrays
    carry_out(calls, values)
    return [values[i] for i in where], calls


@given(programs())
def test_what_is_dropped_at_once_was_needed_no_more(program):
    inputs, steps, outputs = program
    kept, _ = run(inputs, steps, outputs, arrays_of(inputs))
    calls, template, where = places.assigned(steps, range(inputs), {}, outputs, drops=True)
    values = template.copy()
    values[:inputs] = arrays_of(inputs)
    carry_out(calls, values)
    for a, b in zip([values[i] for i in where], kept, strict=True):
        np.testing.assert_array_equal(a, b)
    read = {slot for step in steps for slot in step.operands}
    unread = {i for i in range(inputs) if i not in read}
    assert {i for i, value in enumerate(values) if value is not None} <= {*where, *unread}


def arrays_of(count):
    return [np.arange(16.0).reshape(4, 4) % 5 - k for k in range(count)]


@given(programs())
def test_results_are_those_of_steps_that_write_to_nothing(program):
    inputs, steps, outputs = program
    arrays = arrays_of(inputs)
    for array in arrays:
        array.flags.writeable = False
    found, _ = run(inputs, steps, outputs, arrays)
    plain, _ = run(inputs, [s._replace(overwriting={}) for s in steps], outputs, arrays)
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_array_equal(a, b)
    for array, before in zip(arrays, arrays_of(inputs), strict=True):
        np.testing.assert_array_equal(array, before)


def test_a_chain_needs_one_array():
    steps = [Step(*_made("add", [0, 0], 1)), *[Step(*_made("add", [i, 0], i + 1)) for i in range(1, 6)]]
    _, calls = run(1, steps, [6], arrays_of(1))
    assert [call[0] is np.add for call in calls] == [True] + [False] * 5  # the first has no array but the input to write to


def test_what_a_view_still_shows_is_left_alone():
    steps = [Step(*_made("add", [0, 0], 1)), Step(*_made("transposed", [1], 2)), Step(*_made("add", [1, 0], 3)), Step(*_made("add", [3, 2], 4))]
    (found,), calls = run(1, steps, [4], arrays_of(1))
    x = arrays_of(1)[0]
    np.testing.assert_array_equal(found, (x + x) + x + (x + x).T)
    assert calls[2][0] is np.add


def _made(kind, operands, result):
    function, _, fresh, overwriting = KINDS[kind]
    return function, operands, [result], fresh, overwriting


@pytest.mark.operators  # tries its own mode
def test_writes_through_views_of_a_program_that_is_interpreted_again():
    """The tensors that a loop begins with stay what they are, however often it is interpreted."""

    def step(x):
        y = x.clone()
        kept = y * 1
        for i in range(40):
            y[i] *= 2.0
            y[:, i] += x[i]
        return y, kept, (y * kept).sum()

    x = tj.arange(1600.0).view(40, 40) / 2048
    before = counters.interpreted
    with execution_mode("fused"), baseline_tier(True):
        runs = [[np.array(t.tolist()) for t in step(x)] for _ in range(4)]
    assert counters.interpreted - before >= 4
    expected = np.arange(1600.0, dtype=np.float32).reshape(40, 40) / np.float32(2048)
    first = expected.copy()
    for i in range(40):
        expected[i] *= 2
        expected[:, i] += first[i]
    for y, kept, _ in runs:
        np.testing.assert_allclose(y, expected, rtol=1e-6)
        np.testing.assert_array_equal(kept, first)
    np.testing.assert_array_equal(x.tolist(), first)


@st.composite
def moved(draw):
    """An array of which all elements are apart in memory, and moves one after the other with what they make of it."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)))
    array = np.zeros([2 * n for n in shape])[(slice(None, None, 2),) * len(shape)]
    array[...] = np.arange(array.size).reshape(shape)
    made, moves = array, []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            moves.append(places.Moved(TURNED, tuple(draw(st.permutations(range(made.ndim))))))
        else:
            rest, how = made.size, []
            while rest > 1 and len(how) < 4 and draw(st.booleans()):
                how.append(draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0])))
                rest //= how[-1]
            moves.append(places.Moved(RESHAPED, tuple(draw(st.permutations([*how, rest])))))
        made = moves[-1](made)
    return array, moves, made


@given(moved())
def test_what_several_moves_make_is_a_view_where_they_join_nothing(given):
    array, moves, made = given
    found = places.split(array.shape, moves)
    if found is None:
        return
    seen = array.reshape(found[0]).transpose(found[1])
    assert np.shares_memory(seen, array)
    np.testing.assert_array_equal(seen, made)


@pytest.mark.parametrize(
    ("shape", "moves", "found"),
    [
        ((5, 3, 8), [(RESHAPED, (5, 6, 4)), (TURNED, (1, 0, 2)), (RESHAPED, (3, 2, 5, 4))], ((5, 3, 2, 4), (1, 2, 0, 3))),
        ((5, 3, 8), [(RESHAPED, (15, 8)), (RESHAPED, (5, 3, 8))], ((5, 3, 8), (0, 1, 2))),
        ((5, 3, 8), [(RESHAPED, (15, 8))], None),
        ((2, 3), [(TURNED, (1, 0)), (RESHAPED, (6,))], None),
        ((1, 6), [(RESHAPED, (2, 1, 3))], ((2, 3, 1), (0, 2, 1))),
    ],
)
def test_moves_as_one_view(shape, moves, found):
    assert places.split(shape, [places.Moved(*move) for move in moves]) == found
