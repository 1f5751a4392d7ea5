"""Forty element-wise operations and their backward: the overhead of an operation where tensors are small, memory traffic where large."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from compat_suite.benchmarks.workloads.workload import Step, Workload, hand_over, normal

LENGTH = 20


def data(random: np.random.RandomState, size: int) -> dict[str, Any]:
    return {"x": normal(random, size, size), "a": normal(random, size, size), "b": 1 + normal(random, size, size, scale=0.1)}


def in_torch(T: Any, make: Any, x: np.ndarray, a: np.ndarray, b: np.ndarray) -> Step:
    x, a, b = make(x, True), make(a), make(b)

    def step(gradients: list[Any] | None = None) -> float:
        y = x
        for _ in range(LENGTH):
            y = y * b + a
        loss = y.sum()
        x.grad = None
        loss.backward()
        hand_over(gradients, [x.grad])
        return loss.item()

    return step


def in_jax(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    x, a, b = jnp.asarray(x), jnp.asarray(a), jnp.asarray(b)

    @jax.jit
    @jax.value_and_grad
    def value_and_grad(x, a, b):
        y = x
        for _ in range(LENGTH):
            y = y * b + a
        return y.sum()

    def step(gradients: list[Any] | None = None) -> float:
        loss, grad = value_and_grad(x, a, b)
        hand_over(gradients, [grad])
        return float(loss)

    return step


WORKLOADS = {f"chain{size}": Workload(partial(data, size=size), in_torch, in_jax) for size in (16, 256, 1024)}
