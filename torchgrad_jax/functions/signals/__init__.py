"""`torch.fft` and the windows of `torch`."""

from torchgrad_jax.functions.signals import fourier, windows

__all__ = ["fourier", "windows"]
