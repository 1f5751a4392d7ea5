"""Traces in Chrome's format, which chrome://tracing and Perfetto open: PyTorch's categories, arguments and arrows."""

from __future__ import annotations

import gzip
import json
import os
import platform
import sys
from typing import Any

from torchgrad_jax.profiler.events import DeviceType
from torchgrad_jax.profiler.records import shown_records


def write_events(path: str, events: Any) -> None:
    """`EventList.export_chrome_trace`: the events with their times, kernels and arrows from forward to backward."""
    made: list[dict[str, Any]] = []
    forward: dict[Any, Any] = {}
    pid = os.getpid()
    for event in events:
        if event.trace_name is None or event.device_type is not DeviceType.CPU:
            continue
        made.append(_complete(event.trace_name, "cpu_op", pid, event.thread, event.time_range.start, event.time_range.elapsed_us(), {}))
        if event.sequence_nr >= 0 and event.scope != 1:
            forward[event.sequence_nr, event.thread] = event
    flows = 0
    for event in events:
        begun = forward.get((event.sequence_nr, event.fwd_thread)) if event.scope == 1 else None
        if begun is not None:
            flows += 1
            made += _arrow(flows, pid, begun.thread, begun.time_range.start, event.thread, event.time_range.start)
        for place, kernel in enumerate(event.kernels):
            made += [
                _complete(kernel.name, "kernel", pid, f"device {kernel.device}", event.time_range.start, kernel.duration, {}),
            ] + _arrow(f"{event.id}.{place}", pid, event.thread, event.time_range.start, f"device {kernel.device}", event.time_range.start)
    _write(path, made)


def write_collected(path: str, collector: Any, trace_id: str, metadata: dict[str, Any]) -> None:
    """A profile that is over, as PyTorch writes it: operations, the user's ranges, memory, and an arrow from each forward operation to its backward
    function. Times are microseconds since the trace's `baseTimeNanoseconds`."""
    pid, tid = os.getpid(), collector.native_thread
    records = shown_records(collector)
    made = _names(pid, tid, _microseconds(collector, collector.began))
    made += [_event(number, record, collector, pid, tid) for number, record in enumerate(records, 1)]
    made += _arrows(records, collector, pid, tid)
    allocated = 0
    for at, nbytes, array in collector.memory.changes:
        allocated += nbytes
        args = {"Total Reserved": 0, "Total Allocated": max(allocated, 0), "Bytes": nbytes, "Device Id": -1, "Device Type": 0, "Addr": array}
        time = _microseconds(collector, at)
        made.append({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": pid, "tid": tid, "ts": time, "args": args})
    began, ended = _microseconds(collector, collector.began), _microseconds(collector, collector.ended)
    made.append(_complete("PyTorch Profiler (0)", "Trace", "Spans", "PyTorch Profiler", began, ended - began, {"Op count": 0}))
    made.append({"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": ended})
    options = collector.options
    kinds = {"record_shapes": options.shapes, "with_flops": options.flops, "profile_memory": options.memory, "with_stack": options.stack,
             "with_modules": options.modules}  # fmt: skip
    trace = {
        "schemaVersion": 1, "deviceProperties": [], **{name: 1 for name, on in kinds.items() if on}, "trace_id": trace_id,
        "host_name": platform.node(), **metadata, "displayTimeUnit": "ms", "baseTimeNanoseconds": BASE, "traceEvents": made, "traceName": str(path),
    }  # fmt: skip
    _write(path, trace)


# What times in traces count from.
BASE = 1_600_000_000_000_000_000


def _microseconds(collector: Any, at: int) -> float:
    return (at - collector.began + collector.epoch_ns - BASE) / 1e3


def _names(pid: int, tid: int, time: float) -> list[dict[str, Any]]:
    """What the process and its threads are called, and where viewers put them."""
    program = os.path.basename(sys.executable or "python")
    about = [
        ("process_name", 0, {"name": program}), ("process_labels", 0, {"labels": "CPU"}), ("process_sort_index", 0, {"sort_index": pid}),
        ("thread_name", tid, {"name": f"thread {tid} ({program})"}), ("thread_sort_index", tid, {"sort_index": tid}),
    ]  # fmt: skip
    return [{"ph": "M", "name": name, "ts": time, "pid": pid, "tid": at, "args": args} for name, at, args in about]


def _event(number: int, record: Any, collector: Any, pid: int, tid: int) -> dict[str, Any]:
    args: dict[str, Any] = {"External id": number, "Record function id": 0}
    if record.sequence >= 0:
        args |= {"Sequence number": record.sequence, "Fwd thread id": record.fwd_thread}
    if collector.options.shapes and record.kind == "cpu_op":
        args["Input Dims"] = [list(shape) for shape in record.shapes]
        args["Concrete Inputs"] = ["" if value is None else str(value)[:200] for value in record.inputs]
    elif record.inputs:
        args["Concrete Inputs"] = [str(value) for value in record.inputs]
    if record.stack:
        args["Call stack"] = ";".join(reversed(record.stack))
    if record.flops:
        args["Flops"] = record.flops
    args |= record.note
    args["Ev Idx"] = number - 1
    start = _microseconds(collector, record.start)
    return _complete(record.name, record.kind, pid, tid, start, (record.end - record.start) / 1e3, args)


def _arrows(records: list[Any], collector: Any, pid: int, tid: int) -> list[dict[str, Any]]:
    """From the innermost forward operation of each sequence number to the backward function that has it."""
    forward = {r.sequence: r for r in records if r.sequence >= 0 and not r.fwd_thread}
    made: list[dict[str, Any]] = []
    for record in records:
        if record.scope == 1 and record.sequence in forward:
            start = _microseconds(collector, forward[record.sequence].start)
            made += _arrow(len(made) // 2 + 1, pid, tid, start, tid, _microseconds(collector, record.start))
    return made


def _complete(name: str, category: str, pid: Any, tid: Any, start: float, duration: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": duration, "args": args}


def _arrow(id: Any, pid: Any, tid: Any, start: float, to_tid: Any, end: float) -> list[dict[str, Any]]:
    """From where something began to where it led: two events of one id."""
    common = {"id": id, "pid": pid, "cat": "fwdbwd", "name": "fwdbwd"}
    return [{"ph": "s", "tid": tid, "ts": start, **common}, {"ph": "f", "tid": to_tid, "ts": end, "bp": "e", **common}]


def _write(path: str, trace: Any) -> None:
    with gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w") as file:
        json.dump(trace, file)
