"""`torch.sparse`: tensors of which only some elements are there. The classes and functions of PyTorch's module; how they are built: `tensors.py`."""

from torchgrad_jax.sparse import attributes, copying, level, making, products, resizing, shaping  # noqa: F401 - what they answer is noted so
from torchgrad_jax.sparse.functions import (
    CLASSES,
    addmm,
    as_sparse_gradcheck,
    check_sparse_tensor_invariants,
    log_softmax,
    mm,
    sampled_addmm,
    softmax,
    spdiags,
    sum,
)

globals().update(CLASSES)

__all__ = [
    "addmm", "as_sparse_gradcheck", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum",
]  # fmt: skip
