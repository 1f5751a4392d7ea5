"""`torch.profiler`: profiles of training loops, step by step."""

from __future__ import annotations

import enum
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from torchgrad_jax.profiler.activities import ProfilerActivity, supported_activities
from torchgrad_jax.profiler.event_list import EventList
from torchgrad_jax.profiler.memory_timeline import write_timeline
from torchgrad_jax.profiler.recording import profile as autograd_profile
from torchgrad_jax.profiler.recording import record_function
from torchgrad_jax.profiler.steps import KinetoStepTracker
from torchgrad_jax.runtime.user_code import warn_once, warn_user

PROFILER_STEP_NAME = "ProfilerStep"


class ProfilerAction(enum.Enum):
    """What a profile does in a step: nothing, warm up, record, or record and hand over what it has at the step's end."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """A schedule: after `skip_first` steps cycles of `wait` steps without, `warmup` steps of warming up and `active` ones of recording.

    repeat: how many cycles; 0 is until the end. skip_first_wait: whether the first cycle does not wait. In a step of warming up operations run one
    by one already and are compiled, so that what is recorded afterwards is their own time. AssertionError for numbers below 0, and `active` below 1.
    """
    if not (wait >= 0 and warmup >= 0 and active > 0 and repeat >= 0 and skip_first >= 0):
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), active={active} (need > 0), "
            f"repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warn_user("Profiler won't be using warmup, this can skew profiler results")

    def schedule_fn(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        cycle, step = divmod(step, wait + warmup + active)
        if (repeat and cycle >= repeat) or step < wait:
            return ProfilerAction.NONE
        if step < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if step == wait + warmup + active - 1 else ProfilerAction.RECORD

    return schedule_fn


def _default_schedule_fn(_: int) -> ProfilerAction:
    return ProfilerAction.RECORD


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False, use_python_export: bool = False
) -> Callable[[Any], None]:
    """An `on_trace_ready` that writes each trace to a file of its own in `dir_name`, where TensorBoard and Perfetto find it.

    worker_name: what the files' names begin with; by default host and process. use_gzip: whether they are compressed. RuntimeError when it is
    called and the folder cannot be made.
    """

    def handler_fn(prof: Any) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError("Can't create directory: " + dir_name) from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return handler_fn


class _KinetoProfile:
    """What a profile of `torch.profiler` is without its steps: a `torch.autograd.profiler.profile` that is started and stopped by hand.

    activities: what is recorded; of `ProfilerActivity` there is the CPU alone, which times what runs on a device as well, since it waits for it.
    fused, jax_trace_dir, and the others: see `torch.autograd.profiler.profile`. AssertionError where there is no activity; NotImplementedError for
    an execution_trace_observer.
    """

    def __init__(
        self, *, activities: Iterable[Any] | None = None, record_shapes: bool = False, profile_memory: bool = False, with_stack: bool = False,
        with_flops: bool = False, with_modules: bool = False, experimental_config: Any = None, execution_trace_observer: Any = None,
        acc_events: bool = False, custom_trace_id_callback: Callable[[], str] | None = None, post_processing_timeout_s: float | None = None,
        fused: bool = False, jax_trace_dir: str | None = None,
    ) -> None:  # fmt: skip
        self.activities = supported_activities() if activities is None else _activities(activities)
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        if execution_trace_observer is not None:
            raise NotImplementedError(
                "execution traces are PyTorch's format for replaying its operators; here torchgrad_jax.to_jax(f) gives the program itself, and "
                "export_chrome_trace its times"
            )
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.with_flops, self.with_modules, self.experimental_config = with_flops, with_modules, experimental_config
        self.acc_events, self.custom_trace_id_callback = acc_events, custom_trace_id_callback
        self.post_processing_timeout_s, self.fused, self.jax_trace_dir = post_processing_timeout_s, fused, jax_trace_dir
        self.profiler: autograd_profile | None = None
        self.preset_metadata: dict[str, str] = {}
        self.execution_trace_observer = None

    def start(self) -> None:
        """Begin to record."""
        self.prepare_trace()
        self.start_trace()

    def stop(self) -> None:
        """Record no more."""
        self.stop_trace()

    def prepare_trace(self) -> None:
        """Warm up: operations run one by one from here on, so that they are compiled when they are recorded."""
        if self.profiler is None or not self.acc_events:
            self.profiler = autograd_profile(
                use_cpu=ProfilerActivity.CPU in self.activities, use_kineto=True, record_shapes=self.record_shapes, with_flops=self.with_flops,
                profile_memory=self.profile_memory, with_stack=self.with_stack, with_modules=self.with_modules,
                experimental_config=self.experimental_config, acc_events=self.acc_events, custom_trace_id_callback=self.custom_trace_id_callback,
                post_processing_timeout_s=self.post_processing_timeout_s, fused=self.fused, jax_trace_dir=self.jax_trace_dir,
            )  # fmt: skip
        self.profiler._prepare_trace()
        self.profiler._warm_up()

    def start_trace(self) -> None:
        """Record from here on. AssertionError before `prepare_trace`."""
        profiler = self._there("starting trace")
        profiler._start_trace()
        for key, value in self.preset_metadata.items():
            self.add_metadata_json(key, value)

    def stop_trace(self) -> None:
        """Record no more. AssertionError before `prepare_trace`."""
        self._there("stopping trace").__exit__(None, None, None)

    def _there(self, what: str) -> autograd_profile:
        if self.profiler is None:
            raise AssertionError(f"Profiler must be initialized before {what}")
        return self.profiler

    def export_chrome_trace(self, path: str, use_python_export: bool = False) -> None:
        """Write what was recorded as a trace for chrome://tracing or Perfetto; with gzip where `path` ends in ``.gz``."""
        self._there("exporting chrome trace").export_chrome_trace(path, use_python_export=use_python_export)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write the stacks of events with their microseconds, for a flame graph. AssertionError without ``with_stack=True``."""
        self._there("exporting stacks").export_stacks(path, metric)

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Record from here on, or not, if the CPU is among `activities`."""
        if self.profiler is not None:
            self.profiler.toggle_collection_dynamic(enable, activities)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        """Sums by name, and by the shapes of inputs or lines of the stack where that is asked for: see EventList."""
        return self._there("getting key averages").key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def events(self) -> EventList:
        """The events in the order in which they began. AssertionError before anything was recorded."""
        return self._there("accessing events").function_events

    def add_metadata(self, key: str, value: str) -> None:
        """Have a text in the trace, by the name `key`."""
        self.add_metadata_json(key, json.dumps(value))

    def add_metadata_json(self, key: str, value: str) -> None:
        """Have something in the trace that is given as JSON. json.JSONDecodeError where it is none."""
        self._there("adding metadata")._metadata[key] = json.loads(value)

    def preset_metadata_json(self, key: str, value: str) -> None:
        """`add_metadata_json` for traces that have not begun."""
        self.preset_metadata[key] = value

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Deprecated. Write how much memory was in use over time: as JSON, with gzip, or every change (``.raw.json.gz``).

        ValueError without record_shapes, profile_memory and with_stack, and for an ``.html``, which takes a library that draws.
        """
        warn_user(
            "`export_memory_timeline` is deprecated and will be removed in a future version. Please use `torch.cuda.memory._record_memory_history` "
            "and `torch.cuda.memory._export_memory_snapshot` instead.",
            FutureWarning,
        )
        if not (self.record_shapes and self.profile_memory and self.with_stack):
            raise ValueError("record_shapes=True, profile_memory=True, with_stack=True required for memory profiling.")
        profiler = self._there("exporting memory timeline")
        assert profiler._collector is not None
        write_timeline(path, profiler._collector)


def _activities(given: Iterable[Any]) -> set[ProfilerActivity]:
    """The activities that are asked for. A dict narrows one down to kinds of its events, which only devices have."""
    found = set()
    for activity in given:
        if isinstance(activity, dict):
            for kind, names in activity.items():
                if names:
                    raise RuntimeError(f"Unknown or non-member activity type name: {names[0]!r}")
                found.add(kind)
        elif isinstance(activity, ProfilerActivity):
            found.add(activity)
    return found


class profile(_KinetoProfile):
    """Context manager that profiles a training loop.

    schedule: what to do in each step, a function of its number: see `schedule`. Without one everything is recorded. on_trace_ready: called with the
    profile whenever a trace is there: at the end of each cycle, or of the whole. use_cuda: deprecated.
    The others: see `torch.autograd.profiler.profile`.

    Example::

        with torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
            on_trace_ready=torch.profiler.tensorboard_trace_handler("./log"),
        ) as p:
            for x, y in batches:
                train(x, y)
                p.step()
    """

    def __init__(
        self, *, activities: Iterable[Any] | None = None, schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None, record_shapes: bool = False, profile_memory: bool = False, with_stack: bool = False,
        with_flops: bool = False, with_modules: bool = False, experimental_config: Any = None, execution_trace_observer: Any = None,
        acc_events: bool = False, use_cuda: bool | None = None, custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None, fused: bool = False, jax_trace_dir: str | None = None,
    ) -> None:  # fmt: skip
        wanted = supported_activities() if activities is None else set(_activities(activities))
        if use_cuda is not None:
            warn_user("`use_cuda` is deprecated, use `activities` argument instead", FutureWarning)
        super().__init__(
            activities=wanted, record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack, with_flops=with_flops,
            with_modules=with_modules, experimental_config=experimental_config, execution_trace_observer=execution_trace_observer,
            acc_events=acc_events, custom_trace_id_callback=custom_trace_id_callback, post_processing_timeout_s=post_processing_timeout_s,
            fused=fused, jax_trace_dir=jax_trace_dir,
        )  # fmt: skip
        self.record_steps = schedule is not None
        self.schedule = schedule or _default_schedule_fn
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)
        self.step_rec_fn: record_function | None = None
        self._cycles = 0

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        self.stop()
        KinetoStepTracker.erase_step_count(PROFILER_STEP_NAME)

    def start(self) -> None:
        """Begin with step 0."""
        KinetoStepTracker.init_step_count(PROFILER_STEP_NAME)
        self._go(None, self.current_action)
        self._begin_step()

    def stop(self) -> None:
        """The loop is over: hand over what was recorded."""
        self._end_step()
        self._go(self.current_action, None)

    def step(self) -> None:
        """The next step of the loop begins."""
        self._end_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._go(before, self.current_action)
        KinetoStepTracker.increment_step(PROFILER_STEP_NAME)
        self._begin_step()

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """What names the traces from here on."""
        self.custom_trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """The name of the trace; None before there is one."""
        return None if self.profiler is None else self.profiler.trace_id

    def _begin_step(self) -> None:
        if self.record_steps and self.current_action is not ProfilerAction.NONE:
            self.step_rec_fn = record_function(f"{PROFILER_STEP_NAME}#{self.step_num}")
            self.step_rec_fn.__enter__()

    def _end_step(self) -> None:
        if self.step_rec_fn is not None:
            self.step_rec_fn.__exit__(None, None, None)
            self.step_rec_fn = None

    def _trace_ready(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _go(self, before: ProfilerAction | None, now: ProfilerAction | None) -> None:
        """From what was done in one step to what is done in the next; None before the first and after the last."""
        recorded, records = before in _RECORDING, now in _RECORDING
        ends = recorded and (before is ProfilerAction.RECORD_AND_SAVE or not records)
        if ends:
            if before is ProfilerAction.RECORD and now is not None:
                warn_user("Incorrect schedule: RECORD followed by " + now.name)
            self.stop_trace()
            self._trace_ready()
            recorded = False
        if before is ProfilerAction.WARMUP and not records and now is not ProfilerAction.WARMUP:
            if now is not None:
                warn_user("Incorrect schedule: WARMUP followed by NONE")
            self.stop_trace()
        if (records and not recorded and before is not ProfilerAction.WARMUP) or (now is ProfilerAction.WARMUP and before is not now):
            self._warn_of_cycles()
            self.prepare_trace()
        if records and not recorded:
            self.start_trace()

    def _warn_of_cycles(self) -> None:
        self._cycles += 1
        if self._cycles == 2 and not self.acc_events:
            warn_once(
                "Warning: Profiler clears events at the end of each cycle. Only events from the current cycle will be reported. To keep "
                "events across cycles, set acc_events=True."
            )


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class ExecutionTraceObserver:
    """PyTorch's execution traces are for replaying its operators by its own tools. NotImplementedError, with what there is instead."""

    def __init__(self) -> None:
        raise NotImplementedError(
            "execution traces are for replaying PyTorch's operators; here torchgrad_jax.to_jax(f) gives the program of a function itself, and "
            "torch.profiler.profile its operations with their times"
        )
