"""What the running backward pass says of itself, version counters set by hand, and the class of what nodes save."""

from torchgrad_jax.autograd.grad_mode import _unsafe_set_version_counter
from torchgrad_jax.autograd.graph import graph_task_keeps_graph as _get_current_graph_task_keep_graph
from torchgrad_jax.autograd.saved_tensors import hooks_are_enabled as _saved_tensors_hooks_is_enabled
from torchgrad_jax.core.saved import SavedTensor

__all__ = ["SavedTensor", "_get_current_graph_task_keep_graph", "_saved_tensors_hooks_is_enabled", "_unsafe_set_version_counter"]
