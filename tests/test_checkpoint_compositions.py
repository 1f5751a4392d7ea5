"""Checkpoints of every kind around, after and within each other, at random: what comes out is what comes out without them."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.nn import functional as F
from torchgrad_jax.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

pytestmark = pytest.mark.operators

# Functions of a 3 x 4 tensor and a 4 x 4 one.
STEPS = [
    lambda h, w: h.sin(),
    lambda h, w: (h @ w).tanh(),
    lambda h, w: h * h.exp().reciprocal(),
    lambda h, w: F.softmax(h @ w, -1),
    lambda h, w: torch.cat([h[:, :2], h[:, 2:]], 1) * w.sum(),
    lambda h, w: h.clone().mul_(2).add_(h),
    lambda h, w: F.layer_norm(h, (4,)),
    lambda h, w: h.t().contiguous().t() @ w.t(),
    lambda h, w: F.dropout(h, 0.3),
    lambda h, w: h.sort(1)[0] * h,
    lambda h, w: F.linear(h, w, w[1]),
]
KEPT = [op.default for op in (torch.ops.aten.mm, torch.ops.aten.tanh, torch.ops.aten.sort, torch.ops.aten.mul)]


def composed(chance: random.Random, depth: int, plain: bool):
    parts = []
    for _ in range(chance.randint(1, 4)):
        nested = depth > 0 and chance.random() < 0.5
        parts.append(composed(chance, depth - 1, plain) if nested else chance.choice(STEPS))
    kind = chance.choice(["without reentry", "reentrant", "selective", "to the end", "captured", "none"])

    def body(h, w):
        for part in parts:
            h = part(h, w)
        return h

    if plain or kind == "none":
        return body
    if kind == "captured":
        return lambda h, w: checkpoint(lambda a: body(a, w), h, use_reentrant=False)
    options = {"use_reentrant": kind == "reentrant"}
    if kind == "selective":
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, KEPT)
    if kind == "to the end":
        options["early_stop"] = False
    return functools.partial(checkpoint, body, **options)


def outcome(seed: int, plain: bool) -> list[np.ndarray]:
    function = composed(random.Random(seed), 3, plain)
    torch.manual_seed(seed)
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    out = function(x * 1, w)
    out.pow(2).sum().backward()
    grads = [torch.zeros(1) if t.grad is None else t.grad for t in (x, w)]
    return [out.detach().numpy(), *[g.numpy() for g in grads], torch.rand(1).numpy()]


@pytest.mark.parametrize("seeds", [range(i, i + 8) for i in range(0, 48, 8)], ids=str)
def test_like_the_function_itself(seeds):
    for seed in seeds:
        for found, expected in zip(outcome(seed, False), outcome(seed, True), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
