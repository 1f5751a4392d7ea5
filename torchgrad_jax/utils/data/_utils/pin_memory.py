"""What `pin_memory=True` asks for. JAX copies from ordinary memory to a device without waiting, so there is none to be pinned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.device import gpus
from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.utils.data._utils.collate import rebuilt_mapping, rebuilt_sequence

_NO_ACCELERATOR = "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used."


def warn_without_accelerator() -> bool:
    """Whether there is an accelerator. UserWarning where there is none."""
    if not gpus():
        warn_user(_NO_ACCELERATOR)
        return False
    return True


def pinned(data: Any) -> Any:
    """The batch with what has a `pin_memory` of the user's own after that."""
    if isinstance(data, (Tensor, str, bytes)):
        return data
    if callable(getattr(type(data), "pin_memory", None)):
        return data.pin_memory()
    if isinstance(data, Mapping):
        return rebuilt_mapping(data, {key: pinned(value) for key, value in data.items()})
    if isinstance(data, tuple):
        items = [pinned(item) for item in data]
        return type(data)(*items) if hasattr(data, "_fields") else items
    return rebuilt_sequence(data, [pinned(item) for item in data]) if isinstance(data, Sequence) else data
