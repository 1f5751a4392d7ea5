"""`torch.profiler`: what takes place in a training loop, and how long it takes."""

from torchgrad_jax.profiler import itt
from torchgrad_jax.profiler.activities import ProfilerActivity, _ExperimentalConfig, supported_activities
from torchgrad_jax.profiler.events import DeviceType
from torchgrad_jax.profiler.profiler import (
    ExecutionTraceObserver,
    ProfilerAction,
    _KinetoProfile,
    profile,
    schedule,
    tensorboard_trace_handler,
)
from torchgrad_jax.profiler.recording import record_function
from torchgrad_jax.profiler.steps import KinetoStepTracker
from torchgrad_jax.runtime.settings import kineto_available

__all__ = [
    "DeviceType", "ExecutionTraceObserver", "KinetoStepTracker", "ProfilerAction", "ProfilerActivity", "_ExperimentalConfig", "_KinetoProfile", "itt",
    "kineto_available", "profile", "record_function", "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip
