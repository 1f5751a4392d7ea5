"""`torch.utils.cpp_extension`: extensions in C++ are compiled against PyTorch's headers, which are not here."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime.passing_through import refused

__all__ = ["BuildExtension", "CUDAExtension", "CUDA_HOME", "CUDNN_HOME", "CppExtension", "ROCM_HOME", "include_paths", "load", "load_inline"]

CUDA_HOME: str | None = None
CUDNN_HOME: str | None = None
ROCM_HOME: str | None = None
_INSTEAD = (
    "PyTorch's C++ interface is not there. Write the operation with torch's functions, or in JAX (torchgrad_jax.from_jax, jax.ffi for C++ and CUDA, "
    "jax.experimental.pallas for kernels), or use the package's fallback in Python if it has one"
)
load = refused("torch.utils.cpp_extension.load", _INSTEAD)
load_inline = refused("torch.utils.cpp_extension.load_inline", _INSTEAD)
include_paths = refused("torch.utils.cpp_extension.include_paths", _INSTEAD)
CppExtension = refused("torch.utils.cpp_extension.CppExtension", _INSTEAD)
CUDAExtension = refused("torch.utils.cpp_extension.CUDAExtension", _INSTEAD)


class BuildExtension:
    """NotImplementedError when it is made: see the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refused("torch.utils.cpp_extension.BuildExtension", _INSTEAD)()

    @classmethod
    def with_options(cls, **options: Any) -> type[BuildExtension]:
        """The class itself."""
        return cls
