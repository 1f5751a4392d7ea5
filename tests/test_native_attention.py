"""Scaled dot-product attention by a loop of C's: what jax.numpy says it is, interpreted and compiled, and whatever transforms it."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from tiers import in_both_tiers

import torchgrad_jax as torch
from torchgrad_jax.nn.functional import scaled_dot_product_attention as attend
from torchgrad_jax.operators import attention
from torchgrad_jax.runtime._jax_compat import call_x64
from torchgrad_jax.runtime.baseline.attention import how_of_attention
from torchgrad_jax.runtime.compiling.foreign import ATTENTION, knows
from torchgrad_jax.runtime.native import handlers

pytestmark = [pytest.mark.operators, pytest.mark.skipif(not knows(ATTENTION), reason="the core in pure Python, or a processor without tiles")]

# Samples, heads, queries, keys, features: in one block, in several, with more keys than queries and fewer.
SIZES = [(1, 1, 1, 1, 1), (2, 3, 5, 7, 4), (1, 2, 64, 64, 32), (3, 2, 49, 48, 17), (1, 2, 130, 70, 33), (2, 1, 40, 200, 8)]


def numbers(shape, seed):
    return np.random.RandomState(seed).standard_normal(shape).astype("f")


def heads(shape, seed, turned):
    """Numbers of this shape, of which the heads of a row are next to each other in memory if `turned`."""
    samples, count, rows, width = shape
    return numbers((samples, rows, count, width), seed).transpose(0, 2, 1, 3) if turned else numbers(shape, seed)


def given_of(sizes, turned):
    samples, count, queries, keys, width = sizes
    shapes = [(samples, count, queries, width), *[(samples, count, keys, width)] * 2]
    return [heads(shape, i, turned) for i, shape in enumerate(shapes)]


def by_loop(given, causal, scale):
    query, key, value = given
    made, weights = np.full_like(query, 7), np.full((*query.shape[:3], key.shape[2]), 7, "f")
    assert handlers.attend(given, [made], weights, how_of_attention(*given, is_causal=causal, scale=scale))
    return made, weights


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_output_and_gradients(sizes, causal, turned):
    given, told = given_of(sizes, turned), {"is_causal": causal, "scale": 0.3}
    made, weights = by_loop(given, causal, 0.3)
    wanted = call_x64(jax.jit(partial(attention._attended, **told)), *given)
    for found, one in zip((made, weights), wanted, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-5, atol=2e-6)
    operands = [heads(given[0].shape, 5, not turned), *given, weights]
    found = [np.full_like(x, 7) for x in given]
    assert handlers.attend(operands[:4], found, weights, how_of_attention(*operands, **told))
    for one, other in zip(found, call_x64(jax.jit(partial(attention._attended_back, **told)), *operands), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_heads_do_not_know_of_each_other():
    """So each has the same bits, however many there are and whichever thread takes them."""
    given = given_of((4, 6, 100, 100, 32), True)
    whole = by_loop(given, True, 0.2)
    assert all([(a == b).all() for _ in range(5) for a, b in zip(by_loop(given, True, 0.2), whole, strict=True)])
    part = by_loop([x[1:3, 2:3] for x in given], True, 0.2)
    assert (part[0] == whole[0][1:3, 2:3]).all() and (part[1] == whole[1][1:3, 2:3]).all()


def test_both_tiers():
    q, k, v = [torch.tensor(x, requires_grad=True) for x in given_of((2, 4, 70, 70, 16), False)]
    far = [torch.tensor(x).transpose(1, 2).requires_grad_() for x in given_of((2, 70, 4, 4, 16), False)]

    def step():
        found = []
        for query, key, value in ((q, k, v), far):
            out = attend(query, key, value, is_causal=query is q)
            found += [out.detach().numpy(), *[g.numpy() for g in torch.autograd.grad(out.square().sum(), (query, key, value))]]
        return found

    for a, b in zip(*in_both_tiers(step), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_derivatives_of_every_kind(causal):
    """Of double precision it goes by what jax.numpy says."""
    _, k, v = map(torch.tensor, given_of((2, 2, 6, 6, 4), False))
    x = torch.tensor(numbers((2, 2, 6, 4), 9))

    def of(t):
        return (attend(t, t * k.to(t.dtype), v.to(t.dtype), is_causal=causal) ** 2).sum()

    for transform in (torch.func.grad, torch.func.hessian, lambda f: lambda t: torch.func.jvp(f, (t,), (torch.ones_like(t),))[1]):
        found, wanted = transform(of)(x), transform(of)(x.double())
        assert found.dtype == torch.float32 and torch.allclose(found.double(), wanted, rtol=1e-3, atol=1e-4)
    mapped = torch.vmap(torch.func.grad(of))(torch.stack([x, x + 1]))
    assert torch.allclose(mapped[1], torch.func.grad(of)(x + 1), rtol=1e-4, atol=1e-5)
    (grad,) = torch.autograd.grad(of(x.requires_grad_()), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), x)
    wide = x.detach().double().requires_grad_()
    (grad,) = torch.autograd.grad(of(wide), wide, create_graph=True)
    assert torch.allclose(second.double(), torch.autograd.grad(grad.square().sum(), wide)[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "look", [lambda t: t[..., ::2], lambda t: t[:, :, :1, :4].expand(2, 3, 5, 4), lambda t: t[..., :4].flip(2), lambda t: t[..., :4].flip(0, 1)]
)
def test_arrays_that_are_no_heads(look):
    """Features apart, rows that are one and the same, and rows and samples from the last to the first: by copies."""
    x, k = torch.tensor(numbers((2, 3, 5, 8), 0)), torch.tensor(numbers((2, 3, 5, 4), 1))
    assert torch.allclose(attend(look(x), k, k).double(), attend(look(x.double()), k.double(), k.double()), atol=1e-6)
    assert torch.allclose(attend(k, look(x), look(x)).double(), attend(k.double(), look(x.double()), look(x.double())), atol=1e-6)


def test_what_is_no_number():
    q, k, v = map(torch.tensor, given_of((1, 2, 50, 50, 4), False))
    q[0, 0, 7] = torch.nan
    found = attend(q, k, v, is_causal=True)
    assert torch.isnan(found[0, 0, 7]).all() and torch.isfinite(found[0, 1]).all() and torch.isfinite(found[0, 0, 8:]).all()
    assert torch.isfinite(attend(q[:, 1:] * 1e18, k[:, 1:] * 1e18, v[:, 1:])).all()
    seen = torch.ones(50, 50, dtype=torch.bool)
    seen[9] = False
    masked = attend(q, k, v, seen)
    assert torch.isnan(masked[0, 0, 7]).all() and (masked[:, :, 9] == 0).all() and torch.isfinite(masked[0, 0, 8:]).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(70, 90), (1, 90), (70, 1), (2, 1, 1, 90), (1, 3, 70, 90), (2, 3, 70, 90)])
def test_masks(shape, causal):
    q, k, v = given_of((2, 3, 70, 90, 16), True)
    mask, g = numbers(shape, 7), torch.tensor(numbers((2, 3, 70, 16), 8))
    seen = mask > -0.5
    seen[..., -1, :] = False  # the last query sees nothing
    for given in (mask, seen):
        found = []
        for dtype in (torch.float32, torch.float64):
            three = [torch.tensor(x).to(dtype).requires_grad_() for x in (q, k, v)]
            m = torch.tensor(given) if given.dtype == bool else torch.tensor(given).to(dtype)
            out = attend(*three, m, is_causal=causal)
            found.append([out.double(), *[x.double() for x in torch.autograd.grad(out, three, g.to(dtype))]])
        for one, other in zip(*found, strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_masks_both_tiers():
    q, k, v = [torch.tensor(x) for x in given_of((2, 2, 33, 40, 8), False)]
    mask = torch.tensor(numbers((2, 1, 1, 40), 3)) > 0
    np.testing.assert_allclose(*in_both_tiers(lambda: attend(q, k, v, mask).numpy()), rtol=1e-5, atol=1e-6)
