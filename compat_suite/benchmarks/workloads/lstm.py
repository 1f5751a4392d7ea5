"""A training step of a recurrent layer of `torch.nn`: an LSTM of two layers over fifty steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from compat_suite.benchmarks.workloads.workload import Step, Workload, hand_over, load, normal, training_step

STEPS, BATCH, HIDDEN, LAYERS, RATE = 50, 16, 64, 2, 0.01


def data(random: np.random.RandomState) -> dict[str, Any]:
    shapes = [(4 * HIDDEN, HIDDEN), (4 * HIDDEN, HIDDEN), (4 * HIDDEN,), (4 * HIDDEN,)] * LAYERS
    weights = [normal(random, *shape, scale=0.1) for shape in shapes]
    return {"weights": weights, "x": normal(random, STEPS, BATCH, HIDDEN), "y": normal(random, BATCH, HIDDEN)}


def in_torch(T: Any, make: Any, weights: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> Step:
    model, inputs, targets = load(T, T.nn.LSTM(HIDDEN, HIDDEN, LAYERS), weights, make), make(x), make(y)
    optimizer = T.optim.SGD(model.parameters(), lr=RATE)
    return training_step(model.parameters(), optimizer, lambda: (model(inputs)[0][-1] - targets).square().mean())


def in_jax(weights: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    parameters, inputs, targets = [jnp.asarray(w) for w in weights], jnp.asarray(x), jnp.asarray(y)

    def layer(xs: Any, w: Any, u: Any, b: Any, c: Any) -> Any:
        def cell(state: Any, of_input: Any) -> Any:
            h, memory = state
            i, f, g, o = jnp.split(of_input + h @ u.T, 4, axis=-1)
            memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(memory)
            return (h, memory), h

        zeros = jnp.zeros(xs.shape[1:])
        return jax.lax.scan(cell, (zeros, zeros), xs @ w.T + (b + c))[1]

    def loss_of(parameters: Any) -> Any:
        found = inputs
        for i in range(LAYERS):
            found = layer(found, *parameters[4 * i : 4 * i + 4])
        return jnp.square(found[-1] - targets).mean()

    @jax.jit
    def update(parameters: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(parameters)
        return loss, grads, [p - RATE * g for p, g in zip(parameters, grads, strict=True)]

    def step(gradients: list[Any] | None = None) -> float:
        nonlocal parameters
        loss, grads, parameters = update(parameters)
        hand_over(gradients, grads)
        return float(loss)

    return step


WORKLOADS = {"lstm_layers": Workload(data, in_torch, in_jax)}
