"""`torch.cuda.amp`: the older names of `torch.amp` for GPUs."""

from torchgrad_jax.cuda.amp import autocast_mode, common, grad_scaler
from torchgrad_jax.cuda.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from torchgrad_jax.cuda.amp.common import amp_definitely_not_available
from torchgrad_jax.cuda.amp.grad_scaler import GradScaler

__all__ = [
    "GradScaler", "amp_definitely_not_available", "autocast", "autocast_mode", "common", "custom_bwd", "custom_fwd", "grad_scaler",
]  # fmt: skip
