"""Questions about tensors inside of transforms."""

from __future__ import annotations

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.level import Held
from torchgrad_jax.lifting.levels import held_tensor
from torchgrad_jax.lifting.mapping import BatchLevel, Mapped
from torchgrad_jax.lifting.mapping import add_batch_dim as _add_batch_dim
from torchgrad_jax.lifting.mapping import remove_batch_dim as _remove_batch_dim

__all__ = [
    "_add_batch_dim", "_remove_batch_dim", "get_unwrapped", "is_batchedtensor", "is_functorch_wrapped_tensor", "is_gradtrackingtensor",
    "maybe_get_level",
]  # fmt: skip


def _held(tensor: Tensor, name: str) -> Held | None:
    """What the tensor is of a transform; None of no transform's. What vmap does not map over is what it is outside of it."""
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"{name}(): incompatible function arguments. The following argument types are supported:\n    1. (arg0: torch.Tensor) -> bool\n\n"
            f"Invoked with: {tensor!r}"
        )
    array = tensor._content().array
    while isinstance(array, Held) and isinstance(array.level, BatchLevel) and not isinstance(array, Mapped):
        array = array.tensor._content().array
    return array if isinstance(array, Held) else None


def is_batchedtensor(tensor: Tensor) -> bool:
    """Whether the tensor is a batch to the innermost transform that it is of. TypeError for what is no tensor."""
    return isinstance(_held(tensor, "is_batchedtensor"), Mapped)


def is_gradtrackingtensor(tensor: Tensor) -> bool:
    """Whether the innermost transform that the tensor is of differentiates. TypeError for what is no tensor."""
    held = _held(tensor, "is_gradtrackingtensor")
    return held is not None and not isinstance(held, Mapped)


def is_functorch_wrapped_tensor(tensor: Tensor) -> bool:
    """Whether the tensor is of a transform. TypeError for what is no tensor."""
    return _held(tensor, "is_functorch_wrapped_tensor") is not None


def maybe_get_level(tensor: Tensor) -> int:
    """How many transforms there are up to that which the tensor is of; -1 for no transform's. TypeError for what is no tensor."""
    held = _held(tensor, "maybe_get_level")
    return -1 if held is None else held.level.depth


def get_unwrapped(tensor: Tensor) -> Tensor:
    """The tensor outside of the innermost transform that it is of, a batch with all its parts; RuntimeError for no transform's."""
    inner = held_tensor(tensor) if _held(tensor, "get_unwrapped") is not None else None
    if inner is None:
        raise RuntimeError("No wrappers present!")
    return inner
