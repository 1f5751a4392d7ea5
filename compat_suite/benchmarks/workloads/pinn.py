"""Training steps of a physics-informed network for u'' = -sin x: the gradient of a gradient of a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from compat_suite.benchmarks.workloads.workload import Step, Workload, hand_over, normal

POINTS, WIDTH, RATE = 64, 32, 1e-4


def data(random: np.random.RandomState) -> dict[str, Any]:
    first = [normal(random, 1, WIDTH), normal(random, WIDTH, scale=0.1)]
    second = [normal(random, WIDTH, WIDTH, scale=0.2), normal(random, WIDTH, scale=0.1)]
    parameters = [*first, *second, normal(random, WIDTH, 1, scale=0.2)]
    return {"parameters": parameters, "x": np.linspace(0, 1, POINTS, dtype=np.float32)[:, None]}


def in_torch(T: Any, make: Any, parameters: list[np.ndarray], x: np.ndarray) -> Step:
    ps, x = [make(p, True) for p in parameters], make(x, True)

    def step(gradients: list[Any] | None = None) -> float:
        u = T.tanh(T.tanh(x @ ps[0] + ps[1]) @ ps[2] + ps[3]) @ ps[4]
        (du,) = T.autograd.grad(u.sum(), x, create_graph=True)
        (d2u,) = T.autograd.grad(du.sum(), x, create_graph=True)
        loss = ((d2u + T.sin(x)) ** 2).mean()
        grads = T.autograd.grad(loss, ps)
        hand_over(gradients, grads)
        with T.no_grad():
            for p, g in zip(ps, grads, strict=True):
                p.sub_(g * RATE)
        return loss.item()

    return step


def in_jax(parameters: list[np.ndarray], x: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    state, x = [jnp.asarray(p) for p in parameters], jnp.asarray(x)

    def solution(ps, x):
        return jnp.tanh(jnp.tanh(x @ ps[0] + ps[1]) @ ps[2] + ps[3]) @ ps[4]

    def loss_of(ps, x):
        def du(x):
            return jax.grad(lambda x: solution(ps, x).sum())(x)

        d2u = jax.grad(lambda x: du(x).sum())(x)
        return ((d2u + jnp.sin(x)) ** 2).mean()

    @jax.jit
    def update(ps, x):
        loss, grads = jax.value_and_grad(loss_of)(ps, x)
        return [p - RATE * g for p, g in zip(ps, grads, strict=True)], loss

    def step(gradients: list[Any] | None = None) -> float:
        nonlocal state
        if gradients is not None:
            gradients.extend(jax.grad(loss_of)(state, x))
        state, loss = update(state, x)
        return float(loss)

    return step


WORKLOADS = {"pinn": Workload(data, in_torch, in_jax)}
