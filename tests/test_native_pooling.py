"""The largest elements of windows by loops of C's: what jax.numpy says they are, interpreted and compiled, and whatever transforms them."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.operators import pooling
from torchgrad_jax.runtime._jax_compat import call_x64
from torchgrad_jax.runtime.baseline.loops import how_of_windows
from torchgrad_jax.runtime.compiling.foreign import POOLING, knows
from torchgrad_jax.runtime.native import handlers

F = torch.nn.functional
pytestmark = [pytest.mark.operators, pytest.mark.skipif(not knows(POOLING), reason="the core in pure Python")]


def numbers(shape, seed=0, repeated=True):
    """Many equal ones, both zeros, and what is no number."""
    random = np.random.RandomState(seed)
    found = random.standard_normal(shape).astype("f")
    if repeated:
        found = np.round(found * 2) / 2
        found[random.random_sample(shape) < 0.05] = np.nan
        found[random.random_sample(shape) < 0.05] = -np.inf
    return found


def by_loops(x, grad, **windows):
    shape = x.shape if grad is not None else (*x.shape[:-2], *windows["sizes"])
    out = np.full(shape, 7, np.float32)
    assert handlers.pool(x, grad, out, how_of_windows(x, **windows))
    return out


PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=25, deadline=None)
@given(
    planes=st.lists(st.integers(1, 3), min_size=1, max_size=2), image=st.tuples(st.integers(1, 19), st.integers(1, 19)), kernel=PAIRS, stride=PAIRS,
    padding=st.tuples(st.integers(0, 1), st.integers(0, 1)), dilation=PAIRS, ceil_mode=st.booleans(), seed=st.integers(0, 9),
)  # fmt: skip
def test_any_windows(planes, image, kernel, stride, padding, dilation, ceil_mode, seed):
    padding = tuple(min(p, k // 2) for p, k in zip(padding, kernel, strict=True))
    sizes = pooling._sizes(np.empty(image), kernel, stride, padding, dilation, ceil_mode)
    assume(min(sizes) > 0)
    inside = [pooling._coordinates(kernel, stride, padding, dilation, sizes, i) for i in range(2)]
    assume(all([((at >= 0) & (at < n)).any(1).all() for at, n in zip(inside, image, strict=True)]))  # else nobody says where a gradient goes
    windows = dict(kernel=kernel, stride=stride, padding=padding, dilation=dilation, sizes=sizes)
    x, grad = numbers((*planes, *image), seed), numbers((*planes, *sizes), seed + 1, False)
    np.testing.assert_array_equal(by_loops(x, None, **windows), call_x64(jax.jit(partial(pooling._said, **windows)), x))
    wanted = call_x64(jax.jit(partial(pooling._said_grad, **windows)), x, grad)
    np.testing.assert_allclose(by_loops(x, grad, **windows), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("options", [dict(kernel_size=2), dict(kernel_size=3, stride=2, padding=1), dict(kernel_size=2, ceil_mode=True)])
def test_both_tiers_and_many_threads(options):
    x = numbers((8, 16, 31, 31), repeated=False)

    def step():
        t = torch.tensor(x, requires_grad=True)
        y = F.max_pool2d(t, **options)
        (y * y).sum().backward()
        return y.detach().numpy(), t.grad.numpy()

    with torch.explain() as report:
        first = step()
    assert "interpreted" in report.programs[0].runs
    compiled = torch.jit(lambda t: F.max_pool2d(t, **options))
    for _ in range(3):
        np.testing.assert_array_equal(compiled(torch.tensor(x)).numpy(), first[0])
    with torch.explain() as report:
        for _ in range(300):
            last = step()
    assert "compiled" in report.programs[-1].runs
    np.testing.assert_array_equal(last[0], first[0])
    np.testing.assert_allclose(last[1], first[1], rtol=1e-6)


def test_derivatives_of_every_kind():
    x = torch.tensor(numbers((2, 3, 6, 7), repeated=False))
    same = torch.tensor(x.double().numpy())  # goes by what jax.numpy says

    def pool(t):
        return (F.max_pool2d(t, 2, stride=1, padding=1) ** 3).sum()

    for transform in (torch.func.grad, lambda f: torch.func.grad(lambda t: torch.func.grad(f)(t).pow(2).sum()), torch.func.hessian):
        found, wanted = transform(pool)(x), transform(pool)(same)
        assert found.dtype == torch.float32 and torch.allclose(found.double(), wanted, rtol=1e-4, atol=1e-4)
    tangent = torch.func.jvp(pool, (x,), (torch.ones_like(x),))[1]
    assert torch.allclose(tangent.double(), torch.func.jvp(pool, (same,), (torch.ones_like(same),))[1], rtol=1e-4)


@pytest.mark.parametrize("dims", [0, 1, 3])
def test_mapped_over_any_dimension(dims):
    x = torch.tensor(numbers((2, 3, 4, 5, 6), repeated=False))
    images = x.movedim(0, dims)
    found = torch.vmap(lambda t: F.max_pool2d(t, 2), in_dims=dims)(images)
    assert torch.equal(found, torch.stack([F.max_pool2d(one, 2) for one in x]))
    grads = torch.vmap(torch.func.grad(lambda t: F.max_pool2d(t, 2).sum()), in_dims=dims)(images)
    assert torch.equal(grads, torch.stack([torch.func.grad(lambda t: F.max_pool2d(t, 2).sum())(one) for one in x]))


def test_a_window_without_an_element():
    x = torch.ones(1, 1, 2, 2, requires_grad=True)
    F.max_pool2d(x, (1, 2), stride=1, padding=(0, 1), dilation=(1, 3)).sum().backward()
    assert x.grad.tolist() == [[[[0, 0], [0, 0]]]]
    assert F.max_pool2d(torch.ones(1, 1, 1, 4), (2, 1), padding=(1, 0), dilation=(2, 1)).tolist() == [[[[-np.inf] * 4]]]


def test_jax_gets_what_it_can_export():
    """A foreign function is known in this process alone."""
    function = torch.to_jax(lambda t: F.max_pool2d(t, 2))
    x = numbers((1, 2, 6, 6), repeated=False)
    exported = jax.export.export(jax.jit(function))(x)
    np.testing.assert_array_equal(exported.call(x), F.max_pool2d(torch.tensor(x), 2).numpy())
    assert "torchgrad_jax_pooling" not in exported.mlir_module()
