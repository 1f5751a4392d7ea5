"""What PyTorch says of saved tensors that are gone or not what they were, of writes that autograd cannot follow, and of memory that is not there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.value import Value

FREED_MESSAGE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)
DETACHED_MESSAGE = (
    "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().This is not supported, please use out-of-place `.detach()` "
    "instead"
)
NO_STORAGE = "Cannot access data pointer of Tensor that doesn't have storage"


def operation_name(name: str) -> str:
    """A node's name as PyTorch's errors print it: without Backward0, and with the number only of another overload."""
    return re.sub(r"Backward(\d*)$", lambda found: "" if found[1] == "0" else found[1], name)


def modified_message(value: Value, name: str, nr: int, shape: Sequence[int] | None = None) -> str:
    """What to say of a saved value that was written to. `name`, `nr`: the node it comes from (or "") and which of its outputs it is."""
    by = f", which is output {nr} of {operation_name(name)}," if name else ""
    sizes = list(value.aval.shape if shape is None else shape)
    kind = dtypes.of(value.aval.dtype).tensor_type
    if value.aval.device.type == "cuda":
        kind = kind.replace("torch.", "torch.cuda.").replace("CPU", "CUDA")
    return (
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{kind} {sizes}]{by} is at version {value.counter.version}; expected version {value.version} instead. "
        f"{_HINTS[modes.anomaly != 0]}"
    )


_HINTS = (
    "Hint: enable anomaly detection to find the operation that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True, "
    "check_nan=False).",
    "Hint: the backtrace further above shows the operation that failed to compute its gradient. The variable in question was changed in there or "
    "anywhere later. Good luck!",
)


MODIFIED_INDIRECTLY = "its base or another view of its base has been modified inplace"
# How a view was made that has no node though its base may require a gradient.
WITHOUT_HISTORY = ("no_grad", "inference")


def untracked(made_in: str, node: Any, nr: int, how: str) -> str:
    """PyTorch's refusal of a write that reaches a view which autograd cannot follow. made_in: see `View`. node, nr: what made it, if known."""
    mode = "inference" if made_in == "inference" else "no_grad"
    without_history = made_in in WITHOUT_HISTORY
    if node is None:
        what = f"A view was created in {mode} mode"
    else:
        what = f"Output {nr} of {operation_name(node.name())} is a view" + (f" of a view which was created in {mode} mode" if without_history else "")
    where = "" if not without_history and node is not None else " in normal mode" if mode == "inference" else " with grad mode enabled"
    if without_history:
        block = "inference_mode" if mode == "inference" else "no_grad"
        why = (
            "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view and the "
            f"inplace either both inside the {block} block (if you don't want the inplace to be tracked) or both outside (if you want the inplace to "
            "be tracked)."
        )
    elif made_in == "custom":
        why = (
            "This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to handle view+inplace "
            "would override the custom backward associated with the custom Function, leading to incorrect gradients. This behavior is forbidden. "
            "You can fix this by cloning the output of the custom Function."
        )
    else:
        why = (
            "This view is the output of a function that returns multiple views. Such functions do not allow the output views to be modified "
            "inplace. You should replace the inplace operation by an out-of-place one."
        )
    return f"{what} and {how}{where}. {why}"
