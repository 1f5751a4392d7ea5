"""What is set for all that is saved and loaded."""

from __future__ import annotations

import mmap
import sys
import threading
from enum import Enum

from torchgrad_jax.runtime.settings import load_settings, save_settings


class LoadEndianness(Enum):
    """The byte order of files that do not say theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order of files that do not say theirs; None is this machine's."""
    return load_settings.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Set the byte order of files that do not say theirs. TypeError for what is no LoadEndianness."""
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    load_settings.endianness = endianness


def swaps(recorded: str | None) -> bool:
    """Whether the bytes of elements are to be turned round. recorded: what the file says. ValueError for what is no byte order."""
    if recorded is None:
        kind = get_default_load_endianness()
        return kind not in (None, LoadEndianness.NATIVE) and kind is not LoadEndianness[sys.byteorder.upper()]
    if recorded not in ("little", "big"):
        raise ValueError(f"Unknown endianness type: {recorded}")
    return recorded != sys.byteorder


def get_crc32_options() -> bool:
    """Whether `torch.save` writes checksums."""
    return save_settings.compute_crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Set whether `torch.save` writes checksums, which other programs look at when they unzip a file; `torch.load` does not."""
    save_settings.compute_crc32 = compute_crc32


def get_default_mmap_options() -> int:
    """How files are mapped into memory: `mmap.MAP_PRIVATE`."""
    return load_settings.mmap_flags


class set_default_mmap_options:
    """``set_default_mmap_options(flags)``, for good or in a ``with`` block: how files are mapped into memory.

    RuntimeError for `mmap.MAP_SHARED`: what is written to tensors would not reach the file. ValueError for other flags.
    """

    def __init__(self, flags: int) -> None:
        if flags == mmap.MAP_SHARED:
            raise RuntimeError(
                "torchgrad_jax maps files with mmap.MAP_PRIVATE only: XLA's arrays cannot be written to, so with mmap.MAP_SHARED writes would not "
                "reach the file"
            )
        if flags != mmap.MAP_PRIVATE:
            raise ValueError(f"Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, but got {flags}")
        self.prev = load_settings.mmap_flags
        load_settings.mmap_flags = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        load_settings.mmap_flags = self.prev


_local = threading.local()


def skipping() -> bool:
    """Whether contents are left out, in this thread."""
    return getattr(_local, "skipping", False)


class skip_data:
    """``with skip_data():`` contents are neither written (their places in the file are zero) nor read (tensors are zero), in this thread.

    RuntimeError for `materialize_fake_tensors`: there are none.
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        if materialize_fake_tensors:
            raise RuntimeError("torchgrad_jax has no fake tensors that could be materialized")
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self._before = skipping()
        _local.skipping = True

    def __exit__(self, *exc: object) -> None:
        _local.skipping = self._before
