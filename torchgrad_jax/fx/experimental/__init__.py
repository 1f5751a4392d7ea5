"""`torch.fx.experimental`: what is asked about PyTorch's tracers of operators."""

from torchgrad_jax.fx.experimental import proxy_tensor

__all__ = ["proxy_tensor"]
