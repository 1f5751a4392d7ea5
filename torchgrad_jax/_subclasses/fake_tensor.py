"""`torch._subclasses.fake_tensor`: tensors without content, in which PyTorch's compiler follows a program. There are none here."""

from __future__ import annotations

__all__ = ["is_fake"]


def is_fake(x: object) -> bool:
    """False."""
    return False
