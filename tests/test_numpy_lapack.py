"""LAPACK without `numpy.linalg` around it gives what that gives, to the bit, and where NumPy has other loops that is asked."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.runtime.native import numpy_lapack

SHAPES = [(1, 1), (4, 4), (3, 5), (5, 3), (30, 30), (2, 4, 4), (2, 3, 2, 5)]
SQUARE = [shape for shape in SHAPES if shape[-1] == shape[-2]]
CALLS = [
    *[(f"eigh {upper}", shape, lambda m, a, u=upper: m.eigh(a, u)) for shape in SQUARE for upper in (False, True)],
    *[(f"svd {full}", shape, lambda m, a, f=full: m.svd(a, f)) for shape in SHAPES for full in (False, True)],
    *[("svdvals", shape, lambda m, a: [m.svdvals(a)]) for shape in SHAPES],
    *[(f"qr {complete}", shape, lambda m, a, c=complete: m.qr(a, c)) for shape in SHAPES for complete in (False, True)],
]


class NumPys:
    eigh = staticmethod(lambda a, upper: np.linalg.eigh(a, "U" if upper else "L"))
    svd = staticmethod(np.linalg.svd)
    svdvals = staticmethod(lambda a: np.linalg.svd(a, compute_uv=False))
    qr = staticmethod(lambda a, complete: np.linalg.qr(a, "complete" if complete else "reduced"))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "shape", "call"), CALLS, ids=[f"{name} {shape}" for name, shape, _ in CALLS])
def test_decompositions_are_numpys(name, shape, call, dtype, known, monkeypatch):
    if not known:
        monkeypatch.setattr(numpy_lapack, "_loop", lambda name: None)
    a = np.random.default_rng(0).normal(size=shape).astype(dtype)
    before = a.copy()
    for given in (a, a.swapaxes(-1, -2).copy().swapaxes(-1, -2)):
        for found, right in zip(call(numpy_lapack, given), call(NumPys, a), strict=True):
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, right)
    np.testing.assert_array_equal(a, before)


def test_numpys_loops_are_known():
    """Else the decompositions take twice as long: `_KINDS` wants to be looked at."""
    assert all(numpy_lapack._loop(name) is not None for name in numpy_lapack._KINDS)


def test_what_lapack_fails_for_is_said():
    bad = torch.tensor([[float("nan"), 1.0], [1.0, 2.0]])
    for decompose in (torch.linalg.svd, torch.linalg.svdvals):
        with pytest.raises(torch.linalg.LinAlgError, match="non-finite"):
            print(decompose(bad))
    fine = torch.eye(2)
    with pytest.raises(torch.linalg.LinAlgError, match=r"\(Batch element 1\).*non-finite"):
        print(torch.linalg.svd(torch.stack([fine, bad])))
