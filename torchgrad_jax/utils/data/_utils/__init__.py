"""What `torch.utils.data` is made of, under the names that programs import from it."""

from torchgrad_jax.utils.data._utils import collate, fetch, pin_memory, worker

__all__ = ["collate", "fetch", "pin_memory", "worker"]
