"""What a recomputation raises."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.tensor import Size
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.value import Aval


class CheckpointError(RuntimeError):
    """A recomputation was not like the forward pass."""


CheckpointError.__module__ = "torch.utils.checkpoint"

_TIP = (
    "\n\nTip: To see a more detailed error message, either pass `debug=True` to `torch.utils.checkpoint.checkpoint(...)` or wrap the code block with "
    "`with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):` to enable checkpoint-debug mode globally."
)


def _error(text: str) -> CheckpointError:
    return CheckpointError(f"torch.utils.checkpoint: {text}")


def too_many() -> CheckpointError:
    """The recomputation saves another tensor than the last."""
    return _error("trying to save more tensors during recomputation than during the original forward pass." + _TIP)


def another_number(forward: int, again: int) -> CheckpointError:
    """The recomputation saved fewer tensors."""
    return _error(
        "A different number of tensors was saved during the original forward and recomputation.\n"
        f"Number of tensors saved during forward: {forward}\nNumber of tensors saved during recomputation: {again}." + _TIP
    )


def unlike(differing: list[tuple[int, Aval, Aval]]) -> CheckpointError:
    """Tensors at these places are of another shape, dtype or device than in the forward pass."""
    lines = [
        f"tensor at position {i}:\nsaved metadata: {_shown(a)}\nrecomputed metadata: {_shown(b)}\n"
        for i, a, b in differing
    ]  # fmt: skip
    return _error("Recomputed values for the following tensors have different metadata than during the forward pass.\n" + "".join(lines) + "." + _TIP)


def used_already() -> CheckpointError:
    """One pass asks twice for a tensor that was recomputed."""
    return _error(
        "Unpack is being triggered for a tensor that was already unpacked once. If you are calling ctx.saved_tensors in backward, make sure to do "
        "so only once. Otherwise please open an issue with details on your use case."
    )


def _shown(aval: Aval) -> dict[str, Any]:
    return {"shape": Size(aval.shape), "dtype": dtypes.of(aval.dtype), "device": aval.device}
