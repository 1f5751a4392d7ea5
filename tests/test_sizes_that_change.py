"""Operations whose sizes change from call to call: what is known of them at one size serves the next, and gives what PyTorch gives there."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax import _typed
from torchgrad_jax.core.dispatch import plan_of
from torchgrad_jax.declaration.derivative import Plan
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.declaration.vjp import Vjp
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime import execution_mode, modes
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.value import aval_of

BASELINE = pytest.mark.skipif("TORCHGRAD_JAX_BASELINE" in os.environ, reason="the interpreter is off")


@pytest.fixture(autouse=True)
def fused():
    """In eager mode XLA would compile each operation for each size."""
    with execution_mode("fused"):
        yield


# Met in this order: usual ones first, so that what is odd has to be told apart from what is known by then.
SHAPES = [(5, 3), (7, 3), (6, 4), (3, 3), (4, 4), (1, 3), (5, 1), (1, 1), (0, 3), (9, 2), (40, 3), (41, 5), (3, 5)]
COMPILED = SHAPES[:2]  # each of which takes XLA half a second
# Of a matrix `x`, a row `r` as long as its rows and a square matrix `w` as wide. `m`: the library.
CALLS = {
    "sub": lambda m, x, r, w: x - r,
    "sub of a column": lambda m, x, r, w: x - x.sum(1, keepdim=True),
    "product with itself": lambda m, x, r, w: x * x * r,
    "outer difference": lambda m, x, r, w: (x[:, None, :] - x[None, :, :]).pow(2).sum(-1),
    "numbers": lambda m, x, r, w: 2 - x / 3,
    "matmul": lambda m, x, r, w: x @ w,
    "linear": lambda m, x, r, w: m.nn.functional.linear(x, w, r),
    "gram": lambda m, x, r, w: x @ x.t(),
    "mean": lambda m, x, r, w: x.mean(0) * r,
    "sums": lambda m, x, r, w: x.sum() * x.sum(1) + x.sum((0, 1)),
    "softmax": lambda m, x, r, w: m.softmax(x * r, 1),
    "layer norm": lambda m, x, r, w: m.nn.functional.layer_norm(x, r.shape, r, r),
    "view": lambda m, x, r, w: x.reshape(-1).view(x.shape) * r,
    "permute": lambda m, x, r, w: x[None].permute(2, 0, 1) * 2,
    "another permutation": lambda m, x, r, w: x[None].permute(1, 2, 0) * 2,
    "expand": lambda m, x, r, w: r.expand(x.shape) * x,
    "expand to more": lambda m, x, r, w: r[None, None].expand(2, *x.shape) * x,
    "unsqueeze and squeeze": lambda m, x, r, w: x.unsqueeze(1).squeeze(1).tanh(),
    "flip": lambda m, x, r, w: x.flip(0) * x.roll(1, 0),
    "cat": lambda m, x, r, w: m.cat([x, r[None], x * 2]),
    "stack": lambda m, x, r, w: m.stack([x, x.exp()], 1),
    "first rows": lambda m, x, r, w: x[:4] * r,
    "all but the last": lambda m, x, r, w: x[:-1] * x[1:],
    "diagonal": lambda m, x, r, w: x.diagonal() * 3,
    "triangle": lambda m, x, r, w: x.tril() + x.triu(1),
    "where": lambda m, x, r, w: m.where(x > 0, x * r, r),
    "rows by index": lambda m, x, r, w: x[m.arange(len(x) // 2)] * r,
    "clamp": lambda m, x, r, w: x.clamp(-0.5, 0.5) * m.nn.functional.gelu(x),
    "loss": lambda m, x, r, w: m.nn.functional.mse_loss(x, r.expand(x.shape), reduction="sum") + m.nn.functional.smooth_l1_loss(x, x.detach() + 2),
    "pad": lambda m, x, r, w: m.nn.functional.pad(x, (1, 2)) ** 2,
    "cumsum": lambda m, x, r, w: x.cumsum(0) * x.cumprod(1),
    "dtype": lambda m, x, r, w: x.double() * r,
    "in place": lambda m, x, r, w: (x * 1).mul_(r).add_(x),
    "write to a part": lambda m, x, r, w: written(x * 1, r),
}


def written(x, r):
    x[:1] *= r
    return x * x


def results(m, call, shape):
    """The value, gradients and gradients of gradients of a call on numbers that depend on the shape alone."""
    rng = np.random.default_rng(shape[0] * 100 + shape[1])
    of = lambda *size: m.from_numpy(rng.uniform(-1, 1, size)).requires_grad_()  # noqa: E731 - three times the same
    x, r, w = of(*shape), of(shape[1]), of(shape[1], shape[1])
    y = call(m, x, r, w)
    found = [y]
    first = m.autograd.grad((y * y.detach()).sum(), (x, r, w), create_graph=True, allow_unused=True)
    found += first
    again = sum([(g * g).sum() for g in first if g is not None and g.requires_grad], m.zeros(()))
    if again.requires_grad:
        found += m.autograd.grad(again, (x, r, w), allow_unused=True)
    return [None if t is None else t.detach().numpy() for t in found]


def assert_agree(name, shapes):
    torch = pytest.importorskip("torch")
    for shape in shapes:
        if name == "diagonal" and 0 in shape:
            continue
        for ours, theirs in zip(results(tj, CALLS[name], shape), results(torch, CALLS[name], shape), strict=True):
            assert (ours is None) == (theirs is None), shape
            if ours is not None:
                assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, shape
                np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9, err_msg=str(shape))


@pytest.mark.parametrize("name", CALLS)
def test_each_size_has_the_results_and_gradients_that_it_has_in_pytorch(name):
    assert_agree(name, COMPILED if modes.execution == "eager" or not modes.baseline else SHAPES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_so_it_is_by_xla(name):
    with execution_mode("eager"):
        assert_agree(name, COMPILED)


def turn(n):
    x = (tj.arange(n * 3.0).reshape(n, 3) / n).requires_grad_()
    y = (x.tanh() - x.mean(0)) @ tj.ones(3, 4)
    (y.relu().t() * 2).sum().backward()
    return x.grad.numpy()


@BASELINE
def test_another_size_is_differentiated_by_what_is_known_of_the_last(monkeypatch):
    for n in (20, 21, 22):
        turn(n)
    made = []
    for kind in (Plan, Vjp):
        begin = kind.__init__
        monkeypatch.setattr(kind, "__init__", lambda self, *given, begin=begin: (made.append(self), begin(self, *given))[1])
    found = turn(23)
    assert found.shape == (23, 3) and not made
    np.testing.assert_allclose(found, turn(23))


@BASELINE
def test_views_with_other_sizes_among_their_arguments_share_how_they_are_differentiated():
    f32 = np.dtype(np.float32)
    plans = []
    for n in (6, 8, 10):
        bound = registry["view"].bind((ARRAY, Static((n // 2, 2))))
        plans.append(plan_of(signature(bound, (aval_of((n,), f32),)), 1))
    assert [p._like is None for p in plans[1:]] == [False, False]
    assert [p.avals[0].shape for p in plans] == [(3, 2), (4, 2), (5, 2)]
    assert [p.input_avals[0].shape for p in plans] == [(6,), (8,), (10,)]


@pytest.mark.skipif(not _typed.is_used(), reason="only compiled code can tell the collector")
def test_no_collection_looks_through_what_signatures_are_of():
    sig: Signature = signature(registry["tanh"].bind((ARRAY,)), (aval_of((331, 2), np.dtype(np.float32)),))
    assert not gc.is_tracked(sig.specs) and not gc.is_tracked(sig.avals)


def test_a_transpose_of_another_rank_is_differentiated_by_its_own_permutation():
    """The same dimensions are others among more of them: what is known of one rank does not serve another, for a whole batch either."""
    swap = lambda x: x.transpose(1, 2) * 2  # noqa: E731 - once for each rank
    tj.ones(2, 3, 4, 5, requires_grad=True).transpose(1, 2).sum().backward()
    x = tj.arange(48.0).reshape(2, 2, 3, 4)
    gradient = tj.func.vmap(lambda one: tj.func.vjp(swap, one)[1](swap(one))[0])(x)
    np.testing.assert_array_equal(gradient, x * 4)
