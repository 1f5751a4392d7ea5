"""Half precision in the interpreter: conversions to the bit, and chains that round after each operation."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_baseline_agreement import BFLOAT16, values
from test_baseline_chains import merged

from torchgrad_jax.declaration.numpy_forms import converted as converted_by_form
from torchgrad_jax.runtime.baseline import blocks, chains
from torchgrad_jax.runtime.baseline.blocks import converted
from torchgrad_jax.runtime.baseline.converting import _converter, _rounder
from torchgrad_jax.runtime.baseline.elementwise import _SINGLE, _selection, larger, of_halves, smaller

pytestmark = pytest.mark.operators

FLOAT16, SINGLE = np.dtype(np.float16), np.dtype(np.float32)
HALVES = [FLOAT16, BFLOAT16]
EVERY = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)


@pytest.fixture(autouse=True, scope="module")
def made_everywhere():
    """Where the core is not compiled there are no chains, and NumPy converts; here the loops are those of arrays then."""
    before, blocks.by_numbers = blocks.by_numbers, True
    yield
    blocks.by_numbers = before


@pytest.fixture(autouse=True)
def quietly():
    """As the interpreter runs."""
    with np.errstate(all="ignore"):
        yield


def assert_same_bits(found, expected):
    """But for what is no number: which one it is differs between processors."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    if found.dtype == bool:
        np.testing.assert_array_equal(found, expected)
        return
    bits, nan = np.dtype(f"u{found.itemsize}"), np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(np.where(nan, 0, found.view(bits)), np.where(nan, 0, expected.view(bits)))


def between(dtype):
    """Every number of half precision as float32, the ties between neighbours, what is a digit more or less than those, and floats of all sizes."""
    own = EVERY.view(dtype).astype(np.float32).view(np.uint32)
    half = 0x8000 if dtype == BFLOAT16 else 0x1000
    near = [own + np.uint32(k) for k in (0, 1, half - 1, half, half + 1, 2 * half - 1)]
    return np.concatenate([*near, np.arange(0, 1 << 32, 40_009, dtype=np.uint64).astype(np.uint32)]).view(np.float32)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_number_is_widened_exactly_and_comes_back(dtype):
    x = EVERY.view(dtype)
    wide = converted(x, SINGLE)
    assert_same_bits(wide, x.astype(SINGLE))
    assert_same_bits(converted(wide, dtype), x)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_floats_are_rounded_to_the_nearest_with_ties_to_even(dtype):
    x = between(dtype)
    assert_same_bits(converted(x, dtype), x.astype(dtype))
    assert_same_bits(_rounder(dtype, SINGLE)(x), x.astype(dtype).astype(SINGLE))
    subnormal = np.concatenate([np.linspace(-7e-5, 7e-5, 20_001, dtype=np.float32), np.linspace(-2e-38, 2e-38, 20_001, dtype=np.float32)])
    assert_same_bits(converted(subnormal, dtype), subnormal.astype(dtype))


@pytest.mark.parametrize("size", [256, 257, 263, 1024, 1027, 1031])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_vectors_leave_is_converted_likewise(dtype, size):
    x = between(dtype)
    for start in range(0, x.size - size, x.size // 30):
        part = x[start : start + size].copy()
        assert_same_bits(converted(part, dtype), part.astype(dtype))
        assert_same_bits(converted(part.astype(dtype), SINGLE), part.astype(dtype).astype(SINGLE))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_however_the_memory_lies(dtype):
    x = values(np.float32, (80, 90))
    for view in (lambda a: a.T, lambda a: a[::2, 1:], lambda a: a[:, ::-1], lambda a: a[:, None].swapaxes(0, 2), lambda a: a[:0], lambda a: a[0, 0]):
        assert_same_bits(converted(view(x), dtype), view(x).astype(dtype))
        assert_same_bits(converted(view(x.astype(dtype)), SINGLE), view(x.astype(dtype)).astype(np.float32))
        assert_same_bits(converted_by_form(view(x), dtype), view(x).astype(dtype))
    other = BFLOAT16 if dtype == FLOAT16 else FLOAT16
    assert_same_bits(converted(x.astype(dtype), other), x.astype(dtype).astype(np.float32).astype(other))
    assert_same_bits(converted(x.astype(np.float64), dtype), x.astype(np.float64).astype(dtype))


# ---------------------------------------------------------------------- chains

UNARY, BINARY = [np.negative, np.abs, np.sqrt, np.square], [np.add, np.subtract, np.multiply, np.true_divide, larger, smaller]
COMPARING = [np.greater, np.less_equal, np.equal]


@st.composite
def programs(draw):
    """Steps on operands of float16, bfloat16 and float32 (by the names of their dtypes), all of a shape or spread along it, and what is wanted."""
    shape = draw(st.sampled_from([(7,), (3, 5), (600,), (40, 30), (3, 512), (1, 9)]))
    names = ["float16", "bfloat16", "float32"]
    shapes = {f"{kind} {name}": size for name in names for kind, size in (("a", shape), ("row", shape[-1:]), ("column", (*shape[:-1], 1)), ("n", ()))}
    steps, known = [], {name: [key for key in shapes if key.split()[1] == name] for name in names}
    masks = []
    for i in range(draw(st.integers(1, 40 if draw(st.booleans()) else 6))):
        name = draw(st.sampled_from(names))
        dtype, pick = np.dtype(getattr(ml_dtypes, name, name)), lambda name=name: draw(st.sampled_from(known[name]))
        kind = draw(st.sampled_from(["unary", "binary", "binary", "convert", "convert", "comparing", "select", "round"]))
        single = (lambda f: f) if name == "float32" else lambda f, dtype=dtype: of_halves(f, dtype)
        if kind == "unary":
            steps.append((single(draw(st.sampled_from(UNARY))), [pick()], i))
        elif kind == "binary":
            steps.append((single(draw(st.sampled_from(BINARY))), [pick(), pick()], i))
        elif kind == "convert":
            steps.append((_converter(dtype), [draw(st.sampled_from(known[draw(st.sampled_from(names))]))], i))
        elif kind == "round":
            name = "float32"
            steps.append((_rounder(draw(st.sampled_from(HALVES)), SINGLE), [pick("float32")], i))
        elif kind == "comparing":
            steps.append((single(draw(st.sampled_from(COMPARING))) if name == "float32" else of_halves(np.less, np.dtype(bool)), [pick(), pick()], i))
            masks.append(i)
            continue
        elif masks:
            steps.append((_selection(dtype), [draw(st.sampled_from(masks)), pick(), pick()], i))
        else:
            continue
        known[name].append(i)
    made = [s[2] for s in steps]
    wanted = draw(st.lists(st.sampled_from(made), min_size=1, unique=True)) if made else []
    return shapes, steps, wanted, draw(st.integers(0, 9))


def contents(rng, shape, dtype):
    special = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 6e-8, -3e-5, 65504.0, 1.0009765625, 3e38]
    found = rng.standard_normal(shape).astype(dtype)
    return np.where(rng.random(shape) < 0.2, rng.choice(np.array(special).astype(dtype), shape), found) if shape else np.asarray(found, dtype)


@settings(max_examples=150, deadline=None)
@given(programs())
def test_any_program_of_halves_rounds_after_each_operation(program):
    shapes, steps, wanted, seed = program
    if not wanted:
        return
    rng = np.random.default_rng(seed)
    given_ = {name: contents(rng, shape, name.split()[1]) for name, shape in shapes.items()}
    expected, found = dict(given_), merged(steps, list(shapes), wanted)
    for function, operands, result in steps:
        expected[result] = function(*[expected[o] for o in operands])
    for _ in range(5):
        for a, w in zip(found([given_[n] for n in shapes]), wanted, strict=True):
            assert_same_bits(a, expected[w])
    assert found.final


@pytest.mark.parametrize("size", [5, 300, 3000])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_operations_are_those_of_float32_rounded(dtype, size):
    """Alone and in a chain; the step that follows reads what was rounded."""
    a, b = values(dtype, size), values(dtype, size, seed=1)
    for function in [*UNARY, *BINARY]:
        operands = ["a", "b"][: 1 if function in UNARY else 2]
        own = of_halves(function, dtype)
        program = merged([(own, operands, 0), (of_halves(np.add, dtype), [0, "b"], 1)], ["a", "b"], [0, 1])
        first = function(*[x.astype(np.float32) for x in (a, b)[: len(operands)]]).astype(dtype)
        second = (first.astype(np.float32) + b.astype(np.float32)).astype(dtype)
        assert_same_bits(own(*(a, b)[: len(operands)]), first)
        for _ in range(4):
            found = program([a, b])
            assert_same_bits(found[0], first)
            assert_same_bits(found[1], second)
    assert any(isinstance(call[0], blocks.Chain) for call in program.ready[0])


@pytest.mark.skipif(_SINGLE["exp"] is None, reason="Python has NumPy's functions")
@pytest.mark.parametrize("size", [5, 3000])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_functions_are_those_of_single_precision(dtype, size):
    x = values(dtype, size)
    for single in _SINGLE.values():
        own = of_halves(single.function, dtype, True)
        expected = single.function(x.astype(np.float32)).astype(dtype)
        program = merged([(own, ["x"], 0), (of_halves(np.negative, dtype), [0], 1)], ["x"], [0, 1])
        assert_same_bits(own(x), expected)
        for _ in range(4):
            assert_same_bits(program([x])[0], expected)
        assert chains.NUMBERS[own] == chains.NUMBERS[single.function]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_another_dtype_of_the_same_width_is_seen(dtype):
    """A chain was made for what it has met: given something else of as many bytes, it does as its steps do."""
    program = merged([(np.add, ["a", "b"], 0), (np.multiply, [0, "b"], 1)], ["a", "b"], [1])
    a, b = values(dtype, 300), values(dtype, 300, seed=1)
    for _ in range(4):
        program([a, b])
    other = BFLOAT16 if dtype == FLOAT16 else FLOAT16
    x, y = a.astype(np.float32).astype(other), b.astype(np.float32).astype(other)
    assert_same_bits(program([x, y])[0], (x + y) * y)
