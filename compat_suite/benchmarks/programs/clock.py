"""What a program says of itself on its last line: how long it took after its imports, and what it computed.

The programs of this folder are started as scripts, so they import this module by its bare name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

MARK = "cold result: "  # before the line that the benchmark reads


def run(main: Callable[[], Mapping[str, Any]]) -> None:
    """Call `main`, which returns tensors and numbers by name, and print them with the seconds until all are on the host."""
    start = time.perf_counter()
    numbers = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in main().items()}
    say({"seconds": time.perf_counter() - start, "numbers": numbers})


def say(result: Mapping[str, Any]) -> None:
    """Print `result` for the benchmark."""
    print(MARK + json.dumps(result), flush=True)
