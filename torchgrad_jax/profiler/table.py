"""Tables of events, in PyTorch's columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.profiler.events import DeviceType, format_memory, format_time, format_time_share

_WIDTH, _GAP = 12, 2
_OLD_NAMES = ("cuda", "xpu", "privateuse1")


class Column:
    """A column: its title, its width, what stands in it for an event, and whether it stands to the left."""

    def __init__(self, title: str, width: int, text: Callable[[Any], str], left: bool = False) -> None:
        self.title, self.width, self.text, self.left = title, width, text, left

    def cell(self, text: str) -> str:
        """A text in this column."""
        return (text.ljust(self.width) if self.left else text.rjust(self.width)) + " " * _GAP


def build_table(
    events: Any, sort_by: str | None, row_limit: int, max_src: int | None, max_name: int | None, max_shapes: int | None, header: str | None,
    top_level_only: bool, time_unit: str | None,
) -> str:  # fmt: skip
    """`EventList.table`."""
    if not events:
        return ""
    use_device, memory, flops = events._use_device, events._profile_memory, events._with_flops
    totals = _Totals(events)
    rows = list(events)
    if sort_by is not None:
        rows.sort(key=lambda event: getattr(event, _attribute(sort_by)), reverse=True)
    columns = _columns(rows, use_device, memory, flops, (max_name, max_src, max_shapes), totals, time_unit)
    return "".join(_lines(rows, columns, row_limit, header, top_level_only, totals, time_unit))


class _Totals:
    """Microseconds of all events on the CPU and on a device."""

    def __init__(self, events: Any) -> None:
        self.device_name = events._use_device.upper() if events._use_device else None
        self.cpu = events.self_cpu_time_total
        self.device = sum([
            event.self_device_time_total for event in events
            if (event.device_type is DeviceType.CPU and event.is_legacy)
            or (event.device_type is not DeviceType.CPU and not getattr(event, "is_user_annotation", False))
        ])  # fmt: skip


def _attribute(sort_by: str) -> str:
    for name in _OLD_NAMES:
        sort_by = sort_by.replace(name, "device")
    return sort_by


def _columns(
    rows: list[Any], use_device: str | None, memory: bool, flops: bool, widths: tuple[int | None, ...], totals: _Totals, unit: str | None
) -> list[Column]:
    max_name, max_src, max_shapes = widths
    name = _cut_at(max([len(event.key) for event in rows]) + 4, max_name)

    def time(attribute: str) -> Callable[[Any], str]:
        return lambda event: format_time(getattr(event, attribute), unit)

    def number(attribute: str) -> Callable[[Any], str]:
        return lambda event: format_memory(getattr(event, attribute))

    found = [
        Column("Name", name, lambda event: _shortened(event.key, name, max_name)),
        Column("Self CPU %", _WIDTH, lambda e: _share(e, e.self_cpu_time_total, totals.cpu)),
        Column("Self CPU", _WIDTH, time("self_cpu_time_total")),
        Column("CPU total %", _WIDTH, lambda e: _share(e, e.cpu_time_total, totals.cpu)),
        Column("CPU total", _WIDTH, time("cpu_time_total")),
        Column("CPU time avg", _WIDTH, time("cpu_time")),
    ]
    if use_device is not None:
        device = totals.device_name
        found += [
            Column(f"Self {device}", _WIDTH, time("self_device_time_total")),
            Column(f"Self {device} %", _WIDTH, lambda e: format_time_share(e.self_device_time_total, totals.device)),
            Column(f"{device} total", _WIDTH, time("device_time_total")),
            Column(f"{device} time avg", _WIDTH, time("device_time")),
        ]
    if memory:
        found += [Column("CPU Mem", _WIDTH, number("cpu_memory_usage")), Column("Self CPU Mem", _WIDTH, number("self_cpu_memory_usage"))]
        if use_device is not None and any([event.device_memory_usage for event in rows]):
            found += [
                Column(f"{totals.device_name} Mem", _WIDTH, number("device_memory_usage")),
                Column(f"Self {totals.device_name} Mem", _WIDTH, number("self_device_memory_usage")),
            ]
    found.append(Column("# of Calls", _WIDTH, lambda event: str(event.count)))
    if any([event.node_id != -1 for event in rows]):
        found.append(Column("Node ID", _WIDTH, lambda event: str(event.node_id)))
    if any([event.overload_name for event in rows]):
        width = _cut_at(max([len(str(event.overload_name)) for event in rows]) + 4, max_name)
        found.insert(1, Column("Overload Name", width, lambda event: _shortened(str(event.overload_name), width, max_name)))
    if any([event.input_shapes for event in rows]):
        shapes = _cut_at(max([len(str(event.input_shapes)) for event in rows]) + 4, max_shapes)
        found.append(Column("Input Shapes", shapes, lambda event: str(event.input_shapes)[:shapes]))
    if any([event.stack for event in rows]):
        lines = max([max([len(line) for line in event.stack], default=0) for event in rows if event.stack])
        source = _cut_at(lines + 4, max_src)
        found.append(Column("Source Location", source, lambda event: "", left=True))
    if flops:
        factor, prefix = _scale([event.flops for event in rows if event.flops])
        found.append(Column(f"Total {prefix}FLOPs", _WIDTH, lambda event: f"{event.flops / factor:.3f}" if event.flops else "--"))
    return found


def _cut_at(width: int, most: int | None) -> int:
    return width if most is None else min(width, most)


def _shortened(text: str, width: int, most: int | None) -> str:
    return text if most is None or len(text) < width - 3 else text[: width - 3] + "..."


def _share(event: Any, time: float, total: float) -> str:
    return "0.00%" if event.is_async else format_time_share(time, total)


def _scale(flops: list[int]) -> tuple[float, str]:
    """By what floating-point operations are divided, so that the smallest count is readable."""
    if not flops:
        return 1.0, ""
    least = min(flops)
    place = max(0, min(5, (len(str(int(least))) - 1) // 3))
    return 1000.0**place, ["", "K", "M", "G", "T", "P"][place]


def _lines(
    rows: list[Any], columns: list[Column], row_limit: int, header: str | None, top_level_only: bool, totals: _Totals, unit: str | None
) -> Any:
    rule = "".join([column.cell("-" * column.width) for column in columns])
    width = sum([column.width + _GAP for column in columns]) - _GAP
    if header is not None:
        yield "=" * width + "\n" + header + "\n"
    if top_level_only:
        yield "=" * width + "\nThis report only display top-level ops statistics\n"
    yield f"{rule}\n{''.join([column.cell(column.title) for column in columns])}\n{rule}\n"
    source = next((place for place, column in enumerate(columns) if column.title == "Source Location"), None)
    for count, event in enumerate([event for event in rows if not (top_level_only and event.cpu_parent is not None)]):
        if count == row_limit:
            break
        cells = [column.text(event) for column in columns]
        if source is None:
            yield "".join([column.cell(cell) for column, cell in zip(columns, cells, strict=True)]) + "\n"
        else:
            yield from _with_source(columns, cells, source, event.stack or [])
    yield f"{rule}\nSelf CPU time total: {format_time(totals.cpu, unit)}\n"
    if totals.device_name is not None:
        yield f"Self {totals.device_name} time total: {format_time(totals.device, unit)}\n"


def _with_source(columns: list[Column], cells: list[str], source: int, stack: list[str]) -> Any:
    """A row with the lines of its stack below each other, and an empty row."""
    width = columns[source].width
    shown = [line if len(line) <= width else "..." + line[len(line) - width + 3 :] for line in stack[:5]]
    cells[source] = shown[0] if shown else ""
    yield "".join([column.cell(cell) for column, cell in zip(columns, cells, strict=True)]) + "\n"
    for line in [*shown[1:], ""]:
        yield "".join([column.cell(line if place == source else "") for place, column in enumerate(columns)]) + "\n"
