"""Element-wise steps of interpreted programs that are carried out together, block by block: to the bit what NumPy makes of them one by one."""

from __future__ import annotations

import itertools
import math
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.runtime.baseline import Forms, Merged, NumPyForm, Part, blocks, chains, lanes
from torchgrad_jax.runtime.baseline.elementwise import _positive_part, _selection, of_halves
from torchgrad_jax.runtime.tiers import costs

SELECT = {name: _selection(np.dtype(name)) for name in ("float32", "float64")}


@pytest.fixture(autouse=True, scope="module")
def made_everywhere():
    """Where the core is not compiled there are no chains, as they would gain nothing; here they are made of arrays then."""
    before, blocks.by_numbers = blocks.by_numbers, True
    yield
    blocks.by_numbers = before


compiled = not isinstance(blocks.Chain.__call__, FunctionType)
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -2.5]
OF_ALL = [f for f, n in chains.NUMBERS.items() if lanes.ARITY[n] == 1 and not lanes.EXP <= n <= lanes.COPY]
BY_C = {name: [f for f in chains.NUMBERS if type(f) is blocks.Function and f.dtype == name] for name in ("float32", "float64")}
BINARY = [f for f, n in chains.NUMBERS.items() if lanes.ARITY[n] == 2 and not lanes.GT <= n <= lanes.NE and f is not _positive_part]
COMPARING = [f for f, n in chains.NUMBERS.items() if lanes.GT <= n <= lanes.NE]


def merged(steps, inputs, outputs, drops=False):
    """A program of (function, operands, result)."""
    return Merged([Part(NumPyForm(Forms(f), True, 0, 0), operands, [result]) for f, operands, result in steps], inputs, outputs, drops)


def by_itself(steps, values):
    values = dict(values)
    with np.errstate(all="ignore"):
        for function, operands, result in steps:
            values[result] = function(*[values[o] for o in operands])
    return values


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))


def contents(rng, shape, dtype):
    found = rng.standard_normal(shape).astype(dtype)
    at = rng.random(shape) < 0.2
    return np.where(at, rng.choice(np.array(SPECIAL, dtype), shape), found) if shape else np.asarray(found, dtype)


def lying(rng, array):
    """The same array with its dimensions in another order in memory, and gaps along some of them, or turned round."""
    order = rng.permutation(array.ndim)
    steps = rng.choice([1, 1, 1, 2, -1, -3], array.ndim)
    room = [n * abs(step) + 1 for n, step in zip(array.shape, steps, strict=True)]
    memory = np.zeros([room[d] for d in order], array.dtype).transpose(np.argsort(order))
    found = memory[tuple([slice(1, None, step) if step > 0 else slice(None, 0, step) for step in steps])]
    found = found[tuple([slice(n) for n in array.shape])]
    found[...] = array
    return found


@st.composite
def programs(draw):
    """Steps on operands of a shape, of its last dimensions, numbers and masks, in no particular order of use; and what is wanted of them."""
    shape = draw(
        st.sampled_from([(), (1,), (7,), (3, 5), (5, 5), (2, 3, 4), (600,), (40, 30), (3, 512), (513,), (1, 9), (2, 3, 1, 2, 2, 3), (9, 40, 3)])
    )
    dtype = draw(st.sampled_from(["float32", "float64"]))
    spread = tuple([n if draw(st.booleans()) else 1 for n in shape])
    shapes = {
        "a": shape,
        "b": shape,
        "number": (),
        "one": (1,) * len(shape),
        "row": shape[-1:],
        "column": (*shape[:-1], *[1] * bool(shape)),
        "spread": spread,
        "repeated": shape,
        "lying": shape,
        "column that lies otherwise": (*shape[:-1], *[1] * bool(shape)),
    }
    steps, numbers, masks = [], [*shapes], []
    other = draw(st.booleans())
    for i in range(draw(st.integers(1, 90 if draw(st.booleans()) else 8))):
        pick = lambda names=numbers: draw(st.sampled_from(names))  # noqa: E731
        kind = draw(st.sampled_from(["unary", "binary", "binary", "comparing", "select", "other"]))
        if kind == "unary":
            steps.append((draw(st.sampled_from(OF_ALL + BY_C[dtype])), [pick()], i))
        elif kind == "binary":
            steps.append((draw(st.sampled_from(BINARY)), [pick(), pick()], i))
        elif kind == "comparing":
            steps.append((draw(st.sampled_from(COMPARING)), [pick(), pick()], i))
            masks.append(i)
            continue
        elif kind == "select" and masks:
            steps.append((SELECT[dtype], [draw(st.sampled_from(masks)), pick(), pick()], i))
        elif other:  # something that no chain can do, and that is not contiguous
            steps.append((np.tanh if shape != (5, 5) else np.transpose, [pick()], i))
        else:
            continue
        numbers.append(i)
    made = [s[2] for s in steps]
    wanted = draw(st.lists(st.sampled_from(made), min_size=1, unique=True)) if made else []
    return shapes, dtype, steps, wanted, draw(st.integers(0, 9))


@settings(max_examples=150, deadline=None)
@given(programs(), st.booleans())
def test_any_program_has_the_same_bits(program, drops):
    shapes, dtype, steps, wanted, seed = program
    if not wanted:
        return
    rng = np.random.default_rng(seed)
    values = {name: contents(rng, shape, dtype) for name, shape in shapes.items()}
    values["repeated"] = np.broadcast_to(contents(rng, shapes["spread"], dtype), shapes["repeated"])
    for name in ("lying", "column that lies otherwise"):
        values[name] = lying(rng, values[name]) if shapes[name] else values[name]
    expected = by_itself(steps, values)
    found = merged(steps, list(shapes), wanted, drops)
    with np.errstate(all="ignore"):
        for _ in range(5):
            assert_same(found([values[n] for n in shapes]), [expected[w] for w in wanted])
    assert found.final


def test_what_one_reads_of_another_is_computed_before():
    """Two groups that wait for each other's results, and a function between them."""
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.float32(2)
    steps = [
        (np.add, ["x", "y"], 0), (np.add, ["y", "y"], 1), (np.multiply, [0, 1], 2), (np.tanh, [2], 3), (np.subtract, [3, 0], 4),
        (np.negative, [1], 5), (np.multiply, [4, 5], 6),
    ]  # fmt: skip
    expected = by_itself(steps, {"x": x, "y": y})
    found = merged(steps, ["x", "y"], [6, 0])
    for _ in range(3):
        assert_same(found([x, y]), [expected[6], expected[0]])
    assert sum(type(call[0]) is blocks.Chain for call in found.ready[0]) == 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_chains_in_a_row_are_shared_where_none_reads_what_another_makes(dtype):
    """As an optimizer's steps of many parameters are: each too small to be shared by itself. Those at the end read what the first ones make."""
    rng, steps, values, wanted = np.random.default_rng(0), [], {}, []
    for k in range(12):
        shape = (40 + k, 130)
        values |= {f"p{k}": contents(rng, shape, dtype), f"g{k}": contents(rng, shape, dtype), "rate": contents(rng, (), dtype)}
        last = f"g{k}"
        for i in range(9):
            steps += [(np.multiply, [last, "rate"], (k, i)), (np.add, [(k, i), f"p{k}"], (k, i, "sum"))]
            last = (k, i, "sum")
        wanted += [last, (k, 3)]
    steps += [(np.subtract, [(k, 8, "sum"), (k, 3)], ("end", k)) for k in range(3)]
    expected = by_itself(steps, values)
    wanted += [("end", k) for k in range(3)]
    found = merged(steps, list(values), wanted, True)
    for _ in range(4):
        with np.errstate(all="ignore"):
            assert_same(found(list(values.values())), [expected[w] for w in wanted])
    together = [call[0] for call in found.ready[0] if type(call[0]) is blocks.Together]
    assert together and found.size >= sum(len(t.chains) for t in together) >= 8
    given = [np.asfortranarray(a) if a.ndim else a for a in values.values()]
    with np.errstate(all="ignore"):
        assert_same(found(given), [expected[w] for w in wanted])


def test_large_arrays_are_not_kept_for_a_chain():
    for size, expected in ((100, [True, False]), (1 << 19, [False, False, False])):
        x = np.ones(size, np.float32)
        found = merged([(np.add, ["x", "x"], 0), (np.sum, ["x"], 1), (np.multiply, ["x", "x"], 2)], ["x"], [0, 1, 2])
        for _ in range(3):
            assert_same(found([x]), [x + x, np.sum(x), x * x])
        assert sorted([type(call[0]) is blocks.Chain for call in found.ready[0]], reverse=True) == expected


def test_large_arrays_wait_for_what_is_done_to_numbers_but_not_for_each_other():
    """As a step of Adam written out has it: numbers between the operations on weights. Each weight's are one chain, the next one's another."""
    rng, steps, values = np.random.default_rng(0), [], {"t": np.float32(3)}
    for k in range(2):
        values |= {(k, name): rng.random(1 << 19, np.float32) for name in "pgm"}
        steps += [
            (np.multiply, [(k, "m"), "t"], (k, 0)), (np.square, ["t"], (k, 1)), (np.add, [(k, 0), (k, "g")], (k, 2)),
            (np.add, [(k, 1), "t"], (k, 3)), (np.sqrt, [(k, "g")], (k, 4)), (np.true_divide, [(k, 2), (k, 4)], (k, 5)),
            (np.multiply, [(k, 5), (k, 3)], (k, 6)), (np.subtract, [(k, "p"), (k, 6)], (k, 7)),
        ]  # fmt: skip
    wanted = [(0, 2), (0, 7), (1, 2), (1, 7)]
    expected = by_itself(steps, values)
    found = merged(steps, list(values), wanted, True)
    for _ in range(3):
        assert_same(found(list(values.values())), [expected[w] for w in wanted])
    large = [call for call in found.ready[0] if type(call[0]) is blocks.Chain and call[0].shape]
    assert len(large) == 2 and all([len(range(*call[-1].indices(100))) == 2 for call in large])


def test_operands_of_fewer_dimensions_are_spread():
    """One number for each row, for each column, for each of those in the middle: as normalizations have them."""
    rng = np.random.default_rng(0)
    for shape in ((4, 3, 5), (2, 3, 700), (600, 1, 2)):
        x, column, row, middle, rows = [contents(rng, s, "float32") for s in (shape, (*shape[:2], 1), shape[2:], (shape[1], 1), shape[1:])]
        operands = {"x": x, "column": column, "row": row, "middle": middle, "rows": rows}
        steps = [(np.subtract, [a, b], i) for i, (a, b) in enumerate([("x", "column"), (0, "row"), ("middle", 1), (2, "rows"), (3, "column")])]
        expected = by_itself(steps, operands)
        found = merged(steps, [*operands], [4])
        with np.errstate(all="ignore"):
            for _ in range(3):
                assert_same(found([*operands.values()]), [expected[4]])
        assert len(found.ready[0]) == 1


@pytest.mark.parametrize("letter", ["f", "d", "e", "?"])
@pytest.mark.parametrize("shape", [(30, 20, 2), (9, 40, 3), (3, 7, 4), (5, 2, 3, 6), (2, 3, 2, 2, 700)])
def test_a_step_whose_runs_are_short_is_a_chain_whatever_is_repeated(shape, letter):
    """Of each combination of dimensions that an operand has, as an array of its own and as one that repeats elements."""
    rng = np.random.default_rng(0)
    x, number = rng.standard_normal(shape).astype(letter.replace("?", "f")), np.asarray(2, letter.replace("?", "f"))
    function = of_halves(np.subtract, x.dtype) if letter == "e" else np.subtract
    step = (SELECT["float32"], ["y", "x", "n"], 0) if letter == "?" else (function, ["x", "y"], 0)
    for own in itertools.product([True, False], repeat=len(shape)):
        small = rng.integers(-1, 2, [n if has else 1 for n, has in zip(shape, own, strict=True)]).astype(letter)
        for other in (small, np.broadcast_to(small, shape)):
            expected = by_itself([step], {"x": x, "y": other, "n": number})[0]
            found = merged([step], ["x", "y", "n"], [0])
            with np.errstate(all="ignore"):
                for _ in range(3):
                    assert_same(found([x, other, number]), [expected])


def test_numpy_has_what_runs_are_long_of():
    def functions(shape, own):
        found = merged([(np.subtract, ["x", "y"], 0)], ["x", "y"], [0])
        for _ in range(2):
            found([np.ones(shape, np.float32), np.ones(own, np.float32)])
        return [type(call[0]) is blocks.Chain for call in found.ready[0]]

    assert functions((500, 3), (3,)) == functions((500, 3), (500, 1)) == functions((9, 5, 8), (9, 1, 8)) == [True]
    assert functions((50, 300), (300,)) == functions((50, 300), (50, 1)) == functions((500, 3), (500, 3)) == functions((9, 3), (3,)) == [False]


def test_what_was_repeated_and_is_no_longer_is_numpys():
    x, row = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(3, dtype=np.float32)
    found = merged([(np.add, ["x", "y"], 0), (np.sqrt, [0], 1)], ["x", "y"], [1])
    for other in (np.broadcast_to(row, (4, 3)), np.broadcast_to(row, (4, 3)), x, np.broadcast_to(row, (4, 3)), np.broadcast_to(x[:, :1], (4, 3))):
        assert_same(found([x, other]), [np.sqrt(x + other)])


def test_operands_that_are_not_contiguous_are_copied_and_those_of_other_memory_are_numpys():
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    steps = [(np.add, ["x", "x"], 0), (np.sqrt, [0], 1)]
    found = merged(steps, ["x"], [1])
    for given_ in (x.T, x.T, x.T, np.ascontiguousarray(x.T), x.T.astype(np.float64)):
        assert_same(found([given_]), [np.sqrt(given_ + given_)])
    found = merged(steps, ["x"], [1])
    for given_ in (x, x, x, np.asfortranarray(x), x[::2], x.astype(np.float64), x.astype(np.int32)):
        assert_same(found([given_]), [np.sqrt(given_ + given_)])


@pytest.mark.parametrize("letter", ["f", "d", "e", "?", chains.BFLOAT16.char])
@pytest.mark.parametrize("shape", [(4,), (3000,), (5, 3), (90, 70), (70, 90, 4), (20, 30, 40), (3, 4, 5, 6), (2, 3, 1, 4, 5)])
def test_operands_are_read_as_they_lie_in_memory(shape, letter):
    """Parts of what is larger, in another order each time, also where they are copied: of many dimensions, or far from each other and many."""
    rng = np.random.default_rng(math.prod(shape))
    dtype = np.dtype(chains.BFLOAT16 if letter == chains.BFLOAT16.char else letter)
    numbers = np.dtype("d" if letter == "d" else "f") if letter in "?fd" else dtype
    add, multiply = [of_halves(f, dtype) if numbers.itemsize == 2 else f for f in (np.add, np.multiply)]
    steps = [(SELECT["float32"], ["x", "y", "y"], 0) if letter == "?" else (add, ["x", "y"], 0), (multiply, [0, "y"], 1)]
    found = merged(steps, ["x", "y"], [1])
    for _ in range(6):
        x = (rng.standard_normal(shape) * 9).astype(dtype) if letter != "?" else rng.random(shape) < 0.5
        values = {"x": lying(rng, x), "y": lying(rng, rng.standard_normal(shape).astype(numbers))}
        assert_same(found(list(values.values())), [by_itself(steps, values)[1]])


def test_what_was_done_before_is_not_done_again():
    called = []
    convert = lambda x: called.append(x) or np.float32(x)  # noqa: E731
    steps = [(convert, ["n"], 0), (np.add, ["x", 0], 1), (convert, ["n"], 2), (np.add, ["x", 2], 3), (convert, ["n"], 4)]
    x = np.ones(3, np.float32)
    first, second, third = merged(steps, ["x", "n"], [1, 3, 4])([x, np.float64(2.5)])
    assert len(called) == 2  # an output is an array of its own
    assert first is not second and third == np.float32(2.5)
    np.testing.assert_array_equal([first, second], [[3.5] * 3] * 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 5, 511, 512, 1100])
def test_the_loops_are_those_of_arrays(dtype, size):
    """Of each operation: compiled, and as Python's source has it."""
    spec = spec_from_file_location("blocks_of_arrays", Path(chains.__file__).with_name("blocks.py"))
    arrays = module_from_spec(spec)
    spec.loader.exec_module(arrays)
    rng = np.random.default_rng(size)
    a, b, mask = contents(rng, (size,), dtype), contents(rng, (size,), dtype), rng.random(size) < 0.5
    letter = np.dtype(dtype).char
    for number, arity in [(n, lanes.ARITY[n]) for n in (*range(lanes.LOAD), *range(lanes.REM, lanes.HARDSWISH + 1))]:
        if number == lanes.SELECT:
            operands, code, given_ = [("?", size, False), (letter, size, False)], [(lanes.LOAD, 3, 0, 0, 0), (number, 2, 3, 1, 1)], [mask, a]
        elif lanes.GT <= number <= lanes.NE:
            operands, code, given_ = [(letter, size, False)] * 2, [(number, 3, 0, 1, 0), (lanes.KEEP, 2, 3, 0, 0)], [a, b]
        else:
            operands, code, given_ = [(letter, size, False)] * 2, [(number, 2, 0, int(arity >= 2), 0)], [a, b]
        results = ["?" if lanes.GT <= number <= lanes.NE else letter]
        with np.errstate(all="ignore"):
            made = [cls((size,), np.dtype(dtype), operands, results, code, 1, [], None)(*given_) for cls in (blocks.Chain, arrays.Chain)]
        assert_same(made[:1], made[1:])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [3, 700])
@pytest.mark.parametrize(
    ("steps", "operations"),
    [
        ([(np.multiply, "ab", "p"), (np.add, "pc", "s")], 1),
        ([(np.multiply, "ab", "p"), (np.add, "cp", "s")], 1),
        ([(np.multiply, "an", "p"), (np.subtract, "cp", "s")], 1),
        ([(np.multiply, "na", "p"), (np.subtract, "cp", "s")], 1),
        ([(np.multiply, "na", "p"), (np.add, "pn", "s")], 1),
        ([(np.multiply, "nn", "p"), (np.multiply, "pa", "q"), (np.add, "qc", "s")], 1),
        ([(np.multiply, "aa", "p"), (np.add, "pa", "s")], 1),
        ([(np.sqrt, "a", "p"), (np.add, "pn", "s")], 1),
        ([(np.sqrt, "a", "p"), (np.add, "bp", "s")], 1),
        ([(np.sqrt, "a", "p"), (np.add, "pp", "s")], 2),
        ([(np.sqrt, "a", "p"), (np.subtract, "bp", "s")], 2),
        ([(np.multiply, "ab", "q"), (np.multiply, "qn", "p"), (np.add, "cp", "s")], 2),
        ([(np.multiply, "ab", "p"), (np.subtract, "pc", "s")], 2),
        ([(np.multiply, "ab", "p"), (np.add, "pp", "s")], 2),
        ([(np.multiply, "ab", "p"), (np.divide, "pc", "s")], 2),
        ([(np.multiply, "ab", "p"), (np.add, "pc", "q"), (np.add, "qp", "s")], 3),
        ([(np.multiply, "ab", "s"), (np.add, "sc", "q")], 2),
        ([(np.multiply, "ab", "p"), (np.negative, "c", "q"), (np.add, "pq", "s")], 3),
    ],
)
def test_a_product_that_one_sum_reads_next_is_one_operation_with_it(steps, operations, size, dtype):
    """So is a square root, and a difference from a product. To the bit: the product is rounded, which no instruction that multiplies and adds at once
    does."""
    rng = np.random.default_rng(0)
    values = {name: contents(rng, (size,), dtype) for name in "abc"} | {"n": contents(rng, (), dtype)}
    steps = [(function, list(operands), result) for function, operands, result in steps]
    wanted = ["s", *["q"] * any(s[2] == "q" and s[1] == ["s", "c"] for s in steps)]
    found = merged(steps, list(values), wanted)
    expected = by_itself(steps, values)
    for _ in range(3):
        with np.errstate(all="ignore"):
            assert_same(found(list(values.values())), [expected[w] for w in wanted])
    made = [call[0] for call in found.ready[0] if type(call[0]) is blocks.Chain]
    assert [chain.work() // size for chain in made if chain.shape] == [operations]


@pytest.mark.skipif(not compiled, reason="Python has NumPy's functions")
@pytest.mark.parametrize(
    ("number", "function", "units", "least"),
    [
        (lanes.EXP, np.exp, 1.0, -np.inf), (lanes.TANH, np.tanh, 1.25, -np.inf), (lanes.LOGISTIC, lambda x: 1 / (1 + np.exp(-x)), 2.5, -87),
        (lanes.ERF, np.vectorize(math.erf), 3.0, -np.inf), (lanes.LOG, np.log, 1.0, -np.inf), (lanes.LOG1P, np.log1p, 1.0, -np.inf),
    ],
)  # fmt: skip
def test_functions_of_single_precision_are_right_everywhere(number, function, units, least):
    """Within so many units of the last place of the exact value, for floats of all sizes, infinities and NaN; by themselves and over themselves."""
    x = np.arange(0, 2**32, 65_521, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([x, np.array(SPECIAL, np.float32), np.linspace(-5, 5, 2000, dtype=np.float32)])
    found = blocks.Function(number)(x)
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))
        rounded = exact.astype(np.float32)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(rounded))
        there = np.isfinite(rounded) & (x >= least)
        unit = np.spacing(np.maximum(np.abs(rounded[there]), np.float32(1.2e-38)))
    assert (np.abs(found[there] - exact[there]) / unit).max() < units
    same = np.signbit(found) == np.signbit(rounded)
    assert same[np.isfinite(rounded)].all()
    x.flags.writeable = False
    assert_same(
        [blocks.Function(number).over(x), blocks.Function(number).over(x.copy()), blocks.Function(number)(x[::2])], [found, found, found[::2]]
    )


@pytest.mark.skipif(not compiled, reason="Python has NumPy's functions")
@pytest.mark.parametrize(
    ("number", "function", "units"),
    [
        (lanes.EXP, np.exp, 3), (lanes.TANH, np.tanh, 3), (lanes.LOGISTIC, lambda x: 1 / (1 + np.exp(-x)), 5), (lanes.LOG, np.log, 3),
        (lanes.LOG1P, np.log1p, 3), (lanes.SIN, np.sin, 3), (lanes.COS, np.cos, 3),
    ],
)  # fmt: skip
def test_functions_of_double_precision_are_right_everywhere(number, function, units):
    """Within so many units of the last place of NumPy's, which are right to one, for floats of all sizes, infinities and NaN; and in a chain."""
    bits = np.arange(0, 2**64, 2**64 // 60_013, dtype=np.uint64)
    ends = [709.78, 709.79, -745.1, -745.2, np.pi, np.pi / 2, 1048575.9, 1048576.1, 1e22, 5e-324, 2.3e-308, 0.625]
    random = np.random.default_rng(0).standard_normal(3000)
    x = np.concatenate([bits.view(np.float64), SPECIAL, ends, random, random * 100, 1 + random * 1e-3])
    found = blocks.Function(number, np.dtype(np.float64))(x)
    with np.errstate(all="ignore"):
        wanted = function(x)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(wanted))
        there = np.isfinite(wanted)
        unit = np.spacing(np.maximum(np.abs(wanted[there]), 2.3e-308))
    assert (np.abs(found[there] - wanted[there]) / unit).max() <= units
    assert (np.signbit(found) == np.signbit(wanted))[there].all()
    (by_c,) = [f for f in BY_C["float64"] if chains.NUMBERS[f] == number]
    chain = merged([(by_c, ["x"], 0), (np.negative, [0], 1)], ["x"], [1])
    with np.errstate(all="ignore"):
        for _ in range(3):
            assert_same(chain([x]), [-found])
    assert [type(call[0]) is blocks.Chain for call in chain.ready[0]] == [True]


def test_an_interpreted_step_of_an_optimizer_has_few_calls_and_the_same_bits(monkeypatch):
    monkeypatch.setattr(costs, "COMPILE", 1e18)

    def run(by_numbers):
        monkeypatch.setattr(blocks, "by_numbers", by_numbers)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(9, 11), torch.nn.ReLU(), torch.nn.Linear(11, 5))
        opt = torch.optim.Adam(model.parameters(), 0.01)
        x = torch.randn(6, 9)
        for _ in range(8):
            loss = (model(x) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            loss.item()
        return [p.detach().numpy().copy() for p in model.parameters()], loss.item()

    (weights, loss), (expected, expected_loss) = run(True), run(False)
    assert_same(weights, expected)
    assert loss == expected_loss


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_large_arrays_are_shared_by_threads_with_the_same_bits(name):
    """Whoever is free computes the next piece: with a number, a mask, a vector that is spread, and registers in between."""
    rng = np.random.default_rng(0)
    shape = (517, 1013)  # the last piece is a short one
    values = {
        "x": contents(rng, shape, name),
        "y": contents(rng, shape, name),
        "row": contents(rng, shape[1:], name),
        "number": contents(rng, (), name),
    }
    steps = [
        (np.multiply, ["x", "number"], "a"), (np.add, ["a", "row"], "b"), (np.greater, ["b", "y"], "mask"), (SELECT[name], ["mask", "y", "b"], "c"),
        (np.square, ["c"], "d"), (np.sqrt, ["d"], "e"), (np.subtract, ["e", "x"], "out"),
    ]  # fmt: skip
    program = merged(steps, list(values), ["out", "mask"])
    expected = by_itself(steps, values)
    for _ in range(20):
        with np.errstate(all="ignore"):
            assert_same(program(list(values.values())), [expected["out"], expected["mask"]])
    assert not compiled or any(isinstance(function, blocks.Chain) for function, *_ in program.ready[0])
