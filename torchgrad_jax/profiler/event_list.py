"""The list of a profile's events: their tree, sums by name, tables, traces and stacks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from torchgrad_jax.profiler.chrome import write_events
from torchgrad_jax.profiler.events import DeviceType, FunctionEvent, FunctionEventAvg
from torchgrad_jax.profiler.table import build_table

_DEVICES = ("cpu", "cuda", "xpu", "privateuse1")


class EventList(list[Any]):
    """The events of a profile, or sums of them, with what is made of them.

    Keywords: use_device, the device whose times are shown beside the CPU's; profile_memory, with_flops, what was recorded and is shown.
    """

    def __init__(self, *args: Any, use_device: str | None = None, profile_memory: bool = False, with_flops: bool = False) -> None:
        super().__init__(*args)
        self._use_device, self._profile_memory, self._with_flops = use_device, profile_memory, with_flops
        self._tree_built = False

    def __str__(self) -> str:
        return self.table()

    # ------------------------------------------------------------------ the tree

    def _build_tree(self) -> None:
        self._populate_cpu_children()
        self._remove_dup_nodes()
        self._set_backward_stacktraces()
        self._tree_built = True

    def _populate_cpu_children(self) -> None:
        """Each event's parent is the innermost one of its thread that it lies within."""
        by_thread: dict[Any, list[FunctionEvent]] = defaultdict(list)
        for event in self:
            if not event.is_async and event.device_type is DeviceType.CPU:
                by_thread[event.thread, event.node_id].append(event)
        for events in by_thread.values():
            around: list[FunctionEvent] = []
            # What begins together: the longer one is around the other.
            for event in sorted(events, key=lambda e: (e.time_range.start, -e.time_range.end)):
                interval = event.time_range
                while around and (interval.start >= around[-1].time_range.end or interval.end > around[-1].time_range.end):
                    around.pop()
                if around:
                    around[-1].append_cpu_child(event)
                    event.set_cpu_parent(around[-1])
                around.append(event)

    def _remove_dup_nodes(self) -> None:
        """An event that is all that there is in one of its own name is that one."""
        while True:
            doubled = [e for e in self if e.cpu_parent is not None and e.cpu_parent.name == e.name and len(e.cpu_parent.cpu_children) == 1]
            if not doubled:
                return
            for event in doubled:
                parent = event.cpu_parent
                parent.cpu_children = event.cpu_children
                parent.kernels = event.kernels  # those of an outer one are its inner one's
                parent.flops = parent.flops or event.flops
                for child in event.cpu_children:
                    child.cpu_parent = parent
            gone = set(map(id, doubled))
            self[:] = [e for e in self if id(e) not in gone]

    def _set_backward_stacktraces(self) -> None:
        """Backward functions were called for by the lines of their forward operations."""
        backward = {id(event): _backward_function(event) for event in self}
        lines: dict[Any, list[str]] = {}
        for event in self:
            if backward[id(event)] is None and event.stack and event.sequence_nr >= 0:
                lines.setdefault((event.sequence_nr, event.thread), event.stack)
        for event in self:
            function = backward[id(event)]
            if function is not None:
                found = lines.get((function.sequence_nr, function.fwd_thread), [])
                event.stack = [line for line in found if _is_users(line)]

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events, each without those within it."""
        return sum([event.self_cpu_time_total for event in self])

    # ------------------------------------------------------------------ what is made of it

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int | None = 75, max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80, header: str | None = None, top_level_events_only: bool = False, time_unit: str | None = None,
    ) -> str:  # fmt: skip
        """The events as a table.

        sort_by: what rows are sorted by, the largest first: ``"cpu_time"``, ``"cpu_time_total"``, ``"self_cpu_time_total"``, ``"cpu_memory_usage"``,
        ``"self_cpu_memory_usage"``, ``"count"``, ``"flops"`` or another attribute of the events; by default they come as they began. row_limit: how
        many rows; -1 is all. max_..._column_width: longer texts are cut; None: they are not. header: a line above it. top_level_events_only: leave
        out what is within another event. time_unit: ``"s"``, ``"ms"`` or ``"us"`` for all times.

        AttributeError where events have no such attribute to sort by.
        """
        return build_table(
            self, sort_by, row_limit, max_src_column_width, max_name_column_width, max_shapes_column_width, header, top_level_events_only, time_unit
        )

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        """Sums by name, as a list of `FunctionEventAvg`; also by the shapes of the inputs, by the innermost `group_by_stack_n` lines of the stack, or
        by the name of the overload. AssertionError before the tree of events is made."""
        if not self._tree_built:
            raise AssertionError("Expected tree to be built before calling key_averages")
        groups: dict[Any, FunctionEventAvg] = defaultdict(FunctionEventAvg)
        for event in self:
            key = [event.key, event.node_id, event.device_type, event.is_legacy, event.is_user_annotation]
            if group_by_overload_name:
                key.append(event.overload_name)
            if group_by_input_shapes:
                key.append(str(event.input_shapes))
            if group_by_stack_n > 0:
                key += (event.stack or [])[:group_by_stack_n]
            groups[tuple(key)].add(event)
        made = EventList(groups.values(), use_device=self._use_device, profile_memory=self._profile_memory, with_flops=self._with_flops)
        for event in made:
            event.stack = (event.stack or [])[:group_by_stack_n]
            if not group_by_input_shapes:
                event.input_shapes = ""
            if not group_by_overload_name:
                event.overload_name = ""
        return made

    def total_average(self) -> FunctionEventAvg:
        """All events added up, under the name Total."""
        total = FunctionEventAvg()
        for event in self:
            total += event
            total.key = None  # so that the next one may have any name
        total.key = "Total"
        return total

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as a trace for chrome://tracing or Perfetto."""
        write_events(path, self)

    def supported_export_stacks_metrics(self) -> list[str]:
        """What `export_stacks` can weigh stacks by."""
        return [f"self_{device}_time_total" for device in _DEVICES]

    def export_stacks(self, path: str, metric: str) -> None:
        """Write the stacks of the events, one a line, outermost first and with its microseconds, as programs that draw flame graphs read them.

        ValueError for a `metric` that is none of `supported_export_stacks_metrics`.
        """
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(f"metric should be one of: {self.supported_export_stacks_metrics()}")
        spaces = str.maketrans(" ;\t\n", "____")
        attribute = metric.replace("cuda", "device").replace("xpu", "device").replace("privateuse1", "device")
        with open(path, "w") as file:
            for event in self:
                weight = int(getattr(event, attribute))
                if event.stack and weight > 0:
                    file.write(";".join([line.translate(spaces) for line in reversed(event.stack)]) + f" {weight}\n")


def _backward_function(event: FunctionEvent | None) -> FunctionEvent | None:
    """The backward function that an event is or lies within."""
    while event is not None and event.scope != 1:
        event = event.cpu_parent
    return event


def _is_users(line: str) -> bool:
    return not any(part in line for part in ("torch/autograd/__init__", "torch/autograd/__init__.py"))


def canonical(events: Iterable[Any]) -> list[Any]:
    """Events in the order in which they began, outer ones first."""
    return sorted(events, key=lambda e: (e.time_range.start, -e.time_range.end))
