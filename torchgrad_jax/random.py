"""`torch.random`: the default generator and its state."""

from torchgrad_jax.functions.random import (
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

__all__ = ["default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state", "thread_safe_generator"]


def thread_safe_generator() -> None:
    """The generator of a worker that is a thread, None elsewhere: workers of a DataLoader are processes here, and draw from their default one."""
