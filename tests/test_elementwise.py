"""Element-wise functions, conversions and factories at the edges of what they take, each call run with PyTorch and with ours."""

import math

import numpy as np
import pytest

import torchgrad_jax as tj
from tests.side_by_side import agree, plain

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators

CALLS = {
    "sizes and fillings": """
        m.full((2,), m.tensor(3.0)); m.full((2,), m.tensor([3.0])); m.full((2,), s.requires_grad_()); m.full_like(i, 1j)
        m.full((1,), 300, dtype=m.uint8)
        m.full((1,), -3, dtype=m.uint8); m.full((1,), 1e300); m.full((1,), math.inf); m.full((1,), math.nan, dtype=m.int64)
        m.full((1,), 1 + 0j, dtype=m.float32)
        f.new_full((2,), m.tensor(3.0)); m.full((2,), 1.5, dtype=m.float32, out=m.zeros(2, dtype=m.int64)); f.clone().fill_(1j); i.clone().fill_(2.5)
        m.fill(f, m.tensor([3])); m.fill(f, 1j); m.full(2, 1)
    """,
    "sequences": """
        m.arange(end=3); m.arange(0, 1, 0.1, dtype=m.int64); m.arange(0, 10, 1.5, dtype=m.int32); m.arange(0, 10, 1.5, dtype=m.int64)
        m.arange(-2.5, 2.5, 1.5, dtype=m.int32); m.arange(1j); m.arange(3, dtype=m.bool); m.arange(3, dtype=m.complex64); m.arange(3, out=m.zeros(3))
        m.linspace(0, 1j, 3); m.linspace(1j, 1, 3, dtype=m.float32); m.linspace(0, 1, 3, out=m.zeros(3)); m.linspace(-1.5, 10.7, 5, dtype=m.int64)
        m.linspace(0, 1, 2.5); m.linspace(m.tensor([0.0]), 1, 3); m.linspace(0, 1, 3, dtype=m.bool); m.logspace(0, 1, -1)
        m.logspace(0, 1, 3, out=m.zeros(3))
        m.eye(2, out=m.zeros(2, 2, dtype=m.int64)); m.eye(True); m.eye(2, None); m.tril_indices(3, 3, dtype=m.float32); m.triu_indices(2.5, 2)
    """,
    "lists with tensors in them": """
        m.tensor([m.tensor([1.0]), m.tensor([[2.0]])]); m.as_tensor([m.tensor([1]), 2.5]); m.tensor([m.tensor([1.0, 2.0]), m.tensor([2.0, 3.0])])
        m.tensor([m.tensor(1.0, dtype=m.float64), 1]); m.tensor([[2.5], m.tensor([1])]); m.tensor([m.tensor([1, 2]), 2])
    """,
    "sums with a factor": """
        m.add(f, 2, i); f.add(2, f); f.add_(2, f); f.sub_(2, 2); m.sub(f, 2, f); m.add(i, i, alpha=2.5); m.add(b, b, alpha=2); m.add(b, i, alpha=True)
        m.add(f, f, alpha=1j); m.add(2, f); m.sub(2, f, alpha=3); m.mul(2, f); m.mul(2, 3); m.add(input=f, other=2); m.exp(input=f); m.rsub(2, f)
        f.subtract_(2, alpha=2); m.addcdiv(i, i, i); m.addcdiv(f, i, i); m.addcmul(b, b, b)
    """,
    "division": """
        m.div(i, 0, rounding_mode="trunc"); m.div(i, i * 0, rounding_mode="floor"); m.div(z, z, rounding_mode="floor")
        m.div(b, b, rounding_mode="floor")
        f.clone().divide_(2, rounding_mode="floor"); m.div(f, 2, rounding_mode="x"); m.fmod(2, f); m.div(2, f, rounding_mode="floor"); m.div(2, 3)
    """,
    "choosing": """
        m.where(b, f, f, out=m.zeros(3)); m.where(True, f, f); m.where(b, f); m.lerp(f, weight=0.3, end=f * 2); m.lerp(f, f, "a"); m.lerp(i, i, 0.5)
        m.maximum(f, 2); m.maximum(c, c); f.clamp_min(2, 3); m.clamp_min(f, None); m.clamp_min(c, 1.0); m.clamp(f, min=m.tensor(1.0), max=2.0)
        m.logit(f, eps=0.6); m.allclose(f, 2); m.allclose(f, m.ones(2)); m.isclose(f, f, rtol=-1); m.equal(f, 2); m.masked_fill(f, b, 1j)
    """,
    "numbers where tensors belong": """
        f.logical_and_(2); m.logical_xor(f, 1); i.lcm_(2); f.igammac_(2); m.atan2(f, 1.0); m.hypot(f, 2); m.positive(1.5); m.real(1.5)
        m.bitwise_and(2, 3); m.remainder(2, 3)
        m.complex(f, f, out=m.zeros(3, dtype=m.complex128))
    """,
    "kinds that have no kernel": """
        m.round(b); m.round(i, decimals=1); m.floor(c); m.erf(c); m.digamma(c); m.logit(c); m.hypot(i, i); m.logaddexp(i, i); m.atan2(c, c)
        m.pow(b, b); m.bitwise_not(f); ~f; m.deg2rad(c); m.sign(c); c.abs_(); m.igamma(i, i); m.xlogy(c, c); m.copysign(f, c)
        m.neg(f, out=m.zeros(3, dtype=m.float64))
    """,
    "other names": """
        m.fix(f); f.fix_(); m.float_power(i, 2); f.float_power_(2); f.double().float_power_(2); m.float_power(f, 2, out=m.zeros(3))
        m.float_power(2, 3)
        f.__rdiv__(2); i.__ilshift__(1); m.square(b); m.sgn(z); m.sign(z)
    """,
    "to integers": """
        m.tensor([300.0, -1.0, 256.5]).to(m.uint8); m.tensor([300.0, -129.0, 2.9]).to(m.int8); m.tensor([1e20, math.nan, math.inf, -1.0, 2.7]).long()
        m.tensor([1e20, math.nan, -math.inf]).int(); m.tensor([1.5, 40000.0]).to(m.int16); m.tensor([-1.0]).to(m.bfloat16).to(m.uint8)
    """,
    "gradients at special points": """
        grads(m.maximum, [math.nan, 1.0, 2.0], [1.0, math.nan, 2.0]); grads(m.minimum, [math.nan, 1.0, 2.0], [1.0, math.nan, 2.0])
        grads(m.atan2, [0.0, 1.0], [0.0, -1.0]); grads(m.abs, [0.0, math.nan, -1.0]); grads(m.digamma, [math.inf, 0.5])
        grads(m.acosh, [-0.5 - 0.3j, 2j])
        grads(m.nextafter, [0.0, 1.0], [0.0, 2.0]); grads(m.lerp, [1.0 + 2j], [2.0 - 1j], [0.3 + 0.4j]); second(m.lgamma, [-1.3, -0.2, 0.4, 3.0])
        grads(m.remainder, [[5.5], [-3.0]], [2.0, -0.7]); grads(m.digamma, [-1.4, -0.6, 0.3]); m.logaddexp(c * 3j + 5, c - 8j)
    """,
}


def outcome(m, call):
    def grads(function, *data):
        leaves = [m.tensor(d, requires_grad=True) for d in data]
        return m.autograd.grad(function(*leaves).abs().sum(), leaves)

    def second(function, data):
        x = m.tensor(data, dtype=m.float64, requires_grad=True)
        return m.autograd.grad(m.autograd.grad(function(x).sum(), x, create_graph=True)[0].sum(), x)

    names = {
        "m": m, "math": math, "grads": grads, "second": second,
        "f": m.tensor([1.5, -2.0, 0.5]), "i": m.tensor([1, 2, -3]), "b": m.tensor([True, False, True]),
        "c": m.tensor([1 + 2j, -1j, 0.5]), "s": m.tensor(2.5), "z": m.tensor([0.0, -0.0, math.inf, -math.inf, math.nan]),
    }  # fmt: skip
    try:
        return plain(eval(call, names))
    except Exception as error:
        return type(error).__name__


def alike(a, b):
    if isinstance(a, complex) or isinstance(b, complex):
        return bool(np.isclose(a, b, rtol=1e-5))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    return agree(a, b) or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)
def test_calls_are_taken_and_refused_as_by_pytorch(calls):
    for call in calls.replace("\n", ";").split(";"):
        if call.strip():
            ours, theirs = outcome(tj, call.strip()), outcome(torch, call.strip())
            assert alike(ours, theirs), f"{call.strip()}\nours:   {ours}\ntheirs: {theirs}"


def test_a_rounding_mode_that_is_given_is_in_the_name_of_the_node():
    names = {}
    for m in (tj, torch):
        x = m.tensor([1.0, 2.0], requires_grad=True)
        made = [m.div(x, 2), m.div(x, 2, rounding_mode=None), x.div(x, rounding_mode="floor"), x.clone().div_(2, rounding_mode=None), m.sub(2, x)]
        names[m] = [t.grad_fn.name() for t in made]
    assert names[tj] == names[torch]


def test_integers_of_a_recorded_program_are_not_divided_by_zero():
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        tj.div(tj.arange(3) + 1, (tj.arange(3) + 1) - 1, rounding_mode="floor").tolist()


def test_half_precision_is_rounded_once():
    found = []
    for m in (tj, torch):
        x = m.linspace(-6, 6, 40).to(m.bfloat16).reshape(8, 5)
        y = m.tensor(0.7, dtype=m.bfloat16, requires_grad=True)
        summed = m.autograd.grad((x.abs() * y).float().sum(), y)[0]
        found.append([t.float().tolist() for t in (m.sigmoid(x), m.asinh(x), m.log2(x.abs()), summed)])
    for ours, theirs in zip(*found, strict=True):
        assert np.allclose(ours, theirs, rtol=8e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64", "int64"])
def test_allclose_at_special_numbers(dtype):
    plainly = [0.0, 1.0, 1.000001, 1.1, -1.0]
    numbers = plainly if dtype == "int64" else [*plainly, 1e-9, math.inf, -math.inf, math.nan]
    for a in numbers:
        for b in numbers:
            for how in ({}, {"equal_nan": True}, {"rtol": 0.0, "atol": 0.2}):
                found, expected = (m.allclose(*[m.tensor([n, 1.0], dtype=getattr(m, dtype)) for n in (a, b)], **how) for m in (tj, torch))
                assert found is expected, (a, b, how)
