"""Streams, events and graphs of CUDA's under PyTorch's names. XLA orders what it runs by itself, so a stream orders nothing."""

from __future__ import annotations

import time
from typing import Any, NoReturn

from torchgrad_jax.runtime import accelerators
from torchgrad_jax.runtime import device as devices

__all__ = [
    "CUDAGraph", "Event", "Stream", "StreamContext", "current_stream", "default_stream", "graph", "graph_pool_handle", "is_current_stream_capturing",
    "make_graphed_callables", "set_stream", "stream",
]  # fmt: skip


class Stream:
    """Stands for a queue of work on a GPU. RuntimeError where there is none."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        if not devices.gpus():
            raise RuntimeError("torch.cuda.Stream requires CUDA support")
        self.device, self.priority, self.cuda_stream = devices.device("cuda", accelerators.index_of(device)), priority, 0

    def synchronize(self) -> None:
        """Wait until the GPU is done with all that was recorded."""
        accelerators.wait(self.device)

    def wait_stream(self, stream: Any) -> None:
        """Does nothing: results are waited for by what reads them."""

    def wait_event(self, event: Any) -> None:
        """Does nothing: results are waited for by what reads them."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that has been recorded."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """True, after waiting until the work is done."""
        self.synchronize()
        return True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: Any) -> None:
        pass


class Event:
    """A point in time on a GPU, which `record` waits for: what has been recorded by then is done. RuntimeError where there is no GPU."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False) -> None:
        if not devices.gpus():
            raise RuntimeError("Tried to instantiate dummy base class Event")
        self._at: float | None = None

    def record(self, stream: Any = None) -> None:
        """Run what was recorded, wait until it is done, and note the time."""
        accelerators.wait(None if stream is None else stream.device)
        self._at = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
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


def _refuse_graph(name: str, missing: str) -> NoReturn:
    if not devices.gpus():
        raise RuntimeError(missing)
    raise NotImplementedError(f"torch.cuda.{name}: what repeats is run as one XLA program without it; torchgrad_jax.jit makes one of a function")


class CUDAGraph:
    """RuntimeError where there is no GPU, else NotImplementedError: a loop's step is one program anyway."""

    def __init__(self, keep_graph: bool = False) -> None:
        _refuse_graph("CUDAGraph", "Tried to instantiate dummy base class CUDAGraph")


class graph:
    """Refused as `CUDAGraph` is: a block whose work that would record."""

    def __init__(self, cuda_graph: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "global", **options: Any) -> None:
        _refuse_graph("graph", "torch.cuda.Stream requires CUDA support")

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass


def graph_pool_handle() -> NoReturn:
    """Refused as `CUDAGraph` is."""
    _refuse_graph("graph_pool_handle", "Tried to instantiate dummy base class _graph_pool_handle")


def make_graphed_callables(callables: Any, sample_args: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Refused as `CUDAGraph` is."""
    _refuse_graph("make_graphed_callables", "Tried to instantiate dummy base class CUDAGraph")


class StreamContext:
    """A block in which `stream`, or None, is the current one, which orders nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass


def stream(stream: Any) -> StreamContext:
    """A block in which `stream` is the current one."""
    return StreamContext(stream)


def set_stream(stream: Any) -> None:
    """Does nothing: streams order nothing."""


def current_stream(device: Any = None) -> Stream:
    """The one stream of a GPU. AssertionError where there is none."""
    accelerators.gpu(device)
    return Stream(device)


default_stream = current_stream


def is_current_stream_capturing() -> bool:
    """False: there are no CUDA graphs."""
    return False


def refuse_snapshot(*args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError, always: JAX's own tool tells who holds memory."""
    raise NotImplementedError("torch.cuda.memory_snapshot: use jax.profiler.save_device_memory_profile(file), which tells where memory was allocated")
