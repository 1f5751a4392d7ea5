"""torch.testing: assert_close says what PyTorch says, make_tensor draws what PyTorch draws."""

from __future__ import annotations

import collections
import math
import warnings

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from side_by_side import error_of, like_pytorch

import torchgrad_jax as tj
from torchgrad_jax.testing import assert_close, make_tensor

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators

NAN, INF = float("nan"), float("inf")


def verdict(program, m):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        raised = error_of(lambda: program(m))
    return raised, [str(w.message) for w in caught]


def t(m, data, dtype=None):
    return m.tensor(data, dtype=dtype and getattr(m, dtype))


def pair(actual, expected, dtype=None, other=None, **options):
    """A program that compares two tensors of the given data."""
    return lambda m: m.testing.assert_close(t(m, actual, dtype), t(m, expected, other or dtype), **options)


def these(actual, expected, **options):
    """A program that compares Python or NumPy data; functions of the library stand for tensors."""

    def made(m, x):
        if callable(x) and not isinstance(x, type):
            return x(m)
        if isinstance(x, dict):
            return {k: made(m, v) for k, v in x.items()}
        return type(x)(made(m, v) for v in x) if isinstance(x, (list, tuple)) and not hasattr(x, "_fields") else x

    return lambda m: m.testing.assert_close(made(m, actual), made(m, expected), **options)


def one(m):
    return m.tensor([1.0])


def two(m):
    return m.tensor([2.0])


Point = collections.namedtuple("Point", "x y")

TENSORS = {
    "equal": pair([1.0, 2.0], [1.0, 2.0]),
    "one of two": pair([1.0, 2.0], [1.0, 2.5]),
    "a matrix": pair([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0, 5.0]]),
    "greatest differences at two places": pair([0.1, 1000.0], [0.2, 1010.0]),
    "elements that are close do not count": pair([1e-6, 1.0], [2e-6, 1.1]),
    "double": pair([1.0, 2.0], [1.0, 2.1], "float64"),
    "half": pair([1.0, 2.0], [1.0, 2.01], "float16"),
    "bfloat16": pair([1.0, 2.0], [1.0, 2.1], "bfloat16"),
    "complex": pair([1 + 1j, 2.0], [1 + 2j, 2.0]),
    "integers": pair([1, 2, 3], [1, 2, 5]),
    "integers far apart": pair([-(2**63)], [2**63 - 1]),
    "small integers": pair([1, 2], [1, 255], "uint8"),
    "bools": pair([True, False], [True, True]),
    "a number": pair(1.0, 1.1),
    "a double number": pair(1.0, 1.1, "float64"),
    "a complex number": pair(1 + 1j, 1 + 2j),
    "an integer number": pair(1, 0),
    "a bool": pair(True, False),
    "zero expected": pair([1e-3, 1.0], [0.0, 1.0]),
    "nan": pair([NAN, 1.0], [NAN, 1.0]),
    "nan allowed": pair([NAN, 1.0], [NAN, 1.0], equal_nan=True),
    "nan allowed, something else": pair([1.0, NAN, 3.0], [2.0, NAN, 3.0], equal_nan=True),
    "complex nan allowed": pair([complex(NAN, 1)], [complex(NAN, 2)], equal_nan=True),
    "nan of a number": pair(NAN, NAN),
    "infinity": pair([INF, 1.0], [INF, 1.0]),
    "the other infinity": pair([INF, 1.0], [-INF, 1.0], rtol=1.0, atol=1.0),
    "empty": pair([], []),
    "dtypes": pair([1.0], [1.0], "float32", "float64"),
    "dtypes unchecked": pair([1.0, 2.0], [1.0, 2.0], "float32", "float64", check_dtype=False),
    "dtypes unchecked, not close": pair([1.0, 2.1], [1.0, 2.0], "bfloat16", "float32", check_dtype=False),
    "integer and float": pair([1, 2], [1.0, 2.1], "int64", "float32", check_dtype=False),
    "real and complex": pair([1.0], [1 + 1j], "float32", "complex64", check_dtype=False),
    "shapes": pair([1.0, 2.0], [1.0, 2.0, 3.0]),
    "shapes before dtypes": pair([1.0, 2.0], [1]),
    "strides": lambda m: m.testing.assert_close(m.ones(2, 3), m.ones(3, 2).t(), check_stride=True),
    "strides unchecked": lambda m: m.testing.assert_close(m.ones(2, 3), m.ones(3, 2).t()),
    "no device, no layout": pair([1.0], [1.0], check_device=False, check_layout=False),
    "only rtol": pair([1.0], [1.0], rtol=1.0),
    "only atol": pair([1.0], [1.0], atol=1.0),
    "tolerances": pair([1.0, 2.0], [1.0, 2.5], rtol=0.1, atol=0.01),
    "tolerances that suffice": pair([1.0, 2.0], [1.0, 2.5], rtol=0.2, atol=0),
    "tolerances that nearly suffice": pair([1.0, 2.0], [1.0, 2.5], rtol=0.199, atol=0),
    "no tolerance": pair([1.0, 2.0], [1.0, 2.5], rtol=0, atol=0),
    "tolerance for integers": pair([1, 2, 3], [1, 2, 4], rtol=0, atol=1),
    "too little tolerance for integers": pair([1, 2], [1, 3], rtol=0.1, atol=0.2),
    "a gradient": lambda m: m.testing.assert_close(m.tensor([1.0], requires_grad=True), m.tensor([2.0])),
    "a message": pair([1.0], [2.0], msg="mine"),
    "a function of the message": pair([1.0], [2.0], msg=lambda text: f"<{text}>"),
    "a message for another dtype": pair([1.0], [1], msg="mine"),
    "positional options": lambda m: m.testing.assert_close(m.ones(1), m.ones(1), True),
}
OTHERS = {
    "floats": these(1.0, 2.0),
    "floats, exactly": these(1e-9, 1e-10, rtol=0, atol=0),
    "ints": these(1, 2),
    "ints with tolerance": these(1, 2, rtol=0, atol=1),
    "int and float": these(1, 1.0),
    "int and float unchecked": these(1, 1.0, check_dtype=False),
    "int and float unchecked, not close": these(1, 1.5, check_dtype=False),
    "complex": these(1j, 2j),
    "float and complex": these(1.0, 1j, check_dtype=False),
    "zero": these(1.0, 0.0),
    "nan": these(NAN, NAN),
    "nan allowed": these(NAN, NAN, equal_nan=True),
    "infinity": these(INF, 1.0),
    "bools": these(True, False),
    "NumPy bools": these(np.bool_(True), False),
    "NumPy numbers": these(np.float32(1.0), np.float32(1.5)),
    "NumPy integers": these(np.int64(2), np.int64(2)),
    "NumPy arrays": these(np.array([1.0, 2.0]), np.array([1.0, 3.0])),
    "NumPy dtypes": these(np.array([1.0]), np.array([1.0], np.float32)),
    "NumPy text": these(np.array(["a"]), np.array(["a"])),
    "NumPy array and number": these(np.array(1.0), 1.0),
    "None": these(None, None),
    "None and a number": these(None, 1.0),
    "None and a list": these(None, [1.0]),
    "None inside, a message": these([None], [1.0], msg=lambda text: text + "!"),
    "sequences": these([one, two], (one, two)),
    "sequences, the second": these([one, two], (one, one)),
    "sequences, the first of two": these([two, one], (one, two)),
    "sequences of other lengths": these([one, one], (one,), msg="not used"),
    "nested sequences": these([1.0, [2.0, 3.0]], [1.0, [2.0, 4.0]]),
    "nested sequences of other lengths": these([1.0, [2.0]], [5.0, [2.0, 3.0]]),
    "a structure is compared first": these([1.0, "a"], [2.0, "a"]),
    "ranges": these(range(3), [0, 1, 2]),
    "named tuples": these(Point(1.0, 2.0), (1.0, 3.0)),
    "mappings": these({"a": 1.0, "b": one}, {"b": two, "a": 1.0}),
    "mappings in order of their keys": these({"b": 1.0, "a": 1.0}, {"b": 2.0, "a": 2.0}),
    "mappings of other keys": these({"z": 1.0, "b": 1.0}, {"y": 2.0, "x": 2.0}),
    "nested mappings": these({"a": [1.0, {0: one}]}, {"a": [1.0, {0: two}]}),
    "text": these("a", "a"),
    "classes": these(object, object),
    "sets": these({1}, {1}),
    "a sequence and a mapping": these([1.0], {"a": 1.0}),
    "a message in a sequence": these([one], [two], msg=lambda text: f"<{text}>"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_are_compared_in_pytorchs_words(name):
    assert verdict(TENSORS[name], tj) == verdict(TENSORS[name], torch)


@pytest.mark.parametrize("name", OTHERS)
def test_other_things_are_compared_in_pytorchs_words(name):
    assert verdict(OTHERS[name], tj) == verdict(OTHERS[name], torch)


@given(
    values=hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=3), elements=st.floats(allow_nan=True, allow_infinity=True)),
    factor=st.sampled_from([1.0, 1 + 1e-8, 1 + 3e-7, 2.0]),
    equal_nan=st.booleans(),
)
@settings(max_examples=60)
def test_any_two_tensors_are_compared_as_in_pytorch(values, factor, equal_nan):
    with np.errstate(all="ignore"):
        others = values * factor
    program = lambda m: m.testing.assert_close(m.tensor(values), m.tensor(others), equal_nan=equal_nan)  # noqa: E731
    assert verdict(program, tj) == verdict(program, torch)


def test_bools_are_no_numbers():
    with pytest.raises(TypeError, match="No comparison pair was able to handle inputs of type <class 'bool'> and <class 'int'>"):
        assert_close(True, 1, check_dtype=False)


def test_negative_tolerances_are_refused():
    with pytest.raises(RuntimeError, match="rtol must be greater than or equal to zero"):
        assert_close(1.0, 1.0, rtol=-1.0, atol=0.0)


def test_a_tensor_is_only_comparable_with_its_relatives():
    class Sub(tj.Tensor):
        pass

    sub = tj.tensor([1.0])
    sub.__class__ = Sub
    assert_close(sub, tj.tensor([1.0]))
    for actual, options in ((sub, {"allow_subclasses": False}), (np.array([1.0], np.float32), {}), ([1.0], {}), (1.0, {})):
        with pytest.raises(TypeError, match="No comparison pair"):
            assert_close(actual, tj.tensor([1.0]), **options)


ALLCLOSE = {
    "equal": lambda m: m.testing.assert_allclose(m.ones(1), m.ones(1)),
    "float32": lambda m: m.testing.assert_allclose(one(m), two(m)),
    "float64": lambda m: m.testing.assert_allclose(one(m).double(), two(m)),
    "float16": lambda m: m.testing.assert_allclose(one(m).half(), two(m).double()),
    "complex": lambda m: m.testing.assert_allclose(one(m) * 1j, two(m)),
    "lists": lambda m: m.testing.assert_allclose([1.0, 2.0], m.tensor([1.0, 3.0])),
    "nan": lambda m: m.testing.assert_allclose(one(m) * NAN, one(m) * NAN),
    "a number": lambda m: m.testing.assert_allclose(one(m), 1.0),
    "tolerances": lambda m: m.testing.assert_allclose(one(m), 2, rtol=1.0),
    "a message": lambda m: m.testing.assert_allclose(one(m), two(m), msg="mine"),
}


@pytest.mark.parametrize("name", ALLCLOSE)
def test_the_deprecated_comparison(name):
    assert verdict(ALLCLOSE[name], tj) == verdict(ALLCLOSE[name], torch)


# ---------------------------------------------------------------------- make_tensor

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
BOUNDS = {
    "default": {}, "low": {"low": 1}, "high": {"high": 2}, "fractions": {"low": -3.5, "high": 7.2}, "too wide": {"low": -1e60, "high": 1e60},
    "infinite": {"low": -INF, "high": INF}, "outside": {"low": 1e60, "high": 2e60}, "equal": {"low": 1, "high": 1}, "wrong": {"low": 3, "high": 2},
    "nan": {"low": NAN}, "nothing between": {"low": 2.2, "high": 2.8}, "no zero": {"low": -1, "high": 2, "exclude_zero": True},
    "gradient": {"requires_grad": True}, "apart": {"noncontiguous": True},
}  # fmt: skip


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_tensors_are_pytorchs_for_the_same_seed(dtype, bounds):
    def made(m):
        m.manual_seed(0)
        x = m.testing.make_tensor(2, 3, dtype=getattr(m, dtype), device="cpu", **BOUNDS[bounds])
        data = m.view_as_real(x.detach()) if x.is_complex() else x.detach()
        return str(x.dtype), x.stride(), x.requires_grad, x.is_leaf, data.tolist(), m.rand(1).item()

    results, errors = [], []
    for m in (tj, torch):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            errors.append((error_of(lambda m=m: results.append(made(m))), [str(w.message) for w in caught]))
    assert errors[0] == errors[1]
    assert len(results) in (0, 2) and results[:1] == results[1:]


@pytest.mark.parametrize("shape", [(), ((),), ((2, 2),), ([2, 2],), (0,), (1,), (3, 1)])
@pytest.mark.parametrize("noncontiguous", [False, True])
def test_shapes_of_random_tensors(shape, noncontiguous):
    @like_pytorch
    def program(m):
        m.manual_seed(1)
        x = m.testing.make_tensor(*shape, dtype=m.float32, device="cpu", noncontiguous=noncontiguous)
        return x, x.stride()

    program()


def test_excluded_zeros_become_the_smallest_number():
    tj.manual_seed(0)
    assert 0 not in make_tensor(200, dtype=tj.int8, device="cpu", low=-1, high=2, exclude_zero=True).tolist()
    tiny = float(np.finfo(np.float64).tiny)
    found = make_tensor(50, dtype=tj.float64, device="cpu", low=0.0, high=math.ulp(0.0), exclude_zero=True)
    assert tiny in found.tolist() and 0.0 not in found.tolist()
    assert complex(tiny, tiny) in make_tensor(50, dtype=tj.complex128, device="cpu", low=0.0, high=math.ulp(0.0), exclude_zero=True).tolist()


def test_arguments_of_make_tensor_that_do_not_fit_are_refused():
    with pytest.raises(TypeError, match="The requested dtype '<class 'int'>' is not supported"):
        make_tensor(2, dtype=int, device="cpu")  # type: ignore[arg-type] - what is refused
    with pytest.raises(ValueError, match="`noncontiguous` and `memory_format` are mutually exclusive"):
        make_tensor(2, dtype=tj.float32, device="cpu", noncontiguous=True, memory_format=tj.contiguous_format)


@like_pytorch
def test_memory_formats_of_random_tensors(m):
    m.manual_seed(0)
    x = m.testing.make_tensor(2, 3, 2, 2, dtype=m.float32, device="cpu", memory_format=m.channels_last, requires_grad=True)
    return x, x.stride(), x.is_leaf
