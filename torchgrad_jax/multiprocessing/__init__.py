"""`torch.multiprocessing`: Python's own, and `spawn`. Tensors are pickled, so another process gets a copy and not the memory."""

from __future__ import annotations

import multiprocessing
from multiprocessing import *  # noqa: F403 - the module is Python's with more names
from typing import Any

from torchgrad_jax.multiprocessing.spawning import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    *multiprocessing.__all__, "ProcessContext", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "get_all_sharing_strategies",
    "get_sharing_strategy", "set_sharing_strategy", "spawn", "start_processes",
]  # fmt: skip

_STRATEGIES = {"file_descriptor", "file_system"}
_strategy = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """PyTorch's names; no memory is shared by either."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """What `set_sharing_strategy` was told."""
    return _strategy


def set_sharing_strategy(new_strategy: Any) -> None:
    """Remembered; tensors are copied in any case. AssertionError for a name that there is none of."""
    global _strategy
    assert new_strategy in _STRATEGIES, f"invalid sharing strategy '{new_strategy}', expected one of {_STRATEGIES}"
    _strategy = new_strategy
