"""`torch.backends.cudnn`: XLA chooses among cuDNN's kernels and its own. The switches keep what they are set to and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchgrad_jax.runtime.device import gpus

enabled = True
# XLA always tries out kernels when it compiles.
benchmark = False
benchmark_limit: int | None = None
# XLA_FLAGS=--xla_gpu_deterministic_ops=true, set before JAX starts its GPU, is what makes kernels deterministic there; those on the CPU are.
deterministic = False
# What float32 is multiplied in is said by torch.set_float32_matmul_precision.
allow_tf32 = True


def is_available() -> bool:
    """Whether JAX has a GPU, whose XLA comes with cuDNN."""
    return bool(gpus())


def version() -> int | None:
    """The version of cuDNN: it is not known which one XLA loaded."""
    return None


def is_acceptable(tensor: Any) -> bool:
    """Whether cuDNN could be used for a tensor: one on a GPU."""
    return bool(tensor.is_cuda) and enabled and is_available()


_SWITCHES = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")


def set_flags(**switches: Any) -> tuple[Any, ...]:
    """Set the switches that are not None; returns what they were."""
    before = tuple(globals()[name] for name in _SWITCHES)
    globals().update({name: value for name, value in switches.items() if value is not None})
    return before


@contextmanager
def flags(
    enabled: bool = False, benchmark: bool = False, benchmark_limit: int | None = 10, deterministic: bool = False, allow_tf32: bool = True
) -> Iterator[None]:
    """The switches for a block."""
    before = set_flags(enabled=enabled, benchmark=benchmark, benchmark_limit=benchmark_limit, deterministic=deterministic, allow_tf32=allow_tf32)
    try:
        yield
    finally:
        globals().update(zip(_SWITCHES, before, strict=True))
