"""`torch.autograd.profiler.profile`, and ranges of the user's in it."""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import jax

from torchgrad_jax.profiler.activities import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig
from torchgrad_jax.profiler.chrome import write_collected
from torchgrad_jax.profiler.collecting import Collector, Options
from torchgrad_jax.profiler.event_list import EventList
from torchgrad_jax.profiler.events import FunctionEventAvg
from torchgrad_jax.profiler.gathering import events_of
from torchgrad_jax.profiler.watching import current
from torchgrad_jax.runtime._jax_compat import traced_around
from torchgrad_jax.runtime.user_code import warn_user

_DEVICES = ("cuda", "xpu", "mtia", "hpu", "privateuseone")


class profile:
    """Context manager that records what operations take place in this thread, and how long each takes.

    enabled: False makes it do nothing. record_shapes: note the shapes of arguments. with_flops: estimate floating-point operations. profile_memory:
    note what memory is made and freed. with_stack: note the user's lines. with_modules: note calls of modules. use_device, use_cuda: a device whose
    kernels are to be timed apart, which no build of this package can: a warning says so, and times are those of the host, which waits for each
    operation. acc_events: keep the events of earlier cycles. custom_trace_id_callback: gives the trace its name. fused: show the programs as they
    run in production instead of operations one by one. jax_trace_dir: where JAX's own profiler is to write its trace, with the names of these
    events in it. use_kineto, experimental_config, post_processing_timeout_s, activity_filters: as in PyTorch; what they say of devices has no use
    here.

    While it is on, operations run at once and each is waited for, in all threads. So times of operations are real, and a step takes longer than it
    does in production: there many operations are one program, which ``fused=True`` shows.

    RuntimeError where it is entered twice; AssertionError for ``use_cpu=False``.

    Example::

        with torch.autograd.profiler.profile() as prof:
            y = x**2
            y.backward()
        print(prof.key_averages().table(sort_by="self_cpu_time_total"))
    """

    def __init__(
        self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None, record_shapes: bool = False, with_flops: bool = False,
        profile_memory: bool = False, with_stack: bool = False, with_modules: bool = False, use_kineto: bool = False, use_cpu: bool = True,
        experimental_config: Any = None, acc_events: bool = False, custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None, activity_filters: dict[Any, set[str]] | None = None, fused: bool = False,
        jax_trace_dir: str | None = None,
    ) -> None:  # fmt: skip
        self.enabled, self.use_cuda = enabled, use_cuda
        self.entered = False
        self._function_events: EventList | None = None
        self._old_events: list[Any] = []
        if not enabled:
            return
        if use_cuda:
            warn_user("The attribute `use_cuda` will be deprecated soon, please use ``use_device = 'cuda'`` instead.", FutureWarning)
            use_device = "cuda"
        self.use_device = _device(use_device)
        self.record_shapes, self.with_flops, self.profile_memory = record_shapes or with_flops, with_flops, profile_memory
        self.with_stack, self.with_modules, self.use_cpu, self.acc_events = with_stack, with_modules, use_cpu, acc_events
        self.experimental_config = _ExperimentalConfig() if experimental_config is None else experimental_config
        if not use_cpu:
            if not use_kineto:
                raise AssertionError("Device-only events supported only with Kineto (use_kineto=True)")
            raise AssertionError("No activities specified for the profiler")
        self.custom_trace_id_callback, self.post_processing_timeout_s = custom_trace_id_callback, post_processing_timeout_s
        self.activity_filters = activity_filters or {}
        self.trace_id = ""
        self.kineto_activities = {ProfilerActivity.CPU}
        self.profiler_kind = ProfilerState.KINETO
        self.fused, self.jax_trace_dir = fused, jax_trace_dir
        self._collector: Collector | None = None
        self._jax_trace: Any = contextlib.nullcontext()
        self._metadata: dict[str, Any] = {}

    # ------------------------------------------------------------------ on and off

    def __enter__(self) -> profile | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self._prepare_trace()
        self._warm_up()
        self._start_trace()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> bool | None:
        if not self.enabled or self._collector is None:
            return None if not self.enabled else False
        collector = self._collector
        if collector.ended:
            return False
        collector.stop()
        self._function_events = None
        self._jax_trace.__exit__(None, None, None)
        self._jax_trace = contextlib.nullcontext()
        return False

    def _prepare_trace(self) -> None:
        self.entered = True
        self.trace_id = self.create_trace_id()
        if self._collector is not None and self.acc_events:
            self._old_events = list(self.function_events)
        self._function_events = None
        annotate = None if self.jax_trace_dir is None else jax.profiler.TraceAnnotation
        self._collector = Collector(
            Options(self.record_shapes, self.with_flops, self.profile_memory, self.with_stack, self.with_modules, self.fused, annotate)
        )

    def _start_trace(self) -> None:
        assert self._collector is not None
        if self.jax_trace_dir is not None:
            self._jax_trace = jax.profiler.trace(self.jax_trace_dir)
            self._jax_trace.__enter__()
        self._collector.record()

    def _warm_up(self) -> None:
        """Run operations one by one from here on, which compiles those that are new, but record nothing yet."""
        assert self._collector is not None
        self._collector.start()

    def toggle_collection_dynamic(self, enabled: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Collect events from here on, or not, if the CPU is among `activities`."""
        if self._collector is not None and ProfilerActivity.CPU in set(activities):
            self._collector.on = enabled

    def config(self, create_trace_id: bool = False) -> ProfilerConfig:
        """What is recorded."""
        if create_trace_id:
            self.trace_id = self.create_trace_id()
        return ProfilerConfig(
            self.profiler_kind, self.record_shapes, self.profile_memory, self.with_stack, self.with_flops, self.with_modules,
            self.experimental_config, self.trace_id,
        )  # fmt: skip

    def default_trace_id(self) -> str:
        """A name for a trace that no other has."""
        return uuid.uuid4().hex.upper()

    def create_trace_id(self) -> str:
        """The name of the next trace: the user's, or any."""
        return self.custom_trace_id_callback() if self.custom_trace_id_callback else self.default_trace_id()

    # ------------------------------------------------------------------ what was recorded

    def _ensure_function_events(self) -> None:
        """Make the events of what was collected: none before the profile is over."""
        if self._function_events is not None:
            return
        found = events_of(self._collector) if self._collector is not None and self._collector.ended else []
        made = EventList(found, use_device=self.use_device, profile_memory=self.profile_memory, with_flops=self.with_flops)
        made._build_tree()
        if self.acc_events:
            made[:0] = self._old_events
        self._function_events = made

    @property
    def function_events(self) -> EventList:
        """The events in the order in which they began; none before the profile is over."""
        self._ensure_function_events()
        assert self._function_events is not None
        return self._function_events

    def __repr__(self) -> str:
        return "<unfinished torch.autograd.profile>" if self._unfinished() else repr(self.function_events)

    def _unfinished(self) -> bool:
        return self._function_events is None and (self._collector is None or not self._collector.ended)

    def __str__(self) -> str:
        return repr(self) if self._unfinished() else str(self.function_events)

    @functools.wraps(EventList.table)
    def table(self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int | None = 75, max_name_column_width: int | None = 55,
              max_shapes_column_width: int | None = 80, header: str | None = None, top_level_events_only: bool = False) -> str:  # fmt: skip
        return self.function_events.table(
            sort_by, row_limit, max_src_column_width, max_name_column_width, max_shapes_column_width, header, top_level_events_only
        )

    def export_chrome_trace(self, path: str, metadata: dict[str, Any] | None = None, use_python_export: bool = False) -> None:
        """Write a trace for chrome://tracing or Perfetto; with gzip where `path` ends in ``.gz``. metadata: what else it is to hold.
        use_python_export: it is always written by Python."""
        if self._collector is None or not self._collector.ended:
            raise AssertionError("Profiler didn't finish running")
        write_collected(path, self._collector, self.trace_id, {**self._metadata, **(metadata or {})})

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write the stacks of events with their microseconds, for a flame graph. AssertionError without ``with_stack=True``."""
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        self.function_events.export_stacks(path, metric)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        """Sums by name, and by the shapes of inputs or lines of the stack where that is asked for: see EventList."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> FunctionEventAvg:
        """All events added up."""
        return self.function_events.total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events, each without those within it."""
        return self.function_events.self_cpu_time_total


def _device(wanted: str | None) -> str | None:
    """The device whose kernels can be timed: none."""
    if wanted is None:
        return None
    if wanted not in _DEVICES:
        warn_user(f"The {wanted} is not a valid device option.")
    elif wanted == "cuda":
        warn_user("CUDA is not available, disabling CUDA profiling")
    else:
        warn_user(f"{wanted.upper()} is not available, disabling {wanted.upper()} profiling")
    return None


_NO_TEXT = (
    "profiler::_record_function_enter_new() Expected a value of type '{0}' for argument '{1}' but instead found type '{2}'.\nPosition: {3}\n"
    "Value: {4}\nDeclaration: profiler::_record_function_enter_new(str name, str? args=None) -> __torch__.torch.classes.profiler._RecordFunction\n"
    "Cast error details: Unable to cast Python instance of type <class '{2}'> to C++ type '?' (#define PYBIND11_DETAILED_ERROR_MESSAGES or compile "
    "in debug mode for details)"
)


class record_function(contextlib.ContextDecorator):
    """Context manager, or decorator of functions, that puts a range of the user's around what takes place within it.

    name: what the range is called. args: more about it, which traces show. RuntimeError for a name that is no text.

    Example::

        with torch.autograd.profiler.record_function("the part in question"):
            z = y**3
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self.run_callbacks_on_exit = True
        self._begun: list[Any] = []

    def __enter__(self) -> record_function:
        for i, (wanted, argument, value) in enumerate((("str", "name", self.name), ("Optional[str]", "args", self.args))):
            if not (isinstance(value, str) or (value is None and i)):
                raise RuntimeError(_NO_TEXT.format(wanted, argument, type(value).__name__, i, value))
        watch: Any = current()
        begun = None if watch is None else watch.begin_range(self.name, () if self.args is None else (self.args,))
        scope = None
        if traced_around():  # what the user's own jax.jit traces has the name in XLA's profiles
            scope = jax.named_scope(self.name)
            scope.__enter__()
        self._begun.append((watch, begun, scope))
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        watch, begun, scope = self._begun.pop()
        if scope is not None:
            scope.__exit__(None, None, None)
        if watch is not None:
            watch.end(begun)
