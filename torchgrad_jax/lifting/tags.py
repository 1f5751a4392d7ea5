"""By which number it shows that a dict was written to: CPython, up to 3.13, gives it another one each time. Compiled, `tags.pxd` reads it."""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable
from typing import Any

# Where it lies in a dict, after what every object has and the number of its items.
_PLACE = object.__basicsize__ + ctypes.sizeof(ctypes.c_ssize_t)
# The dicts that were asked about, which are kept, and where their numbers are read.
_read: dict[int, tuple[dict[str, Any], memoryview]] = {}


def tag_of(names: dict[str, Any]) -> int:
    """The number that this dict has had since it was last written to."""
    found = _read.get(id(names))
    if found is None:
        number = ctypes.c_uint64.from_address(id(names) + _PLACE)
        found = _read[id(names)] = names, memoryview(number).cast("B").cast("Q")
    return found[1][0]


def _told(write: Callable[[dict[str, Any]], Any]) -> bool:
    names: dict[str, Any] = {"first": 1, "second": 2}
    before = tag_of(names)
    if tag_of(names) != before:
        return False
    write(names)
    return tag_of(names) != before


# Whether there are such numbers, each the only one of its kind.
ARE_THERE = (
    sys.implementation.name == "cpython" and sys.version_info < (3, 14) and sys.maxsize > 2**32 and not sysconfig.get_config_var("Py_GIL_DISABLED")
    and all(map(_told, (lambda d: d.update(first=3), lambda d: d.__setitem__("third", 3), lambda d: d.pop("first"))))
    and tag_of({"first": 1}) != tag_of({"second": 1})
)  # fmt: skip
