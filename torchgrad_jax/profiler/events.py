"""`torch.autograd.profiler_util`: what a profile consists of. One event per call of an operation, sums of those of one name, and times in words."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from torchgrad_jax.profiler.demangling import demangled
from torchgrad_jax.runtime.user_code import warn_user

MEMORY_EVENT_NAME = "[memory]"
OUT_OF_MEMORY_EVENT_NAME = "[OutOfMemory]"


class DeviceType(enum.Enum):
    """Where an event took place. Numbered as PyTorch does."""

    CPU = 0
    CUDA = 1
    MKLDNN = 2
    OPENGL = 3
    OPENCL = 4
    IDEEP = 5
    HIP = 6
    FPGA = 7
    MAIA = 8
    XLA = 9
    Vulkan = 10
    Metal = 11
    XPU = 12
    MPS = 13
    Meta = 14
    HPU = 15
    VE = 16
    Lazy = 17
    IPU = 18
    MTIA = 19
    PrivateUse1 = 20


class Interval:
    """From `start` to `end`, in microseconds."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        """How long it is."""
        return self.end - self.start


class Kernel(NamedTuple):
    """A kernel that an operation ran on a device: its name, the device's number, and its microseconds."""

    name: str
    device: int
    duration: float


class StringTable(dict[str, str]):
    """Names by what a trace calls them: those of C++ functions become readable."""

    def __missing__(self, key: str) -> str:
        found = self[key] = demangled(key)
        return found


class EventMetadata(NamedTuple):
    """What a device's profiler says of a kernel or a transfer; None where it does not say."""

    stream: int | None = None
    context: int | None = None
    bytes: int | None = None


def format_time(time_us: float, unit: str | None = None) -> str:
    """Microseconds in seconds, milli- or microseconds, whichever is readable; or in the `unit` that is asked for."""
    if unit == "s" or (unit not in ("ms", "us") and time_us >= 1e6):
        return f"{time_us / 1e6:.3f}s"
    if unit == "ms" or (unit != "us" and time_us >= 1e3):
        return f"{time_us / 1e3:.3f}ms"
    return f"{time_us:.3f}us"


def format_time_share(time_us: float, total_time_us: float) -> str:
    """A time as a percentage of another. AssertionError for a part of nothing."""
    if total_time_us == 0:
        if time_us != 0:
            raise AssertionError(f"Expected time_us == 0 but got {time_us}")
        return "NaN"
    return f"{100.0 * time_us / total_time_us:.2f}%"


def format_memory(nbytes: int) -> str:
    """Bytes in GB, MB, KB or B."""
    for factor, unit in ((1024**3, "GB"), (1024**2, "MB"), (1024, "KB")):
        if abs(nbytes) >= factor:
            return f"{nbytes / factor:.2f} {unit}"
    return f"{nbytes} B"


def _formatted(name: str) -> property:
    return property(lambda self: format_time(getattr(self, name)), doc=f"`{name}` in words.")


def _average(name: str) -> property:
    return property(lambda self: 0.0 if self.count == 0 else 1.0 * getattr(self, name) / self.count, doc=f"`{name}` by the number of calls.")


def _old_name(old: str, new: str, text: str) -> property:
    def get(self: Any) -> Any:
        warn_user(text, FutureWarning)
        return getattr(self, new)

    return property(get, doc=f"What `{old}` is called now is `{new}`.")


class FormattedTimesMixin:
    """Times per call, and in words. Of a class that has `count`, and totals in microseconds."""

    cpu_time_str = _formatted("cpu_time")
    device_time_str = _formatted("device_time")
    cpu_time_total_str = _formatted("cpu_time_total")
    device_time_total_str = _formatted("device_time_total")
    self_cpu_time_total_str = _formatted("self_cpu_time_total")
    self_device_time_total_str = _formatted("self_device_time_total")
    cpu_time = _average("cpu_time_total")
    device_time = _average("device_time_total")
    cuda_time = _old_name("cuda_time", "device_time", "`cuda_time` is deprecated, please use `device_time` instead.")


class FunctionEvent(FormattedTimesMixin):
    """One call of an operation, or one range of the user's.

    id: its number, in the order in which events began. name; trace_name: the name in a trace. time_range: in microseconds since the profile began.
    thread, fwd_thread: where it ran, and where the forward operation did that a backward one belongs to. sequence_nr: the number of the node that
    it made, or that ran. scope: 0 for operations, 1 for backward functions, 7 for ranges of the user's. input_shapes, concrete_inputs: of its
    arguments, where shapes were recorded. stack: the user's lines, innermost first, where stacks were. cpu_memory_usage: bytes made less bytes
    freed meanwhile. flops: floating-point operations, where they were asked for. cpu_parent, cpu_children: the tree of events, made when a profile
    ends. kernels: what it ran on a device. records, reason: of a program (``fused=True``), the operations that it consists of, and why it ran then.
    """

    def __init__(
        self, id: int, name: str, thread: int, start_us: float, end_us: float, overload_name: str | None = None, fwd_thread: int | None = None,
        input_shapes: Any = None, stack: list[str] | None = None, scope: int = 0, use_device: str | None = None, cpu_memory_usage: int = 0,
        device_memory_usage: int = 0, is_async: bool = False, is_remote: bool = False, sequence_nr: int = -1, node_id: int = -1,
        device_type: DeviceType = DeviceType.CPU, device_index: int = 0, device_resource_id: int | None = None, is_legacy: bool = False,
        flops: int | None = None, trace_name: str | None = None, concrete_inputs: list[Any] | None = None, kwinputs: dict[str, Any] | None = None,
        is_user_annotation: bool = False, is_python_function: bool = False, activity_type: str | None = None, metadata_json: str | None = None,
        flow_id: int | None = None, flow_type: int | None = None, flow_start: bool | None = None, external_id: int = 0,
        linked_correlation_id: int = 0, extra_meta: dict[str, str] | None = None, structured_input_shapes: Any = None,
        structured_input_strides: Any = None, input_dtypes: Any = None, python_id: int = -1, python_parent_id: int = -1, python_module_id: int = -1,
    ) -> None:  # fmt: skip
        self.id, self.node_id, self.name, self.overload_name, self.trace_name = id, node_id, name, overload_name, trace_name
        self.time_range = Interval(start_us, end_us)
        self.thread, self.fwd_thread = thread, fwd_thread
        self.kernels: list[Kernel] = []
        self.count = 1
        self.records: list[str] = []
        self.reason: str | None = None
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.input_shapes, self.concrete_inputs, self.kwinputs = input_shapes, concrete_inputs, kwinputs
        self.stack, self.scope, self.use_device = stack, scope, use_device
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.is_async, self.is_remote, self.sequence_nr = is_async, is_remote, sequence_nr
        self.device_type, self.device_index = device_type, device_index
        self.device_resource_id = thread if device_resource_id is None else device_resource_id
        self.is_legacy, self.flops = is_legacy, flops
        self.is_user_annotation, self.is_python_function, self.activity_type = is_user_annotation, is_python_function, activity_type
        self.self_cpu_percent = self.total_cpu_percent = self.total_device_percent = -1
        self._metadata_json, self.event_metadata = metadata_json, _metadata(extra_meta)
        self.flow_id, self.flow_type, self.flow_start = flow_id, flow_type, flow_start
        self.external_id, self.linked_correlation_id = external_id, linked_correlation_id
        self.structured_input_shapes, self.structured_input_strides = structured_input_shapes, structured_input_strides
        self.input_dtypes = input_dtypes
        self.python_id, self.python_parent_id, self.python_module_id = python_id, python_parent_id, python_module_id

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Note a kernel that it ran on a device."""
        self._of_cpu()
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Note an event that took place within it."""
        self._of_cpu()
        if not isinstance(child, FunctionEvent):
            raise AssertionError("Expected child to be a FunctionEvent")
        if child.device_type is not DeviceType.CPU:
            raise AssertionError("Expected child device_type to be CPU")
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Note the event within which it took place."""
        self._of_cpu()
        if not isinstance(parent, FunctionEvent):
            raise AssertionError("Expected parent to be a FunctionEvent")
        if parent.device_type is not DeviceType.CPU:
            raise AssertionError("Expected parent device_type to be CPU")
        self.cpu_parent = parent

    def _of_cpu(self) -> None:
        if self.device_type is not DeviceType.CPU:
            raise AssertionError("Expected device_type to be CPU")

    @property
    def key(self) -> str:
        """What it is grouped by."""
        return self.name

    @property
    def metadata_json(self) -> str | None:
        """What a device's profiler says of it, as JSON."""
        return self._metadata_json

    @property
    def cpu_time_total(self) -> float:
        """Its microseconds, with those of the events within it; 0 for what ran on a device."""
        return self.time_range.elapsed_us() if self.device_type is DeviceType.CPU else 0

    @property
    def self_cpu_time_total(self) -> float:
        """Its microseconds without those of the events within it."""
        if self.is_async or self.device_type is not DeviceType.CPU:
            return 0
        return self.cpu_time_total - sum([child.cpu_time_total for child in self.cpu_children])

    @property
    def device_time_total(self) -> float:
        """Microseconds of its kernels, and of those of the events within it."""
        if self.is_async or not self.use_device:
            return 0
        if self.device_type is not DeviceType.CPU:
            return self.time_range.elapsed_us()
        own = sum([kernel.duration for kernel in self.kernels])
        return own if self.is_legacy else own + sum([child.device_time_total for child in self.cpu_children])

    @property
    def self_device_time_total(self) -> float:
        """Microseconds of its kernels."""
        if self.is_async or not self.use_device:
            return 0
        if self.device_type is not DeviceType.CPU:
            return self.device_time_total
        return self.device_time_total - sum([child.device_time_total for child in self.cpu_children])

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes made less bytes freed, without those of the events within it."""
        if self.is_async or self.device_type is not DeviceType.CPU:
            return 0
        return self.cpu_memory_usage - sum([child.cpu_memory_usage for child in self.cpu_children])

    @property
    def self_device_memory_usage(self) -> int:
        """The same of a device's memory."""
        if self.is_async or self.device_type is not DeviceType.CPU:
            return 0
        return self.device_memory_usage - sum([child.device_memory_usage for child in self.cpu_children])

    cuda_time_total = _old_name("cuda_time_total", "device_time_total", "`cuda_time_total` is deprecated. Use `device_time_total` instead.")
    self_cuda_time_total = _old_name(
        "self_cuda_time_total", "self_device_time_total", "`self_cuda_time_total` is deprecated. Use `self_device_time_total` instead."
    )
    self_cuda_memory_usage = _old_name(
        "self_cuda_memory_usage", "self_device_memory_usage", "`self_cuda_memory_usage` is deprecated. Use `self_device_memory_usage` instead."
    )

    def __repr__(self) -> str:
        device = self.use_device
        return (
            f"<FunctionEvent id={self.id} name={self.name} overload_name={self.overload_name} device_type={self.device_type} node_id={self.node_id} "
            f"cpu_time={self.cpu_time_str} start_us={self.time_range.start} end_us={self.time_range.end} "
            f"cpu_children={[child.id for child in self.cpu_children]} {device}_time={self.device_time_str} name={self.name} thread={self.thread} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage} {device}_memory_usage={self.device_memory_usage} "
            f"is_async={self.is_async} is_remote={self.is_remote} seq_nr={self.sequence_nr} is_legacy={self.is_legacy}>"
        )


def _metadata(extra: dict[str, str] | None) -> EventMetadata | None:
    if not extra:
        return None
    return EventMetadata(*[int(extra[name]) if name in extra else None for name in EventMetadata._fields])


# What is added up of the events of one group.
_SUMS = (
    "cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total", "cpu_memory_usage", "device_memory_usage",
    "self_cpu_memory_usage", "self_device_memory_usage", "count",
)  # fmt: skip


class FunctionEventAvg(FormattedTimesMixin):
    """Several events added up, of one name or all: `count` of them. Times are totals in microseconds, `cpu_time` and `device_time` are per call."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = self.node_id = 0
        self.is_async = self.is_remote = False
        self.use_device: str | None = None
        self.cpu_time_total = self.device_time_total = self.self_cpu_time_total = self.self_device_time_total = 0
        self.input_shapes: Any = None
        self.overload_name: str | None = None
        self.stack: list[str] | None = None
        self.scope: int | None = None
        self.cpu_memory_usage = self.device_memory_usage = self.self_cpu_memory_usage = self.self_device_memory_usage = 0
        self.cpu_children: list[FunctionEvent] | None = None
        self.cpu_parent: FunctionEvent | None = None
        self.device_type = DeviceType.CPU
        self.is_legacy = False
        self.flops = 0

    def add(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Add an event, or several that were added up. The first one says what they are. AssertionError for one of another name."""
        if not isinstance(other, (FunctionEvent, FunctionEventAvg)):
            raise AssertionError("Expected other to be a FunctionEvent or FunctionEventAvg")
        if self.key is None:
            for name in _DESCRIBING:
                setattr(self, name, getattr(other, name))
        if other.key != self.key:
            raise AssertionError(f"Expected keys to match, but got {other.key} vs {self.key}")
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.flops += other.flops or 0
        return self

    def __iadd__(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        return self.add(other)

    def __repr__(self) -> str:
        device = self.use_device or "cuda"
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str}  "
            f"self_{device}_time={self.self_device_time_total_str} {device}_time={self.device_time_str} input_shapes={self.input_shapes} "
            f"cpu_memory_usage={self.cpu_memory_usage} {device}_memory_usage={self.device_memory_usage}>"
        )


_DESCRIBING = (
    "key", "node_id", "is_async", "is_remote", "use_device", "cpu_parent", "cpu_children", "overload_name", "input_shapes", "stack", "scope",
    "device_type", "is_legacy", "is_user_annotation",
)  # fmt: skip


class MemRecordsAcc:
    """Records of memory, sorted by their time, to find those of an interval. Each is a pair whose first has `start_ns()`."""

    def __init__(self, mem_records: list[Any]) -> None:
        self._mem_records = mem_records
        self._start_nses: Any = []
        self._indices: Any = []
        if mem_records:
            ordered = sorted((record[0].start_ns(), i) for i, record in enumerate(mem_records))
            self._start_nses, self._indices = zip(*ordered, strict=True)

    def in_interval(self, start_ns: float, end_ns: float) -> Any:
        """The records from `start_ns` to `end_ns`, both included, in their order."""
        return (
            self._mem_records[i] for at, i in zip(self._start_nses, self._indices, strict=True) if start_ns <= at <= end_ns
        )  # fmt: skip


Named = Callable[[Any], str]
