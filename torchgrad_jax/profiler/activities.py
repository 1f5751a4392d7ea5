"""What a profiler can be told: activities, states, and options, by PyTorch's names."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple


class ProfilerActivity(enum.Enum):
    """What is recorded: what the host does, or kernels of a device."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerState(enum.Enum):
    """How events are recorded."""

    Disabled = 0
    CPU = 1
    CUDA = 2
    NVTX = 3
    ITT = 4
    PRIVATEUSE1 = 5
    KINETO = 6


class ProfilerConfig(NamedTuple):
    """What a profile records."""

    state: ProfilerState
    report_input_shapes: bool
    profile_memory: bool
    with_stack: bool
    with_flops: bool
    with_modules: bool
    experimental_config: Any
    trace_id: str = ""


class _ExperimentalConfig:
    """PyTorch's experimental options, which are about its own recorder and about devices. They are kept; ValueError for one that would change what
    is recorded here and cannot be honoured."""

    def __init__(self, profiler_metrics: Any = (), profiler_measure_per_kernel: bool = False, verbose: bool = False, **options: Any) -> None:
        if profiler_metrics:
            raise ValueError("profiler_metrics are counters of a device, which cannot be read here: use NVIDIA's own tools beside jax_trace_dir")
        self.profiler_metrics, self.profiler_measure_per_kernel, self.verbose = profiler_metrics, profiler_measure_per_kernel, verbose
        self.__dict__.update(options)


def supported_activities() -> set[ProfilerActivity]:
    """What can be recorded: what the host does."""
    return {ProfilerActivity.CPU}
