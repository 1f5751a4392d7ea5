"""What the running backward pass says of itself."""

from torchgrad_jax.autograd.graph import graph_task_keeps_graph as _get_current_graph_task_keep_graph

__all__ = ["_get_current_graph_task_keep_graph"]
