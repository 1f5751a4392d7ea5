"""Loops of C's along a dimension, over groups of channels and over paths: PyTorch's results and gradients, interpreted and compiled, and whatever
transforms them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax
from torchgrad_jax.runtime.compiling.foreign import ALONG, knows

pytorch = pytest.importorskip("torch")
pytestmark = [pytest.mark.operators, pytest.mark.skipif(not knows(ALONG), reason="the core in pure Python")]

INF, NAN = float("inf"), float("nan")


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape)


def integers(most, *shape, seed=0):
    return np.random.RandomState(seed).randint(0, most, shape)


def of_scans(name):
    return lambda t, x, dim: getattr(x, name)(dim)


SCANS = {name: of_scans(name) for name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")}
ORDER = {
    "median": lambda t, x, dim: x.median(dim), "nanmedian": lambda t, x, dim: x.nanmedian(dim, keepdim=True),
    "kthvalue": lambda t, x, dim: x.kthvalue(1 + x.shape[dim] // 3, dim), "max": lambda t, x, dim: x.max(dim),
    "min": lambda t, x, dim: x.min(dim, keepdim=True),
}  # fmt: skip


def results(t, function, arrays, dtype, **others):
    """All results of it, and the gradients of the tensors; as NumPy's."""
    tensors = [t.tensor(a, dtype=getattr(t, dtype), requires_grad=True) for a in arrays]
    found = function(t, *tensors, **others)
    found = [found] if isinstance(found, t.Tensor) else list(found)
    grad = t.tensor(numbers(*found[0].shape, seed=7), dtype=getattr(t, dtype))
    found[0].backward(grad)
    return [a.detach().numpy() for a in (*found, *[x.grad for x in tensors])]


def agree(function, arrays, dtype, **others):
    tolerance = dict(rtol=2e-4, atol=2e-4) if dtype == "float32" else dict(rtol=1e-9, atol=1e-9)
    ours, theirs = (results(t, function, arrays, dtype, **others) for t in (torchgrad_jax, pytorch))
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, **tolerance)


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(sorted({**SCANS, **ORDER})), shape=st.lists(st.integers(1, 9), min_size=1, max_size=3), dim=st.integers(0, 2),
    dtype=st.sampled_from(["float32", "float64"]), tied=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_sizes(name, shape, dim, dtype, tied, seed):
    x, dim = numbers(*shape, seed=seed), dim % len(shape)
    if tied and name not in ORDER:  # of equal elements PyTorch may take another place
        x = np.round(x)
    agree({**SCANS, **ORDER}[name], [x], dtype, dim=dim)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("name", sorted({**SCANS, **ORDER}))
def test_many_threads(name, dim):
    agree({**SCANS, **ORDER}[name], [0.3 * numbers(30, 70, 90)], "float64", dim=dim)


ROWS = [
    [1, NAN, 2, 3],
    [-INF, -INF, 0, 1],
    [0, -INF, 1, 2],
    [1, INF, 2, 3],
    [INF, INF, 1, 2],
    [-INF, INF, 1, NAN],
    [0, 2, 0, 3],
    [0.0, -0.0, NAN, -0.0],
]


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", [*SCANS, "median", "nanmedian", "max", "min"])
def test_what_is_not_finite_or_zero(name, row):
    for x in (np.array(row), np.array(row)[:, None] * np.ones(3)):
        agree({**SCANS, **ORDER}[name], [x], "float32", dim=0)


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from(["max", "min"]), dim=st.integers(0, 2), dtype=st.sampled_from(["float32", "float64", "int64"]),
    shape=st.sampled_from([(5,), (70,), (1, 3), (40, 2), (33, 5), (16, 16), (3, 70), (7, 9, 2), (2, 65, 3), (3, 1)]),
    compiled=st.booleans(), seed=st.integers(0, 9),
)  # fmt: skip
def test_an_extreme_is_the_first_of_equals(kind, shape, dim, dtype, compiled, seed):
    """That element itself, as 0 and -0 show; what is no number before all others."""
    rng = np.random.default_rng(seed)
    x = rng.choice(np.array([0.0, -0.0, 1, -1, 0.5, -INF, INF, NAN] if dtype != "int64" else [0, 1, 2, -5]), shape).astype(dtype)
    dim %= x.ndim
    tensor, theirs = torchgrad_jax.tensor(x), pytorch.tensor(x)
    with torchgrad_jax.runtime.baseline_tier(not compiled):
        values, places = getattr(tensor, kind)(dim)
        alone = getattr(tensor, "arg" + kind)(dim, keepdim=True)
        values, places, alone = values.numpy(), places.numpy(), alone.numpy()
    wanted, at = getattr(theirs, kind)(dim)
    np.testing.assert_array_equal(places, at.numpy())
    np.testing.assert_array_equal(alone.squeeze(dim), at.numpy())
    np.testing.assert_array_equal(values, wanted.numpy())
    np.testing.assert_array_equal(np.signbit(values), np.signbit(wanted.numpy()))


def test_equal_elements_are_in_the_order_of_their_places():
    x = torchgrad_jax.tensor(np.array([2.0, 1, 2, 1, 2, 3, 1, 1]))
    order = x.argsort(stable=True)
    for k in range(1, 9):
        value, place = x.kthvalue(k)
        assert place == order[k - 1] and value == x[place]


AT_PLACES = {
    "gather": lambda t, x, y, index, dim: x.gather(dim, t.tensor(index)),
    "scatter": lambda t, x, y, index, dim: x.scatter(dim, t.tensor(index), y),
    "add": lambda t, x, y, index, dim: x.scatter_add(dim, t.tensor(index), y),
    **{how: lambda t, x, y, index, dim, how=how: x.scatter_reduce(dim, t.tensor(index), y, how) for how in ("amax", "amin", "mean")},
    "alone": lambda t, x, y, index, dim: x.scatter_reduce(dim, t.tensor(index), y, "amax", include_self=False),
}


@pytest.mark.parametrize("name", sorted(AT_PLACES))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "dim"), [((5,), 0), ((3, 4), 1), ((3, 4), 0), ((2, 3, 70), 1), ((40, 50, 20), 1), ((40, 50, 20), 2)])
def test_places(name, dtype, shape, dim):
    many = [n + 3 if d == dim and name != "scatter" else n for d, n in enumerate(shape)]
    index = integers(shape[dim], *many)
    if name == "scatter":  # which of several is written is not said
        index = np.argsort(numbers(*many), dim)
    x, y = numbers(*shape), numbers(*many, seed=1)
    x[..., :1] = NAN if name in ("amax", "amin") else 0
    if name == "gather":
        agree(lambda t, x, **how: AT_PLACES[name](t, x, None, **how), [x], dtype, index=index, dim=dim)
    else:
        agree(AT_PLACES[name], [x, y], dtype, index=index, dim=dim)


@pytest.mark.parametrize(("shape", "how"), [
    ((6,), {}), ((4, 7), {}), ((4, 7), {"ignore_index": 2}), ((64, 700), {"ignore_index": 5}), ((4, 7, 3), {"reduction": "sum"}),
    ((4, 7, 5, 60), {"ignore_index": 1}), ((4, 7), {"reduction": "none"}), ((4, 5, 30, 40), {}), ((300, 100), {"label_smoothing": 0.1}),
])  # fmt: skip
@pytest.mark.parametrize("weighed", [False, True])
def test_losses_of_classes(shape, how, weighed):
    axis = min(len(shape) - 1, 1)
    target = integers(shape[axis], *shape[:axis], *shape[axis + 1 :])
    weight = 0.5 + np.random.RandomState(3).random_sample(shape[axis])

    def loss(t, x):
        return t.nn.functional.cross_entropy(x, t.tensor(target), t.tensor(weight, dtype=x.dtype) if weighed else None, **how)

    for dtype in ("float32", "float64"):
        agree(loss, [numbers(*shape)], dtype)


@settings(max_examples=40, deadline=None)
@given(
    times=st.integers(1, 12), samples=st.integers(1, 4), classes=st.integers(2, 6), longest=st.integers(1, 6), blank=st.integers(0, 1),
    zero=st.booleans(), dtype=st.sampled_from(["float32", "float64"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_paths(times, samples, classes, longest, blank, zero, dtype, seed):
    labels = integers(classes - 1, samples, longest, seed=seed)
    labels += labels >= blank
    lengths = [integers(n + 1, samples, seed=seed + i) for i, n in enumerate((times, longest))]
    lengths[0] = np.maximum(lengths[0], 1)

    def loss(t, x):
        arguments = [t.tensor(a) for a in (labels, *lengths)]
        return t.nn.functional.ctc_loss(x.log_softmax(-1), *arguments, blank, "sum", zero)

    agree(loss, [numbers(times, samples, classes, seed=seed)], dtype)


@pytest.mark.parametrize(
    ("shape", "groups"), [((2, 6, 4, 4), 3), ((2, 6, 20), 1), ((3, 4, 30, 30), 4), ((8, 16, 32, 32), 4), ((2, 6, 3), 2), ((4, 6), 3)]
)
@pytest.mark.parametrize("parameters", [0, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_groups(shape, groups, parameters, dtype):
    def norm(t, x, *rest):
        return t.nn.functional.group_norm(x, groups, *rest)

    agree(norm, [3 + 2 * numbers(*shape), *[numbers(shape[1], seed=i) for i in range(parameters)]], dtype)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 5, 6), (8, 16, 32, 32)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_images_alone(shape, dtype):
    agree(lambda t, x: t.nn.functional.instance_norm(x), [3 + 2 * numbers(*shape)], dtype)


def spelt(x):
    F = torchgrad_jax.nn.functional
    n = x.shape[0]
    labels, lengths = torchgrad_jax.tensor(integers(3, 4, 3) + 1), [torchgrad_jax.full((4,), k) for k in (n, 3)]
    return F.ctc_loss(x.reshape(n, 4, -1).log_softmax(-1), labels, *lengths, reduction="none")


PLACES = integers(24, 6, 24)
EVERY = {
    "sum": lambda x: x.cumsum(0) * x, "product": lambda x: x.cumprod(1), "logarithm": lambda x: x.logcumsumexp(0),
    "largest": lambda x: x.cummax(1)[0], "gather": lambda x: x.gather(1, torchgrad_jax.tensor(PLACES)), "median": lambda x: x.median(0)[0],
    "add": lambda x: (x * x).scatter_add(1, torchgrad_jax.tensor(PLACES), x),
    "classes": lambda x: torchgrad_jax.nn.functional.cross_entropy(x, torchgrad_jax.arange(6), reduction="none"),
    "most": lambda x: x.scatter_reduce(1, torchgrad_jax.tensor(PLACES), 1.5 * x, "amax"),
    "groups": lambda x: torchgrad_jax.nn.functional.group_norm(x.reshape(1, 6, 24), 2),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(EVERY))
def test_derivatives_of_every_kind(case):
    """By finite differences, and each transform by the others."""
    function, x = EVERY[case], torchgrad_jax.tensor(numbers(6, 24), requires_grad=True)
    assert torchgrad_jax.autograd.gradcheck(function, (x,), check_forward_ad=True, check_batched_grad=True)
    if case not in ("median", "most"):
        assert torchgrad_jax.autograd.gradgradcheck(function, (x,))
    x = x.detach()
    xs = torchgrad_jax.stack([x, 2 * x, -x])
    assert torchgrad_jax.allclose(torchgrad_jax.vmap(function)(xs), torchgrad_jax.stack([function(each) for each in xs]))
    grad = torchgrad_jax.func.grad(lambda x: function(x).sum())
    assert torchgrad_jax.allclose(torchgrad_jax.vmap(grad)(xs), torchgrad_jax.stack([grad(each) for each in xs]))


def test_paths_forward_and_mapped():
    x = torchgrad_jax.tensor(numbers(8, 20), requires_grad=True)
    assert torchgrad_jax.autograd.gradcheck(spelt, (x,), check_forward_ad=True)
    xs = torchgrad_jax.stack([x.detach(), 2 * x.detach()])
    assert torchgrad_jax.allclose(torchgrad_jax.vmap(spelt)(xs), torchgrad_jax.stack([spelt(each) for each in xs]))


@pytest.mark.parametrize("case", [*sorted(EVERY), "paths"])
@pytest.mark.parametrize("many", [1, 8])
def test_both_tiers(case, many):
    function = spelt if case == "paths" else EVERY[case]
    x = torchgrad_jax.tensor(numbers(8, 20) if case == "paths" else numbers(6, 24), dtype=torchgrad_jax.float32)
    xs = torchgrad_jax.stack([x * (1 + i / 100) for i in range(many)])

    def every(xs):
        """Programs of some size."""
        ys = torchgrad_jax.stack([function(each) for each in xs])
        return ys, torchgrad_jax.stack([torchgrad_jax.func.grad(lambda x: function(x).sum())(each) for each in xs])

    wanted, compiled = every(xs), torchgrad_jax.jit(every)
    for _ in range(2):
        for one, other in zip(compiled(xs), wanted, strict=True):
            assert torchgrad_jax.allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax", "median"])
def test_large_arrays_compiled(name):
    def function(x):
        found = getattr(x, name)(1)
        found = found if isinstance(found, torchgrad_jax.Tensor) else found[0]
        return found * 2 + 1

    def both(x):
        y, pull = torchgrad_jax.func.vjp(function, x)
        return y, pull(torchgrad_jax.cos(y))[0]

    x = torchgrad_jax.tensor(0.1 * numbers(200, 300) + 1, dtype=torchgrad_jax.float32)
    wanted, compiled = both(x), torchgrad_jax.jit(both)
    for _ in range(2):
        for one, other in zip(compiled(x), wanted, strict=True):
            assert torchgrad_jax.allclose(one, other, rtol=1e-3, atol=1e-3)


def test_jax_gets_what_it_can_export():
    """A foreign function is known in this process alone."""
    function = torchgrad_jax.to_jax(lambda x: x.cumprod(1) + x.gather(1, torchgrad_jax.tensor(PLACES)) + x.logcumsumexp(0))
    x = numbers(6, 24).astype("f")
    exported = jax.export.export(jax.jit(function))(x)
    found = torchgrad_jax.tensor(x)
    wanted = found.cumprod(1) + found.gather(1, torchgrad_jax.tensor(PLACES)) + found.logcumsumexp(0)
    np.testing.assert_allclose(exported.call(x), wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert "torchgrad_jax_along" not in exported.mlir_module()
