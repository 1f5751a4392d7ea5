"""Streams, events and graphs of CUDA's under PyTorch's names. XLA orders what it runs by itself, so a stream orders nothing."""

from __future__ import annotations

from typing import Any, NoReturn

from torchgrad_jax.runtime import accelerators
from torchgrad_jax.runtime import device as devices
from torchgrad_jax.runtime.observing import streams

__all__ = [
    "CUDAGraph", "Event", "Stream", "StreamContext", "current_stream", "default_stream", "graph", "graph_pool_handle", "is_current_stream_capturing",
    "make_graphed_callables", "set_stream", "stream",
]  # fmt: skip


class Stream(streams.Stream):
    """Stands for a queue of work on a GPU. RuntimeError where there is none."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        if not devices.gpus():
            raise RuntimeError("torch.cuda.Stream requires CUDA support")
        super().__init__(devices.device("cuda", accelerators.index_of(device)), priority=priority)
        self.cuda_stream = 0

    def record_event(self, event: Event | None = None) -> Event:
        """An event that has been recorded."""
        return super().record_event(Event() if event is None else event)


class Event(streams.Event):
    """A point in time on a GPU, which `record` waits for: what has been recorded by then is done. RuntimeError where there is no GPU."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False) -> None:
        if not devices.gpus():
            raise RuntimeError("Tried to instantiate dummy base class Event")
        super().__init__(devices.device("cuda", accelerators.index_of(None)), enable_timing=enable_timing)


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
