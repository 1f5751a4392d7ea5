"""Plans of the baseline tier: what is made of a jaxpr, what serves other shapes, and random expressions against XLA."""

import subprocess
import sys
import weakref
from copy import copy

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax import numpy as jnp
from test_baseline_agreement import agree, assert_close, assert_same, both, values

import torchgrad_jax as tj
from torchgrad_jax.runtime import baseline_tier, execution_mode
from torchgrad_jax.runtime.baseline import Plan, plan_of, quietly, same_plan, surroundings
from torchgrad_jax.runtime.baseline.carrying import Prepared
from torchgrad_jax.runtime.baseline.inlining import KERNEL
from torchgrad_jax.runtime.native import blas

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]


def traced(function, *arrays):
    return jax.make_jaxpr(function)(*[np.asarray(a) for a in arrays])


def planned(function, *arrays):
    plan = plan_of(traced(function, *arrays))
    assert plan is not None
    return plan


X, ROW, COLUMN = values(np.float32, (3, 4)), values(np.float32, 4), values(np.float32, (3, 1))

# ---------------------------------------------------------------------- what a plan is made of


def test_a_copy_has_all_that_a_plan_has():
    plan = planned(lambda x, y: (x * y + 1, x - y), X, X)
    plan.prepare()
    names = (*Prepared.__slots__, *Plan.__slots__)
    assert len(names) > 15
    for one in (plan, plan.broadcasting):
        assert all(getattr(copy(one), name) is getattr(one, name) or getattr(copy(one), name) == getattr(one, name) for name in names)


def test_calls_are_inlined_and_identities_and_constants_take_no_step():
    def function(x):
        y = jax.jit(lambda x: jnp.sin(lax.stop_gradient(x)))(x.astype(np.float32).reshape(3, 4))
        return y + (jnp.float32(2) * 3 + jnp.arange(4, dtype=np.float32))

    plan = planned(function, X)
    assert plan.size == 2
    agree(function, X, units=4)


def test_what_nobody_reads_takes_no_step():
    def function(x):
        lax.sort(x)
        return x + 1

    assert planned(function, X).size == 1


def test_compiling_counts_primitives_in_loops_and_branches_too():
    body = lambda x: lax.scan(lambda c, y: (c + y, c * y), x[0], x)  # noqa: E731
    closed = traced(lambda x: jax.jit(body)(x), X)
    inner = [e for e in closed.jaxpr.eqns[0].params["jaxpr"].jaxpr.eqns]
    loop, fused = KERNEL, len(inner) - 1 + 2  # XLA compiles a loop by itself, which takes longer than what it fuses
    assert plan_of(closed).compiling == loop + fused


def test_an_unknown_primitive_has_no_plan_and_neither_has_what_contains_it():
    draw = lambda x: x + jax.random.uniform(jax.random.key(0), (4,), np.float32)  # noqa: E731
    assert plan_of(traced(draw, ROW)) is None
    assert plan_of(traced(lambda x: lax.cond(x[0] > 0, draw, lambda x: x, x), ROW)) is None


def test_cost_grows_with_arrays_and_with_what_is_done():
    small, large = values(np.float32, 8), values(np.float32, 10**6)
    add, sine = (lambda x: x + x), (lambda x: jnp.sin(x))
    assert planned(add, small).cost < 4000 < 100_000 < planned(add, large).cost < planned(sine, large).cost
    assert planned(lambda x: x[:, None] * x, small).cost < planned(lambda x: x[:1000, None] @ x[None, :1000], large).cost
    assert planned(lambda x: jnp.broadcast_to(jnp.sin(x[0]), (1000, 1000)) + x, np.float32([1])).cost < planned(sine, large).cost


def test_results_may_be_inputs_constants_or_the_same_array_twice():
    agree(lambda x, y: [x, y, x, jnp.float32(3), jnp.zeros(2), x + y, y], ROW, ROW)
    agree(lambda x: [], ROW)


def test_inputs_may_be_scalars_of_numpy_and_not_contiguous():
    function = lambda x, s: [jnp.exp(x * s) - s, s * 2, x[::2] + s, jnp.where(x > s, x, s)]  # noqa: E731
    plan = planned(function, X, np.float32(2))
    expected = plan(np.asfortranarray(X), np.asarray(np.float32(2)))
    for found, other in zip(plan(X, np.float32(2)), expected, strict=True):
        assert_same(np.asarray(found), np.asarray(other))


def test_constants_survive_a_caller_that_makes_results_read_only_and_are_not_written_to():
    plan = planned(lambda x: [jnp.arange(3.0), x + jnp.arange(3.0)], np.zeros(3))
    before = [np.array(r) for r in plan(np.ones(3))]
    with pytest.raises(ValueError, match="read-only"):
        plan(np.ones(3))[0][0] = 7
    for one, other in zip(plan(np.ones(3)), before, strict=True):
        np.testing.assert_array_equal(one, other)


class Counted(np.ndarray):
    """An array that weak references can point to."""


def test_arrays_are_dropped_after_their_last_use():
    def chain(x):
        for _ in range(50):
            x = x + 1
        return x

    made, most = [], 0

    def counting(a, b):
        nonlocal most
        found = np.add(a, b).view(Counted)
        made.append(weakref.ref(found))
        most = max(most, sum(array() is not None for array in made))
        return found

    plan = planned(chain, X)
    plan.prepare()
    plan._calls = [(counting, *call[1:]) for call in plan._calls]
    plan(X)
    assert len(made) == 50 and most <= 3


# ---------------------------------------------------------------------- plans without shapes

FREE = {
    "scalars": lambda x, r, c: x * 2 + 1,
    "row": lambda x, r, c: jnp.sin(x) * r + r * r,
    "column": lambda x, r, c: (x - c) / jnp.exp(c),
    "both": lambda x, r, c: jnp.where(x > r, c, jnp.zeros_like(x)) + x,
    "full": lambda x, r, c: jnp.maximum(x, jnp.full_like(x, 0.5)) * jnp.ones_like(x),
    "clip": lambda x, r, c: jnp.clip(x, -1, 1) + jax.nn.sigmoid(r),
    "gelu": lambda x, r, c: jax.nn.gelu(x) + jnp.broadcast_to(r, x.shape),
    "convert": lambda x, r, c: (x.astype(np.int32) // 2).astype(np.float32),
    "lifted": lambda x, r, c: x + r[None, :] * 2,
    "outer": lambda x, r, c: r * c,
}
BOUND = {
    "sum": lambda x, r, c: x.sum(0),
    "zeros": lambda x, r, c: jnp.zeros_like(x),
    "broadcast": lambda x, r, c: jnp.broadcast_to(r, x.shape),
    "one of several": lambda x, r, c: [x + r, jnp.broadcast_to(c, x.shape)],
    "reshape": lambda x, r, c: (x + 1).reshape(4, 3),
    "iota": lambda x, r, c: x + jnp.arange(4, dtype=np.float32),
    "constant": lambda x, r, c: x + np.float32([1, 2, 3, 4]),
    "slice": lambda x, r, c: x[:, :2] + 1,
    "mean": lambda x, r, c: x - x.mean(),
    "transpose": lambda x, r, c: x.T + 1,
    "size": lambda x, r, c: x * jnp.ones_like(x).sum(),
    "last of a line": lambda x, r, c: x * jnp.arange(4, dtype=np.float32)[-1],
    "branch": lambda x, r, c: lax.cond(jnp.sum(jnp.ones_like(r)) > 3, lambda: x, lambda: x + 1),
}


@pytest.mark.parametrize("name", FREE)
def test_plans_of_elementwise_functions_serve_other_shapes(name):
    function = FREE[name]
    plan = planned(function, X, ROW, COLUMN)
    assert plan.shape_free
    for shape in ((3, 4), (5, 7), (2, 2), (0, 3), (6, 0), (300, 200)):
        arrays = values(np.float32, shape), values(np.float32, shape[1:], seed=1), values(np.float32, (shape[0], 1), seed=2)
        with np.errstate(all="ignore"):
            (found,) = plan(*arrays)
        assert_close(np.asarray(found), np.asarray(jax.jit(function)(*arrays)), 64, least=1.0)
        if 0 not in shape:  # JAX traces arrays without elements in another way
            assert same_plan(traced(function, X, ROW, COLUMN), traced(function, *arrays))


@pytest.mark.parametrize("name", BOUND)
def test_plans_in_which_a_shape_matters_say_so(name):
    assert not planned(BOUND[name], X, ROW, COLUMN).shape_free
    agree(BOUND[name], X, ROW, COLUMN, units=8)


def test_a_broadcast_costs_nothing_where_numpy_makes_it():
    assert planned(lambda x, r, c: x * r[None, :] + c, X, ROW, COLUMN).size == 2
    assert planned(lambda x: jnp.where(x > 0, x, jnp.full_like(x, 3)), X).size == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: x + 1, lambda x: x - 1),
        (lambda x: x + x, lambda x: x + (x + x)),
        (lambda x: jnp.sin(x) - x, lambda x: x - jnp.sin(x)),
        (lambda x: x / x.shape[0], lambda x: x / 7),
        (lambda x: lax.integer_pow(x, 2), lambda x: lax.integer_pow(x, 3)),
        (lambda x: x + np.float32([1, 2, 3, 4]), lambda x: x + np.float32([1, 2, 3, 5])),
        (lambda x: (x, x + 1), lambda x: (x + 1, x)),
        (lambda x: jax.jit(lambda x: x * 2)(x), lambda x: jax.jit(lambda x: x * 3)(x)),
        (lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.sin, x)),
        (lambda x: x.astype(np.int8), lambda x: x.astype(np.int16)),
    ],
)
def test_jaxprs_that_differ_in_more_than_shapes_are_not_the_same(one, other):
    assert same_plan(traced(one, ROW), traced(one, ROW))
    assert not same_plan(traced(one, ROW), traced(other, ROW))


def test_a_number_that_comes_from_a_shape_makes_another_plan():
    function = lambda x: x / x.shape[0]  # noqa: E731
    assert planned(function, ROW).shape_free
    assert not same_plan(traced(function, ROW), traced(function, values(np.float32, 9)))
    assert not same_plan(traced(lambda x: x + 1, ROW), traced(lambda x: x + 1, X))
    assert not same_plan(traced(lambda x: x * 2, ROW), traced(lambda x: x * 2, ROW.astype(np.float64)))


# ---------------------------------------------------------------------- importing


def test_importing_the_library_loads_no_scipy():
    code = "import sys, torchgrad_jax; print([m for m in sys.modules if m.startswith('scipy')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


# ---------------------------------------------------------------------- random expressions

ELEMENTWISE = [jnp.negative, jnp.abs, jnp.sign, jnp.floor, jnp.square, lambda x: jnp.clip(x, -1, 2), lambda x: x.astype(np.float32)]
MOVES = [lambda x: x.T, lambda x: x[..., ::-1], lambda x: x.reshape(-1)[:, None], lambda x: x[:1], lambda x: jnp.pad(x, ((1, 0), (0, 1)))]
REDUCTIONS = [lambda x: x.sum(-1, keepdims=True), lambda x: x.max(0, keepdims=True), lambda x: jnp.sort(x, -1), lambda x: jnp.cumsum(x, -1)]
UNARY = [*ELEMENTWISE, *MOVES, *REDUCTIONS, lambda x: jnp.argmax(x, 0), lambda x: x[..., None] + 1]
BINARY = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.greater, jnp.equal, lambda a, b: jnp.where(a > 0, a, b)]
DTYPES = [np.float32, np.float64, np.int32, np.int8, np.float16, bool]


@st.composite
def expressions(draw):
    """Input arrays of shapes that broadcast, and instructions: functions with the places of their operands among all values so far."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    shapes = st.sampled_from([(rows, columns), (columns,), (rows, 1), (1, columns), (), (1, 1)])
    arrays = [values(draw(st.sampled_from(DTYPES)), draw(shapes), seed=i) for i in range(draw(st.integers(1, 3)))]
    steps = []
    for i in range(draw(st.integers(1, 6))):
        place = st.integers(0, len(arrays) + i - 1)
        if draw(st.booleans()):
            steps.append((draw(st.integers(0, len(UNARY) - 1)), draw(place), None))
        else:
            steps.append((draw(st.integers(0, len(BINARY) - 1)), draw(place), draw(place)))
    return arrays, steps


def evaluated(steps, arrays):
    """What the instructions give; one that does not fit its operands gives its first operand."""
    found = [jnp.asarray(a) for a in arrays]
    for which, a, b in steps:
        try:
            found.append(UNARY[which](found[a]) if b is None else BINARY[which](found[a], found[b]))
        except (TypeError, ValueError):
            found.append(found[a])
    return found[len(arrays) :]


@settings(max_examples=60, derandomize=True)
@given(expressions())
def test_random_expressions(expression):
    arrays, steps = expression
    for found, expected in zip(*both(lambda *xs: evaluated(steps, xs), *arrays), strict=True):
        assert_close(found, expected, 64, least=64.0)


@settings(max_examples=30, derandomize=True)
@given(expressions(), st.integers(1, 5), st.integers(1, 5))
def test_a_random_plan_without_shapes_serves_other_shapes(expression, rows, columns):
    arrays, steps = expression
    steps = [(w % len(ELEMENTWISE) if b is None else w, a, b) for w, a, b in steps]
    function = lambda *xs: evaluated(steps, xs)  # noqa: E731
    plan = planned(function, *arrays)
    if not plan.shape_free:
        return
    sizes = {1: 1}
    others = [values(a.dtype, tuple([sizes.setdefault(n, rows + 1 + 7 * n) for n in a.shape]), seed=columns) for a in arrays]
    with np.errstate(all="ignore"):
        found = plan(*others)
    for one, other in zip(found, function(*others), strict=True):
        assert_close(np.asarray(one), np.asarray(other), 64, least=64.0)


# ---------------------------------------------------------------------- what holds meanwhile


def test_numpy_warns_of_nothing_inside_and_as_before_outside():
    zero = np.zeros(2)
    with np.errstate(all="raise"):
        assert np.isnan(quietly(False, np.divide, zero, zero)).all()
        assert np.isnan(quietly(True, quietly, False, np.divide, zero, zero)).all()  # as by a finalizer in the midst of another
        with pytest.raises(KeyError):
            quietly(True, {}.__getitem__, 0)
        assert np.isnan(quietly(True, np.divide, zero, zero)).all()
        with pytest.raises(FloatingPointError):
            np.divide(zero, zero)


def test_products_are_told_from_what_needs_no_blas():
    matrix = np.ones((3, 3), np.float32)
    product = jax.make_jaxpr(lambda a, b: jnp.dot(a, b) + 1)
    assert plan_of(product(matrix + 1j, matrix + 1j)).multiplies and plan_of(product(matrix, matrix[0])).multiplies
    assert plan_of(product(matrix, matrix)).multiplies is not blas.multiplies()  # what is ours asks for no threads of NumPy's
    assert not plan_of(jax.make_jaxpr(lambda a: jnp.exp(a) + a.sum())(matrix)).multiplies


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [((32, 32), (32, 32), False), ((64, 64), (64, 64), True), ((4, 2048), (2048, 1), True), ((90, 90), (90,), False), ((91, 91), (91,), True)],
)
def test_blas_is_told_of_its_threads_where_it_would_use_several(monkeypatch, left, right, told):
    """It takes two numbers to be set, 1 us each."""
    asked = []
    monkeypatch.setattr(surroundings, "_limit", lambda: lambda threads: asked.append(threads) or 0)
    a, b = tj.ones(left, dtype=tj.complex64), tj.ones(right, dtype=tj.complex64)
    with execution_mode("fused"), baseline_tier(True):
        for _ in range(4):  # at first operation by operation, then as one list, then the short way
            asked.clear()
            assert (a @ b).flatten()[0].item() == left[1]
            assert bool(asked) is told
