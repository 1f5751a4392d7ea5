"""Which dtypes functions take, which they refuse and in what words, and the dtype of what they return: beside PyTorch."""

from __future__ import annotations

import functools
import itertools
import warnings

import pytest
from side_by_side import error_of, like_pytorch, torch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "complex64", "complex128"]
# Of `m`, the library, and `x`, a matrix of ones of the dtype. `y` is its first row.
FUNCTIONS = {
    "sum_to_size": lambda m, x, y: [x.sum_to_size(2, 3), x.sum_to_size(1, 3), x.sum_to_size(()), y[0].sum_to_size(())],
    "clamp_by_numbers": lambda m, x, y: x.clamp(False, True),
    "clamp_min_by_number": lambda m, x, y: x.clamp_min(True),
    "clamp_from_above": lambda m, x, y: x.clamp(max=True),
    "clamp_from_above_by_an_integer": lambda m, x, y: x.clamp(max=1),
    "clamp_by_tensors": lambda m, x, y: x.clamp(x, x),
    "clamp_by_one_tensor": lambda m, x, y: x.clamp(min=x),
    "clamp_in_place": lambda m, x, y: x.clamp_max_(True),
    "isin": lambda m, x, y: m.isin(x, x),
    "isin_float": lambda m, x, y: m.isin(m.ones(2), x),
    "isin_bool": lambda m, x, y: m.isin(x, True),
    "isin_complex": lambda m, x, y: m.isin(x, 1j),
    "kthvalue": lambda m, x, y: x.kthvalue(1),
    "kthvalue_too_far": lambda m, x, y: x.kthvalue(9),
    "kthvalue_of_one": lambda m, x, y: y[0].kthvalue(1),
    "median": lambda m, x, y: x.median(),
    "median_of_none": lambda m, x, y: x[:0].nanmedian(),
    "median_along": lambda m, x, y: x.median(1),
    "nanmedian_along": lambda m, x, y: y[0].nanmedian(0),
    "mode": lambda m, x, y: x.mode(),
    "mode_of_one": lambda m, x, y: y[0].mode(),
    "heaviside": lambda m, x, y: m.heaviside(x, y),
    "heaviside_of_two_dtypes": lambda m, x, y: m.heaviside(x, m.ones(3, dtype=m.float64)),
    "heaviside_of_two_shapes": lambda m, x, y: m.heaviside(x, y[:2]),
    "round": lambda m, x, y: m.round(x),
    "round_to_no_decimals": lambda m, x, y: x.round(decimals=0),
    "round_to_decimals": lambda m, x, y: x.round_(decimals=1),
    "special_round": lambda m, x, y: m.special.round(x),
    "polygamma_0": lambda m, x, y: m.polygamma(0, x),
    "polygamma_1": lambda m, x, y: m.polygamma(1, x),
    "polygamma_2": lambda m, x, y: m.polygamma(2, x),
    "unique": lambda m, x, y: m.unique(x),
    "unique_along": lambda m, x, y: m.unique(x, dim=7),
    "unique_consecutive": lambda m, x, y: m.unique_consecutive(x),
    "unique_consecutive_along": lambda m, x, y: m.unique_consecutive(x, dim=0),
    "put": lambda m, x, y: x.put(m.tensor([0, 0]), y[:2], accumulate=True),
    "randn_like": lambda m, x, y: m.randn_like(x),
    "randn_like_none": lambda m, x, y: m.randn_like(x[:0]),
    "histc": lambda m, x, y: m.histc(x, 3),
    "histc_between": lambda m, x, y: m.histc(x, 3, 0, 2),
    "bincount": lambda m, x, y: m.bincount(y),
    "bincount_of_a_matrix": lambda m, x, y: m.bincount(x),
    "bucketize": lambda m, x, y: m.bucketize(x, y),
    "bucketize_between_floats": lambda m, x, y: m.bucketize(x, m.ones(2)),
    "searchsorted_number": lambda m, x, y: [m.searchsorted(y, 1), m.searchsorted(y, x[:0])],
    "searchsorted_bool": lambda m, x, y: m.searchsorted(y, True),
    "searchsorted_complex": lambda m, x, y: m.searchsorted(y if y.dtype != m.float16 else y.float(), 1j),
    "trace": lambda m, x, y: m.trace(x),
    "trace_of_a_vector": lambda m, x, y: m.trace(y),
    "zeta": lambda m, x, y: m.special.zeta(x, x),
    "zeta_of_a_number": lambda m, x, y: m.special.zeta(x, 2.0),
    **{f"scatter_reduce_{how}": lambda m, x, _, how=how: x.scatter_reduce(0, m.tensor([[0, 1, 0]]), x, how) for how in ("sum", "mean", "amin")},
    "scatter_reduce_amax": lambda m, x, y: x.clone().scatter_reduce_(0, m.tensor([[0, 1, 0]]), x, "amax", include_self=False),
    **{f"scatter_reduce_{how}_nowhere": lambda m, _, y, how=how: y.scatter_reduce(0, m.arange(0), y, how) for how in ("mean", "amin")},
    **{f"special_{name}": lambda m, x, y, name=name: getattr(m.special, name)(x) for name in ("i0e", "i1", "i1e", "entr")},
}


def dtypes_or_error(call):
    """The dtypes of the tensors that `call` returns, or the class and the first line of its error."""
    try:
        found = call()
    except Exception as error:
        return type(error).__name__, str(error).partition("\n")[0]
    return [str(t.dtype) for t in (found if isinstance(found, (tuple, list)) else [found])]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_pytorchs_dtypes(name):
    @like_pytorch
    def check(m):
        given = {dtype: m.ones(2, 3, dtype=getattr(m, dtype)) for dtype in DTYPES}
        return [(dtype, dtypes_or_error(lambda x=x: FUNCTIONS[name](m, x, x[0]))) for dtype, x in given.items()]

    check()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool", "bfloat16"])
def test_polar_and_complex_take_pytorchs_dtypes(dtype):
    @like_pytorch
    def check(m):
        x = m.ones(2, 2, dtype=getattr(m, dtype))
        return [dtypes_or_error(lambda f=f: f(x, x)) for f in (m.polar, m.complex)], dtypes_or_error(lambda: m.view_as_complex(x))

    check()


def test_polar_refuses_half_precision():
    def told(m):  # beside PyTorch's error is a warning, once in a process
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = m.ones(2, dtype=m.float16)
            return [error_of(lambda given=given: m.polar(*given)) for given in ((x, x), (x, m.ones(3, dtype=m.float16)), (x, m.ones(2)))]

    assert told(tj) == told(torch)


@like_pytorch
def test_pairs_of_half_precision_are_checked_as_others(m):
    m.view_as_complex(m.ones(3, dtype=m.float16))


@pytest.mark.parametrize("call", [lambda x: tj.complex(x, x), tj.view_as_complex])
def test_what_would_be_complex32_is_refused_in_words(call):
    with pytest.raises(RuntimeError, match="torchgrad_jax has no complex32"):
        call(tj.ones(2, dtype=tj.float16))


@like_pytorch
def test_rounding_to_no_decimals_has_the_node_of_rounding_to_some(m):
    x = m.tensor([1.5, 2.5], requires_grad=True)
    return [[y, y.grad_fn.name()] for y in (m.round(x), m.round(x, decimals=0), x.round(decimals=1), m.special.round(x))]


@like_pytorch
def test_bools_are_accumulated(m):
    x = m.tensor([False, False, True, True])
    return x.put(m.tensor([0, 1, 2, 3, 0]), m.tensor([True, False, True, False, False]), accumulate=True), m.tensor([], dtype=m.bool).median()


NUMBERS = [-1, -255, -256, 255, 256, -1.5, -0.5, -0.0, 127.5, -128.5, 255.5, 2.0**63, -(2.0**63), 2.0**64, float("nan"), True, 1j, 1 + 0j]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in ("full", "full_like", "new_full", "fill_", "index_fill") for dtype in ("uint8", "int8", "int64", "bool")]
    + [("full", "uint16"), ("fill_", "uint16")],
)
def test_numbers_that_a_dtype_does_not_hold_are_refused(name, dtype):
    filled = {
        "full": lambda m, x, number: m.full((1,), number, dtype=x.dtype), "full_like": lambda m, x, number: m.full_like(x, number),
        "new_full": lambda m, x, number: x.new_full((1,), number), "fill_": lambda m, x, number: x.clone().fill_(number),
        "index_fill": lambda m, x, number: x.index_fill(0, m.tensor([0]), number),
    }[name]  # fmt: skip

    def outcome(m, number):
        try:
            return filled(m, m.ones(1, dtype=getattr(m, dtype)), number).tolist()
        except (RuntimeError, NotImplementedError) as error:
            return type(error).__name__, str(error)

    assert [outcome(tj, number) for number in NUMBERS] == [outcome(torch, number) for number in NUMBERS]


@like_pytorch
def test_index_fill_checks_in_pytorchs_order(m):
    x, first = m.ones(2), m.tensor([0])
    return [
        dtypes_or_error(call)
        for call in (
            lambda: x.index_fill(0, first, m.tensor(1j)), lambda: x.index_fill(0, m.tensor([0.0]), 1j), lambda: x.index_fill(3, first, 1j),
            lambda: x.index_fill(0, first[None], 1j), lambda: x.index_fill(0, m.tensor([0.0]), m.tensor([1j])), lambda: x.index_fill(3, first, 1),
            lambda: (x + 0j).index_fill(0, first, 1j), lambda: x.index_fill(0, first[None], 1),
        )
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["bool", "uint16", "int32", "float32", "float64"])
def test_few_evenly_spaced_numbers_have_any_dtype(dtype):
    @like_pytorch
    def check(m):
        kind, found = getattr(m, dtype), []
        limits = ((0, 1), (0.5, 3), (-0.5, 3), (300, 1), (1e30, 1), (1, float("nan")))
        for (start, end), steps, base in itertools.product(limits, (0, 1, 2), (None, 10, 0, 0.5, -2.5)):
            call = m.linspace if base is None else functools.partial(m.logspace, base=base)
            told = dtypes_or_error(functools.partial(call, start, end, steps, dtype=kind))
            found.append([start, steps, base, told, str(call(start, end, steps, dtype=kind).tolist()) if type(told) is list and steps < 2 else None])
        return found

    check()


@like_pytorch
def test_new_empty_strided(m):
    x = m.ones(2, dtype=m.float64)
    wrong = [((2, 3), (1,)), ((2, 3), (-1, 5)), ((-1, 3), (1, 5)), ((1, 3), (1, -1)), (2, 1)]
    right = [((2, 3), (1, 2)), ((2, 3), (0, 1)), ((), ()), ((0, 3), (-1, 5)), ((1, 3), (-1, 1)), ((2, 3), (7, 1))]
    made = [x.new_empty_strided(*given) for given in right] + [m.empty_strided(*given) for given in right]
    made += [x.new_empty_strided((2,), (3,), dtype=m.complex64, requires_grad=True), x.new_empty_strided(size=(2,), stride=(1,), dtype=m.int8)]
    told = [[str(t.dtype), tuple(t.shape), t.stride(), t.untyped_storage().nbytes(), t.requires_grad, t.is_leaf] for t in made]
    return told, [dtypes_or_error(lambda given=given, f=f: f(*given)) for f in (x.new_empty_strided, m.empty_strided) for given in wrong]


@like_pytorch
def test_resize_as_is_a_function_too(m):
    x = m.arange(6.0)
    y = m.resize_as_(x, m.ones(2, 2))
    return y is x, y, dtypes_or_error(lambda: m.resize_as_(x, 3))
