"""Elements that lie on the host: written to, computed with and compared at once."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.runtime import execution_mode
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.recorder import recorder

OF_TWO = (operator.add, operator.sub, operator.mul, operator.truediv, torch.minimum, torch.maximum)
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
OF_ONE = (torch.clone, operator.neg, abs)
DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool, torch.bfloat16)


@pytest.fixture(autouse=True)
def fused(interpreted):
    with execution_mode("fused"):
        yield


def at_hand(content, dtype=None):
    """A tensor whose content is on the host."""
    found = torch.tensor(content, dtype=dtype)
    found.tolist()
    return found


def recorded():
    """How many operations were recorded so far."""
    recorder().flush("mode")
    return counters.recorded


def bits(t):
    return t.dtype, t.reshape(1).view(torch.uint8).tolist()


numbers = st.one_of(
    st.floats(width=32, allow_nan=False), st.floats(-300, 300), st.integers(-300, 300), st.sampled_from([0.0, -0.0, float("inf"), float("nan"), 0.1])
)


@example(0.0, -0.0, torch.float32, torch.maximum, False)
@example(-0.0, 0.0, torch.float64, torch.minimum, False)
@given(numbers, numbers, st.sampled_from(DTYPES), st.sampled_from(OF_TWO + COMPARISONS), st.booleans())
def test_what_two_elements_come_to_has_the_bits_of_a_program(a, b, dtype, function, by_number):
    try:
        x, y = at_hand([0, a], dtype), at_hand([0, b], dtype)
    except (RuntimeError, ValueError, OverflowError):
        return
    other = y[1:].tolist()[0] if by_number else y[1]
    beside = other if by_number else y[1:]
    try:
        expected = function(x[1:], beside)
    except (RuntimeError, TypeError) as error:
        with pytest.raises(type(error)):
            function(x[1], other)
        return
    assert bits(function(x[1], other)) == bits(expected)


@given(numbers, st.sampled_from(DTYPES), st.sampled_from(OF_ONE))
def test_what_one_element_comes_to_has_the_bits_of_a_program(a, dtype, function):
    try:
        x = at_hand([0, a], dtype)
    except (RuntimeError, ValueError, OverflowError):
        return
    try:
        expected = function(x[1:])
    except RuntimeError:
        with pytest.raises(RuntimeError):
            function(x[1])
        return
    assert bits(function(x[1])) == bits(expected)


@given(numbers, st.sampled_from(DTYPES))
def test_a_number_that_is_written_has_the_bits_of_a_program(number, dtype):
    x = at_hand([0, 0, 0], dtype)
    expected = torch.zeros(3, dtype=dtype)
    try:
        expected[1:2] = number
    except (RuntimeError, OverflowError) as error:
        with pytest.raises(type(error)):
            x[1] = number
        return
    x[1] = number
    assert bits(x[1]) == bits(expected[1]) and x._version == 1


SLICES = st.builds(slice, st.none() | st.integers(-5, 5), st.none() | st.integers(-5, 5), st.none() | st.integers(1, 3))
LISTS = st.lists(st.integers(-4, 3), min_size=1, max_size=3)
KEYS = st.one_of(
    st.integers(-4, 3), SLICES, st.none(), st.just(...), LISTS, LISTS.map(torch.tensor), st.integers(-5, 4).map(torch.tensor),
    st.lists(st.booleans(), min_size=4, max_size=4).map(torch.tensor),
)  # fmt: skip


def outcome(x, write):
    """What becomes of a tensor, or what is said."""
    try:
        write(x)
    except (IndexError, RuntimeError, TypeError) as error:
        return type(error), str(error)
    return x.tolist(), x._version


def shaped(key):
    """The shape that a part has; None where there is none."""
    try:
        return torch.zeros(4, 4, 4)[key].shape
    except (IndexError, RuntimeError):
        return None


@given(st.lists(KEYS, min_size=1, max_size=4), st.booleans(), st.sampled_from(["number", "whole", "row", "scalar", "wrong", "dtype"]))
def test_a_part_is_written_as_by_a_program(keys, alone, what):
    key = keys[0] if alone else tuple(keys)
    found = shaped(key)
    shape, what = (found, what) if found is not None else (torch.Size(()), "number")
    content = {"whole": lambda: torch.arange(float(shape.numel())).reshape(shape), "row": lambda: torch.arange(float(shape[-1] if shape else 1)),
               "scalar": lambda: torch.tensor(7.0), "wrong": lambda: torch.arange(77.0), "dtype": lambda: torch.tensor(7)}  # fmt: skip
    given = 0.1 if what == "number" else content[what]()

    def write(x):
        x[key] = given

    here, pending = at_hand(np.zeros((4, 4, 4), np.float32)), at_hand(np.zeros((4, 4, 4), np.float32)) + 0.0
    assert outcome(here, write) == outcome(pending, write)


@given(st.sampled_from(["add_", "sub_", "mul_", "div_", "fill_", "zero_", "copy_"]), st.sampled_from(DTYPES), numbers, st.booleans())
def test_a_view_is_changed_as_by_a_program(name, dtype, number, by_tensor):
    start = torch.arange(12).reshape(3, 4).to(dtype)
    other = torch.full((2,), 3).to(dtype) if by_tensor or name == "copy_" else number
    for part in (lambda x: x[1, 1:3], lambda x: x[:, 2][1:], lambda x: x.t()[1, :2], lambda x: x[0, ::2], lambda x: x[None, 3:, 1]):

        def write(x, part=part):
            y = part(x)
            found = getattr(y, name)(*(() if name == "zero_" else (other,)))
            assert found is y

        here, pending = at_hand(start.tolist(), dtype), start.clone()
        found = outcome(here, write), outcome(pending, write)
        assert repr(found[0]) == repr(found[1])  # NaN is itself


def test_what_overlaps_is_refused():
    x = at_hand([1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor refer to a single memory location"):
        x[:2] = x[1:]
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x[:2].add_(x[1:])
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory location"):
        x[:1].expand(3).add_(1)
    assert x.tolist() == [1.0, 2.0, 3.0]


def test_nothing_is_recorded():
    table, flags, count = at_hand([[0.0, 1.0], [2.0, 3.0]]), at_hand([False, False]), at_hand(0)
    for _ in range(3):  # of functions it is learned what they come to
        torch.min(table[1, 0], table[0, 1])
        table[1, 0].clone()
        at_hand([1.0, 2.0, 3.0, 4.0]).view(2, 2)[0].fill_(1.0)
    before = recorded()
    for turn in range(3):
        i = turn % 2
        table[i, 1] = turn
        flags[i] = True
        count += 1
        table[i, 0] += 0.5
        if table[i, 0] > table[i, 1] and not flags[1 - i]:
            table[i, 0], table[i, 1] = table[i, 1].clone(), table[i, 0].clone()
        table[0, 0] = torch.min(table[1, 0] + 1, table[0, 1] * 2)
        assert float(table[1, 1]) >= 0
    for write in (lambda x: x[0].fill_(1.0), lambda x: x[1].add_(1), lambda x: x[0].mul_(2.0)):
        write(x := at_hand([[1.0, 2.0], [3.0, 4.0]]))
    for key in (0, slice(1), (slice(None), 0), [1, 0], torch.tensor([1]), torch.tensor([True, False]), (torch.tensor([0]), 1)):
        x[key] = 5.0
    x[1], x[[0]] = torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 4.0]])
    assert recorded() == before and x.tolist() == [[3.0, 4.0], [1.0, 2.0]]
    assert table.tolist() == [[3.5, 2.0], [2.5, 1.0]] and flags.tolist() == [True, True] and count.item() == 3
    assert (table._version, flags._version, count._version) == (14, 3, 3)


def test_memory_that_nobody_else_holds_is_written_to_where_it_lies():
    x = at_hand([1.0, 2.0, 3.0])
    x[0] = 4.0  # before, the constructor's cache may hold it
    where = x._value.array.ctypes.data
    x[1] = 5.0
    x[2] += 1.0
    assert x._value.array.ctypes.data == where and x.tolist() == [4.0, 5.0, 4.0] and not x._value.array.flags.writeable


@pytest.mark.parametrize("keep", ["clone", "sum", "saved", "array", "constant", "detached"])
def test_what_was_made_of_it_before_is_what_it_was(keep):
    x = at_hand([1.0, 2.0, 3.0])
    x[0] = 4.0
    if keep == "clone":
        y = x.clone()
        x[0] = 9.0
        assert y.tolist() == [4.0, 2.0, 3.0]
    elif keep == "sum":
        y, z = x.sum(), x[0] * 2
        x[0] = 9.0
        assert (y.item(), z.item()) == (9.0, 8.0)
    elif keep == "saved":
        w = torch.ones(3, requires_grad=True)
        y = (w * x).sum()
        x[0] = 9.0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
    elif keep == "array":
        y = x.numpy()
        x[0] = 9.0
        assert y.tolist() == [4.0, 2.0, 3.0]
    elif keep == "constant":
        y = torch.zeros(3)
        y[0] = 9.0
        assert torch.zeros(3).tolist() == [0.0, 0.0, 0.0]
    else:
        y = x.detach()
        x[0] = 9.0
        y[1] = 8.0
        assert x.tolist() == y.tolist() == [9.0, 8.0, 3.0] and x._version == y._version == 3


def test_views_see_it():
    x = at_hand([[1.0, 2.0], [3.0, 4.0]])
    row, flat, turned, element = x[1], x.view(4), x.t(), x[1, 1]
    x[1, 1] = 9.0
    assert row.tolist() == [3.0, 9.0] and flat.tolist() == [1.0, 2.0, 3.0, 9.0] and turned.tolist() == [[1.0, 3.0], [2.0, 9.0]]
    assert element.item() == 9.0 and element._base is x and element._version == 1
    row[0], flat[1], turned[0, 0] = 5.0, 6.0, 7.0
    element += 1
    assert x.tolist() == [[7.0, 6.0], [5.0, 10.0]] and x._version == 5


def test_what_an_element_is_written_of_may_be_gone():
    x = at_hand([1.0, 2.0])
    element = x[0]
    element.fill_(5.0)
    del x
    element += 1
    assert element.item() == 6.0


def test_of_what_requires_a_gradient_it_is_recorded():
    x = at_hand([1.0, 2.0]).requires_grad_()
    y = x[1] * 3
    y.backward()
    assert x.grad.tolist() == [0.0, 3.0]
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being used in an in-place operation"):
        x[0] = 1.0
    with torch.no_grad():
        x[0] = 7.0
        element = x[1]
        element += 1
    assert x.tolist() == [7.0, 3.0]
    with pytest.raises(RuntimeError, match="view was created in no_grad mode"):
        element += 1


def test_a_view_whose_base_comes_to_require_a_gradient_does_too():
    x = at_hand([1.0, 2.0])
    element = x[1]
    x.requires_grad_()
    assert element.requires_grad and (element * 2).requires_grad


def test_wrong_indices():
    x, y = at_hand([1.0, 2.0]), at_hand([[1.0, 2.0]])
    for bad in (2, -3):
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds for dimension 0 with size 2"):
            x[bad] = 1.0
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds for dimension 1 with size 2"):
            y[0, bad] = 1.0
    with pytest.raises(IndexError, match="too many indices"):
        x[0, 0] = 1.0
    assert x.tolist() == [1.0, 2.0] and x._version == y._version == 0


def test_a_table_is_filled_as_by_numpy():
    rng = np.random.default_rng(0)
    expected = rng.standard_normal((6, 6)).astype(np.float32)
    table = at_hand(expected)
    for _ in range(200):
        i, j, k, m = rng.integers(0, 6, 4)
        if rng.random() < 0.3:
            expected[i, j] = min(expected[i, j], expected[k, m])
            table[int(i), int(j)] = torch.min(table[int(i), int(j)], table[int(k), int(m)])
        elif rng.random() < 0.3:
            expected[i, j] += expected[k, m]
            table[int(i), int(j)] += table[int(k), int(m)]
        elif rng.random() < 0.2:  # what has to be recorded goes between
            expected = (expected * np.float32(0.5)).astype(np.float32)
            table = table * 0.5
        else:
            expected[i] = expected[k]
            table[int(i)] = table[int(k)].clone()
    assert table.tolist() == expected.tolist()


def test_parts_are_changed_by_what_is_pending():
    """By one operation on all of the memory, where one view or ints have made them."""
    x, w = np.arange(60.0, dtype=np.float32).reshape(3, 4, 5), np.array([0.5, 2.0, -1.0, 4.0, 0.25], np.float32)
    table, weights = at_hand(x), at_hand(w)
    for t in range(7):
        pending = weights * (t + 1)  # which is on the host only when somebody looks
        i, j, k = t % 3, t % 4, t % 5
        table[i, j, k] += pending[k]
        table[i, j] *= pending
        row = table[i]
        row[j, 0] -= pending[1]
        table[:, 1:3].sub_(pending)
        x[i, j, k] += w[k] * (t + 1)
        x[i, j] *= w * np.float32(t + 1)
        x[i, j, 0] -= w[1] * (t + 1)
        x[:, 1:3] -= w * np.float32(t + 1)
    np.testing.assert_array_equal(table.numpy(), x)
    assert table._version == 7 * 7  # an assignment follows each +=, as in PyTorch
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        table[0, 0] += torch.ones(2, 5) * weights
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        torch.arange(4)[1].add_(weights.sum())
