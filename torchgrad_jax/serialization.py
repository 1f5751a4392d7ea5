"""`torch.serialization`: saving and loading, in PyTorch's format."""

from __future__ import annotations

import pickle as pickle  # packages name it as `torch.serialization.pickle`, in the defaults of their arguments
import tempfile
from typing import Any

from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.saving.allowed import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from torchgrad_jax.saving.locations import default_restore_location, location_tag, register_package, validate_cuda_device, validate_hpu_device
from torchgrad_jax.saving.options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from torchgrad_jax.saving.reading import get_unsafe_globals_in_checkpoint, load
from torchgrad_jax.saving.writing import save

__all__ = [
    "LoadEndianness", "SourceChangeWarning", "add_safe_globals", "check_module_version_greater_or_equal", "clear_safe_globals",
    "default_restore_location", "get_crc32_options", "get_default_load_endianness", "get_default_mmap_options", "get_safe_globals",
    "get_unsafe_globals_in_checkpoint", "load", "location_tag", "mkdtemp", "normalize_storage_type", "register_package", "safe_globals", "save",
    "set_crc32_options", "set_default_load_endianness", "set_default_mmap_options", "skip_data", "storage_to_tensor_type", "validate_cuda_device",
    "validate_hpu_device",
]  # fmt: skip

DEFAULT_PROTOCOL = 2


class SourceChangeWarning(Warning):
    """That the source of a class in a file is not what it was: never given, since files are not asked for sources."""


mkdtemp = tempfile.TemporaryDirectory


def normalize_storage_type(storage_type: Any) -> Any:
    """The old class, such as `torch.FloatStorage`, of its own name."""
    return storage_type


def storage_to_tensor_type(storage: Any) -> str:
    """The name of the old class of tensors on such a storage."""
    return storage.type().replace("Storage", "Tensor")


def check_module_version_greater_or_equal(module: Any, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True) -> bool:
    """Whether a module's `__version__` is at least this one. RuntimeError, or a warning and True, where it cannot be compared."""
    try:
        given = str(module.__version__).split(".")
        have = tuple(type(want)(part) for part, want in zip(given, req_version_tuple, strict=False))
        return have >= tuple(req_version_tuple)
    except ValueError:
        said = (
            f"'{module.__name__}' module version string is malformed '{module.__version__}' and cannot be compared with tuple {req_version_tuple!s}"
        )
        if error_if_malformed:
            raise RuntimeError(said) from None
        warn_user(said + ", but continuing assuming that requirement is met")
        return True
