"""`torch.autograd`: backward, grad, grad modes, Function, the graph."""

from torchgrad_jax.autograd import _functions, graph
from torchgrad_jax.autograd.backward import attach, backward, grad
from torchgrad_jax.autograd.function import Function, NestedIOFunction
from torchgrad_jax.autograd.grad_mode import (
    _force_original_view_tracking,
    _unsafe_preserve_version_counter,
    enable_grad,
    enforce_grad_layout_policy,
    inference_mode,
    is_multithreading_enabled,
    is_view_replay_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from torchgrad_jax.autograd.gradcheck import gradcheck, gradgradcheck
from torchgrad_jax.autograd.variable import Variable
from torchgrad_jax.tensor.saved import SavedTensor

attach()

__all__ = [
    "Function", "NestedIOFunction", "SavedTensor", "Variable", "_functions", "_force_original_view_tracking", "_unsafe_preserve_version_counter",
    "backward", "enable_grad", "enforce_grad_layout_policy", "grad", "gradcheck", "gradgradcheck", "graph", "inference_mode",
    "is_multithreading_enabled", "is_view_replay_enabled", "no_grad", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip
