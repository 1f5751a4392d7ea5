"""`torch._subclasses`: what is asked about tensors that PyTorch's compiler makes up."""

from torchgrad_jax._subclasses import fake_tensor

__all__ = ["fake_tensor"]
