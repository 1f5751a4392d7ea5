"""Settings of the process that PyTorch has at its top level: threads, and how exactly float32 is multiplied."""

from __future__ import annotations

import mmap as mapping
import os
from typing import Any

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.user_code import warn_user

__all__ = [
    "get_float32_matmul_precision", "get_num_interop_threads", "get_num_threads", "set_float32_matmul_precision", "set_flush_denormal",
    "set_num_interop_threads", "set_num_threads",
]  # fmt: skip


def get_num_threads() -> int:
    """How many threads XLA may use on the CPU: one for each processor that this process may run on; 1 in a process that does without XLA."""
    if modes.without_xla:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_num_interop_threads() -> int:
    """How many operations may run at the same time on the CPU: XLA has one pool for both."""
    return get_num_threads()


def _refuse_threads(name: str, count: Any) -> None:
    if not isinstance(count, int) or isinstance(count, bool):
        raise RuntimeError(f"{name} expects an int, but got {type(count).__name__}")
    if count <= 0:
        raise RuntimeError(f"{name} expects a positive integer")
    if count != get_num_threads():
        warn_user(
            f"{name}({count}) has no effect: XLA's threads are made when it starts, one for each processor that the process may use, here "
            f"{get_num_threads()}. To use fewer start the process with fewer, say by `taskset -c 0-{count - 1}`.",
            UserWarning,
        )


def set_num_threads(threads: int) -> None:
    """Warns unless it is the number that there is: XLA's threads are made when it starts. RuntimeError for what is no positive number."""
    _refuse_threads("set_num_threads", threads)


def set_num_interop_threads(threads: int) -> None:
    """As `set_num_threads`."""
    _refuse_threads("set_num_interop_threads", threads)


def set_flush_denormal(mode: bool) -> bool:
    """Whether denormal numbers are now flushed to zero as asked: only False can be honoured."""
    return not mode


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was told."""
    return modes.matmul_precision


def set_float32_matmul_precision(precision: str) -> None:
    """How an accelerator multiplies float32: "highest" (exactly), "high" (TF32) or "medium" (bfloat16). The CPU multiplies exactly.

    It holds for operations that are met for the first time from then on, so it belongs at a program's beginning. Another name warns.
    """
    if not isinstance(precision, str):
        raise RuntimeError(f"set_float32_matmul_precision expects a str, but got {type(precision).__name__}")
    if precision not in modes.PRECISIONS:
        warn_user(f"{precision} is not one of 'highest', 'high', or 'medium'; the currentsetFloat32MatmulPrecision call has no effect.", UserWarning)
        return
    modes.set_matmul_precision(precision)


def kineto_available() -> bool:
    """Whether profiles can be written as traces: they always can."""
    return True


# ---------------------------------------------------------------------- of files


class load_settings:
    """mmap: whether files are mapped into memory where `torch.load` is not told. endianness: see `set_default_load_endianness`. mmap_flags: see
    `set_default_mmap_options`. calculate_storage_offsets: has no effect, since places are read from the file's directory."""

    mmap: bool = False
    endianness: Any = None
    mmap_flags: int = getattr(mapping, "MAP_PRIVATE", 0)
    calculate_storage_offsets: bool = False


class save_settings:
    """compute_crc32: see `set_crc32_options`. storage_alignment: contents begin at multiples of so many bytes of the file.
    use_pinned_memory_for_d2h: has no effect, since there is no pinned memory."""

    compute_crc32: bool = True
    use_pinned_memory_for_d2h: bool = False
    storage_alignment: int = 64
