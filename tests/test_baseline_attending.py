"""Attention written by hand: what becomes of its products and softmax where a program is one list of calls, and that nothing else is taken for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.runtime.baseline.attention import SideBySide
from torchgrad_jax.runtime.native import handlers

F = torch.nn.functional
# A program is one list of calls after some runs, and carried out as that one or two later.
RUNS = 24
pytestmark = pytest.mark.usefixtures("interpreted")
loops = pytest.mark.skipif(not handlers.vector_bits(), reason="there is no loop for this processor")


@pytest.fixture
def attended(monkeypatch):
    """How often the loop has been called."""
    calls, attend = [], handlers.attend

    def counting(*args):
        calls.append(args[3].tolist())
        return attend(*args)

    monkeypatch.setattr(handlers, "attend", counting)
    return calls


def operands(samples, heads, queries, keys, width, values=None, dtype=torch.float32, wanting="qkv"):
    """Leaves (samples, times, heads * width) for query, key and value."""
    torch.manual_seed(0)
    sizes = (queries, width), (keys, width), (keys, values or width)
    made = [torch.randn(samples, times, heads * n, dtype=torch.float64).to(dtype) for times, n in sizes]
    return [t.requires_grad_(name in wanting) for name, t in zip("qkv", made, strict=True)]


def in_heads(leaves, heads, flat=False):
    """Them as (samples, heads, times, width), or with samples and heads as one dimension."""
    found = [t.view(*t.shape[:2], heads, -1).transpose(1, 2) for t in leaves]
    return [t.reshape(-1, *t.shape[2:]) for t in found] if flat else found


def stepping(leaves, output):
    """A training step's loss and gradients. output: of the leaves."""

    def step():
        for leaf in leaves:
            leaf.grad = None
        found = output(*leaves)
        loss = (found**2 * torch.arange(1, found.shape[-1] + 1, dtype=found.dtype)).mean()
        loss.backward()
        return [loss.detach().numpy().copy()] + [np.array(leaf.grad) for leaf in leaves if leaf.grad is not None]

    return step


def assert_as_by_steps(leaves, output, attended, calls):
    """The last of many runs gives what the first one does, to the bit where attention is all there is, and what the operations give in float64."""
    step = stepping(leaves, output)
    first = step()
    for _ in range(RUNS):
        attended.clear()
        last = step()
    wide = [leaf.detach().double().requires_grad_(leaf.requires_grad) for leaf in leaves]
    for one, other, exact in zip(first, last, stepping(wide, output)(), strict=True):
        if calls == 2:
            np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(other, exact, rtol=1e-4, atol=1e-5 * max(1, np.nanmax(np.abs(exact), initial=0)))
    assert len(attended) == calls


def masks(queries, keys, samples, heads):
    """What is done to scores."""
    width = 8
    causal = torch.tril(torch.ones(queries, keys)).bool()
    padded = (torch.arange(keys) >= keys - 2).view(1, 1, 1, keys).expand(samples, 1, 1, keys).contiguous()
    all_of_a_row = torch.zeros(samples, 1, queries, keys).bool()
    all_of_a_row[0, 0, 1] = True
    added = torch.linspace(-2, 2, heads * queries * keys).view(heads, queries, keys)
    return {
        "as they are": lambda s: s,
        "divided": lambda s: s / math.sqrt(width),
        "multiplied": lambda s: s * width**-0.5,
        "number first": lambda s: 0.25 * s,
        "causal": lambda s: (s / math.sqrt(width)).masked_fill(~causal, float("-inf")),
        "causal, not scaled": lambda s: s.masked_fill(~causal, float("-inf")),
        "kept": lambda s: torch.where(causal, s * 0.3, -1e9),
        "padded": lambda s: (s / math.sqrt(width)).masked_fill(padded, torch.finfo(torch.float32).min),
        "a row masked altogether": lambda s: (s / math.sqrt(width)).masked_fill(all_of_a_row, -1e9),
        "added": lambda s: s / math.sqrt(width) + added.to(s.dtype),
        "added of four dimensions": lambda s: s * 0.2 + torch.where(padded, -1e4, 0.0).to(s.dtype),
        "added first": lambda s: added.to(s.dtype) + s / 2,
    }


NAMES = list(masks(4, 4, 1, 1))
# Those that are of four dimensions, or of heads.
OF_HEADS = {"padded", "a row masked altogether", "added", "added first", "added of four dimensions"}


@loops
@pytest.mark.parametrize(("name", "flat"), [(name, flat) for name in NAMES for flat in (False, True) if not flat or name not in OF_HEADS])
@pytest.mark.parametrize(("queries", "keys"), [(16, 16), (7, 19), (130, 70)])
def test_it_is_one_loop_forward_and_one_back(queries, keys, name, flat, attended):
    samples, heads = 3, 2
    do = masks(queries, keys, samples, heads)[name]

    def output(*leaves):
        q, k, v = in_heads(leaves, heads, flat)
        found = do(q @ k.transpose(-2, -1)).softmax(-1) @ v
        return found.view(samples, heads, queries, -1).transpose(1, 2).reshape(samples, queries, -1)

    assert_as_by_steps(operands(samples, heads, queries, keys, 8), output, attended, 2)


@loops
@settings(max_examples=12, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3, 16]), st.sampled_from(NAMES))
def test_sizes(samples, heads, queries, keys, width, name):
    do = masks(queries, max(keys, 2), samples, heads)[name] if queries > 1 else lambda s: s / 2

    def output(*leaves):
        q, k, v = in_heads(leaves, heads)
        return (do(q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)

    leaves = operands(samples, heads, queries, max(keys, 2), width)
    step = stepping(leaves, output)
    first = step()
    for _ in range(RUNS):
        last = step()
    for one, other in zip(first, last, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6 * max(1, np.abs(one).max()))


@loops
def test_a_row_masked_altogether_with_infinity_is_no_number(attended):
    masked = torch.zeros(5, 6).bool()
    masked[2] = True

    def output(*leaves):
        q, k, v = in_heads(leaves, 2)
        found = (q @ k.mT).masked_fill(masked, float("-inf")).softmax(-1) @ v
        return found.transpose(1, 2).flatten(2)[:, [0, 1, 3, 4]]

    leaves = operands(2, 2, 5, 6, 8)
    step = stepping(leaves, output)
    first = step()
    for _ in range(RUNS):
        attended.clear()
        last = step()
    assert len(attended) == 2 and np.isnan(last[3]).all(axis=(1, 2)).any()
    for one, other in zip(first, last, strict=True):
        np.testing.assert_array_equal(one, other)


WAYS = {
    "einsum": (lambda q, k: torch.einsum("bhqd,bhkd->bhqk", q, k), lambda w, v: torch.einsum("bhqk,bhkd->bhqd", w, v)),
    "einsum of times before heads": (
        lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q.transpose(1, 2), k.transpose(1, 2)),
        lambda w, v: torch.einsum("bhqk,bkhd->bhqd", w, v.transpose(1, 2)),
    ),
    "keys first": (lambda q, k: (k @ q.mT).mT, lambda w, v: w @ v),
    "contiguous": (lambda q, k: torch.matmul(q.contiguous(), k.contiguous().transpose(2, 3)), lambda w, v: torch.matmul(w, v.contiguous())),
}


@loops
@pytest.mark.parametrize("way", WAYS)
def test_ways_to_write_it(way, attended):
    """Not all are found; all are right."""
    scores, weighted = WAYS[way]

    def output(*leaves):
        q, k, v = in_heads(leaves, 2)
        return weighted(F.softmax(scores(q * 0.5, k), dim=-1), v).transpose(1, 2).flatten(2)

    leaves = operands(3, 2, 9, 12, 8)
    step = stepping(leaves, output)
    for _ in range(RUNS):
        attended.clear()
        last = step()
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    for one, exact in zip(last, stepping(wide, output)(), strict=True):
        np.testing.assert_allclose(one, exact, rtol=1e-4, atol=1e-5)
    assert len(attended) == 2 or way == "keys first"


def with_weights(q, k, v):
    weights = (q @ k.mT).softmax(-1)
    return torch.cat([weights @ v, weights.mean(-1, keepdim=True) * q], -1)


def scores_elsewhere(q, k, v):
    scores = q @ k.mT / 2
    return scores.softmax(-1) @ v + scores.mean(-1, keepdim=True)


def scaled_twice(q, k, v):
    return (q @ k.mT / 2 * 3).softmax(-1) @ v


def masked_before_scaled(q, k, v):
    seen = torch.tril(torch.ones(9, 9)).bool()
    return ((q @ k.mT).masked_fill(~seen, -4.0) / 2).softmax(-1) @ v


def of_weights_twice(q, k, v):
    weights = (q @ k.mT).softmax(-1)
    return weights @ v + weights @ (v * 2)


def values_of_weights(q, k, v):
    weights = (q @ k.mT).softmax(-1)
    return weights @ (weights.mean(-1, keepdim=True) * v)


# What of it the loop takes, forward and back: what it does not may be read elsewhere.
OTHERS = {
    "weights are read elsewhere": (with_weights, 1),
    "weights are read twice": (of_weights_twice, 1),
    "scores are read elsewhere": (scores_elsewhere, 0),
    "scaled twice": (scaled_twice, 0),
    "masked before it is scaled": (masked_before_scaled, 1),
    "over queries": (lambda q, k, v: (q @ k.mT).softmax(-2) @ v, 0),
    "over heads": (lambda q, k, v: (q @ k.mT).softmax(1) @ v, 0),
    "weights by something": (lambda q, k, v: ((q @ k.mT).softmax(-1) * 2) @ v, 0),
    "values are made of weights": (values_of_weights, 0),
    "weights of the weights": (lambda q, k, v: (lambda w: w @ w @ v)((q @ k.mT).softmax(-1)), 0),
}


@loops
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_quite_that(name, attended):
    of, calls = OTHERS[name]
    assert_as_by_steps(operands(3, 2, 9, 9, 8), lambda *leaves: of(*in_heads(leaves, 2)).transpose(1, 2).flatten(2), attended, calls)


@loops
@pytest.mark.parametrize(("wanting", "calls"), [("qkv", 2), ("qk", 1), ("q", 1), ("v", 1), ("kv", 1)])
def test_what_needs_no_gradient(wanting, calls, attended):
    """The loop makes three gradients or none."""
    leaves = operands(3, 2, 11, 11, 8, wanting=wanting)
    assert_as_by_steps(leaves, lambda *leaves: (lambda q, k, v: (q @ k.mT / 2).softmax(-1) @ v)(*in_heads(leaves, 2)), attended, calls)


@loops
def test_values_of_another_width(attended):
    leaves = operands(3, 2, 11, 11, 8, values=5)
    assert_as_by_steps(leaves, lambda *leaves: (lambda q, k, v: (q @ k.mT / 2).softmax(-1) @ v)(*in_heads(leaves, 2)), attended, 0)


@loops
def test_double_precision(attended):
    leaves = operands(3, 2, 11, 11, 8, dtype=torch.float64)
    assert_as_by_steps(leaves, lambda *leaves: (lambda q, k, v: (q @ k.mT / 2).softmax(-1) @ v)(*in_heads(leaves, 2)), attended, 0)


@loops
def test_numbers_of_each_run(attended):
    """A scale and what fills change from run to run, a mask too."""
    leaves = operands(2, 2, 6, 6, 8)

    def step(scale, fill, mask):
        for leaf in leaves:
            leaf.grad = None
        q, k, v = in_heads(leaves, 2)
        weights = (q @ k.mT * scale).masked_fill(mask, fill).softmax(-1)
        ((weights @ v) ** 2).sum().backward()
        return [weights.detach().numpy()] + [np.array(leaf.grad) for leaf in leaves]

    torch.manual_seed(1)
    told = [(0.1 * i + 0.1, -float(i), torch.rand(6, 6) < 0.3) for i in range(RUNS)]
    found = [step(*one) for one in told]
    assert len(attended) > 2
    for leaf in leaves:
        leaf.data = leaf.data.double()
    for one, of in zip(told, found, strict=True):
        for mine, exact in zip(of, step(*one), strict=True):
            np.testing.assert_allclose(mine, exact, rtol=1e-4, atol=1e-5 * max(1, np.abs(exact).max()))


@loops
def test_weights_are_there_for_whoever_holds_them(attended):
    """They are looked at, written to, and have second derivatives."""
    leaves = operands(2, 2, 6, 6, 8)
    for _ in range(RUNS):
        q, k, v = in_heads(leaves, 2)
        weights = (q @ k.mT / 2).softmax(-1)
        (grad,) = torch.autograd.grad(((weights @ v) ** 2).sum(), leaves[0], create_graph=True)
        (second,) = torch.autograd.grad((grad**2).sum(), leaves[1])
        rows = weights.detach().sum(-1)
        found = rows.numpy(), grad.detach().numpy(), second.numpy()
    assert attended
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    q, k, v = in_heads(wide, 2)
    (grad,) = torch.autograd.grad((((q @ k.mT / 2).softmax(-1) @ v) ** 2).sum(), wide[0], create_graph=True)
    (second,) = torch.autograd.grad((grad**2).sum(), wide[1])
    for mine, exact in zip(found, (np.ones((2, 2, 6)), grad.detach().numpy(), second.numpy()), strict=True):
        np.testing.assert_allclose(mine, exact, rtol=1e-3, atol=1e-4)


def of_one_layer(x, weight, order, attend):
    """Queries, keys and values in this order in what one layer makes, and attention of them."""
    heads = dict(zip(order, (x @ weight.T).chunk(len(order), -1), strict=True))
    found = [heads.get(name, x).view(*x.shape[:2], 2, -1).transpose(1, 2) for name in "qkv"]
    return attend(*found).transpose(1, 2).flatten(2)


ATTENDING = {
    "by hand": lambda q, k, v: (q @ k.mT / 2).softmax(-1) @ v,
    "as one operation": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
}


@loops
@pytest.mark.parametrize("attend", ATTENDING)
@pytest.mark.parametrize("order", ["qkv", "vqk", "kv"])
@pytest.mark.parametrize("retained", [False, True])
def test_gradients_that_one_layer_reads_are_written_next_to_each_other(attend, order, retained, attended, monkeypatch):
    joined, carry_out = [], SideBySide.__call__
    monkeypatch.setattr(SideBySide, "__call__", lambda self, *given: (joined.append(self.shape), carry_out(self, *given))[1])
    torch.manual_seed(0)
    x, weight = torch.randn(3, 20, 16, requires_grad=True), torch.randn(16 * len(order), 16, requires_grad=True)

    def step():
        x.grad = weight.grad = None
        if retained:  # the gradients are needed by themselves
            parts = (x @ weight.T).chunk(len(order), -1)
            heads = {"q": x, **dict(zip(order, parts, strict=True))}
            heads["k"].retain_grad()
            found = ATTENDING[attend](*[heads[name].view(3, 20, 2, 8).transpose(1, 2) for name in "qkv"]).transpose(1, 2).flatten(2)
        else:
            found = of_one_layer(x, weight, order, ATTENDING[attend])
        (found**2).sum().backward()
        return [x.grad.numpy().copy(), weight.grad.numpy().copy(), *([heads["k"].grad.numpy().copy()] if retained else [])]

    first = step()
    for _ in range(RUNS):
        joined.clear()
        last = step()
    assert joined == ([] if retained else [(3, 20, 16 * len(order))])
    for one, other in zip(first, last, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def multihead(x, order):
    layer = torch.nn.MultiheadAttention(16, 2, dropout=0.25, batch_first=True)
    return layer, lambda x: layer(x, x, x, attn_mask=order, need_weights=False)[0]


def by_hand(x, order):
    layer = torch.nn.Linear(16, 48)

    def attend(x):
        q, k, v = [t.view(*t.shape[:2], 2, 8).transpose(1, 2) for t in layer(x).chunk(3, -1)]
        scores = q @ k.mT / 3 if order is None else (q @ k.mT / 3).masked_fill(order, float("-inf"))
        return (F.dropout(scores.softmax(-1), 0.25) @ v).transpose(1, 2).flatten(2)

    return layer, attend


def as_one(x, order):
    layer = torch.nn.Linear(16, 48)

    def attend(x):
        q, k, v = [t.view(*t.shape[:2], 2, 8).transpose(1, 2) for t in layer(x).chunk(3, -1)]
        return F.scaled_dot_product_attention(q, k, v, None if order is None else ~order, dropout_p=0.25).transpose(1, 2).flatten(2)

    return layer, attend


@loops
@pytest.mark.parametrize("made", [multihead, by_hand, as_one])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("times", [10, 70])
def test_dropout(made, masked, times, attended):
    """As in training: some weights are dropped, forward and back, and by the loop."""
    torch.manual_seed(0)
    x = torch.randn(3, times, 16, requires_grad=True)
    layer, attend = made(x, torch.triu(torch.ones(times, times), 1).bool() if masked else None)

    def step():
        torch.manual_seed(1)
        x.grad = None
        layer.zero_grad()
        (attend(x) ** 2).sum().backward()
        return [x.grad.numpy().copy(), *[np.array(p.grad) for p in layer.parameters()]]

    first = step()
    for _ in range(RUNS):
        attended.clear()
        last = step()
    assert len(attended) == 2
    for one, other in zip(first, last, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6 * np.abs(one).max())


@loops
def test_dropped_weights_are_there_for_whoever_holds_them(attended):
    torch.manual_seed(0)
    q, k, v = [torch.randn(2, 2, 9, 8, requires_grad=True) for _ in range(3)]
    for _ in range(RUNS):
        torch.manual_seed(1)
        weights = (q @ k.mT).softmax(-1)
        dropped = F.dropout(weights, 0.5)
        (dropped @ v).sum().backward()
        kept = dropped.detach().numpy() != 0
    assert attended
    np.testing.assert_array_equal(dropped.detach().numpy(), weights.detach().numpy() * kept * 2)


@loops
def test_rows_that_see_nothing_when_some_are_dropped(attended):
    """They are 0, and so are their gradients."""
    torch.manual_seed(0)
    q, k, v = [torch.randn(2, 2, 9, 8, requires_grad=True) for _ in range(3)]
    seen = torch.ones(9, 9).bool()
    seen[4] = False
    for _ in range(RUNS):
        q.grad = k.grad = v.grad = None
        attended.clear()
        made = F.scaled_dot_product_attention(q, k, v, seen, dropout_p=0.25)
        (made**2).sum().backward()
        grads = [np.array(leaf.grad) for leaf in (q, k, v)]
    found = made.detach().numpy()
    assert len(attended) == 2 and not found[:, :, 4].any() and found[:, :, 3].all() and not grads[0][:, :, 4].any()
    assert np.isfinite(grads[1]).all() and np.isfinite(grads[2]).all()
