"""From what was collected, the events that users see."""

from __future__ import annotations

from bisect import bisect_right

from torchgrad_jax.profiler.collecting import Collector
from torchgrad_jax.profiler.event_list import canonical
from torchgrad_jax.profiler.events import MEMORY_EVENT_NAME, FunctionEvent
from torchgrad_jax.profiler.records import Record, shown_records


def events_of(collector: Collector) -> list[FunctionEvent]:
    """The events of a profile that is over, in the order in which they began."""
    options = collector.options
    records = shown_records(collector)
    events = [_event(number, record, collector) for number, record in enumerate(records, 1)]
    if options.memory:
        outermost = _outermost(records)
        starts = [record.start for record in outermost]
        for at, nbytes, _ in collector.memory.changes:
            place = bisect_right(starts, at) - 1
            if place < 0 or at > outermost[place].end:
                events.append(_change_of_memory(len(events) + 1, at, nbytes, collector))
    return canonical(events)


def _change_of_memory(number: int, at: int, nbytes: int, collector: Collector) -> FunctionEvent:
    """What was made or freed outside of all operations."""
    time, thread = (at - collector.began) / 1e3, collector.thread
    return FunctionEvent(
        number, MEMORY_EVENT_NAME, thread, time, time, fwd_thread=thread, input_shapes=[], stack=[], cpu_memory_usage=nbytes
    )  # fmt: skip


def _outermost(records: list[Record]) -> list[Record]:
    found: list[Record] = []
    for record in records:
        if not found or record.start > found[-1].end:
            found.append(record)
    return found


def _event(number: int, record: Record, collector: Collector) -> FunctionEvent:
    options, began = collector.options, collector.began
    event = FunctionEvent(
        number, _without_number(record.name), record.thread, (record.start - began) / 1e3, (record.end - began) / 1e3, overload_name="",
        fwd_thread=record.fwd_thread, input_shapes=[list(s) for s in record.shapes] if options.shapes else [], stack=record.stack,
        scope=record.scope, cpu_memory_usage=collector.memory.within(record.start, record.end) if options.memory else 0,
        sequence_nr=record.sequence, flops=record.flops, trace_name=record.name, concrete_inputs=list(record.inputs) if options.shapes else [],
        kwinputs={}, is_user_annotation=record.kind == "user_annotation", is_python_function=record.kind == "python_function",
        activity_type=record.kind,
    )  # fmt: skip
    event.records, event.reason = record.note.get("Records", []), record.note.get("Run because of")
    return event


def _without_number(name: str) -> str:
    """All steps of a loop have one name."""
    return "ProfilerStep*" if name.startswith("ProfilerStep#") else name
