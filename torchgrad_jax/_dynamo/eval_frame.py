"""`torch._dynamo.eval_frame`: the class of compiled modules."""

from torchgrad_jax.nn.modules.module import OptimizedModule

__all__ = ["OptimizedModule"]
