"""What a workload is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# One step: its loss, on the host. Where a list is given, the step appends its gradients to it.
Step = Callable[..., float]


class Workload(NamedTuple):
    """Data and the programs that work on it.

    data: from a seeded generator, the NumPy arrays by name. in_torch: from a torch-shaped namespace, a maker of tensors
    (``make(array, requires_grad=False)``) and the arrays, the step. in_jax: from the arrays, the step by hand, jitted, or
    None where there is no counterpart. cycle: after how many steps the work repeats, if steps differ.
    """

    data: Callable[[np.random.RandomState], dict[str, Any]]
    in_torch: Callable[..., Step]
    in_jax: Callable[..., Step] | None
    cycle: int = 1


def normal(random: np.random.RandomState, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Normally distributed float32."""
    return (random.randn(*shape) * scale).astype(np.float32)


def hand_over(gradients: list[Any] | None, found: Any) -> None:
    """Append what a step found to the caller's list, if he gave one."""
    if gradients is not None:
        gradients.extend(found)


def load(T: Any, module: Any, weights: list[np.ndarray], make: Callable[..., Any]) -> Any:
    """The module, on the device of what `make` gives, with these weights, in the order of its parameters."""
    with T.no_grad():
        tensors = [make(w) for w in weights]
        module.to(tensors[0].device)
        for p, w in zip(module.parameters(), tensors, strict=True):
            p.copy_(w)
    return module


def training_step(parameters: Any, optimizer: Any, loss_of: Callable[[], Any]) -> Step:
    """A step of an optimizer of `torch.optim`, as people write it."""
    parameters = list(parameters)

    def step(gradients: list[Any] | None = None) -> float:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        if gradients is not None:
            hand_over(gradients, [p.grad.clone() for p in parameters])
        optimizer.step()
        return loss.item()

    return step
