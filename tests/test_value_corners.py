"""Values at the ends of ranges, of nothing, and of what is neither: as PyTorch's."""

import math

import numpy as np
import pytest

import torchgrad_jax as tj
from tests.side_by_side import agree, like_pytorch
from tests.ways import WAYS

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators

INF, NAN = math.inf, math.nan
ENDS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, INF, -INF, NAN, 3.5, -0.5]
PARTS = [0.0, 1.0, -1.0, INF, -INF, NAN]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["igamma", "igammac", "special.zeta", "xlogy", "atan2", "fmod", "remainder", "logaddexp", "hypot", "pow"])
def test_functions_of_two_numbers_at_the_ends_of_their_ranges(name, way):
    def program(m):
        function = m
        for part in name.split("."):
            function = getattr(function, part)
        x, y = m.meshgrid(m.tensor(ENDS, dtype=m.float64), m.tensor(ENDS, dtype=m.float64), indexing="ij")
        return function(x, y)

    with WAYS[way]():
        like_pytorch(program)()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["rsqrt", "sgn"])
def test_complex_infinities_are_divided_part_by_part(name, way):
    # A root of what lies on the cut has the sign that the platform's has.
    numbers = [complex(a, b) for a in PARTS for b in PARTS if b == b and (b or a > 0)]
    with WAYS[way]():
        like_pytorch(lambda m: getattr(m, name)(m.tensor(numbers, dtype=m.complex128)))()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["bessel_j0", "bessel_j1"])
def test_bessel_functions_near_and_far(name, dtype):
    numbers = [0.0, 1e-10, 0.5, -0.5, 1.0, 5.5, -8.0, 24.9, 25.1, 88.0, -100.0, INF, NAN]

    def program(m):
        x = m.tensor(numbers, dtype=getattr(m, dtype))
        return getattr(m.special, name)(x), getattr(m.special, name)(m.ones(1, requires_grad=True)).requires_grad

    ours, theirs = program(tj), program(torch)
    # PyTorch's own values are not better between 5 and 25.
    np.testing.assert_allclose(ours[0].numpy(), theirs[0].numpy(), rtol=2e-5 if dtype == "float32" else 1e-7, atol=3e-7)
    assert ours[1] == theirs[1]


@pytest.mark.parametrize("name", ["bessel_j0", "erfcx", "ndtri", "log_ndtr"])
def test_special_functions_that_half_precision_has_not(name):
    like_pytorch(lambda m: getattr(m.special, name)(m.ones(2, dtype=m.bfloat16)))()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("name", ["hardshrink", "softshrink", "threshold", "hardtanh", "clamp", "clamp_max"])
def test_a_limit_has_as_many_digits_as_pytorch_gives_it(name, dtype):
    calls = {
        "hardshrink": lambda m, x: m.nn.functional.hardshrink(x, 0.3), "softshrink": lambda m, x: m.nn.functional.softshrink(x, 0.3),
        "threshold": lambda m, x: m.nn.functional.threshold(x, 0.3, 0.7), "hardtanh": lambda m, x: m.nn.functional.hardtanh(x, -0.3, 0.3),
        "clamp": lambda m, x: x.clamp(-0.3, 0.3), "clamp_max": lambda m, x: x.clamp_max(0.3),
    }  # fmt: skip

    def program(m):
        x = m.tensor([0.1, 0.2, 0.3, 0.5, 0.7, -0.3, -0.5], dtype=getattr(m, dtype), requires_grad=True)
        y = calls[name](m, x)
        y.sum().backward()
        return y, x.grad

    like_pytorch(program)()


@pytest.mark.parametrize("shape", [(0,), (2, 0), (1,), (2, 1), (0, 3)])
def test_areas_of_nothing(shape):
    def program(m):
        y = m.ones(shape)
        return m.trapezoid(y), m.trapezoid(y, m.ones(shape)), m.cumulative_trapezoid(y), m.cumulative_trapezoid(y, m.ones(shape))

    like_pytorch(program)()


@like_pytorch
def test_a_convolution_of_no_channels_has_no_channels(m):
    f = m.nn.functional
    weight = m.ones(3, 0, 2)
    return f.conv1d(m.ones(2, 0, 5), weight, m.ones(3)), f.conv2d(m.ones(2, 0, 5, 5), m.ones(3, 0, 2, 2)), f.conv1d(m.ones(0, 5), weight)


LISTS = [
    [True, np.array(2.0)], [1, np.float64(2)], [np.float32(1)], [np.uint8(3), 1.5], [[1, 2], np.array([1.0, 2.0])], [np.float16(1)], [np.int8(3)],
    [1, 2.5], [1, True], [1j, 2], [], [[], []], [2.0, np.array(1j)], [1, np.array(2, np.int32)],
]  # fmt: skip


@pytest.mark.parametrize("data", LISTS, ids=repr)
@pytest.mark.filterwarnings("ignore")
def test_numbers_of_numpy_in_a_list_count_with_their_dtype(data):
    like_pytorch(lambda m: (m.tensor(data), m.as_tensor(data)))()


@pytest.mark.parametrize("boundaries", ["float32", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("values", ["float32", "float64", "int32", "int64", "uint8", "bool", "bfloat16"])
def test_values_are_searched_in_boundaries_of_another_dtype(values, boundaries):
    def program(m):
        x, y = m.tensor([1, 0, 1], dtype=getattr(m, values)), m.tensor([0, 1, 2], dtype=getattr(m, boundaries))
        return m.bucketize(x, y), m.searchsorted(y, x), m.bucketize(x[0], y), m.bucketize(1.5, y)

    like_pytorch(program)()


@pytest.mark.parametrize("dtypes", [("float64", "float32"), ("float64", "int64"), ("float64", "complex64"), ("float32", "float32")])
@pytest.mark.parametrize("equation", ["i,j->ij", "i,i->i", "i,i", "ij,jk->ik", "ij,j"])
def test_einsum_of_two_dtypes_multiplies_but_does_not_sum(equation, dtypes):
    shapes = [(2,) * len(part) for part in equation.partition("->")[0].split(",")]
    like_pytorch(lambda m: m.einsum(equation, *[m.ones(s, dtype=getattr(m, d)) for s, d in zip(shapes, dtypes, strict=True)]))()


@pytest.mark.parametrize("call", [
    lambda m: m.ones(1).var(), lambda m: m.ones(3, 1).std(1), lambda m: m.var_mean(m.ones(1)), lambda m: m.ones(2).var(correction=3),
    lambda m: m.ones(1).var(correction=0), lambda m: m.ones(0).std(), lambda m: m.ones(3)[m.tensor([1, 0, 1], dtype=m.uint8)],
    lambda m: m.from_numpy(np.ones(4)[::-1]), lambda m: m.tensor(1e40), lambda m: m.tensor([1e40], dtype=m.float16),
])  # fmt: skip
def test_what_pytorch_warns_of(call):
    like_pytorch(call)()


def test_a_read_only_array_is_warned_of_once(monkeypatch):
    monkeypatch.setattr("torchgrad_jax.runtime.user_code._warned", set())
    array = np.ones(2)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="The given NumPy array is not writable"):
        assert agree(tj.from_numpy(array).tolist(), [1.0, 1.0])


def test_where_warns_of_byte_conditions_once(monkeypatch):
    monkeypatch.setattr("torchgrad_jax.runtime.user_code._warned", set())
    with pytest.warns(UserWarning, match="where received a uint8 condition tensor"):
        assert tj.where(tj.tensor([1, 0], dtype=tj.uint8), tj.ones(2), tj.zeros(2)).tolist() == [1, 0]


@pytest.mark.parametrize("calls", [
    [lambda: tj.ones(3).T, lambda: tj.ones(2, 2, 2).T],
    [lambda: tj.nn.functional.conv1d(tj.ones(1, 9), tj.ones(1, 1, 4), padding="same")] * 2,
    [lambda: tj.ones(2).add_(2, tj.ones(2)), lambda: tj.ones(2).sub(2, tj.ones(2))],
])  # fmt: skip
def test_what_is_said_once_in_a_process(calls, monkeypatch):
    monkeypatch.setattr("torchgrad_jax.runtime.user_code._warned", set())
    with pytest.warns(UserWarning) as caught:
        for call in calls:
            call()
    assert len(caught) == 1


@pytest.mark.parametrize("data", [[1, "a", None], [None, "a"], ["a", None], [1.0, b"x", None], [["a"], [None]], [1, "a"]])
def test_texts_are_no_data_of_tensors(data):
    like_pytorch(lambda m: m.tensor(data))()
