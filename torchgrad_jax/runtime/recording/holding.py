"""Which of the Values that a recorder keeps somebody else refers to as well: only those need a result. Compiled, `holding.pxd` counts."""

from __future__ import annotations

from itertools import compress
from sys import getrefcount
from typing import Any

# How many references `getrefcount` sees of what only a dict or a list holds. Measured, not assumed: newer interpreters count borrowed references
# differently.
UNHELD = next(iter(map(getrefcount, [object()])))
_above_unheld = UNHELD.__lt__


def held(values: dict[int, Any]) -> bytes:
    """For each of `values` 1 where it is held by somebody beside this dict, else 0."""
    return bytes(map(_above_unheld, map(getrefcount, values.values())))


def with_aliased(alive: bytes, aliases: list[Any]) -> bytes:
    """What is `held`, and what has an alias that is. The other aliases are forgotten."""
    flags = bytes(map(_above_unheld, map(getrefcount, aliases)))  # before anything else refers to them
    aliases[:] = compress(aliases, flags)
    found = bytearray(alive)
    for twin in aliases:
        found[twin.slot] = 1
    return bytes(found)
