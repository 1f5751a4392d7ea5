"""Traces of nvprof, which are databases of SQLite: ranges as events, with the kernels that were launched within them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from torchgrad_jax.profiler.event_list import EventList
from torchgrad_jax.profiler.events import FunctionEvent, StringTable

# What nvprof calls the launch of a kernel.
LAUNCH = 211


class EnforceUnique:
    """Raises RuntimeError where a key is seen a second time."""

    def __init__(self) -> None:
        self.seen: set[tuple[Any, ...]] = set()

    def see(self, *key: Any) -> None:
        """Note a key."""
        if key in self.seen:
            raise RuntimeError("duplicate key: " + str(key))
        self.seen.add(key)


def load_nvprof(path: str) -> EventList:
    """The ranges of a trace that nvprof has written, with their kernels. See `parse_nvprof_trace`."""
    return EventList(parse_nvprof_trace(path))


def parse_nvprof_trace(path: str) -> list[FunctionEvent]:
    """The ranges of a trace as events, in the order in which they began.

    path: a file that ``nvprof -o`` has written; it is only read. Times are the file's own numbers, as PyTorch takes them: nvprof counts nanoseconds.

    FileNotFoundError where there is no such file; sqlite3.DatabaseError where it is no database, OperationalError where nvprof has not written it;
    RuntimeError for ranges or kernels that are there twice, AssertionError for what runs on a device and is no kernel.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no trace of nvprof at {str(path)!r}")
    with _opened(path) as rows:
        strings = StringTable()
        names = {row["id"]: strings[row["value"]] for row in rows("SELECT _id_ AS id, value FROM StringTable")}
        events = _ranges(rows, names)
        _add_kernels(rows, names, {event.id: event for event in events})
    return sorted(events, key=lambda event: event.time_range.start)


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    """What gives the rows of a query."""
    with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row

        def rows(query: str) -> list[sqlite3.Row]:
            try:
                return database.execute(query).fetchall()
            except sqlite3.DatabaseError as error:
                raise type(error)(f"{error}: {str(path)!r} is no trace that nvprof has written") from None

        yield rows


def _ranges(rows: Any, names: dict[int, str]) -> list[FunctionEvent]:
    unique, events = EnforceUnique(), []
    # A range has two markers of one number: the first has its name, the second none.
    for row in rows("""
        SELECT start.id AS marker, start.name AS name, start.timestamp AS began, finish.timestamp AS ended
        FROM CUPTI_ACTIVITY_KIND_MARKER AS start INNER JOIN CUPTI_ACTIVITY_KIND_MARKER AS finish
        ON start.id = finish.id WHERE start.name != 0 AND finish.name = 0
    """):
        unique.see(row["marker"])
        name = names.get(row["name"])
        if name is None:
            raise RuntimeError(f"range {row['marker']} has the name {row['name']}, which the trace's StringTable has not")
        events.append(FunctionEvent(row["marker"], name, 0, row["began"], row["ended"], node_id=0))
    return events


def _add_kernels(rows: Any, names: dict[int, str], events: dict[int, FunctionEvent]) -> None:
    unique = EnforceUnique()
    for row in rows("""
        SELECT start.id AS marker, runtime._id_ AS launch, runtime.cbid AS cbid, kernel.start AS began, kernel.end AS ended, kernel.name AS name
        FROM CUPTI_ACTIVITY_KIND_MARKER AS start
        INNER JOIN CUPTI_ACTIVITY_KIND_MARKER AS finish ON start.id = finish.id
        INNER JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS runtime ON start.timestamp < runtime.start AND runtime.end < finish.timestamp
        INNER JOIN CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL AS kernel ON kernel.correlationId = runtime.correlationId
        WHERE start.name != 0 AND finish.name = 0
        ORDER BY start.id, kernel.start
    """):
        unique.see(row["marker"], row["launch"])
        if row["cbid"] != LAUNCH:
            raise AssertionError(f"Expected cbid to be {LAUNCH}, but got {row['cbid']}")
        events[row["marker"]].append_kernel(names.get(row["name"], str(row["name"])), 0, row["ended"] - row["began"])
