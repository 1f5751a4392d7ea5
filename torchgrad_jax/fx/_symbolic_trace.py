"""`torch.fx._symbolic_trace`: what other packages use of it, by PyTorch's names."""

from __future__ import annotations

import functools
from types import FunctionType

from torchgrad_jax.fx._compatibility import compatibility
from torchgrad_jax.fx.concrete import PH, PHBase, PHWithMeta, _assert_is_none
from torchgrad_jax.fx.graph import Graph
from torchgrad_jax.fx.graph_module import GraphModule
from torchgrad_jax.fx.patching import Patcher as _Patcher
from torchgrad_jax.fx.patching import autowrap_check as _autowrap_check
from torchgrad_jax.fx.patching import patch_wrapped_functions as _patch_wrapped_functions
from torchgrad_jax.fx.patching import recorded_function as _create_wrapped_func
from torchgrad_jax.fx.patching import wrap
from torchgrad_jax.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase
from torchgrad_jax.fx.tracing import ProxyableClassMeta, Tracer, is_fx_tracing, symbolic_trace
from torchgrad_jax.fx.tracing import module_call as _orig_module_call
from torchgrad_jax.fx.tracing import module_getattr as _orig_module_getattr

__all__ = [
    "PH", "FunctionType", "Graph", "GraphModule", "PHBase", "PHWithMeta", "ParameterProxy", "Proxy", "ProxyableClassMeta", "Scope",
    "ScopeContextManager", "ScriptObject", "Tracer", "TracerBase", "_Patcher", "_assert_is_none", "_autowrap_check", "_create_wrapped_func",
    "_orig_module_call", "_orig_module_getattr", "_patch_wrapped_functions", "compatibility", "functools", "is_fx_symbolic_tracing", "is_fx_tracing",
    "symbolic_trace", "wrap",
]  # fmt: skip

is_fx_symbolic_tracing = is_fx_tracing


class ScriptObject:
    """An object of TorchScript's: there are none."""
