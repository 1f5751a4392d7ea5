"""Factorizations, triangular systems and what is solved by them against PyTorch, at sizes at which C factorizes alone, by blocks, and by halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import torchgrad_jax
from torchgrad_jax.runtime.operation import Signature

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits"), pytest.mark.filterwarnings("ignore:torch.[a-z_]* is deprecated"),
]  # fmt: skip


def _square(*shape: int) -> np.ndarray:
    """Of good condition, not symmetric, and with no zero in either triangle."""
    return np.random.default_rng(shape[-1]).normal(size=shape) / shape[-1] + 2 * np.eye(shape[-1])


def _sides(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape)


def _positive(t: Any, a: Any) -> Any:
    return a @ a.mT + t.eye(a.shape[-1], dtype=a.dtype)


# Functions of the library, a square matrix and right sides, of which there may be none.
CALLS: dict[str, Callable[..., Any]] = {
    **{f"cholesky upper={u}": lambda t, a, b, u=u: t.linalg.cholesky(_positive(t, a), upper=u) for u in (False, True)},
    **{f"cholesky_ex upper={u}": lambda t, a, b, u=u: t.linalg.cholesky_ex(_positive(t, a), upper=u)[0] for u in (False, True)},
    "old cholesky": lambda t, a, b: t.cholesky(_positive(t, a), upper=True),
    "inv": lambda t, a, b: t.linalg.inv(a),
    "inv_ex": lambda t, a, b: t.linalg.inv_ex(a)[0],
    "solve_ex": lambda t, a, b: t.linalg.solve_ex(a, b)[0],
    "det": lambda t, a, b: t.linalg.det(a / 2),
    "slogdet": lambda t, a, b: t.linalg.slogdet(a)[1],
    "solve": lambda t, a, b: t.linalg.solve(a, b),
    "solve a vector": lambda t, a, b: t.linalg.solve(a, b[..., 0]),
    "solve from the right": lambda t, a, b: t.linalg.solve(a, b.mT, left=False),
    **{f"solve_triangular upper={u} unitriangular={n}": lambda t, a, b, u=u, n=n: t.linalg.solve_triangular(a, b, upper=u, unitriangular=n)
       for u in (False, True) for n in (False, True)},
    **{f"solve_triangular from the right upper={u} unitriangular={n}":
       lambda t, a, b, u=u, n=n: t.linalg.solve_triangular(a, b.mT, upper=u, left=False, unitriangular=n)
       for u in (False, True) for n in (False, True)},
    **{f"triangular_solve upper={u} transpose={n}": lambda t, a, b, u=u, n=n: t.triangular_solve(b, a, upper=u, transpose=n)[0]
       for u in (False, True) for n in (False, True)},
    **{f"cholesky_solve upper={u}": lambda t, a, b, u=u: t.cholesky_solve(b, a.triu() if u else a.tril(), upper=u) for u in (False, True)},
    **{f"cholesky_inverse upper={u}": lambda t, a, b, u=u: t.cholesky_inverse(a.triu() if u else a.tril(), upper=u) for u in (False, True)},
}  # fmt: skip
SHAPES = [((1, 1), (1, 2)), ((5, 5), (5, 2)), ((70, 70), (70, 3)), ((140, 140), (140, 1)), ((3, 4, 4), (3, 4, 2)), ((2, 67, 67), (2, 67, 2))]
BROADCAST = [((4, 4), (3, 4, 2)), ((2, 1, 3, 3), (3, 3, 2)), ((2, 66, 66), (66, 2))]
# The determinant of one number is that number, which has no second gradient; right sides on the right of fewer dimensions may be vectors.
_CASES = [(name, *shapes, "float64") for name in CALLS for shapes in SHAPES if (name, shapes[0]) != ("det", (1, 1))]
_CASES += [(name, *shapes, "float64") for name in CALLS if "solve" in name and name[6:] not in ("a vector", "from the right") for shapes in BROADCAST]
_CASES += [(name, *SHAPES[2], "float32") for name in CALLS]


def _derivatives(t: Any, name: str, dtype: str, a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """The result, its gradients, and the gradients of these."""
    given = [t.tensor(x.astype(dtype), requires_grad=True) for x in (a, b)]
    made = CALLS[name](t, *given)
    wanted = given if "solve" in name else given[:1]
    first = t.autograd.grad((made * t.cos(made.detach() + 1)).sum(), wanted, create_graph=True)
    second = t.autograd.grad(sum([(g * t.cos(g.detach())).sum() for g in first]), wanted)
    return [x.detach().numpy() for x in (made, *first, *second)]


@pytest.mark.parametrize(("name", "a", "b", "dtype"), _CASES)
def test_values_and_gradients_are_pytorchs(name, a, b, dtype):
    matrices, right = _square(*a), _sides(*b)
    got, want = [_derivatives(t, name, dtype, matrices, right) for t in (torchgrad_jax, torch)]
    tolerance = 2e-3 if dtype == "float32" else 1e-8
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance * max(1.0, np.abs(w).max()))


# ---------------------------------------------------------------------- what fails


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize(("shape", "at"), [((70, 70), 0), ((70, 70), 40), ((150, 150), 100), ((2, 70, 70), 66)])
def test_what_is_not_positive_definite_fails_as_in_pytorch(shape, at, upper):
    a = np.random.default_rng(0).normal(size=shape)
    a = a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])
    a[(*[1] * (len(shape) - 2), at, at)] = -1
    factors, infos, words = [], [], []
    for t in (torchgrad_jax, torch):
        found = t.linalg.cholesky_ex(t.tensor(a), upper=upper)
        factors.append(found.L.numpy())
        infos.append(found.info.tolist())
        with pytest.raises(t.linalg.LinAlgError) as error:
            t.linalg.cholesky(t.tensor(a), upper=upper).sum().item()
        words.append(str(error.value))
    assert infos[0] == infos[1] and words[0] == words[1]
    if len(shape) > 2:  # the one that has a factor
        np.testing.assert_allclose(factors[0][0], factors[1][0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(70, 70), (150, 150), (2, 70, 70)])
def test_singular_matrices_fail_as_in_pytorch(shape):
    a = _square(*shape)
    a[(*[1] * (len(shape) - 2), slice(None), 66)] = 0
    for function in (lambda t, x: t.linalg.inv(x), lambda t, x: t.linalg.solve(x, x)):
        words = []
        for t in (torchgrad_jax, torch):
            with pytest.raises(t.linalg.LinAlgError) as error:
                function(t, t.tensor(a)).sum().item()
            words.append(str(error.value).partition("The solver failed")[0])
        assert words[0] == words[1]
    for t in (torchgrad_jax, torch):
        for found in (t.linalg.inv_ex(t.tensor(a)), t.linalg.solve_ex(t.tensor(a), t.tensor(a))):
            assert found.info.reshape(-1).tolist() == [*[0] * (len(shape) - 2), 67]
        assert (t.linalg.det(t.tensor(a)).reshape(-1)[-1] == 0).item() and t.linalg.slogdet(t.tensor(a))[1].reshape(-1)[-1].item() == -np.inf
        infinite = t.linalg.solve_triangular(t.tensor(a * 0), t.ones(shape, dtype=t.float64), upper=True)
        assert not t.isfinite(infinite).any().item()


# ---------------------------------------------------------------------- what is traced


@pytest.mark.skipif(not torchgrad_jax.runtime.typed_core(), reason="the forms are compiled ones")
@pytest.mark.parametrize("name", sorted(CALLS))
def test_nothing_is_traced_at_new_sizes(name, monkeypatch):
    traced = []

    def run(size: int) -> None:
        a, b = [torchgrad_jax.tensor(x, requires_grad=True) for x in (_square(size, size), _sides(size, 2))]
        CALLS[name](torchgrad_jax, a, b).pow(2).sum().backward()
        assert np.isfinite(a.grad.numpy()).all()

    for size in range(3, 9):
        run(size)
    trace = Signature._trace
    monkeypatch.setattr(Signature, "_trace", lambda self: (traced.append(self.bop.name), trace(self)))
    for size in (9, 11, 65, 90, 130):
        run(size)
    assert not [found for found in traced if any(part in found.lower() for part in ("linalg", "cholesky", "triangular"))]
