"""`torch.cuda.amp.common`."""

from torchgrad_jax.runtime.device import gpus

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """Whether there is no GPU."""
    return not gpus()
