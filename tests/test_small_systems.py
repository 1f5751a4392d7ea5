"""Operators of one small matrix, whose NumPy forms factorize it in C, against their JAX functions and NumPy: to rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.baseline import NumPyForm
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import Signature
from torchgrad_jax.runtime.value import aval_of

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]

by_form = pytest.mark.skipif(not torch.runtime.typed_core(), reason="the forms are compiled ones")


def _both(name, operands, **statics):
    """What the form and the JAX function of an operator give."""
    bound, arrays = registry[name].parse(tuple(operands), statics, lambda v: isinstance(v, np.ndarray))
    sig = Signature(bound, tuple(aval_of(a.shape, a.dtype, CPU) for a in arrays))
    form = sig.baseline
    assert isinstance(form, NumPyForm)
    with np.errstate(all="ignore"):  # as programs are interpreted
        found = [np.asarray(o) for o in form(*arrays)]
    expected = [np.asarray(o) for o in sig.function(*arrays)]
    assert [(f.shape, f.dtype) for f in found] == [(e.shape, e.dtype) for e in expected]
    assert [a.shape for a in sig.avals] == [f.shape for f in found[: len(sig.avals)]]
    return found, expected


def _matrix(size, seed, dtype, singular=False):
    random = np.random.default_rng(seed)
    a = random.normal(size=(size, size)) + 2 * np.eye(size)[random.permutation(size)]
    if singular:
        a[:, random.integers(size)] = 0
    return a.astype(dtype)


@by_form
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 7, 16, 17, 40, 65, 140]),
    st.integers(0, 10**6),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["solve", "inv", "slogdet"]),
    st.booleans(),
)
def test_forms_give_what_jax_gives(size, seed, dtype, which, singular):
    a = _matrix(size, seed, dtype, singular)
    right = np.random.default_rng(seed + 1).normal(size=(size, 1 + seed % 3)).astype(dtype)
    right = right[:, 0] if seed % 5 == 0 else right
    found, expected = _both("linalg_" + which, [a, right] if which == "solve" else [a])
    if which != "slogdet":
        assert found[-1].tolist() == expected[-1].tolist() == ([0, 0] if not singular else [1, found[-1][1]])
        if singular:
            return
    tolerance = (2e-2 if dtype == "float32" else 1e-9) * max(1.0, np.linalg.cond(a.astype(np.float64)) / 100 if not singular else 1.0)
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=tolerance, atol=tolerance)


@by_form
@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([(1, 1), (5, 5), (33, 33), (70, 70), (3, 4, 4), (2, 2, 3, 3), (2, 66, 66)]), st.integers(0, 10**6),
    st.sampled_from(["float32", "float64"]),
    st.booleans(), st.sampled_from(["positive", "not", "one not", "NaN"]),
)  # fmt: skip
def test_factors_and_what_is_left_where_there_are_none(shape, seed, dtype, upper, which):
    random = np.random.default_rng(seed)
    a = random.normal(size=shape)
    a = a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])
    at = (*[random.integers(n) for n in shape[:-2]], *[random.integers(shape[-1])] * 2)
    if which == "not":
        a -= 50 * np.eye(shape[-1])
    elif which != "positive":
        a[at] = -1 if which == "one not" else math.nan
    # Of the other triangle nothing is read.
    a = np.triu(a) + np.tril(random.normal(size=shape), -1) if upper else np.tril(a) + np.triu(random.normal(size=shape), 1)
    for name in ("linalg_cholesky_ex", "linalg_cholesky"):
        found, expected = _both(name, [a.astype(dtype)], upper=upper)
        tolerance = 1e-3 if dtype == "float32" else 1e-9
        np.testing.assert_allclose(found[0], expected[0], rtol=tolerance, atol=tolerance)
        wrong = expected[1].any() if name == "linalg_cholesky_ex" else expected[1][0]
        assert found[1].tolist() == expected[1].tolist() if wrong or name == "linalg_cholesky_ex" else not found[1].any()


@by_form
def test_what_is_not_finite():
    a = np.array([[1.0, math.nan], [2.0, 3.0]])
    for values in (a, np.array([[1.0, math.inf], [2.0, 3.0]]), np.zeros((2, 2))):
        found, expected = _both("linalg_slogdet", [values])
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
    found, expected = _both("linalg_inv", [a])
    assert found[1].tolist() == expected[1].tolist() == [0, 0]
    assert np.isnan(found[0]).any()


@by_form
def test_what_is_not_for_the_forms_is_traced():
    for shape in ((0, 0), (2, 0, 0), (0, 3, 3)):
        bound, _ = registry["linalg_inv"].parse((np.ones(shape),), {}, lambda v: isinstance(v, np.ndarray))
        assert not isinstance(Signature(bound, (aval_of(shape, np.dtype(np.float64), CPU),)).baseline, NumPyForm)


@pytest.mark.parametrize("size", [1, 2, 5, 16, 17])
@pytest.mark.parametrize("columns", [None, 3])
def test_values_and_gradients(size, columns):
    a, b = _matrix(size, size, np.float64), np.random.default_rng(9).normal(size=(size,) if columns is None else (size, columns))
    inverse = np.linalg.inv(a)
    x, y = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    solution = torch.linalg.solve(x, y)
    np.testing.assert_allclose(solution.detach().numpy(), inverse @ b, rtol=1e-9, atol=1e-9)
    solution.sum().backward()
    np.testing.assert_allclose(y.grad.numpy(), inverse.T @ np.ones_like(b), rtol=1e-9, atol=1e-9)
    of_a = -np.outer(y.grad.numpy(), inverse @ b) if columns is None else -y.grad.numpy() @ (inverse @ b).T
    np.testing.assert_allclose(x.grad.numpy(), of_a, rtol=1e-9, atol=1e-9)

    z = torch.tensor(a, requires_grad=True)
    sign, logarithm = torch.linalg.slogdet(z)
    np.testing.assert_allclose([sign.item(), logarithm.item()], np.linalg.slogdet(a), rtol=1e-9, atol=1e-9)
    (logarithm + torch.linalg.inv(z).sum()).backward()
    of_inverse = -inverse.T @ np.ones_like(a) @ inverse.T
    np.testing.assert_allclose(z.grad.numpy(), inverse.T + of_inverse, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("count", [3, 20])
def test_batches(count):
    """Of few matrices the orders of rows are made one by one, of many all at once."""
    a, b = np.stack([_matrix(5, seed, np.float64) for seed in range(count)]), np.random.default_rng(3).normal(size=(count, 5, 2))
    x = torch.tensor(a, requires_grad=True)
    solution = torch.linalg.solve(x, torch.tensor(b))
    (solution.sum() + torch.linalg.slogdet(x)[1].sum()).backward()
    inverse = np.linalg.inv(a)
    np.testing.assert_allclose(solution.detach().numpy(), inverse @ b, rtol=1e-9, atol=1e-9)
    of_right = np.swapaxes(inverse, 1, 2) @ np.ones_like(b)
    expected = np.swapaxes(inverse, 1, 2) - of_right @ np.swapaxes(inverse @ b, 1, 2)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("function", "words"), [("inv", "diagonal element 2 is zero"), ("solve", "singular")])
def test_singular_matrices_are_refused(function, words):
    a = torch.tensor([[1.0, 2.0], [2.0, 4.0]], requires_grad=True)
    with pytest.raises(torch.linalg.LinAlgError, match=words):
        (torch.linalg.inv(a) if function == "inv" else torch.linalg.solve(a, torch.ones(2))).sum().item()
