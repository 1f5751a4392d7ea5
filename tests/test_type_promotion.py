"""What type promotion will do, asked beforehand; the limits of dtypes."""

from __future__ import annotations

import enum
import warnings

import numpy as np
import pytest
from side_by_side import like_pytorch

import torchgrad_jax as tj
from compat_suite.fuzz.programs import same

pytestmark = pytest.mark.operators

DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


@like_pytorch
def test_every_pair_of_dtypes(m):
    pairs = [(getattr(m, a), getattr(m, b)) for a in DTYPES for b in DTYPES]
    return [str(m.promote_types(a, b)) for a, b in pairs], [m.can_cast(a, b) for a, b in pairs]


@like_pytorch
def test_numbers_and_0_dim_tensors_raise_the_category_only(m):
    pairs = [
        (m.tensor([1]), 1.0), (1, 2.0), (1, True), (m.tensor(1), m.tensor([1], dtype=m.int8)), (m.tensor([1], dtype=m.int8), 1), (m.tensor(1.0), 1j),
        (m.tensor([1]), m.tensor(1.5)), (m.ones(1, dtype=m.bfloat16), m.ones(1, dtype=m.float16)),
    ]  # fmt: skip
    return [str(m.result_type(a, b)) for a, b in pairs]


@pytest.mark.parametrize("call", ["promote_types", "can_cast"])
def test_what_is_no_dtype_is_refused(call):
    like_pytorch(lambda m: getattr(m, call)(m.int32, 3))()


@pytest.mark.parametrize("name", DTYPES)
def test_limits(name):
    @like_pytorch
    def check(m):
        known = (m.iinfo if "int" in name else m.finfo)(getattr(m, name))
        names = ["bits", "max", "min", "dtype"] + ([] if "int" in name else ["eps", "tiny", "smallest_normal", "resolution"])
        return repr(known), [getattr(known, n) for n in names]

    check()


@like_pytorch
def test_limits_of_another_kind_are_refused(m):
    return m.finfo().dtype, m.iinfo(m.float32)


@like_pytorch
def test_shapes_that_broadcast(m):
    return list(m.broadcast_shapes((2,), (3, 1), 1)), list(m.broadcast_shapes()), m.broadcast_shapes((2,), (3,))


@like_pytorch
def test_scalar_tensors_have_the_default_dtype(m):
    return m.scalar_tensor(3), m.scalar_tensor(3, dtype=m.int32), m.ones(2, dtype=m.int32).type_as(m.ones(1))


@like_pytorch
def test_half_precision_is_rounded_after_each_operation(m):
    array = np.random.default_rng(0).uniform(0.5, 2, (64, 33))
    x, y = (m.tensor(a.tolist(), dtype=m.bfloat16, requires_grad=True) for a in (array, array[:1]))
    z = (x * y + x) / y - x
    z.backward(m.ones_like(z))
    return z.detach().float().tolist(), x.grad.float().tolist()


REFLECTED = ["radd", "rmul", "rsub", "rtruediv", "rpow", "rfloordiv", "rmod", "rmatmul", "rand", "ror", "rxor", "rlshift", "rrshift"]


@like_pytorch
def test_operators_leave_what_is_no_operand_to_the_other_side(m):
    x, others = m.tensor([1, 2]), ([1, 2], (1, 2), "a", None, {}, object())
    return [getattr(x, f"__{name}__")(other) is NotImplemented for name in (*REFLECTED, *(n[1:] for n in REFLECTED)) for other in others]


@like_pytorch
def test_numbers_of_numpy_and_of_enums_are_numbers(m):
    x, i = m.tensor([2.0, 4.0], requires_grad=True), m.tensor([1, 2])
    three = enum.IntEnum("Count", {"THREE": 3}).THREE
    found = []
    for number in (np.float64(3), np.float32(3), np.int64(3), np.int32(3), three):
        found += [x + number, x / number, i // number, x % number, x**number, m.add(x, number), x.detach().clone().add_(number)]
        found += [x.detach().clone().fill_(number), m.where(x > 2, x, number), m.remainder(x, number), x < number, m.pow(number, x), i * number]
        found += [number + x, number * x, number / x, number**x, number // i, number % i, number < x, number == x, number + i]
    (gradient,) = m.autograd.grad(sum(t.sum() for t in found if t.requires_grad), x)
    return [*found, gradient]


@like_pytorch
def test_what_numpy_computes_of_a_tensor_is_a_tensor(m):
    x, array = m.tensor([2.0, 4.0]), np.array([1.0, 4.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's of PyTorch's __array_wrap__
        found = [x * array, x + array, x / array, array / x, x**array, x == array, array == x]
        return [*found, np.sin(x), np.add(array, x), np.maximum(x, 3), np.exp(x[0])]


@pytest.mark.parametrize("other", ["np.float64(2) * x", "x + np.float64(2)", "np.sqrt(2) / x"])
def test_a_number_of_numpy_keeps_the_graph(other):
    x = tj.ones(2, requires_grad=True)
    assert eval(other, {"np": np, "x": x}).grad_fn is not None


def test_an_array_times_a_tensor_that_needs_a_gradient_is_refused():
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        tj.ones(2, requires_grad=True) * np.ones(2)


def test_where_converts_without_a_node():
    same("""
        x = leaf(4)
        y = leaf(4, dtype='float32')
        z = torch.where(x > 0, x, y)
        w = torch.where(x > 0, y.float(), x)
        v = torch.where(x > 0, y, leaf(seed=3))
        (z + w + v).sum().backward()
    """)


def test_a_view_that_autograd_lost_can_be_converted_to_integers():
    same("""
        x = leaf(2)
        y, = x.split(2)
        with torch.no_grad(): x.mul_(2)
        a = y.bool()
        b = y.long()
        c = y.to(torch.int32)
    """)


@like_pytorch
def test_isin_compares_in_the_dtype_that_both_are_promoted_to(m):
    large = m.tensor([2**24 + 1, 3])
    others = [m.tensor([2.0**24, 3.0]).to(dtype) for dtype in (m.float32, m.float64, m.bfloat16, m.float16)]
    return [m.isin(a, b) for b in others for a in (large, large.int(), large.to(m.bfloat16))]
