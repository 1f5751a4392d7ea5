"""`torch.storage`: the classes of what `Tensor.storage` and `Tensor.untyped_storage` return."""

import io
from typing import Any

from torchgrad_jax import serialization
from torchgrad_jax.functions.storages import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]


def _load_from_bytes(b: bytes) -> Any:
    """What pickles of PyTorch's call: a storage, as `torch.save` writes it."""
    return serialization.load(io.BytesIO(b), weights_only=False)
