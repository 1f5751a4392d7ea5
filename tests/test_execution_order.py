"""In which order nodes and leaves run, as PyTorch runs them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import agree, leaf, like_pytorch, plain  # noqa: E402 - needs torch


def watch(node, i, note, before):
    name, inner = node.name(), node.next_functions[0][0]
    node.register_hook(lambda gi, go: note((i, name)))
    if before:
        inner.register_prehook(lambda go: note(("pre", i, inner.name())))


def random_graph(m, seed, note=None):
    """A loss over a random graph of many shared results; `note(name)` is called when a node runs."""
    rng = np.random.default_rng(seed)
    leaves = [m.tensor(rng.standard_normal(3), requires_grad=True) for _ in range(3)]
    made = list(leaves)
    steps = [
        lambda a, b: a * b, lambda a, b: a + b, lambda a, b: a.sin(), lambda a, b: (a - b).tanh(), lambda a, b: a.mul(2.0),
        lambda a, b: m.stack([a, b]).sum(0), lambda a, b: a.exp().log1p() * b, lambda a, b: a[1:].sum() * b,
    ]  # fmt: skip
    for i in range(12):
        a, b = (made[k] for k in rng.integers(len(made), size=2))
        made.append(steps[rng.integers(len(steps))](a, b) * 0.5)
        if note is not None:
            watch(made[-1].grad_fn, i, note, rng.random() < 0.3)
    if note is not None:
        for i, t in enumerate(leaves):
            t.register_hook(lambda g, i=i: note(("leaf", i)))
    chosen = [made[k] for k in rng.choice(len(made), 4, replace=False)]
    return sum((t * t).sum() for t in chosen), leaves


@pytest.mark.parametrize("seed", range(6))
def test_nodes_run_in_pytorchs_order(seed):
    order = {}
    for m in (torch, tj):
        ran = order[m] = []
        random_graph(m, seed, ran.append)[0].backward()
    assert order[tj] == order[torch]


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_have_pytorchs_gradients_at_every_sighting(seed):
    def gradients(m):
        loss, leaves = random_graph(m, seed)
        loss.backward()
        return plain([t.grad for t in leaves])

    expected = gradients(torch)
    for _ in range(4):
        assert agree(gradients(tj), expected)


@like_pytorch
def test_leaves_accumulate_as_soon_as_their_last_gradient_is_in(m):
    a, b = leaf(m, 1.0), leaf(m, 2.0)
    order = []
    for name, t in (("a", a), ("b", b)):
        t.register_hook(lambda g, name=name: order.append(name))
    x = a.exp()
    x.grad_fn.register_hook(lambda gi, go: order.append("exp"))
    y = x * b
    y.grad_fn.register_hook(lambda gi, go: order.append("mul"))
    y.sum().backward()
    return order


@pytest.mark.parametrize("count", range(2, 12))
def test_leaves_that_become_ready_together_run_in_the_queues_order(count):
    def order(m):
        leaves, seen = [m.ones(1, requires_grad=True) for _ in range(count)], []
        for i, one in enumerate(leaves):
            one.register_hook(lambda g, i=i: seen.append(i))
        m.cat(leaves).sum().backward()
        m.autograd.backward(leaves, [m.ones(1)] * count)
        middle = [one * 2 for one in leaves[::2]]
        m.cat([*leaves[1::2], *middle]).sum().backward()
        return seen

    expected = order(torch)
    assert order(tj) == expected
    assert order(tj) == expected  # also when the graph was seen before


@pytest.mark.parametrize("seed", range(30))
def test_hooks_on_leaves_run_in_pytorchs_order_in_any_graph(seed):
    def order(m):
        seen = []
        loss, leaves = random_graph(m, seed)
        for i, one in enumerate(leaves):
            one.register_hook(lambda g, i=i: seen.append(["hook", i]))
            one.register_post_accumulate_grad_hook(lambda t, i=i: seen.append(["accumulated", i]))
        loss.backward()
        return seen

    assert order(tj) == order(torch)


def test_a_graph_that_two_threads_made_runs_in_the_order_of_its_edges():
    x = tj.ones(2, requires_grad=True)
    parts = []

    def build():
        t = x * 2
        for _ in range(40):
            t = t * 1
        parts.append(t)

    def use():  # this thread's nodes begin to count at 0: below those that they lead to
        y = parts[0] * 3
        parts.append(tj.autograd.grad((y + parts[0]).sum(), x, retain_graph=True)[0])
        parts.append(tj.autograd.grad((y + parts[0]).sum(), parts[0])[0])

    for run in (build, use):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert parts[1].tolist() == [8.0, 8.0]
    assert parts[2].tolist() == [4.0, 4.0]
