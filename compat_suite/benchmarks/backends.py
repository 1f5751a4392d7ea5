"""The ways to run a workload, and what a process needs to be one of them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

# torch: PyTorch eager. jax: by hand and jitted, the limit. fused, eager: torchgrad_jax in its two execution modes.
BACKENDS = ("torch", "jax", "fused", "eager")
OURS = ("fused", "eager")
DEVICES = ("cpu", "cuda")
LABELS = {"torch": "PyTorch", "jax": "JAX by hand", "fused": "torchgrad_jax", "eager": "torchgrad_jax eager"}


def available(names: Iterable[str]) -> list[str]:
    """Those of `names` that can run here: PyTorch may not be installed. ValueError for a name that is no backend."""
    found = []
    for name in names:
        if name not in BACKENDS:
            raise ValueError(f"no backend {name!r}; there are {', '.join(BACKENDS)}")
        if name == "torch" and importlib.util.find_spec("torch") is None:
            print("PyTorch is not installed: its column is left out", file=sys.stderr)
        else:
            found.append(name)
    return found


def environment(backend: str, device: str) -> dict[str, str]:
    """The environment variables of a process that runs `backend` on `device`."""
    found = dict(os.environ)
    found.pop("TORCHGRAD_JAX_EXECUTION", None)
    if backend in OURS:
        found["TORCHGRAD_JAX_EXECUTION"] = backend
    found["JAX_PLATFORMS"] = "cpu" if device == "cpu" else "cuda,cpu"
    if device == "cuda":
        found["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # else the memory in use says nothing
        found["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"  # PyTorch's default; JAX's own is TF32
    return found


def namespace(backend: str) -> Any:
    """The torch-shaped module of a backend other than ``jax``."""
    if backend == "torch":
        import torch

        torch.backends.cudnn.allow_tf32 = False  # full float32 on every backend
        return torch
    import torchgrad_jax

    return torchgrad_jax


def tensor_maker(T: Any, device: str) -> Callable[..., Any]:
    """``make(array, requires_grad=False)``: a tensor of the namespace `T` on `device`."""

    def make(array: Any, requires_grad: bool = False) -> Any:
        return T.tensor(array, device=device, requires_grad=requires_grad)

    return make
