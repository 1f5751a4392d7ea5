"""Random graphs with hooks on everything, run in every way: what each hook sees, in which order, and where gradients go, as in PyTorch.

TORCHGRAD_JAX_GRAPHS: how many graphs (default 40).
"""

from __future__ import annotations

import os
import random
import warnings

import numpy as np
import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import error_of  # noqa: E402 - needs torch

COUNT = int(os.environ.get("TORCHGRAD_JAX_GRAPHS", "40"))


def numbers(t):
    return None if t is None else [round(x, 6) for x in t.detach().reshape(-1).tolist()]


def absent(grads):
    return [g is None for g in grads]


class Graph:
    """A random graph of `m`'s, the same for the same seed. log: what its hooks and Functions have seen."""

    def __init__(self, m, seed):
        self.m, self.rng, self.log = m, random.Random(seed), []
        self.leaves = [m.tensor(np.linspace(0.1, 0.9, 3) * (i + 1), requires_grad=True) for i in range(3)]
        self.made = list(self.leaves)
        operations = self.operations()
        for _ in range(10):
            a, b = self.any(), self.any()
            t = operations[self.rng.randrange(len(operations))](a, b) * 0.5
            if self.rng.random() < 0.25:
                t = t.clone()
                t[:2].mul_(self.leaves[0][:2] if self.rng.random() < 0.5 else 3.0)
            self.made.append(t)
        for i, t in enumerate(self.made):
            self.hook(i, t)
        self.outputs = [self.made[-1].sum(), self.made[-2].sum()]
        if self.rng.random() < 0.2:
            self.outputs.append(self.any().sum())

    def any(self):
        return self.made[self.rng.randrange(len(self.made))]

    def operations(self):
        m, log = self.m, self.log

        class Both(m.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a * b, a + b

            @staticmethod
            def backward(ctx, g, h):
                a, b = ctx.saved_tensors
                log.append("Function")
                return g * b + h, g * a + h

        return [
            lambda a, b: a * b, lambda a, b: a + b, lambda a, b: a.sin(), lambda a, b: (a - b).tanh(), lambda a, b: a.mul(2.0),
            lambda a, b: m.stack([a, b]).sum(0), lambda a, b: a[1:].sum() * b, lambda a, b: Both.apply(a, b)[0], lambda a, b: Both.apply(a, b)[1],
            lambda a, b: m.cat([a[:1], b[1:]]), lambda a, b: a.exp(), lambda a, b: sum(a.unbind()) * b,
        ]  # fmt: skip

    def hook(self, i, t):
        log, rng = self.log, self.rng
        if rng.random() < 0.4:
            t.register_hook(lambda g: log.append(["tensor", i, numbers(g)]))
        if rng.random() < 0.2:
            t.register_hook(lambda g: None if g is None else g * 1.5)
        if t.grad_fn is None:
            t.register_post_accumulate_grad_hook(lambda leaf: log.append(["accumulated", i]))
            return
        if rng.random() < 0.3:
            t.grad_fn.register_hook(lambda inputs, outputs: log.append(["node", i, absent(inputs), absent(outputs)]))
        if rng.random() < 0.2:
            t.grad_fn.register_prehook(lambda outputs: log.append(["before", i, absent(outputs)]))
        if rng.random() < 0.3:
            t.retain_grad()

    def run(self):
        """Two passes of a random kind over the graph; what there is to see of them."""
        autograd = self.m.autograd
        chosen = [self.any() for _ in range(self.rng.randrange(1, 4))]
        kind = self.rng.randrange(5)

        def once():
            if kind == 0:
                autograd.backward(self.outputs, retain_graph=True)
            elif kind == 1:
                autograd.backward(self.outputs, inputs=chosen, retain_graph=True)
            elif kind == 2:
                autograd.backward(self.outputs, create_graph=True)
            else:
                found = autograd.grad(self.outputs, chosen, allow_unused=True, retain_graph=True, create_graph=kind == 4)
                self.log.append(["gradients", *map(numbers, found)])

        for _ in range(2):
            self.log.append(["pass", error_of(once)])
        return self.log, [numbers(t.grad) for t in self.made]


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_graph_runs_as_in_pytorch(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = Graph(tj, seed).run(), Graph(torch, seed).run()
    assert ours == theirs
