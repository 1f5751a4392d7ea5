"""Remainders, rounded quotients and others of `lanes.OF_REALS`: C's loops, by themselves and in programs, against NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.runtime.baseline import blocks, lanes

pytestmark = pytest.mark.operators

DTYPES = [np.float32, np.float64]
NUMBERS = range(lanes.REM, lanes.HARDSWISH + 1)


def special(dtype):
    f = np.finfo(dtype)
    least = f.smallest_subnormal
    found = [0.0, 1, 2, 3, 0.5, 6, 2.9999999, np.inf, f.max, f.tiny, least, 7 * least, 1e30, 1e-30, 2**25 - 1, 2**25, 3 * 2**25, 2**27]
    return np.array([*found, *[-x for x in found], np.nan], dtype)


def pairs(dtype):
    """Every special number with every other, numbers of any bits, multiples and what is next to them, subnormal numbers."""
    rng, all_, size = np.random.default_rng(0), special(dtype), 4099
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    yield np.repeat(all_, all_.size), np.tile(all_, all_.size)
    yield tuple([rng.integers(0, np.iinfo(bits).max, size, bits, endpoint=True).view(dtype) for _ in range(2)])
    small = rng.integers(0, 1 << (np.finfo(dtype).nmant + 3), size).astype(bits).view(dtype)
    yield small, small[::-1].copy()
    for most in (1, 3, 1000, 2**20, 2**26, 2**29):
        y = rng.standard_normal(size).astype(dtype)
        x = (rng.integers(-most, most + 1, size) * y.astype(np.float64)).astype(dtype)
        for to in (0, np.inf, x):
            yield np.nextafter(x, np.asarray(to, dtype)), y
        yield (x / most * small.max()).astype(dtype), (y * small.max()).astype(dtype)


def same_bits(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[there], np.signbit(expected)[there])


def check(number, *operands):
    function = lanes.OF_REALS[number - lanes.REM]
    with np.errstate(all="ignore"):
        same_bits(blocks.Operation(number, function)(*operands), function(*operands))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", NUMBERS)
def test_loops_have_numpys_bits(number, dtype):
    arity = lanes.ARITY[number]
    for a, b in pairs(dtype):
        check(number, *[a, b, b[::-1].copy()][:arity])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_broadcast_operands_and_any_layout(number, dtype):
    arity = lanes.ARITY[number]
    a, b, c = np.random.default_rng(1).standard_normal((3, 7, 130)).astype(dtype)
    one, two = np.asarray(dtype(-2.5)), np.asarray(dtype(0.75))
    for given in ([a, two, one], [one, b, two], [one, two, c], [a[:, :1], b[:1], c], [a.T, b.T, c.T], [a[:, ::3], b[::, ::3], two], [one, two, one],
                  [a[:0], b[:0], c[:0]], [np.repeat(a, 40, 0), np.repeat(b, 40, 0), np.repeat(c, 40, 0)]):  # fmt: skip
        check(number, *given[:arity])


def test_operands_of_other_dtypes_are_numpys():
    a, b = np.array([5.5, -3], np.float16), np.array([2, 2], np.float16)
    check(lanes.REMAINDER, a, b)
    check(lanes.REM, a.astype(np.float32), b.astype(np.float64))


OPERATORS = {
    "remainder": lambda m, x, y: m.remainder(x, y),
    "remainder by a number": lambda m, x, y: m.remainder(x, 0.7),
    "number by": lambda m, x, y: 2.5 % y,
    "fmod": lambda m, x, y: m.fmod(x, y),
    "floor_divide": lambda m, x, y: m.floor_divide(x, y),
    "div floor": lambda m, x, y: m.div(x, y, rounding_mode="floor"),
    "div trunc": lambda m, x, y: m.div(x, y, rounding_mode="trunc"),
    "nextafter": lambda m, x, y: m.nextafter(x, y),
    "copysign": lambda m, x, y: m.copysign(x, y),
    "copysign of a number": lambda m, x, y: m.copysign(x, -1.0),
    "sign": lambda m, x, y: m.sign(x),
    "sgn": lambda m, x, y: m.sgn(x),
    "frac": lambda m, x, y: m.frac(x),
    "trunc": lambda m, x, y: m.trunc(x),
    "angle": lambda m, x, y: m.angle(x),
    "relu6": lambda m, x, y: m.nn.functional.relu6(x),
    "clamp": lambda m, x, y: m.nn.functional.hardtanh(x, -0.5, 1.5),
    "hardsigmoid": lambda m, x, y: m.nn.functional.hardsigmoid(x),
    "hardswish": lambda m, x, y: m.nn.functional.hardswish(x),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_pytorchs(name, dtype):
    theirs, function = pytest.importorskip("torch"), OPERATORS[name]
    for x, y in list(pairs(dtype))[:1]:
        found = function(torch, torch.from_numpy(x), torch.from_numpy(y)).numpy()
        expected = function(theirs, theirs.from_numpy(x), theirs.from_numpy(y)).numpy()
        if "rem" in name or "mod" in name or name == "number by":  # PyTorch has nan where the quotient is not finite; here the remainder is exact
            there = ~np.isnan(expected) | np.isnan(found)
            found, expected = found[there], expected[there]
        np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(dtype).eps if name.startswith("hard") else 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_a_program_gives_what_operations_give_one_by_one(name, dtype):
    """Also once it has repeated itself so often that it is merged."""
    rng, function = np.random.default_rng(2), OPERATORS[name]
    x, y = [torch.from_numpy(rng.standard_normal((9, 101)).astype(dtype) * 4) for _ in range(2)]
    before = (x * 2).detach()
    middle = function(torch, torch.from_numpy(before.numpy()), y)
    expected = (torch.from_numpy(middle.numpy()) + y).numpy()
    for _ in range(40):
        same_bits((function(torch, x * 2, y) + y).numpy(), expected)


@pytest.mark.parametrize("name", ["remainder", "fmod", "frac", "copysign", "hardswish", "hardsigmoid", "relu6", "sign", "angle", "div trunc"])
def test_derivatives(name):
    theirs, function = pytest.importorskip("torch"), OPERATORS[name]
    x, y = np.linspace(-5, 5, 14), np.linspace(0.3, 2, 14)
    grads = []
    for m in (torch, theirs):
        a, b = m.from_numpy(x.copy()).requires_grad_(), m.from_numpy(y.copy()).requires_grad_()
        function(m, a, b).sum().backward()
        grads.append([None if t.grad is None else t.grad.numpy() for t in (a, b)])
    for ours, other in zip(*grads, strict=True):
        np.testing.assert_allclose(0 if ours is None else ours, 0 if other is None else other)


def test_derivatives_of_each_of_several():
    """Dimensions of several at different places, and derivatives forward."""
    x, y = torch.linspace(-5, 5, 12).reshape(3, 4), torch.linspace(0.3, 2, 8).reshape(4, 2)
    found = torch.func.vmap(torch.remainder, in_dims=(None, 1))(x, y)
    same_bits(found.numpy(), np.stack([torch.remainder(x, y[:, i]).numpy() for i in range(2)]))
    made, slope = torch.func.jvp(lambda a: torch.remainder(a, 0.7), (x,), (torch.ones_like(x),))
    same_bits(made.numpy(), torch.remainder(x, 0.7).numpy())
    np.testing.assert_array_equal(slope.numpy(), np.ones((3, 4), np.float32))
