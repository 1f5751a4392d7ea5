"""`torch.utils._contextlib`: what makes a context manager decorate functions too."""

from torchgrad_jax.autograd.grad_mode import Mode as _DecoratorContextManager

__all__ = ["_DecoratorContextManager"]
