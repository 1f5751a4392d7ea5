"""A recurrent network, forward and backward: long graphs, and sequences whose length is another in every step."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from compat_suite.benchmarks.workloads.workload import Step, Workload, hand_over, normal

SHORTEST, LONGEST = 5, 59


def data(random: np.random.RandomState, batch: int, width: int, lengths: list[int]) -> dict[str, Any]:
    weights = [normal(random, width, width, scale=0.1) for _ in range(2)]
    return {"weights": weights, "xs": normal(random, max(lengths), batch, width), "lengths": lengths}


def _each_once() -> list[int]:
    return [int(n) for n in np.random.RandomState(1).permutation(np.arange(SHORTEST, LONGEST + 1))]


def in_torch(T: Any, make: Any, weights: list[np.ndarray], xs: np.ndarray, lengths: list[int]) -> Step:
    wx, wh = [make(w, True) for w in weights]
    start, xs = make(np.zeros_like(xs[0])), make(xs)
    steps = 0

    def step(gradients: list[Any] | None = None) -> float:
        nonlocal steps
        h = start
        for i in range(lengths[steps % len(lengths)]):
            h = T.tanh(xs[i] @ wx + h @ wh)
        steps += 1
        loss = (h**2).mean()
        loss.backward()
        hand_over(gradients, [wx.grad, wh.grad])
        wx.grad = None
        wh.grad = None
        return loss.item()

    return step


def fixed_in_jax(weights: list[np.ndarray], xs: np.ndarray, lengths: list[int]) -> Step:
    import jax
    import jax.numpy as jnp

    (length,) = lengths
    weights, xs = [jnp.asarray(w) for w in weights], jnp.asarray(xs)

    @jax.jit
    @jax.value_and_grad
    def value_and_grad(weights, xs):
        wx, wh = weights
        h = jnp.zeros_like(xs[0])
        for i in range(length):
            h = jnp.tanh(xs[i] @ wx + h @ wh)
        return (h**2).mean()

    def step(gradients: list[Any] | None = None) -> float:
        loss, grads = value_and_grad(weights, xs)
        hand_over(gradients, grads)
        return float(loss)

    return step


def changing_in_jax(weights: list[np.ndarray], xs: np.ndarray, lengths: list[int]) -> Step:
    """One program for all lengths: a scan over the longest, masked past the end."""
    import jax
    import jax.numpy as jnp

    weights, xs = [jnp.asarray(w) for w in weights], jnp.asarray(xs)
    steps = 0

    @jax.jit
    @jax.value_and_grad
    def value_and_grad(weights, xs, length):
        wx, wh = weights

        def cell(h, item):
            i, x = item
            return jnp.where(i < length, jnp.tanh(x @ wx + h @ wh), h), None

        h, _ = jax.lax.scan(cell, jnp.zeros_like(xs[0]), (jnp.arange(len(xs)), xs))
        return (h**2).mean()

    def step(gradients: list[Any] | None = None) -> float:
        nonlocal steps
        loss, grads = value_and_grad(weights, xs, lengths[steps % len(lengths)])
        steps += 1
        hand_over(gradients, grads)
        return float(loss)

    return step


WORKLOADS = {
    "rnn50": Workload(partial(data, batch=16, width=64, lengths=[50]), in_torch, fixed_in_jax),
    "rnn_dynamic": Workload(partial(data, batch=16, width=32, lengths=_each_once()), in_torch, changing_in_jax, cycle=LONGEST - SHORTEST + 1),
}
