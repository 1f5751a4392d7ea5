"""Quantiles, histograms, distinct elements, losses of classes and their like: their forms against their plans, and both against PyTorch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from test_numpy_forms import LAYOUTS, Places, S, _bound, _laid_out, _number, _spec

import torchgrad_jax as tj
from torchgrad_jax.declaration.derivative import plan
from torchgrad_jax.runtime.baseline import NumPyForm
from torchgrad_jax.runtime.operation import Signature

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]
FLOATS = [np.dtype(np.float32), np.dtype(np.float64)]
HOW = ("linear", "lower", "higher", "midpoint", "nearest")
REDUCTIONS = ("none", "mean", "sum")


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype("f")


def integers(high, *shape, low=0, seed=0):
    return np.random.RandomState(seed).randint(low, high, shape)


ODD = numbers(3, 40)
ODD[0, [3, 7]], ODD[1, 0], ODD[2] = np.nan, np.inf, np.nan
LONG = numbers(2, 700)
EDGES = [np.linspace(-1, 1, 5), np.array([-2.0, -1.5, 0.0, 3.0])]
_PIXELS = (S(2, 4, 3, 5), Places((2, 3, 5), 0, 4))
_LABELS = np.array([[1, 2, -1, 3], [0, 0, 3, 1], [-1, 0, 1, 2]])

CALLS: dict[str, list[Any]] = {
    "_quantile": [
        (x, q, dim, keep, how, ignore)
        for x, dim in ((ODD, 1), (ODD, 0), (ODD, None), (LONG, 1), (np.ones((), "f"), None), (numbers(2, 3, 4), 1))
        for q in (0.3, np.array([0.1, 0.9, 0.5], "f"))
        for keep, how, ignore in itertools.product((False, True), HOW, (False, True))
    ],
    "_vander": [(S(5), n, up) for n in (0, 1, 2, 5, 40) for up in (False, True)] + [(integers(3, 4, low=-3), 6, True), (S(2, 3), 4, True)],
    "_histogramdd": [
        (numbers(60, 2), None, [e.astype("f") for e in EDGES]), (numbers(60, 1), None, [EDGES[0].astype("f")]),
        (numbers(60, 1).astype("d"), numbers(60).astype("d"), EDGES[:1]), (ODD.reshape(-1, 1), None, [EDGES[1].astype("f")]),
    ],
    **{
        f"_nll_loss2d{twin}": [(*_PIXELS, w, ignored, how) for w in (None, S(4)) for ignored in (-100, 2) for how in REDUCTIONS]
        for twin in ("", "_checked")
    },
    "_nll_loss": [(S(5, 4), Places((5,), 0, 4), S(4), ignored, how) for ignored in (-100, 2) for how in REDUCTIONS],
    "multi_margin_loss": [
        (x, t, w, p, 0.7, how)
        for x, t in ((S(4, 3), Places((4,), 0, 3)), (S(3), np.array([1])), (S(3), np.array(2))) for w in (None, S(3)) for p in (1, 2)
        for how in REDUCTIONS
    ],
    "multilabel_margin_loss": [(x, t, how) for x, t in ((S(3, 4), _LABELS), (S(4), _LABELS[0]), (S(1, 4), _LABELS[2:])) for how in REDUCTIONS],
}  # fmt: skip
WITH_GRADIENT = ["_nll_loss", "_nll_loss2d", "_nll_loss2d_checked", "multi_margin_loss", "multilabel_margin_loss"]
WRONG = {
    "_nll_loss2d_checked": [(S(2, 4, 3, 5), Places((2, 3, 5), 0, 5), None, 2, "mean")],
    "multi_margin_loss": [(S(4, 3), Places((4,), -1, 3), None, 1, 1.0, "sum")],
    "multilabel_margin_loss": [(S(3, 4), np.where(_LABELS == 2, 4, _LABELS), "mean")],
}


def assert_alike(sig: Any, operands: list[Any]) -> None:
    form, by_plan = sig.baseline, sig._plan()
    assert isinstance(form, NumPyForm) and not isinstance(by_plan, NumPyForm), sig.bop
    with np.errstate(all="ignore"):
        for layout in LAYOUTS:
            given = [_laid_out(x, layout) for x in operands]
            before = [np.asarray(x).tobytes() for x in given]
            want, got = by_plan(*map(np.asarray, given)), form(*given)
            assert [np.asarray(x).tobytes() for x in given] == before
            wrong = sig.check is not None and want[-1][0]
            for g, w in list(zip(map(np.asarray, got), map(np.asarray, want), strict=True))[-1 if wrong else 0 :]:
                assert (g.dtype, g.shape) == (w.dtype, w.shape), (sig.bop, layout)
                np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6, err_msg=str(sig.bop))


@pytest.mark.parametrize("name", sorted(CALLS))
def test_form_gives_what_the_plan_gives(name):
    for call in [*CALLS[name], *WRONG.get(name, [])]:
        for dtype in FLOATS:
            bound, operands = _bound(name, call, (dtype,), exact=True)
            assert_alike(Signature(bound, tuple(map(_spec, operands))), list(map(_number, operands)))


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_form_of_gradient_gives_what_the_plan_gives(name):
    for call in CALLS[name]:
        bound, operands = _bound(name, call, (FLOATS[0],), exact=True)
        sig: Any = Signature(bound, tuple(map(_spec, operands)))
        found: Any = plan(sig, (0,))
        results = [np.asarray(out) for out in sig.baseline(*map(_number, operands))]
        saved = [results[-1 - i] if i < 0 else operands[i] for i in found.saves]
        given = [np.asarray(numbers(*sig.avals[0].shape, 1, seed=3)[..., 0]), *saved]
        assert_alike(Signature(found.vjp_of((True,)), tuple(map(_spec, given))), list(map(_number, given)))


# ---------------------------------------------------------------------- against PyTorch


def outcome(m, function, arrays, grads=()):
    tensors = [m.tensor(a) if isinstance(a, np.ndarray) else a for a in arrays]
    for i in grads:
        tensors[i].requires_grad_()
    try:
        made = function(m, *tensors)
        found = [made] if isinstance(made, m.Tensor) or not isinstance(made, (tuple, list)) else list(made)
        if grads:
            weights = m.arange(1, found[0].numel() + 1).reshape(found[0].shape)
            found += m.autograd.grad((found[0] * weights).sum(), [tensors[i] for i in grads])
        return [x.detach().numpy() if isinstance(x, m.Tensor) else np.asarray(x) for x in found]
    except Exception as error:
        return type(error).__name__, str(error)


def check(function, *arrays, grads=()):
    theirs = pytest.importorskip("torch")
    wanted = outcome(theirs, function, arrays, grads)
    for _ in range(3):  # the second call is a recalled one
        found = outcome(tj, function, arrays, grads)
        if isinstance(wanted, tuple):
            assert found == wanted
            continue
        assert not isinstance(found, tuple), found
        for a, b in zip(found, wanted, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@pytest.mark.parametrize("how", HOW)
def test_quantiles(name, how):
    for x, keep in itertools.product((ODD, LONG, ODD[:, :1], numbers(2, 3, 4), np.array(2.0, "f"), np.full(3, np.nan, "f")), (False, True)):
        for q, dim in itertools.product((0.0, 0.3, 1, np.array(0.5, x.dtype), np.array([0.9, 0.2], x.dtype)), (None, *range(-x.ndim, x.ndim))):
            check(lambda m, x, q, dim=dim, keep=keep: getattr(m, name)(x, q, dim, keep, interpolation=how), x, q)
    check(lambda m, x: getattr(m, name)(x, 0.3, 1, interpolation=how), numbers(3, 5), grads=(0,))
    check(lambda m, x: getattr(m, name)(x.t()[::2], 0.3, 0, interpolation=how), numbers(3, 5))


def test_a_wrong_quantile_after_a_right_one():
    x = tj.tensor(numbers(3, 5))
    for _ in range(3):
        x.quantile(0.5, 1)
        with pytest.raises(RuntimeError, match=r"q must be in the range \[0, 1\] but got 1.5"):
            x.quantile(1.5, 1)
        with pytest.raises(RuntimeError, match="q values must be in the range"):
            x.quantile(tj.tensor([0.5, -0.1]), 1)
        with pytest.raises(IndexError):
            x.quantile(0.5, 2)


def test_quantiles_in_transforms():
    x = tj.tensor(numbers(4, 3, 5))
    found = tj.func.vmap(lambda x: x.quantile(0.3, 1))(x)
    np.testing.assert_allclose(found.numpy(), x.quantile(0.3, 2).numpy(), rtol=1e-6)
    slope = tj.func.grad(lambda x: x.quantile(0.3))(x[0, 0])
    assert slope.sum().item() == pytest.approx(1)
    made, way = tj.func.jvp(lambda x: x.quantile(0.25), (x[0, 0],), (tj.ones(5),))
    assert made.item() == pytest.approx(x[0, 0].quantile(0.25).item()) and way.item() == pytest.approx(1)


def test_quantiles_of_what_is_written_to_later():
    x = tj.arange(5.0)
    made = x.quantile(0.5)
    x.zero_()
    assert made.item() == 2 and x.quantile(0.5).item() == 0


@pytest.mark.parametrize("x", [numbers(100), numbers(5, 4), np.ones(4, "f"), numbers(1000), numbers(20).astype("d"), numbers(0), ODD], ids=str)
def test_histograms(x):
    for bins in (0, 1, 5, 100):
        check(lambda m, x, bins=bins: m.histogram(x, bins), x)
        check(lambda m, x, bins=bins: m.histogram(x, bins, range=(-1.0, 0.5)), x)
        check(lambda m, x, bins=bins: m.histogram(x, bins, weight=x * x, density=True), x)
        check(lambda m, x, bins=bins: m.histc(x, bins), x)
        check(lambda m, x, bins=bins: m.histc(x, bins, -1, 0.7), x)
    check(lambda m, x, e: m.histogram(x, e), x, np.array([-1, -0.2, 0.3, 2], x.dtype))


def test_histograms_of_points():
    for x in (numbers(50, 2), numbers(4, 5, 3), numbers(600, 3)):
        check(lambda m, x: m.histogramdd(x, [4, 2, 3][: x.shape[-1]])[0], x)
        check(lambda m, x: list(m.histogramdd(x, 3)[1]), x)
        check(lambda m, x: m.histogramdd(x, [m.tensor([-1.0, 0, 0.5])] * x.shape[-1])[0], x)
    with pytest.raises(RuntimeError):
        tj.histogram(tj.tensor(numbers(5), requires_grad=True), 3).hist.sum().backward()


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("counts", [False, True])
def test_distinct_elements(inverse, counts):
    given = [
        integers(5, 4, 6, low=-3), integers(2**62, 20, low=-(2**62)), integers(200, 5, 4).astype("u1"), np.round(numbers(4, 6)), numbers(0),
        np.array([np.nan, 1, np.nan, 0, -0.0, 1], "f"), numbers(7) > 0, np.array(3), integers(9, 50, low=-9).astype("i4"),
        integers(9, 50, low=-9).astype("i2"), integers(1, 0),
    ]  # fmt: skip
    for x in given:
        for name in ("unique", "unique_consecutive"):
            check(lambda m, x, name=name: getattr(m, name)(x, return_inverse=inverse, return_counts=counts), x)


def test_distinct_slices():
    given = [
        integers(2, 9, 3), integers(2, 9, 3).astype("u1"), np.round(numbers(9, 2)), numbers(9, 2) > 0, integers(2, 5, 2, 3),
        integers(2**62, 6, 3, low=-(2**62)), integers(2, 6, 40), np.round(numbers(6, 20) / 2), integers(2**62, 4, 20, low=-(2**62)),
    ]  # fmt: skip
    for x, dim, name in itertools.product(given, (0, 1, -1), ("unique", "unique_consecutive")):
        check(lambda m, x, dim=dim, name=name: getattr(m, name)(x, dim=dim, return_inverse=True, return_counts=True), x)


def test_most_frequent_elements():
    for x in (np.round(numbers(10, 10) * 2), np.round(numbers(3, 4, 5)), integers(4, 7, 9), integers(4, 7, 9).astype("u1"), numbers(5, 6) > 0):
        for dim, keep in itertools.product(range(-x.ndim, x.ndim), (False, True)):
            check(lambda m, x, dim=dim, keep=keep: m.mode(x, dim, keep), x)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("ignored", [-100, 1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
def test_likelihood_of_classes(name, weighted, ignored, reduction):
    def loss(m, x, y, *weight):
        return getattr(m.nn.functional, name)(x, y, *weight, ignore_index=ignored, reduction=reduction)

    weights = [np.array([0.5, 2, 0.1], "f")] if weighted else []
    for shape in ((4, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 2, 2), (3,)):
        y = integers(3, shape[0], *shape[2:]) if len(shape) > 1 else np.array(1)
        check(loss, numbers(*shape), y, *weights, grads=(0,))
        if y.ndim:
            y.flat[1] = 7
            check(loss, numbers(*shape), y, *weights)
            check(loss, numbers(*shape), y * 0 + 1, *weights, grads=(0,))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margins_between_classes(reduction):
    for p, weighted in itertools.product((1, 2), (False, True)):

        def loss(m, x, y, p=p, weighted=weighted):
            weight = m.tensor([0.5, 2, 0.1]) if weighted else None
            return m.nn.functional.multi_margin_loss(x, y, p, 0.7, weight, reduction=reduction)

        check(loss, numbers(4, 3), integers(3, 4), grads=(0,))
        check(loss, np.array([[np.nan, 1, 2]], "f"), np.array([1]), grads=(0,))
        check(loss, numbers(4, 3), np.array([0, 1, 5, 2]))

    def several(m, x, y):
        return m.nn.functional.multilabel_margin_loss(x, y, reduction=reduction)

    for y in (_LABELS, _LABELS[0], np.full((2, 4), -1)):
        check(several, numbers(*y.shape), y, grads=(0,))
    for y in ([[1, 2, 4, 0]], [[1, 2, -2, 0]]):
        check(several, numbers(1, 4), np.array(y))


def test_elements_taken_and_put():
    check(lambda m, x, y: m.take(x, y), numbers(4, 5), integers(20, 3, 7, low=-20), grads=(0,))
    for y in ([3, 25], [3, -21]):
        check(lambda m, x, y: m.take(x, y), numbers(4, 5), np.array(y))
    for shape in ((3, 4), (4,), (1, 4)):
        check(lambda m, x, k, y: x.masked_scatter(k, y), numbers(3, 4), numbers(*shape) > 0, numbers(12), grads=(0, 2))
    check(lambda m, x, k, y: x.masked_scatter(k, y), numbers(3, 4), np.ones((3, 4), bool), numbers(5))
    check(lambda m, x, k, y: x.t().masked_scatter(k, y), numbers(4, 3), numbers(3, 4) > 0, numbers(12))


def test_powers_as_columns():
    for x in (numbers(6), integers(3, 6, low=-3), integers(3, 6, low=-3).astype("i4"), numbers(6).astype("d"), numbers(0)):
        for n, up in itertools.product((None, 0, 1, 2, 5, 40), (False, True)):
            check(lambda m, x, n=n, up=up: m.vander(x, n, up), x)
            check(lambda m, x, n=n: m.linalg.vander(x, N=n), x)
    check(lambda m, x: m.linalg.vander(x), numbers(2, 5), grads=(0,))


def test_whether_all_is_equal():
    for a, b in ((numbers(3), numbers(3)), (numbers(3), numbers(4)), (np.full(1, np.nan), np.full(1, np.nan)), (numbers(0), numbers(0))):
        check(lambda m, a, b: m.equal(a, b), a, b)
