"""Traces with less of JAX's machinery around them give what JAX's own do: the same equations, results of the same avals, and the same refusals."""

import gc
import operator
import weakref

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import converting
from torchgrad_jax.runtime import _jax_compat
from torchgrad_jax.runtime.compiling import result_avals

pytestmark = pytest.mark.operators  # traces are what they are in every mode

F32, F64, I64, BOOL, C64 = (np.dtype(t) for t in (np.float32, np.float64, np.int64, bool, np.complex64))
BF16 = np.dtype(jnp.bfloat16)
UNARY = [
    lax.exp, lax.log, lax.sqrt, lax.tanh, lax.neg, lax.abs, lax.sign, lax.floor, lax.square, lax.is_finite, lax.logistic, lax.erf, lax.bitwise_not,
    lambda x: lax.integer_pow(x, 3), lambda x: lax.convert_element_type(x, F32), lambda x: lax.convert_element_type(x, BOOL),
    operator.neg, operator.invert,
]  # fmt: skip
BINARY = [
    lax.add, lax.sub, lax.mul, lax.div, lax.rem, lax.max, lax.min, lax.pow, lax.atan2, lax.eq, lax.lt, lax.bitwise_and, lax.shift_left, lax.nextafter,
]  # fmt: skip


def both(function, *inputs):
    """What JAX's own trace and ours make of a function: text, and the results' avals; or the class and the text of what they raise."""

    def as_tuple(*arrays):
        found = function(*arrays)
        return found if isinstance(found, tuple) else (found,)

    def of(trace):
        try:
            closed = trace()
        except Exception as error:  # noqa: BLE001 - whatever JAX raises
            return type(error), "\n".join([x for x in str(error).replace("DynamicJaxprTracer", "_Tracer").splitlines() if "the function" not in x])
        return str(closed), [(a.shape, a.dtype, a.weak_type) for e in closed.jaxpr.eqns for a in (v.aval for v in e.outvars)]

    def jaxs():
        with jax.enable_x64(True), jax.disable_jit():
            return jax.make_jaxpr(as_tuple)(*[jax.ShapeDtypeStruct(*i) for i in inputs])

    return of(lambda: _jax_compat.trace(as_tuple, "trial", inputs)), of(jaxs)


def hold_alike(function, *inputs):
    ours, jaxs = both(function, *inputs)
    assert ours == jaxs
    return ours


def test_this_version_of_jax_is_traced_so():
    assert _jax_compat._shortened() is not None
    _jax_compat.trace_x64(_jax_compat.try_traces)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("dtype", [F32, F64, I64, BOOL, C64, BF16], ids=str)
def test_element_wise(dtype):
    for function in UNARY:
        hold_alike(function, ((3, 4), dtype))
        hold_alike(function, ((), dtype))
    for function in BINARY:
        hold_alike(function, ((3, 4), dtype), ((3, 4), dtype))
        hold_alike(function, ((3, 4), dtype), ((3, 5), dtype))
        hold_alike(function, ((3, 4), dtype), ((3, 4), I64))
        hold_alike(lambda x, function=function: function(x, x), ((0,), dtype))


OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.lt, operator.le, operator.gt,
    operator.ge, operator.eq, operator.ne, operator.and_, operator.or_, operator.matmul, operator.lshift,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # NumPy warns of numbers that a dtype does not hold, for JAX's trace as for ours
@pytest.mark.parametrize("function", OPERATORS)
@pytest.mark.parametrize("dtype", [F32, F64, I64, BOOL, C64, BF16, np.dtype(np.uint8), np.dtype(np.float16)], ids=str)
def test_operators(function, dtype):
    hold_alike(function, ((3, 3), dtype), ((3, 3), dtype))
    hold_alike(function, ((3, 3), dtype), ((3,), dtype))
    hold_alike(function, ((3, 3), dtype), ((), dtype))
    for shape, other in (((3, 1), (1, 4)), ((2, 1, 3), (4, 3)), ((3,), (2, 3)), ((3, 4), (3,)), ((0, 1), (0, 4)), ((), (2, 1)), ((1, 1), (1,))):
        hold_alike(function, (shape, dtype), (other, dtype))
    hold_alike(function, ((3, 3), dtype), ((3, 3), F32))
    for number in (2, -1, 2.5, float("inf"), 1e300, True, 1j, np.float32(3), np.int64(7), np.arange(3.0), 1 << 70):
        hold_alike(lambda x, number=number: function(x, number), ((3, 3), dtype))
        hold_alike(lambda x, number=number: function(number, x), ((3, 3), dtype))
        hold_alike(lambda x, number=number: function(function(x, 2), number), ((), dtype))


@pytest.mark.parametrize("function", [lambda x: x * 2, lambda x: 2.5 - x, lambda x: x > 1, lambda x: jnp.where(x > 0, x, 0.0), jnp.mean, jnp.var])
@pytest.mark.parametrize("dtype", [F32, I64, BF16], ids=str)
def test_weak_types_and_literals(function, dtype):
    hold_alike(function, ((3, 4), dtype))


def test_constants_that_are_folded():
    hold_alike(lambda x: x + lax.convert_element_type(lax.convert_element_type(np.float32(15), BF16), F32), ((3,), F32))
    hold_alike(lambda x: x + np.arange(3.0, dtype=np.float32), ((3,), F32))
    hold_alike(lambda x: lax.broadcast_in_dim(np.float32(2), (3,), ()), ((3,), F32))


shapes = st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=4).map(tuple)


@given(shapes, st.data())
def test_what_moves_and_sums(shape, data):
    rank = len(shape)
    axes = data.draw(st.lists(st.integers(-1, rank), max_size=3).map(tuple))
    order = tuple(data.draw(st.permutations(range(rank))))
    for function in (jnp.sum, jnp.max, jnp.min, jnp.prod, jnp.all, jnp.any):
        hold_alike(lambda x, function=function: function(x, axes), (shape, F32))
    for primitive, options in ((lax.reduce_sum_p, {"out_sharding": None}), (lax.reduce_max_p, {"out_sharding": None}), (lax.reduce_or_p, {})):
        hold_alike(lambda x, primitive=primitive, options=options: primitive.bind(x, axes=axes, **options), (shape, F32))
    hold_alike(lambda x: lax.transpose(x, order), (shape, F32))
    hold_alike(lambda x: lax.transpose(x, axes), (shape, F32))
    hold_alike(lambda x: lax.squeeze(x, axes), (shape, F32))
    hold_alike(lambda x: lax.reshape(x, (int(np.prod(shape)),)), (shape, F32))
    hold_alike(lambda x: lax.reshape(x, (3, 2)), (shape, F32))
    starts, limits = (data.draw(st.lists(st.integers(-1, 5), min_size=rank, max_size=rank)) for _ in range(2))
    strides = data.draw(st.sampled_from([None, (1,) * rank, (2,) * rank]))
    hold_alike(lambda x: lax.slice(x, starts, limits, strides), (shape, F32))


@given(st.lists(shapes, min_size=1, max_size=3), st.integers(-1, 3), st.sampled_from([F32, I64, BF16]))
def test_what_joins(shapes, dimension, dtype):
    hold_alike(lambda *x: lax.concatenate(x, dimension), *[(shape, F32) for shape in shapes])
    hold_alike(lambda *x: lax.concatenate(x, dimension), *[(shapes[0], F32) for _ in shapes], (shapes[0], dtype))


@given(shapes, shapes, st.data())
def test_broadcasts(shape, target, data):
    dimensions = data.draw(st.lists(st.integers(-1, len(target)), max_size=4).map(tuple))
    hold_alike(lambda x: lax.broadcast_in_dim(x, target, dimensions), (shape, F32))
    hold_alike(lambda x: jnp.broadcast_to(x, target), (shape, F32))
    hold_alike(jnp.add, (shape, F32), (target, F32))
    hold_alike(lambda w, x, y: lax.select(w, x, y), (shape, BOOL), (target, F32), (target, F32))


@given(shapes, shapes, st.data())
def test_products(a, b, data):
    def dims(shape):
        return data.draw(st.lists(st.integers(0, max(len(shape), 1)), max_size=2).map(tuple))

    numbers = ((dims(a), dims(b)), (dims(a), dims(b)))
    dtypes = data.draw(st.sampled_from([(F32, F32), (F32, F64), (I64, I64), (BF16, BF16), (BOOL, BOOL)]))
    asked = data.draw(st.sampled_from([None, F32, F64]))
    hold_alike(lambda x, y: lax.dot_general(x, y, numbers, preferred_element_type=asked), (a, dtypes[0]), (b, dtypes[1]))
    hold_alike(jnp.matmul, (a, dtypes[0]), (b, dtypes[1]))


def test_functions_of_several_steps():
    for function in (jax.nn.softmax, jax.nn.gelu, jnp.linalg.norm, jnp.cumsum, jnp.sort, jnp.ravel, lambda x: x[:, None, 1:] @ x[1:, 0]):
        hold_alike(function, ((5, 4), F32))
    hold_alike(lambda x, y: jax.vjp(lambda x: jnp.tanh(x @ y).sum(0), x)[1](y[0]), ((5, 3), F32), ((3, 3), F32))


@pytest.mark.parametrize("primitive", [p for p in result_avals.rules if p is not lax.conv_general_dilated_p], ids=str)
def test_each_rule(primitive):
    """With as many operands as the primitive takes, in each dtype that it does."""
    held = 0
    options = _OPTIONS.get(primitive.name, {})
    for dtype in (F32, I64, BOOL):
        for count in (1, 2, 3):
            operands = [((2, 3), BOOL if primitive.name == "select_n" and i == 0 else dtype) for i in range(count)]
            ours, jaxs = both(lambda *x: primitive.bind(*x, **options), *operands)
            if type(jaxs[0]) is str:
                assert ours == jaxs
                held += 1
    assert held > 0


@pytest.mark.parametrize(("x", "kernel", "options"), [
    ((2, 3, 8), (4, 3, 3), {}), ((2, 3, 8), (4, 3, 3), {"window_strides": (2,), "padding": [(1, 2)], "rhs_dilation": (2,)}),
    ((2, 4, 7, 6), (6, 2, 3, 2), {"window_strides": (1, 3), "padding": [(0, 0), (2, 1)], "feature_group_count": 2}),
    ((2, 4, 7, 6), (6, 4, 3, 2), {"window_strides": (1, 1), "padding": [(2, 2), (1, -1)], "lhs_dilation": (2, 3)}),
    ((2, 7, 6, 4), (3, 2, 4, 6), {"window_strides": (1, 1), "padding": [(0, 0)] * 2, "dimension_numbers": ("NHWC", "HWIO", "NHWC")}),
    ((1, 2, 4, 5, 6), (3, 2, 1, 2, 3), {"window_strides": (1, 1, 2), "padding": [(0, 0)] * 3}),
    ((2, 3, 2), (4, 3, 3), {}), ((2, 3, 8), (4, 2, 3), {}), ((2, 3, 8), (4, 3, 9), {"padding": [(1, 1)]}), ((0, 3, 8), (4, 3, 3), {}),
    ((2, 4, 8), (3, 2, 3), {"feature_group_count": 2}), ((4, 3, 8), (4, 3, 3), {"batch_group_count": 2}),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [F32, F64, BF16, I64], ids=str)
def test_convolutions(x, kernel, options, dtype):
    hold_alike(lambda a, b: lax.conv_general_dilated(a, b, **{"window_strides": (1,), "padding": [(0, 0)], **options}), (x, dtype), (kernel, dtype))


def test_methods():
    for dtype in (F32, F64, C64, BF16, I64, BOOL):
        for axis in (None, 0, -1, (0, 2), (-1, 1), (), 3, (0, 0)):
            hold_alike(lambda x, axis=axis: x.sum(axis), ((2, 3, 4), dtype))
        hold_alike(lambda x: x.sum(0, keepdims=True), ((2, 3), dtype))
        hold_alike(lambda x: x.conj() + x.astype(x.dtype), ((2, 3), dtype))
        hold_alike(lambda x: x.astype(np.float32), ((2, 3), dtype))


_OPTIONS = {
    "integer_pow": {"y": 2},
    "convert_element_type": {"new_dtype": F32, "weak_type": False, "sharding": None},
    "broadcast_in_dim": {"shape": (4, 2, 3), "broadcast_dimensions": (1, 2), "sharding": None},
    "reshape": {"new_sizes": (6,), "dimensions": None, "sharding": None},
    "squeeze": {"dimensions": ()},
    "slice": {"start_indices": (0, 1), "limit_indices": (2, 3), "strides": None},
    "concatenate": {"dimension": 1},
    "transpose": {"permutation": (1, 0)},
    "dot_general": {"dimension_numbers": (((0,), (0,)), ((), ())), "precision": None, "preferred_element_type": None, "out_sharding": None},
    "mul": {"out_dtype": None},
    **{f"reduce_{name}": {"axes": (1,)} for name in ("prod", "max", "min", "or", "and")},
    "reduce_sum": {"axes": (0,), "out_sharding": None},
    **dict.fromkeys(["exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "tanh", "logistic"], {"accuracy": None}),
    "rev": {"dimensions": (1,)},
    "round": {"rounding_method": lax.RoundingMethod.TO_NEAREST_EVEN},
}


@pytest.mark.parametrize("dtype", [F32, F64, I64, BOOL, C64, BF16], ids=str)
def test_choices_are_those_of_jax_numpy(dtype):
    def hold(*given):
        inputs = [g for g in given if type(g) is tuple]

        def by(function):
            def of(*arrays):
                rest = iter(arrays)
                return function(*[next(rest) if type(g) is tuple else g for g in given])

            return both(of, *inputs)[0]

        assert by(converting.where) == by(jnp.where)

    for shape in ((3, 4), (0, 2), (4,), ()):
        mask = (shape, BOOL)
        for other in ((shape, dtype), ((), dtype), (shape, F32), 0, 2.5, float("nan"), True, np.float32(2), np.zeros(shape, dtype)):
            hold(mask, (shape, dtype), other)
            hold(mask, other, (shape, dtype))
        hold(mask, ((2, *shape), dtype), 0)
        hold(((5, *shape), BOOL), (shape, dtype), (shape, dtype))
        hold((shape, I64), (shape, dtype), (shape, dtype))
        hold(((), BOOL), (shape, dtype), 0)
        assert both(converting.zeros_like, (shape, dtype))[0] == both(jnp.zeros_like, (shape, dtype))[0]
    hold(((3, 4), BOOL), 0, 1.0)


def test_in_a_mesh_of_the_users():
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        hold_alike(lambda x, y: jnp.sum(x @ y, 0), ((2, 3), F32), ((3, 4), F32))


def test_nothing_is_left_to_the_garbage_collector():
    """A trace refers to itself by its equations: what it was made of would live until the collector comes."""
    watched = []

    def function(x, fails):
        watched.append(weakref.ref(x))
        made = x * 2 + x
        if fails:
            raise ValueError
        return (made,)

    gc.disable()
    try:
        _jax_compat.trace(lambda x: function(x, False), "trial", [((3,), F32)])
        assert watched[0]() is None
        with pytest.raises(ValueError):
            _jax_compat.trace(lambda x: function(x, True), "trial", [((3,), F32)])
        assert watched[1]() is None
    finally:
        gc.enable()
