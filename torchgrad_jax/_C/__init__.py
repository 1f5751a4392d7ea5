"""Private names of PyTorch's that code about autograd uses."""

from torchgrad_jax._C import _autograd, _functions
from torchgrad_jax.autograd.graph import graph_task_id as _current_graph_task_id
from torchgrad_jax.autograd.graph import will_engine_execute_node as _will_engine_execute_node

__all__ = ["_autograd", "_current_graph_task_id", "_functions", "_will_engine_execute_node"]
