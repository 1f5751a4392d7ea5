"""Private names of PyTorch's that code about autograd uses."""

from torchgrad_jax._C import _autograd, _functions, _functorch
from torchgrad_jax._C._caching import _add_cached_tensor, _is_cached_tensor, _remove_cached_tensor, _set_cached_tensors_enabled
from torchgrad_jax._C._dispatching import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard
from torchgrad_jax.autograd.forward_ad import _is_fwd_grad_enabled
from torchgrad_jax.autograd.forward_ad import _set_fwd_grad_enabled as _fwd_grad
from torchgrad_jax.autograd.grad_mode import _is_grad_layout_enforcement_enabled, is_grad_enabled, is_inference_mode_enabled
from torchgrad_jax.autograd.grad_mode import is_multithreading_enabled as _is_multithreading_enabled
from torchgrad_jax.autograd.grad_mode import is_view_replay_enabled as _is_view_replay_enabled
from torchgrad_jax.autograd.graph import graph_task_id as _current_graph_task_id
from torchgrad_jax.autograd.graph import will_engine_execute_node as _will_engine_execute_node
from torchgrad_jax.calling.overrides import DisableTorchFunction, DisableTorchFunctionSubclass, _disabled_torch_function_impl
from torchgrad_jax.core.level import in_transform as _are_functorch_transforms_active
from torchgrad_jax.futures import PlainFuture as Future
from torchgrad_jax.operators.kernels.linalg_errors import LinAlgError
from torchgrad_jax.runtime import lazy as _lazy
from torchgrad_jax.runtime.passing_through import never_made, no

__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "DispatchKey", "DispatchKeySet", "Future",
    "_ExcludeDispatchKeyGuard", "_disabled_torch_function_impl",
    "_add_cached_tensor", "_are_functorch_transforms_active", "_is_cached_tensor", "_remove_cached_tensor", "_set_cached_tensors_enabled",
    "_autograd", "_current_graph_task_id", "_functions", "_functorch", "_is_grad_layout_enforcement_enabled", "_is_multithreading_enabled",
    "_is_fwd_grad_enabled", "_set_fwd_grad_enabled", "_is_view_replay_enabled", "_will_engine_execute_node", "has_lapack", "is_grad_enabled",
    "is_inference_mode_enabled",
]  # fmt: skip

_LinAlgError = LinAlgError
# Functions by the names of PyTorch's library, loaded when one is asked for.
globals().update(_lazy.submodules(__name__, ("_fft", "_linalg", "_nn", "_special")))
# Of TorchScript's graphs, which functions with `symbolic` name in annotations.
Graph, Node, Value = (never_made(f"torch._C.{name}", "there is no TorchScript") for name in ("Graph", "Node", "Value"))
# Its types, which annotations name: DeviceObjType where torch.device is meant.
DeviceObjType, ScriptObject, StreamObjType, TensorType = (
    never_made(f"torch.{name}", "there is no TorchScript") for name in ("DeviceObjType", "ScriptObject", "StreamObjType", "TensorType")
)
# Whether there are decompositions of matrices.
has_lapack = True


def _set_fwd_grad_enabled(mode: bool) -> None:
    """Say whether operations in this thread pass tangents on."""
    _fwd_grad(mode)


def _log_api_usage_once(event: str) -> None:
    """Does nothing: what is used is reported to nobody."""


def _get_tracing_state() -> None:
    """None: nothing is ever traced for TorchScript."""


_is_tracing = _jit_can_fuse_on_cpu = _jit_can_fuse_on_gpu = no


def _jit_override_can_fuse_on_cpu(enabled: bool) -> None:
    """Changes nothing: there is no TorchScript that fuses."""


_jit_override_can_fuse_on_gpu = _jit_set_texpr_fuser_enabled = _jit_override_can_fuse_on_cpu


def _jit_set_profiling_executor(enabled: bool) -> bool:
    """Changes nothing: there is no TorchScript. Returns True, PyTorch's default."""
    return True


_jit_set_profiling_mode = _jit_set_profiling_executor
