"""Steps of an optimizer alone: Adam over a hundred parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from compat_suite.benchmarks.workloads.workload import Step, Workload, hand_over, normal

TENSORS, SIDE, RATE = 100, 64, 1e-3


def data(random: np.random.RandomState) -> dict[str, Any]:
    return {"weights": [normal(random, SIDE, SIDE) for _ in range(TENSORS)], "slopes": [normal(random, SIDE, SIDE) for _ in range(TENSORS)]}


def in_torch(T: Any, make: Any, weights: list[np.ndarray], slopes: list[np.ndarray]) -> Step:
    parameters = [make(w, True) for w in weights]
    for p, slope in zip(parameters, slopes, strict=True):
        p.grad = make(slope)
    optimizer, looked_at = T.optim.Adam(parameters, lr=RATE), parameters[-1].detach()

    def step(gradients: list[Any] | None = None) -> float:
        optimizer.step()
        if gradients is not None:
            hand_over(gradients, [p.detach() for p in parameters])
        return looked_at[0, 0].item()

    return step


def in_jax(weights: list[np.ndarray], slopes: list[np.ndarray]) -> Step:
    import jax
    import jax.numpy as jnp

    parameters, grads = [jnp.asarray(w) for w in weights], [jnp.asarray(s) for s in slopes]
    states: Any = [(jnp.zeros_like(p), jnp.zeros_like(p)) for p in parameters]
    taken = 0

    def moved(p: Any, state: Any, grad: Any, t: Any) -> Any:
        m, v = 0.9 * state[0] + 0.1 * grad, 0.999 * state[1] + 0.001 * grad * grad
        return p - RATE * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8), (m, v)

    @jax.jit
    def update(parameters: Any, states: Any, grads: Any, t: Any) -> Any:
        found = [moved(p, state, grad, t) for p, state, grad in zip(parameters, states, grads, strict=True)]
        return [p for p, _ in found], [state for _, state in found]

    def step(gradients: list[Any] | None = None) -> float:
        nonlocal parameters, states, taken
        taken += 1
        parameters, states = update(parameters, states, grads, float(taken))
        hand_over(gradients, parameters)
        return float(parameters[-1][0, 0])

    return step


WORKLOADS = {"adam100": Workload(data, in_torch, in_jax)}
