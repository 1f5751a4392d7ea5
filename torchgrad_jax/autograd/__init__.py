"""`torch.autograd`: backward, grad, grad modes, Function, the graph."""

from torchgrad_jax.autograd import _functions, anomaly_mode, attributes, forward_ad, functional, graph
from torchgrad_jax.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from torchgrad_jax.autograd.backward import attach
from torchgrad_jax.autograd.backward import backward as _backward
from torchgrad_jax.autograd.backward import grad as _grad
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
from torchgrad_jax.autograd.graph import profiler_enabled as _profiler_enabled
from torchgrad_jax.autograd.variable import Variable, variable
from torchgrad_jax.calling.overrides import Public, guard
from torchgrad_jax.core.saved import SavedTensor
from torchgrad_jax.runtime.settings import kineto_available

attach()
attributes.attach()
backward = guard(_backward, Public("torch.autograd.backward", in_python=True))
grad = guard(_grad, Public("torch.autograd.grad", in_python=True))

__all__ = [
    "Function", "NestedIOFunction", "SavedTensor", "Variable", "_force_original_view_tracking", "_functions", "_profiler_enabled",
    "_unsafe_preserve_version_counter", "anomaly_mode", "backward", "detect_anomaly", "enable_grad", "enforce_grad_layout_policy", "forward_ad",
    "functional", "grad", "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_multithreading_enabled", "is_view_replay_enabled",
    "kineto_available", "no_grad", "set_detect_anomaly",
    "set_grad_enabled", "set_multithreading_enabled", "variable",
]  # fmt: skip
