"""Parts of memory that C changes and sets where they lie, and rows that it takes: as NumPy does, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.memory import at_hand
from torchgrad_jax.runtime.baseline import blocks, quiet_context
from torchgrad_jax.runtime.native.handlers import taken

CHANGES = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide}
SHAPES = st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple)


def keys_of(draw, shape):
    """Slices, ints, None, and at the end perhaps an ellipsis or nothing."""
    keys = []
    for n in shape:
        if draw(st.integers(0, 4)) == 0:
            keys.append(None)
        kind = draw(st.sampled_from(("int", "slice", "slice", "rest")))
        if kind == "rest":
            return (*keys, Ellipsis)
        if kind == "int" and n:
            keys.append(draw(st.integers(-n, n - 1)))
        else:
            ends = st.none() | st.integers(-n - 1, n + 1)
            keys.append(slice(draw(ends), draw(ends), draw(st.sampled_from((None, 1, 2, 3)))))
    return tuple(keys)


@st.composite
def parts(draw):
    shape = draw(SHAPES)
    return shape, keys_of(draw, shape)


def numbers(shape, dtype, seed):
    rng = np.random.RandomState(seed)
    return np.asarray(rng.randn(*shape) * 3 if np.dtype(dtype).kind in "fb" else rng.randint(-100, 100, shape), dtype)


def part_of(array, keys):
    """What keys choose, a view in any case."""
    return array[keys if Ellipsis in keys else (*keys, ...)]


def place_of(part, memory):
    """Its shape, and its strides and offset in elements."""
    offset = part.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    return part.shape, tuple([n // part.itemsize for n in part.strides]), offset // part.itemsize if part.size else 0


@given(part=parts(), dtype=st.sampled_from("fdil"), name=st.sampled_from(tuple(CHANGES)), by_number=st.booleans(), turned=st.booleans())
def test_a_part_is_changed_as_by_numpy(part, dtype, name, by_number, turned):
    shape, keys = part
    memory = numbers(shape, dtype, 0)
    if memory.dtype.kind == "i" and name == "div":
        name = "mul"
    wanted = memory.copy()
    within = part_of(wanted, keys)
    other = 3 if by_number else numbers(within.shape[::-1], dtype, 1).T if turned else numbers(within.shape, dtype, 1)
    with np.errstate(all="ignore"):
        CHANGES[name](within, other, within)
    at_hand.change(memory, name, place_of(within, wanted), other, quiet_context())
    np.testing.assert_array_equal(memory, wanted)


@given(part=parts(), dtype=st.sampled_from("fdilbB?eh"), by_number=st.booleans())
def test_a_part_is_set_as_by_numpy(part, dtype, by_number):
    shape, keys = part
    memory = numbers(shape, dtype, 0)
    wanted = memory.copy()
    within = part_of(wanted, keys)
    within[...] = value = 1 if by_number else numbers(within.shape, dtype, 1)
    at_hand.put(memory, place_of(within, wanted), value)
    np.testing.assert_array_equal(memory, wanted)


@given(part=parts(), dtype=st.sampled_from("fdl?eFD"), places=SHAPES, data=st.data())
def test_rows_are_taken_as_by_numpy(part, dtype, places, data):
    shape, keys = part
    x = part_of(numbers(shape, "d", 0).astype(dtype), keys)
    if not x.ndim:
        return
    dim = data.draw(st.integers(0, x.ndim - 1))
    n = x.shape[dim]
    index = np.random.RandomState(1).randint(-n - data.draw(st.integers(0, 1)), n + 1, places)
    found = taken(x, index, dim)
    if ((index < -n) | (index >= n)).any():
        assert found is None
    elif found is not None:
        np.testing.assert_array_equal(found, x.take(index, dim), strict=True)
    else:  # so does pure Python say of all
        assert not (blocks.by_numbers and x.size and x.flags.c_contiguous and index.flags.c_contiguous)


@pytest.mark.operators
@pytest.mark.parametrize("pending", [False, True])
@given(part=parts(), dtype=st.sampled_from(("float32", "float64", "int64")), data=st.data())
def test_what_slices_choose_is_read_and_written_as_by_numpy(pending, part, dtype, data):
    """Of memory that is there, and of memory that is still to be computed; parts of parts; the part is read before it is written to, or not."""
    shape, keys = part
    wanted = numbers(shape, "int64", 0).astype(dtype)  # XLA may round a product and a sum once
    t = torch.tensor(wanted)
    t.tolist()
    if pending:
        t.mul_(2)
        wanted *= 2
    view, right = t[keys], part_of(wanted, keys)
    if data.draw(st.booleans()):
        np.testing.assert_array_equal(view.numpy(), right)
    more = keys_of(data.draw, right.shape)
    view, right = view[more], part_of(right, more)
    assert tuple(view.shape) == right.shape
    how = data.draw(st.sampled_from(("add", "set", "fill", "by itself", "the whole")))
    if how == "the whole":
        t += 1
        wanted += 1
    elif how == "add":
        view += 2
        right += 2
    elif how == "set":
        what = numbers(right.shape, dtype, 2)
        view[...] = torch.tensor(what)
        right[...] = what
    elif how == "fill":
        view.fill_(7)
        right[...] = 7
    else:
        view -= view * 3
        right -= right * 3
    np.testing.assert_array_equal(t.numpy(), wanted)
    np.testing.assert_array_equal(view.numpy(), right)


KEYS = (
    np.s_[0],
    np.s_[1],
    np.s_[:2],
    np.s_[1:3],
    np.s_[2:],
    np.s_[:, 0],
    np.s_[:, 1:],
    np.s_[:, :2],
    np.s_[::2],
    np.s_[1::2],
    np.s_[0, :2],
    np.s_[0, 1:],
)


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("source", KEYS, ids=str)
@pytest.mark.parametrize("target", KEYS, ids=str)
def test_parts_of_one_memory_are_written_to_one_another_as_in_pytorch(target, source, pending):
    reference, found = pytest.importorskip("torch"), []
    for t in (torch, reference):
        x = t.arange(12.0).reshape(4, 3)
        x = x.clone() if pending else t.tensor(x.tolist())
        said = ""
        try:
            x[target] = x[source]
            x[target] -= x[source] * 1
            x[target] *= x[source]
        except RuntimeError as error:
            said = str(error)[:60]
        found.append((said, x.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("place", [((3,), (1,), 4), ((2, 2), (4, 1), 1), ((1,), (1,), -1), ((1,), (1,), 6)])
def test_what_is_not_within_memory_is_not_written_to(place):
    memory = np.zeros(6, np.float32)
    for write in (lambda: at_hand.put(memory, place, 1), lambda: at_hand.change(memory, "add", place, 1, quiet_context())):
        with pytest.raises((ValueError, TypeError)):
            write()
    assert not memory.any()
