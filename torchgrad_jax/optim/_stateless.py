"""An optimizer on other parameters and another state than its own, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchgrad_jax.core.tensor import Tensor

__all__ = ["swap_in_optimizer_params_and_state"]


@contextmanager
def swap_in_optimizer_params_and_state(optimizer: Any, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]) -> Iterator[None]:
    """Within the block the optimizer has these parameters, in the order of its own, and this state, as its `state_dict` would have it. What is
    written into tensors of the state remains in them; all else that becomes of it is forgotten. RuntimeError where there are too few parameters or
    another number of groups, and for an optimizer that has no state yet."""
    groups, state = optimizer.param_groups, optimizer.state
    given = list(swapin_parameters.values())
    if not state:
        raise RuntimeError("swap_in_optimizer_params_and_state requires initialized optimizer state.")
    if len(swapin_optim_state["param_groups"]) != len(groups):
        raise RuntimeError("swapin_optim_state has a different number of parameter groups than the live optimizer.")
    if len(given) < sum(len(group["params"]) for group in groups):
        raise RuntimeError("swap_in_optimizer_params_and_state requires the explicit parameter state to match optimizer.param_groups ordering.")
    found = []
    for group in swapin_optim_state["param_groups"]:
        found.append({k: v for k, v in group.items() if k != "params"} | {"params": [given[i] for i in group["params"]]})
    swapped = type(state)(dict)
    for i, content in swapin_optim_state["state"].items():
        swapped[given[i]] = dict(content)
    optimizer.param_groups, optimizer.state = found, swapped
    try:
        yield
    finally:
        optimizer.param_groups, optimizer.state = groups, state
