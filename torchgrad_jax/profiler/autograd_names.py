"""`torch.autograd.profiler`. It is loaded under that name: see `runtime/lazy.py`."""

from torchgrad_jax.profiler.activities import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig
from torchgrad_jax.profiler.activities import supported_activities as _supported_activities
from torchgrad_jax.profiler.event_list import EventList
from torchgrad_jax.profiler.events import (
    MEMORY_EVENT_NAME,
    OUT_OF_MEMORY_EVENT_NAME,
    DeviceType,
    FunctionEvent,
    Interval,
    Kernel,
    MemRecordsAcc,
    StringTable,
)
from torchgrad_jax.profiler.nvprof import EnforceUnique, load_nvprof, parse_nvprof_trace
from torchgrad_jax.profiler.ranges import emit_itt, emit_nvtx
from torchgrad_jax.profiler.recording import profile, record_function
from torchgrad_jax.profiler.steps import KinetoStepTracker
from torchgrad_jax.runtime.settings import kineto_available

__all__ = [
    "DeviceType", "EnforceUnique", "EventList", "FunctionEvent", "Interval", "Kernel", "KinetoStepTracker", "MEMORY_EVENT_NAME", "MemRecordsAcc",
    "OUT_OF_MEMORY_EVENT_NAME", "ProfilerActivity", "ProfilerConfig", "ProfilerState", "StringTable", "_ExperimentalConfig", "_supported_activities",
    "emit_itt", "emit_nvtx", "kineto_available", "load_nvprof", "parse_nvprof_trace", "profile", "record_function",
]  # fmt: skip
