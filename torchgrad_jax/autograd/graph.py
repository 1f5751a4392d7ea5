"""`torch.autograd.graph`: the nodes of the graph."""

from torchgrad_jax.tensor.node import Node

__all__ = ["Node"]
