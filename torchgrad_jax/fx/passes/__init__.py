"""`torch.fx.passes`: what is done to whole graphs."""

from torchgrad_jax.fx.passes import graph_manipulation, shape_prop, split_module

__all__ = ["graph_manipulation", "shape_prop", "split_module"]
