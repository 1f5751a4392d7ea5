"""Steps of gradient descent that write the weights in place: with PyTorch's namespace, and with JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def torch_step(T: Any, weights: list[Any], forward: Callable[[], Any], rate: float) -> Callable[[], float]:
    """A step, which returns the mean of the squares of what `forward` returns."""

    def step() -> float:
        loss = (forward() ** 2).mean()
        loss.backward()
        with T.no_grad():
            for w in weights:
                w.sub_(w.grad * rate)
                w.grad = None
        return loss.item()

    return step


def jax_update(forward: Callable[[Any, Any], Any], rate: float) -> Callable[[Any, Any], tuple[Any, Any]]:
    """The weights after a step, and the mean of the squares of what `forward` returns for the weights and a batch."""
    import jax

    def loss_of(weights: Any, batch: Any) -> Any:
        return (forward(weights, batch) ** 2).mean()

    def update(weights: Any, batch: Any) -> tuple[Any, Any]:
        loss, grads = jax.value_and_grad(loss_of)(weights, batch)
        return [w - g * rate for w, g in zip(weights, grads, strict=True)], loss

    return update


def jax_step(update: Callable[[Any, Any], tuple[Any, Any]], weights: Any, batch: Any) -> Callable[[], float]:
    """A step that keeps the weights."""
    state = weights

    def step() -> float:
        nonlocal state
        state, loss = update(state, batch)
        return float(loss)

    return step
