"""Backward passes in several threads, and inside each other."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import torchgrad_jax as tj

pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch

# ---------------------------------------------------------------------- threads


def in_threads(calls):
    failures = []

    def run(call):
        try:
            call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(c,)) for c in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]


def test_threads_build_and_differentiate_graphs_of_their_own():
    shared, grads = tj.arange(3.0), {}

    def work(k):
        for _ in range(5):
            w = tj.ones(3, requires_grad=True)
            ((w * k).exp() * shared).sum().backward()
            grads[k] = w.grad.tolist()

    in_threads([lambda k=k: work(k) for k in range(4)])
    for k in range(4):
        np.testing.assert_allclose(grads[k], k * np.exp(k) * np.arange(3.0), rtol=1e-6)


def test_backward_of_a_graph_that_another_thread_built():
    w = tj.ones(3, requires_grad=True)
    loss = (w * w * 3).sum()
    in_threads([loss.backward])
    assert w.grad.tolist() == [6.0] * 3


# ---------------------------------------------------------------------- backward inside backward


@like_pytorch
def test_backward_inside_a_hook(m):
    w, v = leaf(m, 1.0, 2.0), leaf(m, 3.0)

    def hook(g):
        with m.enable_grad():
            (v * v * g.sum()).sum().backward()

    y = w * w
    y.register_hook(hook)
    (y * 2).sum().backward()
    return w.grad, v.grad


@like_pytorch
def test_backward_inside_a_function(m):
    class Reentrant(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with m.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = ctx.x * ctx.x
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, g):
            with m.enable_grad():
                ctx.y.backward(g, retain_graph=True)
            return ctx.x.grad

    w = leaf(m, 1.0, 2.0)
    (Reentrant.apply(w * 3) + w).sum().backward()
    return w.grad, m.is_grad_enabled()


@like_pytorch
def test_deeply_nested_backward(m):
    w = leaf(m, 1.0)

    class Nested(m.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            if ctx.depth:
                with m.enable_grad():
                    x = leaf(m, 1.0)
                    Nested.apply(x, ctx.depth - 1).sum().backward()
                g = g + x.grad
            return g, None

    Nested.apply(w, 20).sum().backward()
    return w.grad


@like_pytorch
def test_grad_mode_inside_hooks_follows_create_graph(m):
    w, seen = leaf(m, 2.0), []
    y = w * w
    y.register_hook(lambda g: seen.append((m.is_grad_enabled(), g.requires_grad)))
    y.sum().backward(retain_graph=True)
    y.sum().backward(create_graph=True)
    return seen, m.is_grad_enabled()


def test_passes_of_several_threads_over_one_graph_add_up():
    x = tj.ones(3, requires_grad=True)
    loss = (x * x * 3).sum()
    in_threads([lambda: loss.backward(retain_graph=True)] * 10)
    assert x.grad.tolist() == [60.0] * 3


def countdown(m, start, at_the_bottom):
    """Backward of what this returns runs one pass inside another, `start` deep."""

    class Countdown(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with m.enable_grad():
                ctx.x = x.detach().requires_grad_() - 1
            return ctx.x.detach()

        @staticmethod
        def backward(ctx, g):
            if ctx.x <= 0:
                at_the_bottom()
            else:
                with m.enable_grad():
                    Countdown.apply(ctx.x).backward()
            return g

    x = m.tensor(start, requires_grad=True)
    return x, Countdown.apply(x)


@like_pytorch
def test_passes_nested_deeper_than_pythons_stack(m):
    x, y = countdown(m, 150.0, lambda: None)
    y.backward()
    return x.grad


@like_pytorch
def test_an_error_deep_inside_is_the_users_own(m):
    def fail():
        raise ZeroDivisionError("at the bottom")

    x, y = countdown(m, 70.0, fail)
    found = error_of(lambda: y.backward())
    (x * 2).backward()
    return found, x.grad, m.is_grad_enabled()
