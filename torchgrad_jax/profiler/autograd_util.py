"""`torch.autograd.profiler_util`. It is loaded under that name: see `runtime/lazy.py`."""

from torchgrad_jax.profiler.event_list import EventList
from torchgrad_jax.profiler.events import (
    MEMORY_EVENT_NAME,
    OUT_OF_MEMORY_EVENT_NAME,
    DeviceType,
    EventMetadata,
    FormattedTimesMixin,
    FunctionEvent,
    FunctionEventAvg,
    Interval,
    Kernel,
    MemRecordsAcc,
    StringTable,
)
from torchgrad_jax.profiler.events import format_memory as _format_memory
from torchgrad_jax.profiler.events import format_time as _format_time
from torchgrad_jax.profiler.events import format_time_share as _format_time_share

__all__ = [
    "DeviceType", "EventList", "EventMetadata", "FormattedTimesMixin", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel",
    "MEMORY_EVENT_NAME", "MemRecordsAcc", "OUT_OF_MEMORY_EVENT_NAME", "StringTable", "_format_memory", "_format_time", "_format_time_share",
]  # fmt: skip
