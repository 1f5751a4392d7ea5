"""`torch.version`: the PyTorch that this package follows, its own version, and what JAX's GPU runs on (asking for that starts JAX's backend)."""

from __future__ import annotations

import torchgrad_jax as _package
from torchgrad_jax.runtime.device import gpus

__all__ = ["__version__", "debug", "git_version", "torchgrad_jax", "xpu"]

torchgrad_jax: str = str(_package.__version__).rpartition("+torchgrad-jax")[2] or str(_package.__version__)
__version__: str = _package.__version__
debug = False
git_version: str | None = None
xpu: str | None = None


def _platform(name: str) -> str | None:
    """The version of the GPU's platform, ``"12.9"`` for JAX's ``"cuda 12090"``; None where there is no GPU of it."""
    for gpu in gpus():
        kind, _, number = gpu.client.platform_version.partition("\n")[0].partition(" ")
        if kind.lower() == name and number.isdigit():
            return f"{int(number) // 1000}.{int(number) % 1000 // 10}"
        if kind.lower() == name:
            return number
    return None


def __getattr__(name: str) -> str | None:
    if name == "cuda":
        return _platform("cuda")
    if name == "hip":
        return _platform("rocm")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
