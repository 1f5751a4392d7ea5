"""How much memory was in use over time, as files."""

from __future__ import annotations

import gzip
import json
from typing import Any


def write_timeline(path: str, collector: Any) -> None:
    """Write ``[times, bytes in use]`` in microseconds, or with ``.raw.json.gz`` every change as ``[nanoseconds, "CREATE" or "DESTROY", bytes]``.

    ValueError for a picture.
    """
    if path.endswith(".html"):
        raise ValueError("a picture of memory takes a library that draws: write a .json, [times, bytes], and draw it by whichever you have")
    changes = [(at - collector.began + collector.epoch_ns, nbytes) for at, nbytes, _ in collector.memory.changes]
    if path.endswith(".raw.json.gz"):
        made: Any = [[at, "CREATE" if nbytes > 0 else "DESTROY", abs(nbytes)] for at, nbytes in changes]
    else:
        times, sizes, total = [], [], 0
        for at, nbytes in changes:
            total += nbytes
            times.append(at // 1000)
            sizes.append(total)
        made = [times, sizes]
    with gzip.open(path, "wt") if path.endswith(".gz") else open(path, "w") as file:
        json.dump(made, file)
