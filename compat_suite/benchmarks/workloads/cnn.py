"""Training steps of a small convolutional network: convolution, pooling, cross entropy."""

from __future__ import annotations

from typing import Any

import numpy as np

from compat_suite.benchmarks.workloads.workload import Step, Workload, hand_over, normal

BATCH, CLASSES, RATE = 16, 10, 0.01


def data(random: np.random.RandomState) -> dict[str, Any]:
    kernels = [normal(random, 16, 1, 3, 3, scale=0.2), normal(random, 32, 16, 3, 3, scale=0.1)]
    head = normal(random, 32 * 7 * 7, CLASSES, scale=0.05)
    return {"parameters": [*kernels, head], "x": normal(random, BATCH, 1, 28, 28), "labels": random.randint(0, CLASSES, BATCH)}


def in_torch(T: Any, make: Any, parameters: list[np.ndarray], x: np.ndarray, labels: np.ndarray) -> Step:
    F = T.nn.functional
    k1, k2, w = [make(p, True) for p in parameters]
    x, labels = make(x), make(labels)

    def step(gradients: list[Any] | None = None) -> float:
        h = F.max_pool2d(F.relu(F.conv2d(x, k1, padding=1)), 2)
        h = F.max_pool2d(F.relu(F.conv2d(h, k2, padding=1)), 2)
        loss = F.cross_entropy(h.flatten(1) @ w, labels)
        loss.backward()
        hand_over(gradients, [k1.grad, k2.grad, w.grad])
        with T.no_grad():
            for p in (k1, k2, w):
                p.sub_(p.grad * RATE)
                p.grad = None
        return loss.item()

    return step


def in_jax(parameters: list[np.ndarray], x: np.ndarray, labels: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    state, x, labels = [jnp.asarray(p) for p in parameters], jnp.asarray(x), jnp.asarray(labels)

    def pool(h):
        return jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def convolution(x, k):
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))

    def loss_of(parameters, x, labels):
        k1, k2, w = parameters
        h = pool(jax.nn.relu(convolution(x, k1)))
        h = pool(jax.nn.relu(convolution(h, k2)))
        logs = jax.nn.log_softmax(h.reshape(BATCH, -1) @ w)
        return -logs[jnp.arange(BATCH), labels].mean()

    @jax.jit
    def update(parameters, x, labels):
        loss, grads = jax.value_and_grad(loss_of)(parameters, x, labels)
        return [p - RATE * g for p, g in zip(parameters, grads, strict=True)], loss

    def step(gradients: list[Any] | None = None) -> float:
        nonlocal state
        if gradients is not None:
            gradients.extend(jax.grad(loss_of)(state, x, labels))
        state, loss = update(state, x, labels)
        return float(loss)

    return step


WORKLOADS = {"cnn": Workload(data, in_torch, in_jax)}
