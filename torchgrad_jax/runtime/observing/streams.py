"""`torch.Stream` and `torch.Event` of any device. XLA orders what it runs by itself, so a stream orders nothing."""

from __future__ import annotations

import time
from typing import Any, Self

from torchgrad_jax.runtime import accelerators
from torchgrad_jax.runtime import device as devices
from torchgrad_jax.runtime.recorder import per_thread

__all__ = ["Event", "Stream"]


def _device(given: Any) -> devices.device:
    """The device that is meant: a GPU where there is one. RuntimeError for one that there is not."""
    where = devices.device(given) if given is not None else devices.device("cuda", 0) if devices.gpus() else devices.CPU
    if where.type != "cpu" and not devices.gpus():
        raise RuntimeError(f"PyTorch is not linked with support for {where.type} devices")
    return where


def wait_for(where: devices.device) -> None:
    """Run what this thread has recorded, and wait until the device has done it."""
    if where.type == "cpu":
        per_thread.recorder.flush("synchronize")
        return
    accelerators.wait(where)


class Stream:
    """Stands for a queue of work on a device: `device`, by default a GPU where there is one. RuntimeError where it is not there."""

    stream_id = 0

    def __init__(self, device: Any = None, *, priority: int = 0) -> None:
        self.device, self.priority = _device(device), priority

    def synchronize(self) -> None:
        """Wait until the device is done with all that was recorded."""
        wait_for(self.device)

    def wait_stream(self, stream: Any) -> None:
        """Does nothing: results are waited for by what reads them."""

    def wait_event(self, event: Any) -> None:
        """Does nothing: results are waited for by what reads them."""

    def record_event(self, event: Any = None) -> Any:
        """An event that has been recorded."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """True, after waiting until the work is done."""
        self.synchronize()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def __repr__(self) -> str:
        return f"torch.Stream device_type={self.device.type}, device_index={_index(self.device)}, stream_id={self.stream_id}"


class Event:
    """A point in time on a device, which `record` waits for: what has been recorded by then is done. RuntimeError where it is not there."""

    event_id = 0

    def __init__(self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.device = _device(device)
        self._at: float | None = None

    def record(self, stream: Any = None) -> None:
        """Run what was recorded, wait until it is done, and note the time."""
        wait_for(self.device if stream is None else stream.device)
        self._at = time.perf_counter()

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to another. RuntimeError where one of them was not recorded."""
        if self._at is None or end_event._at is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return 1000 * (end_event._at - self._at)

    def synchronize(self) -> None:
        """Does nothing: `record` has waited."""

    def wait(self, stream: Any = None) -> None:
        """Does nothing: `record` has waited."""

    def query(self) -> bool:
        """True: `record` has waited."""
        return True

    def __repr__(self) -> str:
        return f"torch.Event device_type={self.device.type}, device_index={_index(self.device)}, event_flag=0, event_id={self.event_id}"


def _index(where: devices.device) -> int:
    return -1 if where.index is None else where.index
