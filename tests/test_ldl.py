"""LDL factorizations against PyTorch's: the same pivots and storage, for matrices that need blocks of two, by batches."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from side_by_side import error_of, programs, torch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


def matrices(kind, n, batch=()):
    numbers = np.random.RandomState(n)
    made = numbers.randn(*batch, n, n) + (1j * numbers.randn(*batch, n, n) if kind != "real" else 0)
    turned = np.swapaxes(made, -2, -1)
    made = made + (turned.conj() if kind == "hermitian" else turned)
    if n % 2:
        made[..., np.arange(n), np.arange(n)] = 0  # so that blocks of two are needed
    return made


def array(t):
    return np.asarray(t.detach().tolist())


@pytest.mark.parametrize("kind, n", [("real", 5), ("symmetric", 4), ("hermitian", 5)])
def test_factors_and_solutions(kind, n):
    given, right = matrices(kind, n), np.random.RandomState(9).randn(n, 2)
    right = right if kind == "real" else right + 0.5j
    found = []
    for m in (tj, torch):
        made = m.linalg.ldl_factor_ex(m.tensor(given), hermitian=kind == "hermitian")
        x = m.linalg.ldl_solve(made.LD, made.pivots, m.tensor(right), hermitian=kind == "hermitian")
        found.append([made.LD, made.pivots, made.info, x])
    for ours, theirs in zip(*found, strict=True):
        assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1] and ours.stride() == theirs.stride()
        np.testing.assert_allclose(array(ours), array(theirs), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(given @ array(found[0][3]), right, atol=1e-9)


@program
def batches(m):
    made = m.linalg.ldl_factor(m.tensor(matrices("real", 3, (2, 2))))
    empty = m.linalg.ldl_factor(m.ones(2, 0, 0))
    b = m.arange(6.0, dtype=m.float64).reshape(3, 2)
    return [made, m.linalg.ldl_solve(made[0], made[1], b), empty, m.linalg.ldl_factor_ex(m.zeros(2, 2, 2))]


def test_what_is_refused():
    def errors(m):
        f, made = m.linalg, m.linalg.ldl_factor(m.eye(2))
        solve = [
            (made[0], made[1], m.ones(3, 1)), (made[0], made[1].double(), m.ones(2, 1)), (made[0], made[1], m.ones(2, 1).double()),
            (made[0], made[1][:1], m.ones(2, 1)), (made[0][:1], made[1], m.ones(2, 1)), (made[0], made[1], m.ones(2)),
        ]  # fmt: skip
        factor = [m.ones(2, 3), m.ones(3), m.ones(2, 2, dtype=m.int64), m.ones(2, 2).half()]
        derivative = f.ldl_factor(m.eye(2).requires_grad_())[0]
        refused = [lambda: derivative.sum().backward(), lambda: f.ldl_solve(*made, m.ones(2, 1, requires_grad=True)).sum().backward()]
        calls = [*[lambda a=a: f.ldl_factor(a) for a in factor], *[lambda a=a: f.ldl_solve(*a) for a in solve], *refused]
        return [error_of(call) for call in calls], derivative.grad_fn.name()

    assert errors(tj) == errors(torch)
    for factor in (tj.linalg.ldl_factor, functools.partial(tj.linalg.ldl_factor_ex, check_errors=True)):
        with pytest.raises(RuntimeError, match=r"D\[1,1\] is zero"):
            factor(tj.zeros(2, 2))[0].tolist()


def test_lobpcg_says_what_to_do_instead():
    with pytest.raises(NotImplementedError, match="torch.linalg.eigh"):
        tj.lobpcg(tj.eye(9))
