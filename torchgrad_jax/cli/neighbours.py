"""Packages that are adjusted when they are loaded, because they

- read a tensor's memory at `data_ptr()`, where there is none: arrays move when they are written to, and addresses only tell which memories are
  the same;
- need libraries of PyTorch's C++ to be imported, though not to be of use.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import numpy as np

from torchgrad_jax.cli import torchvision


def _safetensors(module: ModuleType) -> None:
    if not hasattr(module, "_to_ndarray"):
        raise ImportError("torchgrad_jax works with safetensors 0.8 or newer, of which it knows how tensors are read", name=module.__name__)
    vars(module)["_to_ndarray"] = _bytes_of


def _bytes_of(tensor: Any) -> tuple[np.ndarray, Any]:
    """The content as bytes, and what has to live as long as they are used."""
    array = np.ascontiguousarray(tensor._concrete())
    return array.reshape(-1).view(np.uint8), array


def _reading_buffers(module: ModuleType) -> None:
    open_by_version = module.safe_open

    @functools.wraps(open_by_version, updated=())
    def safe_open(*args: Any, **kwargs: Any) -> Any:
        torch = sys.modules["torch"]
        version = torch.__version__
        # From PyTorch 1.11 on it views a mapped storage's bytes as other dtypes; before, it hands over buffers.
        torch.__version__ = "1.10.0"  # type: ignore[attr-defined] - modules have attributes
        try:
            return open_by_version(*args, **kwargs)
        finally:
            torch.__version__ = version  # type: ignore[attr-defined]

    vars(module)["safe_open"] = safe_open


def _without_library(module: ModuleType) -> None:
    """torchaudio does without its library, where it was built without one."""
    vars(module)["_load_lib"] = lambda lib: False


_ADJUSTED: dict[str, Callable[[ModuleType], None]] = {
    "safetensors": _reading_buffers, "safetensors.torch": _safetensors,
    "torchvision.extension": torchvision.extension, "torchvision.ops._register_onnx_ops": torchvision.onnx,
    "torchvision.ops.boxes": torchvision.boxes, "torchaudio._extension.utils": _without_library,
}  # fmt: skip


def find(fullname: str, path: Any) -> ModuleSpec | None:
    """The spec of a package that is to be adjusted; None for others, and where it is not installed."""
    if fullname not in _ADJUSTED:
        return None
    spec = PathFinder.find_spec(fullname, path)
    if spec is not None and spec.loader is not None:
        spec.loader = _Adjusting(spec.loader, _ADJUSTED[fullname])
    return spec


class _Adjusting(Loader):
    """Loads a module and adjusts it."""

    def __init__(self, loader: Loader, adjust: Callable[[ModuleType], None]) -> None:
        self._loader, self._adjust = loader, adjust

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """What the module's own loader makes."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Load it, then adjust it."""
        self._loader.exec_module(module)
        self._adjust(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # get_source and the like, for tracebacks
