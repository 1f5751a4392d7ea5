"""Operators at sizes that they were not called with before: their values and gradients, to the second, are PyTorch's, by forms and by plans.

The forms give the bits of the plans."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from test_numpy_forms import S, Shape, _number, _numbers, _spec
from test_numpy_placing import _assert_is_the_plan
from test_numpy_rows import bound_to

import torchgrad_jax as tj
from torchgrad_jax.declaration.derivative import plan
from torchgrad_jax.runtime.compiling.foreign import ALONG, ATTENTION, POOLING, ROWS, SAMPLING, TAPS, knows
from torchgrad_jax.runtime.operation import Signature

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]

_LOOPS = ALONG, ATTENTION, POOLING, ROWS, SAMPLING, TAPS
_THERE = pytest.mark.skipif(not all(map(knows, _LOOPS)), reason="the loops are not compiled")


class Case(NamedTuple):
    """program: of the library and tensors of `shapes` of a size. constants: of the library and the size, what it is given besides. twice: whether
    PyTorch has a second gradient. traced: what is traced for each size nevertheless."""

    program: Callable[..., Any]
    shapes: Callable[[int], list[tuple[int, ...]]]
    constants: Callable[[Any, int], list[Any]] = lambda lib, n: []
    twice: bool = True
    traced: tuple[str, ...] = ()


_PDISTS = "pdist", "PdistBackward0"


def _padding(mode: str) -> Case:
    return Case(lambda lib, x: lib.nn.functional.pad(x, (1, 2, 2, 0), mode=mode).square(), lambda n: [(2, 3, n, n + 2)])


def _spelling(rows: bool) -> Callable[..., Any]:
    def program(lib: Any, x: Any, targets: Any) -> Any:
        lengths = lib.tensor([len(x), len(x) - 2]), lib.tensor([4, 2])
        return lib.nn.functional.ctc_loss(x.log_softmax(-1), targets, *lengths, reduction="none")

    return program


CASES: dict[str, Case] = {
    "trace": Case(lambda lib, x: lib.trace(x), lambda n: [(n, n + 2)]),
    "masked_select": Case(lambda lib, x, mask: x.masked_select(mask).square(), lambda n: [(n, 4)], lambda lib, n: [_mask(lib, n)]),
    "masked_select_expanded": Case(lambda lib, x, mask: x.masked_select(mask).square(), lambda n: [(4,)], lambda lib, n: [_mask(lib, n)]),
    "index_fill": Case(lambda lib, x: x.index_fill(0, lib.tensor([0, -1]), 1.5).square(), lambda n: [(n, 4)]),
    "index_fill_tensor": Case(lambda lib, x, v: x.index_fill(1, lib.tensor([2]), v).square(), lambda n: [(4, n), ()]),
    "glu": Case(lambda lib, x: lib.nn.functional.glu(x), lambda n: [(n, 6)]),
    "glu_0": Case(lambda lib, x: lib.nn.functional.glu(x, 0), lambda n: [(2 * n, 3)]),
    "nan_to_num": Case(lambda lib, x: lib.nan_to_num(lib.where(x > 1, lib.nan, x)).square(), lambda n: [(n, 6)]),
    "median": Case(lambda lib, x: x.median().square(), lambda n: [(n, 3)]),
    "nanmedian": Case(lambda lib, x: x.nanmedian().square(), lambda n: [(n, 3)]),
    "unfold": Case(lambda lib, x: lib.nn.functional.unfold(x, 3).square(), lambda n: [(2, 3, n, n + 1)]),
    "unfold_apart": Case(lambda lib, x: lib.nn.functional.unfold(x, (2, 3), (1, 2), (1, 0), (2, 1)).square(), lambda n: [(3, n + 1, n + 2)]),
    "fold": Case(lambda lib, x: lib.nn.functional.fold(x, (x.shape[1] // 3 + 2, 4), (3, 2)).square(), lambda n: [(12, 3 * (n - 2))]),
    "adaptive_max": Case(lambda lib, x: lib.nn.functional.adaptive_max_pool2d(x, (3, 2)).square(), lambda n: [(2, 3, n, n + 1)]),
    "adaptive_max_3d": Case(lambda lib, x: lib.nn.functional.adaptive_max_pool3d(x, (3, 2, 1)).square(), lambda n: [(2, 2, n, n + 1, 4)]),
    "grid_sample": Case(
        lambda lib, x, g: lib.nn.functional.grid_sample(x, g, align_corners=False), lambda n: [(1, 2, n, n), (1, 5, 4, 2)], twice=False
    ),
    "grid_sample_3d": Case(
        lambda lib, x, g: lib.nn.functional.grid_sample(x, g, padding_mode="border", align_corners=True),
        lambda n: [(1, 2, 3, n, n), (1, 2, 5, 4, 3)], twice=False,
    ),
    "attention": Case(lambda lib, q, k, v: lib.nn.functional.scaled_dot_product_attention(q, k, v), lambda n: [(1, 2, n, 8)] + [(1, 2, n + 1, 8)] * 2,
                      twice=False),
    "attention_causal": Case(lambda lib, q: lib.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True), lambda n: [(2, 1, n, 4)],
                             twice=False),
    **{f"pdist_{p}": Case(lambda lib, x, p=p: lib.nn.functional.pdist(x, p), lambda n: [(n, 4)], twice=False, traced=() if p in (1, 2) else _PDISTS)
       for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf"))},
    "cdist": Case(lambda lib, x, y: lib.cdist(x, y), lambda n: [(n, 3), (n + 2, 3)], twice=False),
    "cdist_1": Case(lambda lib, x, y: lib.cdist(x, y, 1.0), lambda n: [(n, 3), (n + 2, 3)], twice=False),
    "cdist_of_many": Case(lambda lib, x, y: lib.cdist(x, y), lambda n: [(2, n + 30, 3), (2, n + 26, 3)]),
    "bilinear": Case(lambda lib, x, y, w: lib.nn.functional.bilinear(x, y, w), lambda n: [(n, 4), (n, 3), (2, 4, 3)]),
    "bilinear_of_many": Case(lambda lib, x, y, w, b: lib.nn.functional.bilinear(x, y, w, b), lambda n: [(2, n, 4), (2, n, 3), (2, 4, 3), (2,)]),
    "ctc": Case(_spelling(True), lambda n: [(n + 5, 2, 6)], lambda lib, n: [lib.arange(8).reshape(2, 4) % 5 + 1], twice=False),
    "ctc_one_after_the_other": Case(_spelling(False), lambda n: [(n + 5, 2, 6)], lambda lib, n: [lib.arange(6) % 5 + 1], twice=False),
    "renorm": Case(lambda lib, x: x.renorm(2, 0, 1.5), lambda n: [(n, 4)]),
    **{f"pad_{mode}": _padding(mode) for mode in ("replicate", "reflect")},
}  # fmt: skip


def _mask(lib: Any, n: int) -> Any:
    return lib.arange(4 * n).reshape(n, 4) % 3 == 1


def _tensors(lib: Any, case: Case, n: int) -> list[Any]:
    random = np.random.default_rng(n)
    return [lib.tensor(random.normal(size=shape).astype(np.float32).tolist(), requires_grad=True) for shape in case.shapes(n)]


def _run(lib: Any, case: Case, n: int) -> list[Any]:
    """What a program gives, its gradients, and the gradients of a sum of these."""
    tensors = _tensors(lib, case, n)
    out = case.program(lib, *tensors, *case.constants(lib, n))
    weights = lib.linspace(-1, 2, out.numel()).reshape(out.shape)
    first = lib.autograd.grad((out * weights).sum(), tensors, create_graph=case.twice)
    found = [out, *first]
    if case.twice and any(g.requires_grad for g in first):
        total = sum((g * lib.linspace(1, 2, g.numel()).reshape(g.shape)).sum() for g in first)
        found += lib.autograd.grad(total, tensors, allow_unused=True)
    return [None if x is None else np.array(x.detach().tolist()) for x in found]


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("planned", [False, True])
def test_values_and_gradients_are_pytorchs(name, planned, monkeypatch):
    if planned:
        monkeypatch.setattr(Signature, "_by_numpy", lambda self, forms, kind=None: False)
        tj.declaration.operator.forget_signatures()
    case = CASES[name]
    for n in (5, 6):
        for got, want in zip(_run(tj, case, n), _run(torch, case, n), strict=True):
            if want is None:
                assert got is None or not np.any(got)
            else:
                np.testing.assert_allclose(np.zeros_like(want) if got is None else got, want, rtol=2e-4, atol=2e-5, equal_nan=True)
    if planned:
        monkeypatch.undo()
        tj.declaration.operator.forget_signatures()


@_THERE
@pytest.mark.skipif("TORCHGRAD_JAX_BASELINE" in os.environ, reason="the interpreter is off")
@pytest.mark.parametrize("name", sorted(CASES))
def test_another_size_is_not_traced(name, monkeypatch):
    def step(n: int) -> None:
        case = CASES[name]
        tensors = _tensors(tj, case, n)
        case.program(tj, *tensors, *case.constants(tj, n)).sum().backward()
        assert all(x.grad.shape == x.shape and x.grad.tolist() is not None for x in tensors)

    for n in (9, 10, 11):
        step(n)
    traced, trace = list[str](), Signature._trace
    monkeypatch.setattr(Signature, "_trace", lambda sig: (traced.append(sig.bop.name), trace(sig))[1])
    for n in (13, 15):
        step(n)
    assert set(traced) <= set(CASES[name].traced)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_distances_of_every_two_rows_have_second_gradients(p):
    x = tj.tensor(np.random.default_rng(0).normal(size=(4, 3)).tolist(), dtype=tj.float64, requires_grad=True)
    assert tj.autograd.gradcheck(lambda x: tj.nn.functional.pdist(x, p), (x,))
    assert tj.autograd.gradgradcheck(lambda x: tj.nn.functional.pdist(x, p), (x,))
    together = tj.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (grad,) = tj.autograd.grad(tj.nn.functional.pdist(together, p)[0], together, create_graph=True)
    assert grad.tolist() == [[0.0, 0.0]] * 3
    assert tj.autograd.grad(grad.sum(), together)[0].tolist() == [[0.0, 0.0]] * 3


# ---------------------------------------------------------------------- the bits of the plans

_PADS: list[tuple[Any, ...]] = [((1, 2), S(2, 3, 7)), ((3, 0, 1, 2), S(2, 3, 4, 7)), ((1, 0, 0, 2, 2, 1), S(1, 2, 3, 4, 5))]
_LABELS = np.arange(8).reshape(2, 4) % 5 + 1
_BOTH = (np.float32, np.float64)
# Calls, the dtypes that the form is for, and which operands may have a gradient.
BITS: dict[str, tuple[list[tuple[Any, ...]], tuple[Any, ...], list[tuple[int, ...]]]] = {
    "glu": ([(S(3, 6), 1), (S(4, 3), 0), (S(2, 4, 40), 2)], _BOTH, [(0,)]),
    "im2col": ([(S(2, 3, 5, 6), (3, 3), (1, 1), (0, 0), (1, 1)), (S(3, 6, 7), (2, 3), (1, 2), (1, 0), (2, 1))], _BOTH, [(0,)]),
    "col2im": ([(S(2, 18, 12), (5, 6), (3, 3), (1, 1), (0, 0), (1, 1)), (S(12, 12), (6, 7), (2, 3), (1, 2), (1, 0), (2, 1))], _BOTH, [(0,)]),
    "_adaptive_max_pool2d": ([(S(2, 3, 5, 7), (2, 3)), (S(3, 4, 4), (4, 2))], _BOTH, [(0,)]),
    "_adaptive_max_pool3d": ([(S(2, 3, 5, 4, 3), (2, 3, 1))], _BOTH, [(0,)]),
    **{f"_{mode}_pad{len(pad) // 2}d": ([(x, pad, mode)], _BOTH, [(0,)])
       for mode in ("reflect", "replicate", "circular") for pad, x in _PADS},
    "grid_sampler_2d": (
        [(S(2, 3, 5, 6), S(2, 4, 3, 2), mode, padding, corners) for mode in (0, 1) for padding in (0, 1, 2) for corners in (False, True)],
        (np.float32,), [(0,), (1,), (0, 1)],
    ),
    "grid_sampler_3d": ([(S(1, 2, 3, 4, 5), S(1, 2, 3, 2, 3), 0, 0, False)], (np.float32,), [(0,), (1,), (0, 1)]),
    "pdist": ([(S(5, 4), 2.0), (S(2, 1), 2.0), (S(30, 7), 2.0), (S(5, 4), 1.0), (S(2, 1), 1.0)], _BOTH, [(0,)]),
    "_cdist": ([(S(3, 4), S(5, 4), 2.0, False), (S(2, 3, 4), S(2, 5, 4), 2.0, False), (S(3, 4), S(5, 4), 1.0, False)], _BOTH, [(0,), (1,), (0, 1)]),
    "_euclidean_dist": ([(S(3, 4), S(5, 4)), (S(2, 3, 4), S(2, 5, 4)), (S(30, 3), S(33, 3))], _BOTH, [(0,), (1,), (0, 1)]),
    "_trilinear": ([(S(3, 4), S(5, 4, 2), S(3, 2)), (S(1, 1), S(1, 1, 1), S(1, 1)), (S(20, 6), S(4, 6, 5), S(20, 5))], _BOTH,
                   [(0,), (1,), (2,), (0, 1, 2), (0, 2)]),
    "_ctc_loss": ([(S(9, 2, 6), _LABELS, np.array([9, 7]), np.array([4, 2]), 4, 0, False),
                   (S(9, 2, 6), _LABELS.reshape(-1)[:6], np.array([9, 1]), np.array([4, 2]), 4, 5, True)], _BOTH, [(0,)]),
    "renorm": ([(S(3, 4), 2.0, 0, 1.0), (S(2, 3, 4), 2.0, -1, 0.5), (S(2, 1), 2.0, 1, 0.0)], _BOTH, [(0,)]),
    "median": ([(S(3, 5),), (S(7),), (S(1, 2),)], _BOTH, [(0,)]), "nanmedian": ([(S(3, 5),), (S(7),)], _BOTH, [(0,)]),
    "attention_fused": (
        [(S(2, 3, 4, 5), S(2, 3, 6, 5), S(2, 3, 6, 5), None, None, False, 0.5), (S(1, 2, 7, 8),) * 3 + (None, None, True, 0.25),
         (S(2, 1, 3, 4),) * 3 + (np.tri(3, dtype=bool), None, False, 0.5)],
        (np.float32,), [(0,), (1,), (0, 1, 2), (0, 2)],
    ),
}  # fmt: skip
# By name: what has a form of this kind.
CALLS = {name: calls for name, (calls, _, _) in BITS.items()}


@_THERE
@pytest.mark.parametrize("name", sorted(BITS))
def test_form_gives_what_the_plan_gives(name):
    calls, dtypes, inputs = BITS[name]
    for call, dtype in [(call, dtype) for call in calls for dtype in dtypes]:
        sig, operands = bound_to(name, call, dtype)
        given = list(map(_number, operands))
        _assert_is_the_plan(sig, given)
        with np.errstate(all="ignore"):
            results = list(map(np.asarray, sig.baseline(*given)))  # type: ignore[misc]
        for wanted in inputs:
            made: Any = plan(sig, wanted)
            grad = _numbers(Shape(sig.avals[0].shape), np.dtype(dtype), 7)
            saved = [grad, *[results[-1 - i] if i < 0 else given[i] for i in made.saves]]
            backward = Signature(made.vjp_of((True, *(False,) * (len(sig.avals) - 1))), tuple(map(_spec, saved)))
            _assert_is_the_plan(backward, saved, signs=False)
