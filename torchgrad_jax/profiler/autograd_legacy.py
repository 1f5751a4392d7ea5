"""`torch.autograd.profiler_legacy`. It is loaded under that name: see `runtime/lazy.py`."""

from torchgrad_jax.profiler.event_list import EventList
from torchgrad_jax.profiler.events import DeviceType, FunctionEvent
from torchgrad_jax.profiler.legacy import profile

__all__ = ["DeviceType", "EventList", "FunctionEvent", "profile"]
