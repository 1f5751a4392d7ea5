"""`torch._C`: the private functions of PyTorch's that code in the wild calls."""

from torchgrad_jax.autograd.grad_mode import (
    _is_grad_layout_enforcement_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
)
from torchgrad_jax.autograd.grad_mode import is_multithreading_enabled as _is_multithreading_enabled
from torchgrad_jax.autograd.grad_mode import is_view_replay_enabled as _is_view_replay_enabled

__all__ = [
    "_is_grad_layout_enforcement_enabled", "_is_multithreading_enabled", "_is_view_replay_enabled", "is_grad_enabled", "is_inference_mode_enabled",
]  # fmt: skip
