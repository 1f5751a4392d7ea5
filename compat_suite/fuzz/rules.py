"""What random programs leave out, each with its reason. `--include NAME` puts it back."""

from __future__ import annotations

EXCLUDED = {
    "second faults": "a call that is wrong in two ways may be refused for either: see FAULTS",
}
_OF_DTYPES = (
    r"result type \w+ can't be cast|Subtraction, the|Negation, the|\"\w+\" not implemented for|masked_scatter: expected self and source to have"
    r"|expected m1 and m2 to have the same dtype|expected dtype [\w ]+ for|Boolean inputs not supported"
)
_OF_SHAPES = r"The size of tensor a|output with shape|zero-dimensional tensor|Sizes of tensors must match|stack expects each tensor|mat1 and mat2"
# Patterns of how PyTorch or torchgrad_jax begins where a call may have a second fault, and of how the other library begins then.
FAULTS = {
    r"unsupported operation: more than one element of the written-to tensor": _OF_DTYPES,
    r"Inference tensors cannot be saved": f"{_OF_SHAPES}|{_OF_DTYPES}",
    r"Output \d+ of \w+ is a view|A view was created in": f"{_OF_SHAPES}|{_OF_DTYPES}",  # PyTorch asks the operands first
    r"output with shape": _OF_DTYPES,
    # PyTorch's graph of a gradient has several nodes, of which a pass that met an outdated tensor has freed the first.
    r"one of the variables needed for gradient computation has been modified": r"Trying to backward through the graph a second time",
}
# Attributes of nodes that are not asked for.
UNSHOWN = {"_saved_mask"}  # a mask is turned into indices before anything is recorded
