"""Writes through views of a tensor that has a history, and backward through them."""

from __future__ import annotations

from typing import Any

import numpy as np

from compat_suite.benchmarks.workloads.workload import Step, Workload, hand_over, normal

SIZE, WRITES = 128, 16


def data(random: np.random.RandomState) -> dict[str, Any]:
    return {"x": normal(random, SIZE, SIZE, scale=0.1), "b": normal(random, SIZE, SIZE, scale=0.1)}


def in_torch(T: Any, make: Any, x: np.ndarray, b: np.ndarray) -> Step:
    x, b = make(x, True), make(b)

    def step(gradients: list[Any] | None = None) -> float:
        y = x.clone()
        for i in range(WRITES):
            y[i].mul_(1.1)
            y[:, i].add_(b[i])
            y.mul_(0.99)
        loss = (y * y).sum()
        loss.backward()
        hand_over(gradients, [x.grad])
        x.grad = None
        return loss.item()

    return step


def in_jax(x: np.ndarray, b: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    @jax.jit
    @jax.value_and_grad
    def value_and_grad(x, b):
        y = x
        for i in range(WRITES):
            y = y.at[i].multiply(1.1)
            y = y.at[:, i].add(b[i])
            y = y * 0.99
        return (y * y).sum()

    x, b = jnp.asarray(x), jnp.asarray(b)

    def step(gradients: list[Any] | None = None) -> float:
        loss, grad = value_and_grad(x, b)
        hand_over(gradients, [grad])
        return float(loss)

    return step


WORKLOADS = {"inplace_views": Workload(data, in_torch, in_jax)}
