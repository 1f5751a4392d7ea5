"""`torch._functorch`: of PyTorch's private package what others change to let `vmap` know containers of theirs. It is made in `__init__.py`."""

from torchgrad_jax.func import vmap_steps as vmap

__all__ = ["vmap"]
