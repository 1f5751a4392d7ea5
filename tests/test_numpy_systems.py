"""The NumPy forms of linear algebra and of its gradients against the plans of their JAX functions: to rounding. See also test_small_systems.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_numpy_forms import LAYOUTS, _laid_out, _spec

import torchgrad_jax as torch
from torchgrad_jax.declaration.derivative import plan
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.baseline import Forms, NumPyForm, plan_of
from torchgrad_jax.runtime.native import numpy_lapack
from torchgrad_jax.runtime.operation import Signature

pytestmark = [pytest.mark.operators, pytest.mark.skipif(not torch.runtime.typed_core(), reason="the forms are compiled ones")]

L = torch.linalg


def _matrix(*shape: int, seed: int = 0) -> np.ndarray:
    """Random matrices, square ones of full rank."""
    random = np.random.default_rng(seed)
    a = random.normal(size=shape)
    return a + 2 * np.eye(shape[-1])[random.permutation(shape[-1])] if shape[-1] == shape[-2] else a


def _positive(*shape: int) -> np.ndarray:
    a = _matrix(*shape, seed=1)
    return a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])


def _of_rank_one(*shape: int) -> np.ndarray:
    return _matrix(*shape, seed=2)[..., :1] * np.arange(1.0, shape[-1] + 1)


def _triangle(*shape: int) -> np.ndarray:
    """Of good condition, also with ones in place of the diagonal, and not 0 in the other triangle."""
    return _matrix(*shape, seed=5) / shape[-1] + 2 * np.eye(shape[-1])


SQUARE = [(1, 1), (2, 2), (7, 7), (33, 33), (64, 64), (70, 70), (3, 4, 4), (12, 3, 3), (2, 2, 5, 5), (2, 130, 130), (10, 66, 66)]
SHAPES = [*SQUARE[:-2], (5, 3), (3, 5), (1, 4), (4, 1), (70, 66), (2, 5, 3), (2, 3, 5)]
_EQUATIONS = [((*shape,), (*shape[:-1], columns)) for shape in SQUARE for columns in (1, 3)] + [(shape, shape[:-1]) for shape in SQUARE]
_PAIRS = [*[(shape, (*shape[:-1], columns)) for shape in SQUARE for columns in (1, 3)],
          ((3, 3), (4, 3, 2)), ((2, 70, 70), (70, 2)), ((2, 1, 3, 3), (3, 3, 2)), ((1, 3, 3), (3, 1))]  # fmt: skip
_STATICS = {"eigh": [{"upper": False}, {"upper": True}], "qr": [{"mode": m} for m in ("reduced", "complete", "r")]}
CALLS: dict[str, list[tuple[list[np.ndarray], dict[str, Any]]]] = {
    "linalg_solve": [([_matrix(*a), _matrix(*b, seed=3) if len(b) > 1 else np.arange(1.0, b[0] + 1)], {"left": True}) for a, b in _EQUATIONS]
    + [([_matrix(*a), _matrix(*a[:-2], columns, a[-1], seed=3)], {"left": False}) for a in SQUARE for columns in (2, 4)],
    **{name: [([_matrix(*a)], {}) for a in SQUARE]
       for name in ("linalg_inv", "linalg_inv_ex", "linalg_inv_ex_checked", "linalg_det", "linalg_slogdet")},
    **{name: [([_positive(*a)], {"upper": upper}) for a in SQUARE for upper in (False, True)]
       for name in ("linalg_cholesky", "linalg_cholesky_ex", "linalg_cholesky_ex_checked", "cholesky")},
    "cholesky_solve": [([_matrix(*b, seed=3), _triangle(*a)], {"upper": upper}) for a, b in _PAIRS for upper in (False, True)],
    "cholesky_inverse": [([_triangle(*a)], {"upper": upper}) for a in SQUARE for upper in (False, True)],
    "linalg_solve_triangular": [([_triangle(*a), _matrix(*b, seed=3) if left else _matrix(*b, seed=3).swapaxes(-1, -2)],
                                 {"upper": upper, "left": left, "unitriangular": unit})
                                for a, b in _PAIRS for upper in (False, True) for left in (False, True) for unit in (False, True)],
    "_triangular_solve": [([_matrix(*b, seed=3), _triangle(*a)], {"upper": upper, "transpose": turned, "unitriangular": unit})
                          for a, b in _PAIRS for upper in (False, True) for turned in (False, True) for unit in (False, True)],
    **{name: [([_positive(*a)], how) for a in SQUARE for how in _STATICS["eigh"]] for name in ("linalg_eigh", "linalg_eigvalsh")},
    "linalg_svd": [([_matrix(*a)], {"full_matrices": full}) for a in SHAPES for full in (False, True)],
    "linalg_svdvals": [([_matrix(*a)], {}) for a in SHAPES],
    "linalg_qr": [([_matrix(*a)], how) for a in SHAPES for how in _STATICS["qr"]],
    "linalg_pinv": [([f(*a)], {"atol": atol, "rtol": rtol, "hermitian": False}) for a in SHAPES
                    for f, atol, rtol in ((_matrix, None, None), (_of_rank_one, 1e-3, None), (_matrix, 0.0, 0.5))],
    "linalg_lstsq": [([f(*a), _matrix(*a[:-1], 3, seed=4)], {"rcond": rcond, "driver": "gelsy"}) for a in SHAPES
                     for f, rcond in ((_matrix, None), (_of_rank_one, 1e-3))],
    "linalg_matrix_exp": [([_matrix(*a) * size], {}) for a in SQUARE for size in (0.0, 1e-3, 0.03, 0.1, 0.3, 1.0, 4.0)],
}  # fmt: skip
CALLS["linalg_solve_ex"] = CALLS["linalg_solve"]
HOMES = ("torchgrad_jax.declaration.numpy_systems.", "torchgrad_jax.operators.kernels.exponential")
WITH_GRADIENTS = sorted(name for name in CALLS if registry[name].numpy_vjp is not None or registry[name].numpy_grads is not None)


def _signature(name: str, call: tuple[list[np.ndarray], dict[str, Any]], dtype: str = "float64") -> tuple[Signature, list[np.ndarray]]:
    given, statics = call
    bound, operands = registry[name].parse(tuple([a.astype(dtype) for a in given]), statics, lambda v: isinstance(v, np.ndarray))
    return Signature(bound, tuple(map(_spec, operands))), operands


def _assert_is_the_plan(sig: Signature, operands: list[np.ndarray]) -> list[np.ndarray]:
    """The form gives what the plan of the JAX function gives, of operands in memory of any kind. Returns what that gives."""
    form: Any = sig.baseline
    by_plan: Any = plan_of(sig.closed())
    assert isinstance(form, NumPyForm), ("it was traced", sig.bop, sig.specs)
    with np.errstate(all="ignore"):
        want = [np.asarray(w) for w in by_plan(*operands)]
        for layout in LAYOUTS[:-1]:
            given = [_laid_out(x, layout) for x in operands]
            before = [x.tobytes() for x in given]
            got = [np.asarray(g) for g in form(*given)]
            assert [x.tobytes() for x in given] == before, "an operand was written to"
            assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want]
            assert [(a.shape, a.dtype) for a in sig.avals] == [(w.shape, w.dtype) for w in want[: len(sig.avals)]]
            if sig.check is not None:  # without a failure nobody reads the second number
                assert got[-1][0] == want[-1][0] and (not want[-1][0] or got[-1][1] == want[-1][1])
                got[-1] = want[-1]
            for g, w in zip(got, want, strict=True):
                single = w.dtype == np.float32
                size = np.abs(w)[np.isfinite(w)].max(initial=1.0)
                np.testing.assert_allclose(g, w, rtol=1e-3 if single else 1e-8, atol=(1e-3 if single else 1e-9) * size)
    return want


def test_every_form_is_called():
    named = {o.name for o in registry.values() if isinstance(o.numpy, Forms) and o.numpy.function.__module__.startswith(HOMES)}
    assert set(CALLS) == named


@pytest.mark.parametrize("name", sorted(CALLS))
def test_form_gives_what_the_plan_gives(name):
    for call in CALLS[name]:
        _assert_is_the_plan(*_signature(name, call))
    _assert_is_the_plan(*_signature(name, CALLS[name][2], "float32"))


def _gradient_cases(sig: Signature) -> list[tuple[tuple[int, ...], tuple[bool, ...]]]:
    """Which operands need a gradient, and which results have one."""
    floats = [a.dtype.kind == "f" for a in sig.avals]
    name = sig.bop.operator.name  # type: ignore[attr-defined]
    first = (True, *[False] * (len(floats) - 1))
    defined = {
        "linalg_slogdet": [(False, True, False, False)], "linalg_eigh": [(True, False), (False, True), (True, True)],
        "linalg_qr": [(True, False), (False, True), (True, True)],
        "linalg_svd": [(a, b, c) for a in (True, False) for b in (True, False) for c in (True, False) if a or b or c],
    }.get(name, [first])  # fmt: skip
    inputs = [(0,), (1,), (0, 1)] if len(sig.specs) == 2 else [(0,)]
    return [(i, d) for i in inputs for d in defined]


def _is_for(sig: Signature, operands: list[np.ndarray]) -> bool:
    """Whether there is a form of the gradient: not of what has none."""
    mode = sig.bop.statics.get("mode")  # type: ignore[attr-defined]
    rows, columns = operands[0].shape[-2:]
    return mode is None or (mode != "r" and not (mode == "complete" and rows > columns))


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_form_of_gradient_gives_what_the_plan_gives(name):
    count = 0
    for dtype, calls in (("float64", CALLS[name]), ("float32", CALLS[name][2:3])):
        for call in calls:
            sig, operands = _signature(name, call, dtype)
            if not _is_for(sig, operands):
                continue
            outs: Any = [np.asarray(o) for o in sig.baseline(*operands)]  # type: ignore[misc]
            for inputs, defined in _gradient_cases(sig):
                found: Any = plan(sig, inputs)
                grads = [np.random.default_rng(i).normal(size=a.shape).astype(a.dtype) for i, a in enumerate(sig.avals) if defined[i]]
                given = [*grads, *[outs[-1 - place] if place < 0 else operands[place] for place in found.saves]]
                _assert_is_the_plan(Signature(found.vjp_of(defined), tuple(map(_spec, given))), given)
                count += 1
    assert count > 5


# ---------------------------------------------------------------------- what is not as usual


@pytest.mark.parametrize("name", ["linalg_solve", "linalg_inv", "linalg_det", "linalg_slogdet"])
@pytest.mark.parametrize("shape", [(3, 3), (20, 20), (4, 3, 3)])
def test_singular_matrices_and_their_gradients(name, shape):
    a = _matrix(*shape)
    a[(2,) * (len(shape) - 2)][:, 1] = 0
    sig, operands = _signature(name, ([a, np.ones(shape)], {"left": True}) if name == "linalg_solve" else ([a], {}))
    form: Any = sig.baseline
    with np.errstate(all="ignore"):
        outs, want = [[np.asarray(o) for o in f(*operands)] for f in (form, plan_of(sig.closed()))]  # type: ignore[misc]
    if sig.check is not None:
        assert outs[-1].tolist() == want[-1].tolist() == [1, 2 + (3 << 32 if len(shape) > 2 else 0)]
        return
    _assert_is_the_plan(sig, operands)
    found: Any = plan(sig, (0,))
    defined = _gradient_cases(sig)[0][1]
    given = [np.ones(sig.avals[0].shape), *[outs[-1 - i] if i < 0 else operands[i] for i in found.saves]]
    _assert_is_the_plan(Signature(found.vjp_of(defined), tuple(map(_spec, given))), given)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["linalg_det", "linalg_slogdet", "linalg_inv", "linalg_eigh", "linalg_qr"])
@pytest.mark.parametrize("shape", [(3, 3), (3, 2, 2)])
def test_what_is_not_finite(name, shape, bad):
    a = _positive(*shape)
    a[(*[1] * (len(shape) - 2), 0, 0)] = bad
    sig, operands = _signature(name, ([a], CALLS[name][0][1]))
    form: Any = sig.baseline
    with np.errstate(all="ignore"):
        got, want = [[np.asarray(o) for o in f(*operands)] for f in (form, plan_of(sig.closed()))]  # type: ignore[misc]
    for g, w in zip(got[:-1] if sig.check is not None else got, want, strict=False):
        np.testing.assert_array_equal(g, w)
    assert sig.check is None or (got[-1][0] == want[-1][0] and got[-1][1] == want[-1][1] * want[-1][0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["linalg_svd", "linalg_svdvals", "linalg_pinv", "linalg_lstsq"])
@pytest.mark.parametrize("shape", [(3, 3), (3, 2, 2)])
def test_singular_values_of_what_is_not_finite(name, shape, bad):
    """They are NaN: LAPACK does not come back with infinite numbers. Those of other matrices of a batch are what they are."""
    a = _positive(*shape)
    more, statics = [np.ones(shape)] if name == "linalg_lstsq" else [], CALLS[name][0][1]
    known, _ = _signature(name, ([a, *more], statics))
    form: Any = known.baseline
    want = [np.asarray(o) for o in form(a, *more)]
    a[(*[1] * (len(shape) - 2), 0, 0)] = bad
    with np.errstate(all="ignore"):
        got = [np.asarray(o) for o in form(a, *more)]
    if known.check is not None:
        assert got.pop().tolist() == [1, 1 + (2 << 32 if len(shape) > 2 else 0)]
    for g, w in zip(got, want, strict=False):
        if g.dtype.kind != "f" or not g.size:
            continue
        assert np.isnan(g[1] if len(shape) > 2 else g).all()
        if len(shape) > 2:
            np.testing.assert_allclose(g[[0, 2]], w[[0, 2]], rtol=1e-12, atol=1e-12)


def test_equal_values_have_the_gradient_of_what_does_not_depend_on_the_vectors():
    x = torch.eye(4, dtype=torch.float64, requires_grad=True)
    values, vectors = L.eigh(x)
    (values.sum() + (vectors @ vectors.T).sum()).backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.eye(4))
    u, s, vh = L.svd(x)
    x.grad = None
    (s.sum() + (u @ u.T).sum() + (vh @ vh.T).sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), np.eye(4), atol=1e-12)


@pytest.mark.parametrize(("name", "call"), [
    ("linalg_inv", ([np.ones((0, 0))], {})), ("linalg_det", ([np.ones((2, 0, 0))], {})),
    ("linalg_solve", ([_matrix(3, 3), np.ones((4, 2, 3))], {"left": False})), ("linalg_solve", ([_matrix(3, 3), np.ones((4, 3, 2))], {"left": True})),
    ("linalg_solve", ([_matrix(2, 3, 3), np.ones((3, 2))], {"left": True})), ("linalg_svd", ([np.ones((0, 3))], {"full_matrices": False})),
    ("linalg_pinv", ([_positive(3, 3)], {"atol": None, "rtol": None, "hermitian": True})),
    ("linalg_lstsq", ([_matrix(5, 3), np.ones((5, 2))], {"rcond": None, "driver": "gelsd"})),
])  # fmt: skip
def test_what_has_no_form_is_traced(name, call):
    assert not isinstance(_signature(name, call)[0].baseline, NumPyForm)


def test_costs_grow_as_those_of_the_plans():
    """So that a program of factorizations is not taken for a cheap one."""
    alone = ("linalg_inv", "linalg_slogdet", "linalg_eigh", "linalg_svd", "linalg_qr", "linalg_pinv", "linalg_cholesky", "cholesky_inverse")
    for name, size in [(name, size) for name in (*alone, "linalg_solve", "linalg_solve_triangular", "cholesky_solve") for size in (60, 150)]:
        statics = CALLS[name][0][1]
        sig, _ = _signature(name, ([_positive(size, size)] * (1 if name in alone else 2), statics), "float32")
        planned: Any = plan_of(sig.closed())
        assert planned.cost / 5 < sig.baseline.cost < planned.cost * 2, name  # type: ignore[union-attr]
        assert sig.baseline.cost - sig.baseline.alike < planned.cost / 2  # type: ignore[union-attr]


# ---------------------------------------------------------------------- as it is used

USES: dict[str, Any] = {
    "solve": lambda x, y: L.solve(x @ x.T + torch.eye(len(x)), y), "vector": lambda x, y: L.solve(x @ x.T + torch.eye(len(x)), y[:, 0]),
    "inv": lambda x, y: L.inv(x @ x.T + torch.eye(len(x))), "det": lambda x, y: L.det(x @ x.T / len(x) + torch.eye(len(x))),
    "slogdet": lambda x, y: L.slogdet(x @ x.T + torch.eye(len(x)))[1], "logdet": lambda x, y: torch.logdet(x @ x.T + torch.eye(len(x))),
    "cholesky": lambda x, y: L.cholesky(x @ x.T + torch.eye(len(x))), "eigh": lambda x, y: L.eigh(x @ x.T)[0], "qr": lambda x, y: L.qr(x)[0],
    "svd": lambda x, y: L.svd(x, full_matrices=False)[1], "pinv": lambda x, y: L.pinv(x), "lstsq": lambda x, y: L.lstsq(x, y).solution,
}  # fmt: skip


@pytest.mark.parametrize("use", sorted(USES))
def test_nothing_is_traced_at_new_sizes(use, monkeypatch):
    traced = []

    def run(rows: int, columns: int) -> None:
        random = np.random.default_rng(rows)
        x = torch.tensor(random.normal(size=(rows, columns)), dtype=torch.float32, requires_grad=True)
        made = USES[use](x, torch.tensor(random.normal(size=(rows, 2)), dtype=torch.float32))
        made.pow(2).sum().backward()
        assert np.isfinite(x.grad.numpy()).all()

    for n in range(3, 9):
        run(n + 2, n)
    trace = Signature._trace
    monkeypatch.setattr(Signature, "_trace", lambda self: (traced.append(self.bop.name), trace(self)))
    for n in (9, 11, 14, 20):
        run(n + 2, n)
    assert not {name for name in traced if "inalg" in name} - {"LinalgPinvBackward0"}  # of which the first few sizes say all


@pytest.mark.parametrize("shape", [(20, 12), (12, 20), (15, 15), (3, 20, 12)])
def test_pseudo_inverses_of_full_rank_are_made_without_singular_values(shape, monkeypatch):
    a = torch.from_numpy(_matrix(*shape))
    by_values = np.linalg.pinv(a.numpy())
    small = np.linalg.svd(a.numpy(), compute_uv=False).min()
    asked = []
    monkeypatch.setattr(numpy_lapack, "svd", lambda *given: asked.append(1) or np.linalg.svd(*given))
    np.testing.assert_allclose(L.pinv(a).numpy(), by_values, rtol=1e-10, atol=1e-12)
    solved = L.lstsq(a, a)
    np.testing.assert_allclose(solved.solution.numpy(), by_values @ a.numpy(), rtol=1e-10, atol=1e-12)
    assert solved.rank.tolist() == np.full(shape[:-2], min(shape[-2:])).tolist() and not asked
    np.testing.assert_allclose(L.pinv(a, atol=small * 1.01, rtol=0.0).numpy(), _pinv_above(a.numpy(), small * 1.01), rtol=1e-8, atol=1e-10)
    assert asked, "what is below the limit is left out"
    thin = torch.from_numpy(_of_rank_one(*shape))
    assert (L.lstsq(thin, thin, rcond=1e-10).rank == 1).all()


def _pinv_above(a: np.ndarray, limit: float) -> np.ndarray:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return np.swapaxes(vh, -1, -2) @ (np.where(s > limit, 1 / s, 0)[..., None] * np.swapaxes(u, -1, -2))
