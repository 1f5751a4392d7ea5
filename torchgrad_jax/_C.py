"""Private names of PyTorch's that code about autograd uses."""

from torchgrad_jax.autograd.graph import graph_task_id as _current_graph_task_id
from torchgrad_jax.autograd.graph import will_engine_execute_node as _will_engine_execute_node

__all__ = ["_current_graph_task_id", "_will_engine_execute_node"]
