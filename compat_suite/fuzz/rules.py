"""What random programs leave out, each with its reason. `--include NAME` puts it back."""

from __future__ import annotations

EXCLUDED = {
    "layouts": "results are row-major where PyTorch's follow the memory order of the operands: such results are copied",
    "second faults": "a call that is wrong in two ways may be refused for either: see FAULTS",
}
# How PyTorch or torchgrad_jax begins where a call may have a second fault, which the other library tells.
FAULTS = (
    "unsupported operation: more than one element of the written-to tensor",  # the other told of dtypes
    "Inference tensors cannot be saved",  # of shapes
    "Output 0 of Alias is a view of a view which was created in no_grad mode",  # of shapes: PyTorch asks the operands first
    "output with shape",  # of dtypes
)
# Attributes of nodes that are not asked for.
UNSHOWN = {"_saved_mask"}  # a mask is turned into indices before anything is recorded
