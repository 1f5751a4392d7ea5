"""Reductions, order, cumulative operators, norms and further element-wise operators against PyTorch itself."""

from __future__ import annotations

import math
import warnings
from itertools import zip_longest

import numpy as np
import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators

import torchgrad_jax as tj  # noqa: E402 - PyTorch may be missing
from torchgrad_jax.declaration.operator import registry  # noqa: E402
from torchgrad_jax.operators import cumulative, extreme, norm, sorting, special  # noqa: E402, F401 - declare operators

rng = np.random.default_rng(0)
A = rng.standard_normal((3, 4))
B = rng.standard_normal((3, 4))
C = rng.standard_normal((2, 3, 4))
P = rng.uniform(0.1, 0.9, (3, 4))
TIES = np.array([[1.0, 3.0, 3.0, -2.0], [0.0, 0.0, -1.0, 0.0], [5.0, 5.0, 5.0, 5.0]])
NANS = np.array([[1.0, math.nan, 3.0, math.nan], [0.0, 2.0, -1.0, 0.5], [math.inf, -math.inf, math.nan, 1.0]])
ZEROS = np.array([[0.0, 2.0, 3.0, 0.0], [0.0, -2.0, 1.0, 4.0], [1.0, 2.0, -3.0, 0.5]])
INTS = np.array([[3, -1, 2, 2], [0, 7, -5, 1], [4, 4, 0, -3]])
BOOLS = INTS > 1
Z = rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4))
F32 = A.astype(np.float32)
F16 = A.astype(np.float16)
SCALAR = np.array(1.5)
EMPTY = np.zeros((0, 3))
EDGES = np.array([-1.0, 0.0, 0.5, 0.5, 2.0])


def tensors(module, arrays, grad):
    return [module.tensor(a.copy(), requires_grad=bool(grad and a.dtype.kind in "fc")) for a in arrays]


def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def to_numpy(t):
    if isinstance(t, torch.Tensor):
        return t.detach().resolve_conj().numpy(force=True)
    return t.detach().numpy(force=True) if isinstance(t, tj.Tensor) else np.asarray(t)


def close(ours, theirs, label):
    a, b = to_numpy(ours), to_numpy(theirs)
    assert a.dtype == b.dtype, (label, a.dtype, b.dtype)
    assert a.shape == b.shape, (label, a.shape, b.shape)
    if a.dtype.kind in "fc":
        narrow = {2: 4e-3, 4: 2e-5}.get(a.dtype.itemsize // (2 if a.dtype.kind == "c" else 1), 1e-7 if "special" in label else 1e-9)
        np.testing.assert_allclose(a, b, rtol=narrow, atol=narrow, err_msg=label)
    else:
        np.testing.assert_array_equal(a, b, err_msg=label)


def grads_of(module, outs, inputs, cotangents, twice):
    """First gradients, and those of their sum of squares."""
    carried = [(o, c) for o, c in zip(outs, cotangents, strict=True) if o.requires_grad]
    wanted = [t for t in inputs if t.requires_grad]
    made = [module.tensor(c) for _, c in carried]
    first = module.autograd.grad([o for o, _ in carried], wanted, made, allow_unused=True, create_graph=twice)
    if not twice:
        return first, ()
    total = None
    for g in first:
        if g is not None and g.requires_grad:
            square = (g * g.conj() if g.is_complex() else g * g).sum()
            square = square.real if square.is_complex() else square
            total = square if total is None else total + square
    return first, module.autograd.grad(total, wanted, allow_unused=True) if total is not None else ()


def results_of(module, function, arrays, cotangents, twice):
    """The results, the first and the second gradients. Nothing is looked at before all are recorded."""
    inputs = tensors(module, arrays, True)
    outs = flat(function(module, *inputs))
    if not any(can_go_back(o) for o in outs):
        return outs, (), ()
    if cotangents is None:
        random = np.random.default_rng(1)
        cotangents = [np.asarray(random.standard_normal(o.shape)).astype(to_numpy(o).dtype) for o in outs]
    return outs, *grads_of(module, outs, inputs, cotangents, twice), cotangents


def can_go_back(result):
    return isinstance(result, (torch.Tensor, tj.Tensor)) and result.requires_grad and "NotImplemented" not in str(result.grad_fn)


def compare(function, arrays, twice=False, names=True, label=""):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, *reference = results_of(torch, function, arrays, None, twice)
    ours, *mine = results_of(tj, function, arrays, reference.pop() if len(reference) == 3 else None, twice)
    assert len(ours) == len(theirs), label
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b, label
            continue
        close(a, b, label)
        assert a.requires_grad == b.requires_grad, label
        if names and b.grad_fn is not None:
            assert a.grad_fn.name() == b.grad_fn.name(), label
    for some, others in zip(mine, reference, strict=False):
        for i, (a, b) in enumerate(zip_longest(some, others)):
            if a is not None and b is not None:
                close(a, b, f"{label}: gradient {i}")
            elif a is not None or b is not None:
                assert not to_numpy(b if a is None else a).any(), (label, i)


def outcome(call):
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the class is what is compared
        return type(error).__name__, str(error).split("\n")[0]
    return None


def same_error(function, arrays):
    theirs = outcome(lambda: function(torch, *tensors(torch, arrays, False)))
    ours = outcome(lambda: [to_numpy(t) for t in flat(function(tj, *tensors(tj, arrays, False)))])
    assert theirs is not None
    assert ours == theirs


TWICE = {"twice": True}
UNNAMED = {"names": False}

REDUCTIONS = {
    "sum": (lambda m, x: (x.sum(), x.sum(1), x.sum((0, 1), keepdim=True), m.sum(x, dim=-1), x.sum(axis=0)), [A]),
    "sum int": (lambda m, x, b: (x.sum(), b.sum(1), x.sum(dtype=m.float32)), [INTS, BOOLS]),
    "mean": (lambda m, x: (x.mean(), x.mean(1, True), x.mean((0, -1))), [A]),
    "nansum": (lambda m, x: (x.nansum(), x.nansum(1)), [NANS[:2]]),
    "nanmean": (lambda m, x: x.nanmean(1), [NANS[:2]]),
    "prod": (lambda m, x: x.prod(), [A]),
    "prod zeros": (lambda m, x: (x.prod(1), x.prod(0, keepdim=True)), [ZEROS], TWICE),
    "prod int": (lambda m, x: (x.prod(), x.prod(1)), [INTS]),
    "all any": (lambda m, x, b: (x.all(), b.any(1), b.all(0, keepdim=True), x.any((0, 1)), b.byte().all()), [ZEROS, BOOLS]),
    "count_nonzero": (lambda m, x: (m.count_nonzero(x), m.count_nonzero(x, 1), x.count_nonzero((0, 1))), [ZEROS]),
    "max": (lambda m, x: x.max(), [A]),
    "max ties": (lambda m, x: (x.max(), x.min()), [TIES]),
    "max nan": (lambda m, x: (x.max(), *x.max(1), *x.min(0)), [NANS]),
    "max dim": (lambda m, x: (*x.max(1), *x.min(0, keepdim=True), *m.max(x, dim=-1)), [TIES]),
    "max binary": (lambda m, x, y: (m.max(x, y), x.min(y), m.max(x, other=y)), [TIES, B], TWICE),
    "max int": (lambda m, x, b: (x.max(), *x.min(1), b.max(), *b.max(1)), [INTS, BOOLS]),
    "max wide": (lambda m, x: (*x.max(1), *x.min(1), x.argmax(1)), [rng.integers(0, 9, (3, 70)).astype(float)]),
    "max 0-dim": (lambda m, x: (*x.max(0), x.argmax(), x.amax(), *x.sort(), *x.topk(1), *x.median(0), x.cumsum(0), *x.cummax(0)), [SCALAR]),
    "amax": (lambda m, x: (x.amax(), x.amax((0, 1)), x.amin(1, True)), [TIES]),
    "aminmax": (lambda m, x: (*m.aminmax(x), *x.aminmax(dim=1, keepdim=True)), [TIES]),
    "argmax": (lambda m, x: (x.argmax(), x.argmax(1), x.argmin(0, keepdim=True), x.argmin(keepdim=True)), [TIES]),
    "argmax nan": (lambda m, x: (x.argmax(1), x.argmin(1)), [NANS]),
    "var": (lambda m, x: (x.var(), x.var(1), x.var(0, unbiased=False), x.var((0, 1), correction=2, keepdim=True)), [A], TWICE),
    "std": (lambda m, x: (x.std(), x.std(1), x.std(False), x.std(1, False, True)), [A]),
    "std flat": (lambda m, x: (x.std(1), x.var(1)), [TIES]),
    "var few": (lambda m, x: x.var(1, correction=4), [A]),
    "var complex": (lambda m, x: (x.var(1), x.std(0)), [Z]),
    "var_mean": (lambda m, x: (*m.var_mean(x), *m.std_mean(x, 1)), [A]),
    "var half": (lambda m, x: (x.var(), x.std(1), x.logsumexp(1), x.norm()), [F16]),
    "median": (lambda m, x: (x.median(), x.nanmedian()), [A]),
    "median dim": (lambda m, x: (*x.median(1), *x.nanmedian(0, keepdim=True)), [A]),
    "median nan": (lambda m, x: (x.median(), x.nanmedian(), x.nanmedian(1)[0], x.median(1)[0]), [NANS[:2]]),
    "mode": (lambda m, x: (x.mode()[0], x.mode(0, True)[0]), [TIES]),
    "quantile": (lambda m, x, q: (x.quantile(0.3), x.quantile(q, dim=1), x.quantile(0.6, 0, True), x.quantile(q)), [A, np.array([0.1, 0.5, 1.0])]),
    "quantile kinds": (lambda m, x: tuple(x.quantile(0.4, 1, interpolation=k) for k in ("lower", "higher", "midpoint", "nearest")), [A], UNNAMED),
    "nanquantile": (lambda m, x: (x.nanquantile(0.3), x.nanquantile(0.5, 1), x.quantile(0.5, 1)), [NANS[:2]]),
    "logsumexp": (lambda m, x: (x.logsumexp(1), x.logsumexp((0, 1), keepdim=True)), [A], TWICE),
    "logsumexp inf": (lambda m, x: x.logsumexp(1), [np.array([[math.inf, 1.0], [-math.inf, 2.0]])]),
    "logsumexp int": (lambda m, x: x.logsumexp(1), [INTS]),
    "histc": (lambda m, x: (m.histc(x, 5), m.histc(x, 4, -1, 1)), [F32.reshape(-1)], UNNAMED),
    "bincount": (
        lambda m, x, w: (m.bincount(x), x.bincount(minlength=9), m.bincount(x, w.detach())),
        [np.array([1, 3, 3, 0]), np.array([0.5, 1.0, 2.0, 3.0])],
    ),
}

ORDER = {
    "sort": (lambda m, x: (*x.sort(), *x.sort(0, True)), [A]),
    "sort stable": (lambda m, x: (*m.sort(x, stable=True), *m.sort(x, dim=0, descending=True, stable=True)), [TIES]),
    "sort nan": (lambda m, x: (*x.sort(stable=True), *x.sort(descending=True, stable=True)), [NANS]),
    "sort single": (lambda m, x: (*x.sort(), *x.sort(0, True)), [F32]),
    "sort single nan": (lambda m, x: (*x.sort(stable=True), *x.sort(descending=True, stable=True)), [NANS.astype(np.float32)]),
    "sort half": (lambda m, x: (*x.sort(), *x.sort(0, True)), [F16]),
    "sort int": (lambda m, x: (*x.sort(stable=True), *x.int().sort(stable=True, descending=True), *x.byte().sort(stable=True)), [INTS]),
    "sort bool": (lambda m, x: m.sort(x, stable=True), [BOOLS]),
    "sort zeros": (lambda m, x: m.sort(x, stable=True), [np.array([0.0, -0.0, 0.0, -1.0], np.float32)]),
    "argsort": (lambda m, x: (x.argsort(), m.argsort(x, 0, True)), [A]),
    "msort": (lambda m, x: m.msort(x), [A]),
    "topk": (lambda m, x: (*x.topk(2), *m.topk(x, 2, 0, largest=False), *x.topk(0)), [A]),
    "topk large": (lambda m, x: (*x.topk(2), *x.topk(2, largest=False)), [rng.permutation(400).reshape(4, 100).astype(np.float32)]),
    "topk nan": (lambda m, x: (*x.topk(2), x.topk(2, largest=False)[0]), [np.r_[np.arange(40.0), math.nan].astype(np.float32)]),
    "kthvalue": (lambda m, x: (*x.kthvalue(2), *x.kthvalue(1, 0, True)), [A]),
    "unique": (lambda m, x: (m.unique(x), *x.unique(return_inverse=True, return_counts=True), m.unique(x, dim=0)), [INTS]),
    "unique_consecutive": (
        lambda m, x: (m.unique_consecutive(x), *m.unique_consecutive(x, return_inverse=True, return_counts=True)),
        [np.array([1, 1, 2, 2, 1, 3])],
    ),
    "searchsorted": (
        lambda m, s, v: (
            m.searchsorted(s, v),
            m.searchsorted(s, v, right=True),
            m.searchsorted(s, v, out_int32=True),
            m.bucketize(v, s),
            m.searchsorted(s, 0.5),
        ),
        [EDGES, np.array([[0.5, -3.0], [9.0, 0.0]])],
    ),
    "searchsorted rows": (lambda m, s, v: m.searchsorted(s, v, side="right"), [np.sort(A, 1), B]),
    "searchsorted of what is not sorted": (
        lambda m, s, v: [m.searchsorted(s.to(t), v.to(t), right=r) for t in (m.float64, m.float32, m.float16, m.int32) for r in (False, True)],
        [rng.integers(-9, 9, (4, 70)).astype(float), rng.integers(-9, 9, (4, 5)).astype(float)],
    ),
    "searchsorted of many": (
        lambda m, s, v: (m.searchsorted(s, v), m.searchsorted(s[0], v[1], right=True)),
        [np.sort(rng.standard_normal((3, 70)), 1), rng.standard_normal((3, 5001))],
    ),
    "searchsorted nan": (
        lambda m, s, v: [m.searchsorted(s.to(t), v.to(t), right=r) for t in (m.float64, m.float32, m.bfloat16) for r in (False, True)],
        [np.array([-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan, math.nan]), np.array([math.nan, 0.0, -0.0, 1.0, 0.5, math.inf, -math.inf])],
    ),
    "trace": (lambda m, x: (x.trace(), x[1:].T.trace(), (x > 0).long().trace(), x.int().trace(), x.float().trace()), [A]),
    "isin": (lambda m, x: (m.isin(x, m.tensor([2, 4])), m.isin(x, 4, invert=True)), [INTS]),
    "cumsum": (lambda m, x: (x.cumsum(1), x.cumsum(0), m.cumsum(x, -1, dtype=m.float64)), [A]),
    "cumsum int": (lambda m, x, b: (x.int().cumsum(1), b.cumsum(0), x.cumprod(1)), [INTS, BOOLS]),
    "cumsum single": (lambda m, x: (x.cumsum(1), x.cumprod(0)), [F32]),
    "cumprod": (lambda m, x: (x.cumprod(1), x.cumprod(0)), [ZEROS], TWICE),
    "logcumsumexp": (lambda m, x: (x.logcumsumexp(1), m.logcumsumexp(x, 0)), [A]),
    "cummax": (lambda m, x: (*x.cummax(1), *x.cummin(0)), [TIES]),
    "cummax nan": (lambda m, x: (*x.cummax(1), *x.cummin(1)), [NANS]),
    "diff": (lambda m, x: (m.diff(x), x.diff(2, 0)), [A]),
    "trapezoid": (lambda m, x, y: (m.trapezoid(x), m.trapezoid(x, dx=2.0, dim=0), m.cumulative_trapezoid(x)), [A, B], UNNAMED),
    "trapezoid places": (lambda m, x, y: (m.trapezoid(x, y), m.trapz(x, m.tensor([0.0, 1.0, 3.0, 4.0]))), [A, B], UNNAMED),
}

LIMITS = {
    "clamp": (lambda m, x: (x.clamp(0, 3), x.clamp(0), m.clamp(x, max=3.0), x.clip(-1, 1)), [TIES]),
    "clamp nan": (lambda m, x: (x.clamp(0, 1), x.clamp(2, 1)), [NANS]),
    "clamp tensors": (lambda m, x, y: (x.clamp(y), m.clamp(x, min=y, max=x + 1), x.clamp(max=y)), [TIES, B]),
    "clamp crossed": (lambda m, x, y, z: m.clamp(x, y, z), [A, B, A[::-1] * 0.5]),
    "clamp broadcast": (lambda m, x, y: x.clamp(min=y), [A, B[0]]),
    "clamp ints": (lambda m, x: (x.clamp(0, 2), x.clamp(0.5), x.clamp_min(1), x.int().clamp(max=2)), [INTS]),
    "clamp_min": (lambda m, x, y: (x.clamp_min(0), x.clamp_min(y), x.clamp_max(0.0), m.clamp_max(x, y)), [TIES, B]),
    "fmax": (lambda m, x, y: (x.fmax(y), m.fmin(x, y)), [NANS, TIES]),
}

NORMS = {
    **{
        f"norm {p}": (lambda m, x, p=p: (x.norm(p), x.norm(p, 1), m.norm(x, p=p, dim=(0, 1), keepdim=True)), [A], TWICE if p == 3 else {})
        for p in (0, 0.5, 1, 3)
    },
    "norm inf": (lambda m, x: (x.norm(math.inf), x.norm(-math.inf, 1)), [TIES]),
    "norm fro": (lambda m, x: (x.norm(), x.norm("fro", 1), m.norm(x, "fro", dim=(0, 1))), [A], TWICE),
    **{f"norm zero {p}": (lambda m, x, p=p: (x.norm(p, 1),), [np.array([[0.0, 0.0], [0.0, 1.0]])]) for p in (0.5, 1, 1.5, 2, 3, math.inf)},
    "norm complex": (lambda m, x: (x.norm(), x.norm(1), x.norm(3, 1)), [Z]),
    "linalg.norm": (
        lambda m, x, v: (
            m.linalg.norm(x),
            m.linalg.norm(x, 1),
            m.linalg.norm(x, -math.inf),
            m.linalg.norm(v, 3),
            m.linalg.norm(x, dim=1),
            m.linalg.norm(x, "fro", keepdim=True),
        ),
        [A, B[0]],
    ),
    "vector_norm": (lambda m, x: (m.linalg.vector_norm(x), m.linalg.vector_norm(x, 3, 1, True)), [A]),
    "matrix_norm": (
        lambda m, x: (
            m.linalg.matrix_norm(x),
            m.linalg.matrix_norm(x, 1),
            m.linalg.matrix_norm(x, -1, keepdim=True),
            m.linalg.matrix_norm(x, math.inf, (0, 2)),
        ),
        [C],
    ),
    "matrix_norm singular": (
        lambda m, x: (m.linalg.matrix_norm(x, "nuc"), m.linalg.matrix_norm(x, 2), m.linalg.matrix_norm(x, -2, (0, 1), True), x[0].norm("nuc")),
        [C],
    ),
    "dist": (lambda m, x, y: (m.dist(x, y), x.dist(y, 1), m.dist(x, y, 3)), [A, B]),
    "dist zero": (lambda m, x, y: (m.dist(x, y), m.dist(x, y, 1)), [A, A]),
    **{f"cdist {p}": (lambda m, x, y, p=p: m.cdist(x, y, p), [A, np.concatenate([A[:1], B])]) for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf)},
    "cdist nan": (lambda m, x, y: m.cdist(x, y, 1.0), [NANS, B]),
    "cdist product": (lambda m, x, y: m.cdist(x, y), [rng.standard_normal((30, 4)), rng.standard_normal((28, 4))], UNNAMED),
    "cdist batch": (lambda m, x, y: m.cdist(x, y), [C, A]),
    "pdist": (lambda m, x: m.pdist(x), [A]),
}

POSITIVE = rng.uniform(0.5, 4.0, (3, 4))
UNARY = ("sinc", "deg2rad", "rad2deg", "frac", "sgn", "angle")

POINTWISE = {
    **{name: (lambda m, x, name=name: (getattr(m, name)(x), getattr(x, name)()), [ZEROS]) for name in UNARY},
    **{name: (lambda m, x, name=name: getattr(m, name)(x), [POSITIVE]) for name in ("lgamma", "digamma", "i0")},
    "digamma points": (lambda m, x: (x.digamma(), x.lgamma()), [np.array([0.0, -0.0, -1.0, -0.5, 1.0])]),
    "polygamma": (lambda m, x: (m.polygamma(1, x), x.polygamma(2), m.polygamma(0, x)), [POSITIVE]),
    "logit": (lambda m, x: (x.logit(), m.logit(x, 0.2), m.logit(x, eps=1e-6)), [P], TWICE),
    "logit points": (lambda m, x: (x.logit(), x.logit(0.1)), [np.array([-0.5, 0.1, 0.95, 1.5])]),
    "fmod": (lambda m, x, y: (x.fmod(y), x.fmod(2), m.fmod(x, -1.5)), [A * 5, B], TWICE),
    "remainder": (lambda m, x, y: (x.remainder(y), x % 2, x % -1.5, m.remainder(x, y)), [A * 5, B]),
    "remainder reflected": (lambda m, x: (7 % x, m.remainder(2.5, x)), [A]),
    "remainder int": (lambda m, x: (x % 3, x % -3, x.fmod(-3), x % 2.5, 5 % (x * 2 + 1), x % m.tensor([1, 2, 3, -4])), [INTS]),
    "floor_divide": (lambda m, x, y: (x // y, x // 2, 7 // x, m.floor_divide(x, 0.7)), [A * 5, B]),
    "floor_divide int": (lambda m, x: (x // 3, x // -3, x // 2.0, 5 // (x * 2 + 1), x.byte() // 3), [INTS]),
    "floor_divide zero": (lambda m, x: (x.detach() // 0.0, x.detach() // -0.0, x.detach() % 0), [NANS]),
    "hypot": (lambda m, x, y: m.hypot(x, y), [A, B], TWICE),
    "logaddexp": (lambda m, x, y: (m.logaddexp(x, y), x.logaddexp2(y)), [A, B]),
    "lerp": (lambda m, x, y, w: (m.lerp(x, y, 0.3), x.lerp(y, 0.8), x.lerp(y, w)), [A, B, P], TWICE),
    "xlogy": (lambda m, x, y: (m.xlogy(x, y), x.xlogy(2.0), m.xlogy(2.0, y)), [ZEROS, P]),
    "xlogy points": (lambda m, x, y: m.xlogy(x, y), [np.array([0.0, 0.0, 0.0, 1.0]), np.array([0.0, -1.0, math.nan, 0.0])]),
    "float_power": (lambda m, x, y: (m.float_power(x, 2), x.float_power(y), m.float_power(x.int(), 2)), [POSITIVE.astype(np.float32), B]),
    "heaviside": (lambda m, x, y: m.heaviside(x, y), [ZEROS, B]),
    "copysign": (lambda m, x, y: (x.copysign(y), x.copysign(-2)), [ZEROS, B]),
    "nextafter": (lambda m, x, y: m.nextafter(x.detach(), y.detach()), [A, B]),
    "ldexp": (lambda m, x, y: (m.ldexp(x, y), m.ldexp(x, m.tensor([1, 2, 3, 4]))), [A, B]),
    "nan_to_num": (lambda m, x: (x.nan_to_num(), m.nan_to_num(x, 1.0, 2.0, -2.0)), [NANS]),
    "positive": (lambda m, x: (m.positive(x), +x), [A]),
    "tests": (lambda m, x: (m.isposinf(x), m.isneginf(x), m.isreal(x), m.signbit(x), x.signbit()), [np.r_[NANS.ravel(), -0.0]]),
    "isclose": (lambda m, x, y: (m.isclose(x, y), m.isclose(x, x), m.isclose(x, x, equal_nan=True), m.isclose(x, y, 0.0, 5.0)), [NANS, TIES]),
    "gcd": (lambda m, x: (m.gcd(x, m.tensor(6)), x.lcm(m.tensor(4))), [INTS]),
    "shifts": (
        lambda m, x: (x << 2, x >> 1, 1 << x.abs(), m.bitwise_left_shift(x, 1), x >> 70, x.int() << 31, x.bitwise_right_shift(m.tensor(1))),
        [INTS],
    ),
    "complex": (lambda m, x, y: (m.complex(x, y), m.polar(x, y)), [P, B]),
    "complex parts": (lambda m, z: (z.real, z.imag, m.real(z), z.conj(), z.angle(), z.sgn(), m.view_as_real(z), z.conj_physical()), [Z]),
    "real parts": (lambda m, x: (m.real(x), x.conj(), m.view_as_complex(x.reshape(6, 2))), [A]),
    "special": (
        lambda m, x: (m.special.entr(x), m.special.erfcx(x), m.special.i0e(x), m.special.i1(x), m.special.i1e(x), m.special.log_ndtr(x)),
        [POSITIVE],
    ),
    "special more": (
        lambda m, x: (m.special.ndtr(x), m.special.ndtri(x), m.special.xlog1py(x, x), m.special.gammaln(x), m.special.psi(x), m.special.expit(x)),
        [P],
    ),
    "special bessel": (lambda m, x: (m.special.bessel_j0(x.detach()), m.special.bessel_j1(x.detach()), m.special.erfcx(x.detach() * 30)), [POSITIVE]),
    "special zeta": (
        lambda m, x, y: (m.special.zeta(x.detach() + 1, y), m.igamma(x.detach(), y), m.igammac(x.detach(), y), m.mvlgamma(y + 1, 2)),
        [POSITIVE, POSITIVE],
    ),
    "int input": (lambda m, x: (x.sinc(), x.deg2rad(), x.i0(), m.hypot(x.float(), x.float()), x.sgn(), x.angle()), [INTS]),
}

TABLE = {**REDUCTIONS, **ORDER, **LIMITS, **NORMS, **POINTWISE}


@pytest.mark.parametrize("label", TABLE)
@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
def test_agrees(label):
    function, arrays, *options = TABLE[label]
    compare(function, arrays, label=label, **(options[0] if options else {}))


INPLACE = {
    "clamp_": lambda m, x, y: x.clamp_(0, 1), "clamp_ tensor": lambda m, x, y: x.clip_(min=y), "clamp_min_": lambda m, x, y: x.clamp_min_(0.0),
    "cumsum_": lambda m, x, y: x.cumsum_(1), "cumprod_": lambda m, x, y: x.cumprod_(0), "fmod_": lambda m, x, y: x.fmod_(0.5),
    "remainder_": lambda m, x, y: x.remainder_(y),
    "floor_divide_": lambda m, x, y: x.detach().floor_divide_(0.5), "lerp_": lambda m, x, y: x.lerp_(y, 0.4),
    "sgn_": lambda m, x, y: x.sgn_(), "frac_": lambda m, x, y: x.frac_(), "xlogy_": lambda m, x, y: x.xlogy_(y.abs()),
    "sinc_": lambda m, x, y: x.sinc_(),
    "copysign_": lambda m, x, y: x.copysign_(-1.0), "hypot_": lambda m, x, y: x.hypot_(y), "nan_to_num_": lambda m, x, y: x.nan_to_num_(),
    "logit_": lambda m, x, y: (x * 0.1 + 0.5).logit_(), "deg2rad_": lambda m, x, y: x.deg2rad_(), "polygamma_": lambda m, x, y: x.abs().polygamma_(1),
}  # fmt: skip


@pytest.mark.parametrize("label", INPLACE)
def test_in_place(label):
    compare(lambda m, x, y: INPLACE[label](m, x * 1, y), [A + 0.1, B], twice=False, label=label)


ERRORS = {
    "max empty": (lambda m, x: x.max(), [EMPTY]),
    "max empty dim": (lambda m, x: x.max(0), [EMPTY]),
    "amax empty": (lambda m, x: x.amax(), [EMPTY]),
    "amax empty dim": (lambda m, x: x.amax(0), [EMPTY]),
    "argmax empty": (lambda m, x: x.argmax(), [EMPTY]),
    "argmax empty dim": (lambda m, x: x.argmax(0), [EMPTY]),
    "aminmax empty": (lambda m, x: m.aminmax(x), [EMPTY]),
    "median empty dim": (lambda m, x: x.median(0), [EMPTY]),
    "kthvalue empty": (lambda m, x: x.kthvalue(1, 0), [EMPTY]),
    "kthvalue range": (lambda m, x: x.kthvalue(9), [A]),
    "topk range": (lambda m, x: x.topk(9), [A]),
    "dim range": (lambda m, x: x.max(2), [A]),
    "sum dim range": (lambda m, x: x.sum(5), [A]),
    "sum dim twice": (lambda m, x: x.sum((0, 0)), [A]),
    "cumsum dim": (lambda m, x: x.cumsum(2), [A]),
    "sort dim": (lambda m, x: x.sort(2), [A]),
    "mean int": (lambda m, x: x.mean(), [INTS]),
    "var int": (lambda m, x: x.var(), [INTS]),
    "norm int": (lambda m, x: x.norm(), [INTS]),
    "norm empty": (lambda m, x: m.linalg.vector_norm(x, math.inf), [EMPTY]),
    "matrix_norm order": (lambda m, x: m.linalg.matrix_norm(x, 3), [A]),
    "matrix_norm dims": (lambda m, x: m.linalg.matrix_norm(x[0]), [A]),
    "clamp nothing": (lambda m, x: x.clamp(), [A]),
    "clamp complex": (lambda m, x: x.clamp(0), [Z]),
    "max complex": (lambda m, x: x.max(), [Z]),
    "sort complex": (lambda m, x: x.sort(), [Z]),
    "divide by zero": (lambda m, x: x // 0, [INTS]),
    "remainder by zero": (lambda m, x: x % m.tensor([0, 1, 2, 3]), [INTS]),
    "remainder by computed zero": (lambda m, x: x % (x - x), [INTS]),
    "fmod by zero": (lambda m, x: x.fmod(0), [INTS]),
    "quantile range": (lambda m, x: x.quantile(1.5), [A]),
    "quantile type": (lambda m, x: x.quantile(0.5), [INTS]),
    "quantile empty": (lambda m, x: x.quantile(0.5), [EMPTY]),
    "bincount negative": (lambda m, x: x.reshape(-1).bincount(), [INTS]),
    "cdist columns": (lambda m, x, y: m.cdist(x, y), [A, A.T]),
    "polygamma negative": (lambda m, x: m.polygamma(-1, x), [A]),
    "imag of real": (lambda m, x: m.imag(x), [A]),
    "isclose types": (lambda m, x, y: m.isclose(x, y), [A, F32]),
    "lerp types": (lambda m, x, y: m.lerp(x, y, 0.5), [A, F32]),
    "positive bool": (lambda m, x: +x, [BOOLS]),
    "view_as_complex": (lambda m, x: m.view_as_complex(x), [A]),
    "view_as_real": (lambda m, x: m.view_as_real(x), [A]),
    "histc bins": (lambda m, x: m.histc(x, 0), [A]),
    "searchsorted shapes": (lambda m, x, y: m.searchsorted(x, y), [A, A[:2]]),
    "searchsorted number": (lambda m, x: m.searchsorted(x, 1.0), [A]),
    "searchsorted in a number": (lambda m, x: m.searchsorted(x, x[None]), [SCALAR]),
    "gcd float": (lambda m, x: m.gcd(x, x), [A]),
    "diff 0-dim": (lambda m, x: m.diff(x), [SCALAR]),
    "logcumsumexp int": (lambda m, x: x.logcumsumexp(0), [INTS]),
}  # fmt: skip


@pytest.mark.parametrize("label", ERRORS)
def test_refuses(label):
    same_error(*ERRORS[label])


def test_no_derivative_is_an_error_of_backward():
    for module in (torch, tj):
        x = module.tensor([1.0, 2.0], requires_grad=True)
        with pytest.raises(RuntimeError, match="derivative for aten::floor_divide is not implemented"):
            (x // 2).sum().backward()


def test_named_results():
    for module in (torch, tj):
        x = module.tensor(A)
        assert x.max(1).values.shape == x.sort().indices[:, 0].shape == x.topk(1, 1).values[:, 0].shape
        assert module.aminmax(x).max.item() == A.max()


def test_every_dtype_sorts_alike():
    values = rng.integers(0, 100, 200)
    for name in ("uint8", "int8", "int16", "bfloat16"):
        ours = tj.tensor(values).to(getattr(tj, name)).sort(stable=True, descending=True)
        theirs = torch.tensor(values).to(getattr(torch, name)).sort(stable=True, descending=True)
        assert ours.indices.tolist() == theirs.indices.tolist(), name
        assert ours.values.tolist() == theirs.values.tolist(), name


def test_numbers_of_a_clamp_compile_once():
    x = tj.tensor(A)
    x.clamp(0.0, 1.0)
    bound = registry["clamp_number"].bound
    kept = len(bound)
    for i in range(5):
        x.clamp(-float(i), float(i))
    assert len(bound) == kept
