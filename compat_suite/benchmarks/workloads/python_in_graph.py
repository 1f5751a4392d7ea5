"""The user's Python inside the graph: a custom autograd.Function, and hooks on tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from compat_suite.benchmarks.workloads.workload import Step, Workload, hand_over, normal

CALLS, SIZE = 30, 64
BATCH, WIDTH, LAYERS = 32, 64, 8


def custom_function_data(random: np.random.RandomState) -> dict[str, Any]:
    return {"x": normal(random, SIZE, SIZE, scale=0.1)}


def custom_function_in_torch(T: Any, make: Any, x: np.ndarray) -> Step:
    class Square(T.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * grad * x

    x = make(x, True)

    def step(gradients: list[Any] | None = None) -> float:
        y = x
        for _ in range(CALLS):
            y = Square.apply(y) * 0.5 + x
        loss = y.mean()
        loss.backward()
        hand_over(gradients, [x.grad])
        x.grad = None
        return loss.item()

    return step


def custom_function_in_jax(x: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def square(x):
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, grad: (2 * grad * x,))

    @jax.jit
    @jax.value_and_grad
    def value_and_grad(x):
        y = x
        for _ in range(CALLS):
            y = square(y) * 0.5 + x
        return y.mean()

    x = jnp.asarray(x)

    def step(gradients: list[Any] | None = None) -> float:
        loss, grad = value_and_grad(x)
        hand_over(gradients, [grad])
        return float(loss)

    return step


def hooks_data(random: np.random.RandomState) -> dict[str, Any]:
    return {"weights": [normal(random, WIDTH, WIDTH, scale=0.1) for _ in range(LAYERS)], "x": normal(random, BATCH, WIDTH)}


def hooks_in_torch(T: Any, make: Any, weights: list[np.ndarray], x: np.ndarray) -> Step:
    ws, x = [make(w, True) for w in weights], make(x)

    def step(gradients: list[Any] | None = None) -> float:
        h = x
        for w in ws:
            h = T.tanh(h @ w)
            h.register_hook(lambda grad: grad * 0.5)
        loss = (h**2).mean()
        loss.backward()
        hand_over(gradients, [w.grad for w in ws])
        for w in ws:
            w.grad = None
        return loss.item()

    return step


def hooks_in_jax(weights: list[np.ndarray], x: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def halving_gradient(h):
        return h

    halving_gradient.defvjp(lambda h: (h, None), lambda _, grad: (grad * 0.5,))

    @jax.jit
    @jax.value_and_grad
    def value_and_grad(ws, x):
        h = x
        for w in ws:
            h = halving_gradient(jnp.tanh(h @ w))
        return (h**2).mean()

    ws, x = [jnp.asarray(w) for w in weights], jnp.asarray(x)

    def step(gradients: list[Any] | None = None) -> float:
        loss, grads = value_and_grad(ws, x)
        hand_over(gradients, grads)
        return float(loss)

    return step


WORKLOADS = {
    "custom_function": Workload(custom_function_data, custom_function_in_torch, custom_function_in_jax),
    "hooks": Workload(hooks_data, hooks_in_torch, hooks_in_jax),
}
