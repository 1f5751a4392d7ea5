"""`torch._dynamo`: the names of PyTorch's compiler that programs touch. What it would trace is traced by `torch.compile`, which is JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax._dynamo import eval_frame, exc, utils
from torchgrad_jax._dynamo.eval_frame import OptimizedModule
from torchgrad_jax.compiler import allow_in_graph, disable, is_compiling, list_backends, reset
from torchgrad_jax.lifting.jitting import compile
from torchgrad_jax.runtime.passing_through import Options, refused

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "eval_frame", "exc", "explain", "export", "forbid_in_graph",
    "graph_break", "is_compiling", "list_backends", "mark_dynamic", "mark_static", "mark_static_address", "maybe_mark_dynamic", "optimize",
    "optimize_assert", "reset", "run", "utils",
]  # fmt: skip

config = Options(
    verbose=False, suppress_errors=False, cache_size_limit=8, recompile_limit=8, accumulated_cache_size_limit=256, dynamic_shapes=True,
    assume_static_by_default=True, automatic_dynamic_shapes=True, capture_scalar_outputs=False, optimize_ddp=True,
)  # fmt: skip
assume_constant_result = allow_in_graph
export = refused("torch._dynamo.export", "there are no FX graphs; torchgrad_jax.to_jax gives a function that jax.export takes")
explain = refused("torch._dynamo.explain", "torchgrad_jax.explain() tells what was compiled and why")


def forbid_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


def graph_break(msg: str = "") -> None:
    """Does nothing: what is recorded is no graph of a function's."""


def mark_dynamic(t: Any, index: Any, **bounds: Any) -> None:
    """Does nothing: XLA's programs are of one shape each, and sizes of loops are found by themselves."""


def mark_static(t: Any, index: Any = None) -> None:
    """Does nothing: every size is."""


maybe_mark_dynamic = mark_dynamic


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Does nothing: XLA's programs own their memory."""


def optimize(backend: Any = "inductor", *, nopython: bool = False, guard_export_fn: Any = None, guard_fail_fn: Any = None, disable: bool = False,
             dynamic: bool | None = None, **hooks: Any) -> Callable[[Any], Any]:  # fmt: skip
    """The decorator that `torch.compile` was before it had that name."""
    return compile(fullgraph=nopython, dynamic=dynamic, backend=backend, disable=disable)


def optimize_assert(backend: Any = "inductor", **options: Any) -> Callable[[Any], Any]:
    """`optimize` of what must be one program."""
    return optimize(backend, nopython=True, **options)


def run(fn: Any = None) -> Any:
    """The function itself, or a decorator: what was compiled is used, and what is new is run all the same."""
    return (lambda function: function) if fn is None else fn
