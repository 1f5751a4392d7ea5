"""Products and the affine map without a trace: what they and their gradients give, of operands anywhere in memory, and what is traced after all."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.declaration.derivative import plan
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.baseline import Merged, NumPyForm, Part
from torchgrad_jax.runtime.baseline.cost import multiplies_natively
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import Signature
from torchgrad_jax.runtime.value import aval_of

pytestmark = [
    pytest.mark.operators,
    pytest.mark.skipif(not multiplies_natively(np.dtype(np.float32)), reason="the core in pure Python, or a NumPy whose BLAS is not found"),
]


def signature(bound, operands):
    return Signature(bound, tuple([aval_of(a.shape, a.dtype, CPU) for a in operands]))


def bound_and_operands(name, operands):
    return registry[name].parse(tuple(operands), {}, lambda v: isinstance(v, np.ndarray))


def run(sig: Any, operands):
    assert isinstance(sig.baseline, NumPyForm), "it was traced"
    with np.errstate(all="ignore"):
        found = sig.baseline(*operands)
    assert [(a.shape, a.dtype) for a in sig.avals] == [(np.shape(f), f.dtype) for f in found]
    given, made = range(len(operands)), [-1 - i for i in range(len(found))]
    program = Merged([Part(sig.baseline, given, made)], given, made)
    for _ in range(2):
        for whole, one in zip(program(list(operands)), found, strict=True):
            np.testing.assert_array_equal(whole, one)
    return found


@st.composite
def operands(draw):
    name = draw(st.sampled_from(["mm", "bmm", "linear_addmm"]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    m, k, n = (draw(st.integers(1, 20)) for _ in range(3))
    batch = (draw(st.integers(1, 3)),) if name == "bmm" else ()
    shapes = [(*batch, m, k), (*batch, k, n)]
    if name == "linear_addmm":
        shapes.insert(0, draw(st.sampled_from([(n,), (m, n), (1,), ()])))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    made = [random.standard_normal(shape).astype(dtype) for shape in shapes]
    return name, [np.asfortranarray(a) if draw(st.booleans()) else a for a in made]


def expected(name, operands, grad=None):
    """By NumPy, in float64: the result, or the gradients of all operands."""
    *bias, a, b = [x.astype(np.float64) for x in operands]
    if grad is None:
        return a @ b + (bias[0] if bias else 0)
    grads = [grad @ b.mT, a.mT @ grad]
    if not bias:
        return grads
    of_bias = grad.sum(axis=tuple(range(grad.ndim - bias[0].ndim)))
    if bias[0].shape == (1,):
        of_bias = of_bias.sum(keepdims=True)
    return [of_bias, *grads]


@settings(max_examples=150, deadline=None)
@given(operands())
def test_results_and_gradients(given):
    name, arrays = given
    bound, arrays = bound_and_operands(name, arrays)
    tolerance = 1e-4 if arrays[0].dtype == np.float32 else 1e-11
    sig = signature(bound, arrays)
    (found,) = run(sig, arrays)
    np.testing.assert_allclose(found, expected(name, arrays), rtol=tolerance, atol=tolerance)
    grad = np.random.default_rng(1).standard_normal(found.shape).astype(found.dtype)
    wanted = expected(name, arrays, grad.astype(np.float64))
    places = range(len(arrays)) if name != "linear_addmm" or arrays[0].shape in (found.shape, found.shape[1:]) else (1, 2)
    for count in range(1, len(places) + 1):
        for inputs in combinations(places, count):
            backward: Any = plan(sig, inputs)
            if backward.passes:
                continue
            given_back = [grad, *[arrays[i] for i in backward.saves]]
            grads = run(signature(backward.vjp_of((True,)), given_back), given_back)
            for i, one in zip(inputs, grads, strict=True):
                np.testing.assert_allclose(one, wanted[i], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "shapes", "dtype"),
    [
        ("mm", [(3, 4), (4, 5)], np.int64), ("mm", [(3, 4), (4, 5)], np.float16), ("mm", [(3, 4), (4, 5)], np.complex64),
        ("mm", [(0, 4), (4, 5)], np.float32), ("bmm", [(2, 3, 0), (2, 0, 5)], np.float32), ("linear_addmm", [(300,), (300, 2), (2, 300)], np.float32),
    ],
)  # fmt: skip
def test_what_is_traced(name, shapes, dtype):
    """Other dtypes, nothing, and what threads add to."""
    bound, arrays = bound_and_operands(name, [np.ones(shape, dtype) for shape in shapes])
    assert not isinstance(signature(bound, arrays).baseline, NumPyForm)


@pytest.mark.parametrize("shapes", [[(3, 4), (5, 2)], [(3,), (3, 2)], [(2, 3), (3, 2, 2)]])
def test_what_does_not_fit_is_told_as_by_pytorch(shapes):
    operands = [torch.ones(shape) for shape in shapes]
    for function in (torch.mm, torch.bmm):
        with pytest.raises(RuntimeError, match="cannot be multiplied|must be a matrix|must be a 3D tensor"):
            function(*operands)
    with pytest.raises(RuntimeError, match="expected m1 and m2 to have the same dtype"):
        torch.mm(torch.ones(2, 3), torch.ones(3, 2, dtype=torch.float64))
