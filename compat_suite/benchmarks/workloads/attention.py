"""Two transformer blocks, forward and backward: batched products, softmax, layer norm, reshaping."""

from __future__ import annotations

from typing import Any

import numpy as np

from compat_suite.benchmarks.workloads.workload import Step, Workload, hand_over, normal

BATCH, HEADS, LENGTH, HEAD_WIDTH, BLOCKS = 4, 4, 64, 32, 2
WIDTH = HEADS * HEAD_WIDTH


def data(random: np.random.RandomState) -> dict[str, Any]:
    def block() -> list[np.ndarray]:
        square = [normal(random, WIDTH, WIDTH, scale=0.05) for _ in range(4)]
        return [*square, normal(random, WIDTH, 4 * WIDTH, scale=0.05), normal(random, 4 * WIDTH, WIDTH, scale=0.05)]

    return {"blocks": [block() for _ in range(BLOCKS)], "x": normal(random, BATCH, LENGTH, WIDTH)}


def in_torch(T: Any, make: Any, blocks: list[list[np.ndarray]], x: np.ndarray) -> Step:
    F = T.nn.functional
    parameters, start = [[make(w, True) for w in block] for block in blocks], make(x)

    def step(gradients: list[Any] | None = None) -> float:
        x = start
        for wq, wk, wv, wo, w1, w2 in parameters:
            h = F.layer_norm(x, (WIDTH,))
            q, k, v = [(h @ w).view(BATCH, LENGTH, HEADS, HEAD_WIDTH).transpose(1, 2) for w in (wq, wk, wv)]
            p = T.softmax(q @ k.transpose(-2, -1) / HEAD_WIDTH**0.5, dim=-1)
            x = x + (p @ v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH) @ wo
            x = x + F.gelu(F.layer_norm(x, (WIDTH,)) @ w1) @ w2
        loss = (x**2).mean()
        loss.backward()
        hand_over(gradients, [w.grad for block in parameters for w in block])
        for block in parameters:
            for w in block:
                w.grad = None
        return loss.item()

    return step


def in_jax(blocks: list[list[np.ndarray]], x: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    parameters, start = [[jnp.asarray(w) for w in block] for block in blocks], jnp.asarray(x)

    def layer_norm(x):
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    @jax.jit
    @jax.value_and_grad
    def value_and_grad(parameters, x):
        for wq, wk, wv, wo, w1, w2 in parameters:
            h = layer_norm(x)
            q, k, v = [(h @ w).reshape(BATCH, LENGTH, HEADS, HEAD_WIDTH).transpose(0, 2, 1, 3) for w in (wq, wk, wv)]
            p = jax.nn.softmax(q @ k.swapaxes(-2, -1) / HEAD_WIDTH**0.5, -1)
            x = x + (p @ v).transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH) @ wo
            x = x + jax.nn.gelu(layer_norm(x) @ w1, approximate=False) @ w2
        return (x**2).mean()

    def step(gradients: list[Any] | None = None) -> float:
        loss, grads = value_and_grad(parameters, start)
        hand_over(gradients, [g for block in grads for g in block])
        return float(loss)

    return step


WORKLOADS = {"attention": Workload(data, in_torch, in_jax)}
