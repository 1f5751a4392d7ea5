"""`torch.storage`: the classes of what `Tensor.storage` and `Tensor.untyped_storage` return."""

from torchgrad_jax.functions.storages import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
