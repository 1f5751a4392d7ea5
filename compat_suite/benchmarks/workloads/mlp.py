"""Training steps of a multi-layer perceptron: dispatch, matrix products, many small layers, optimizer arithmetic in place."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from compat_suite.benchmarks.workloads.workload import Step, Workload, hand_over, normal

RATE = 0.01
ADAM_RATE, MEAN_DECAY, SQUARE_DECAY, EPSILON = 0.001, 0.9, 0.999, 1e-8


def data(random: np.random.RandomState, batch: int, width: int, layers: int) -> dict[str, Any]:
    weights = [normal(random, width, width, scale=0.05) for _ in range(layers)]
    return {"weights": weights, "x": normal(random, batch, width)}


def _loss_in_torch(T: Any, weights: list[Any], x: Any) -> Any:
    h = x
    for w in weights:
        h = T.tanh(h @ w)
    return (h**2).mean()


def sgd_in_torch(T: Any, make: Any, weights: list[np.ndarray], x: np.ndarray) -> Step:
    ws, x = [make(w, True) for w in weights], make(x)

    def step(gradients: list[Any] | None = None) -> float:
        loss = _loss_in_torch(T, ws, x)
        loss.backward()
        hand_over(gradients, [w.grad for w in ws])
        with T.no_grad():
            for w in ws:
                w.sub_(w.grad * RATE)
                w.grad = None
        return loss.item()

    return step


def adam_in_torch(T: Any, make: Any, weights: list[np.ndarray], x: np.ndarray) -> Step:
    ws, x = [make(w, True) for w in weights], make(x)
    means, squares = [T.zeros_like(w) for w in ws], [T.zeros_like(w) for w in ws]

    def step(gradients: list[Any] | None = None) -> float:
        loss = _loss_in_torch(T, ws, x)
        loss.backward()
        hand_over(gradients, [w.grad for w in ws])
        with T.no_grad():
            for w, mean, square in zip(ws, means, squares, strict=True):
                g = w.grad
                mean.mul_(MEAN_DECAY).add_(g, alpha=1 - MEAN_DECAY)
                square.mul_(SQUARE_DECAY).addcmul_(g, g, value=1 - SQUARE_DECAY)
                w.addcdiv_(mean, square.sqrt().add_(EPSILON), value=-ADAM_RATE)
                w.grad = None
        return loss.item()

    return step


def _loss_in_jax(weights: list[Any], x: Any) -> Any:
    import jax.numpy as jnp

    h = x
    for w in weights:
        h = jnp.tanh(h @ w)
    return (h**2).mean()


def sgd_in_jax(weights: list[np.ndarray], x: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    state, x = [jnp.asarray(w) for w in weights], jnp.asarray(x)

    @jax.jit
    def update(ws, x):
        loss, grads = jax.value_and_grad(_loss_in_jax)(ws, x)
        return [w - g * RATE for w, g in zip(ws, grads, strict=True)], loss

    def step(gradients: list[Any] | None = None) -> float:
        nonlocal state
        if gradients is not None:
            gradients.extend(jax.grad(_loss_in_jax)(state, x))
        state, loss = update(state, x)
        return float(loss)

    return step


def adam_in_jax(weights: list[np.ndarray], x: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    state, x = [(jnp.asarray(w), jnp.zeros_like(w), jnp.zeros_like(w)) for w in weights], jnp.asarray(x)

    def updated(w, mean, square, g):
        mean = mean * MEAN_DECAY + g * (1 - MEAN_DECAY)
        square = square * SQUARE_DECAY + g * g * (1 - SQUARE_DECAY)
        return w - ADAM_RATE * mean / (jnp.sqrt(square) + EPSILON), mean, square

    @jax.jit
    def update(state, x):
        loss, grads = jax.value_and_grad(_loss_in_jax)([w for w, _, _ in state], x)
        return [updated(*s, g) for s, g in zip(state, grads, strict=True)], loss

    def step(gradients: list[Any] | None = None) -> float:
        nonlocal state
        if gradients is not None:
            gradients.extend(jax.grad(_loss_in_jax)([w for w, _, _ in state], x))
        state, loss = update(state, x)
        return float(loss)

    return step


WORKLOADS = {
    "mlp_small": Workload(partial(data, batch=32, width=64, layers=3), sgd_in_torch, sgd_in_jax),
    "mlp_medium": Workload(partial(data, batch=128, width=512, layers=4), sgd_in_torch, sgd_in_jax),
    "mlp_deep": Workload(partial(data, batch=32, width=32, layers=20), sgd_in_torch, sgd_in_jax),
    "mlp_adam": Workload(partial(data, batch=64, width=128, layers=6), adam_in_torch, adam_in_jax),
}
