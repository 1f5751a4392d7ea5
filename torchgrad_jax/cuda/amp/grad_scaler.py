"""`torch.cuda.amp.grad_scaler`."""

from __future__ import annotations

from torchgrad_jax.autograd import grad_scaler
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["GradScaler"]


class GradScaler(grad_scaler.GradScaler):
    """`torch.amp.GradScaler("cuda", ...)`, with a warning."""

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True
    ) -> None:
        warn_user(
            "`torch.cuda.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cuda', args...)` instead.", FutureWarning
        )  # fmt: skip
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
