"""What the running backward pass says of itself, and version counters set by hand."""

from torchgrad_jax.autograd.grad_mode import _unsafe_set_version_counter
from torchgrad_jax.autograd.graph import graph_task_keeps_graph as _get_current_graph_task_keep_graph

__all__ = ["_get_current_graph_task_keep_graph", "_unsafe_set_version_counter"]
