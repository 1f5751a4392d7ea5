"""What `torch.compile`, `torch.compiler` and `torch.jit` are where every program is compiled by XLA anyway: they give back what they are given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

# PyTorch's own backends, all of which compute what the model itself does.
_BACKENDS = ("inductor", "eager", "aot_eager", "cudagraphs", "openxla", "tvm", "aot_eager_decomp_partition", "onnxrt")


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """`model` itself, a function or a module; without one a decorator. What runs is recorded and compiled by XLA in any case, so the options make no
    difference. NotImplementedError for a backend of the user's, which would be given PyTorch's graphs. RuntimeError for another unknown one."""
    if callable(backend):
        raise NotImplementedError("torch.compile(): torchgrad_jax has no FX graphs to give to a backend; leave out backend=")
    if backend not in _BACKENDS:
        raise RuntimeError(f"Invalid backend: {backend!r}")
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if model is None:
        return functools.partial(_itself, "compile")
    return _itself("compile", model)


def _itself(name: str, model: Any) -> Any:
    if not callable(model):
        raise RuntimeError(f"torch.{name}: Expected a callable but got {type(model)}")
    return model


def decorator(fn: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator, with arguments or without, that gives back the function."""
    return (lambda function: function) if fn is None else fn


def no() -> bool:
    """False."""
    return False
