"""`torch.torch_version`: a version as a string that compares as versions do. `PYTORCH` is the PyTorch that this package follows."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["TorchVersion"]

PYTORCH = "2.13.0"
_PARTS = re.compile(
    r"v?(?P<release>\d+(?:\.\d+)*)(?:[-_.]?(?P<pre>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<n>\d*))?(?:(?:[-_.]?post[-_.]?|-)(?P<post>\d+))?"
    r"(?:[-_.]?dev[-_.]?(?P<dev>\d*))?(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.IGNORECASE,
)
_KINDS = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}


def _key(text: str) -> tuple[Any, ...] | None:
    """What versions are ordered by (PEP 440); None for what is none."""
    found = _PARTS.fullmatch(text.strip())
    if found is None:
        return None
    release = [int(n) for n in found["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    dev = None if found["dev"] is None else int(found["dev"] or 0)
    if found["pre"]:
        kind = found["pre"].lower()
        pre: tuple[Any, ...] = (1, _KINDS.get(kind, kind), int(found["n"] or 0))
    else:
        pre = (0,) if dev is not None and found["post"] is None else (2,)
    local = [(1, int(part), "") if part.isdigit() else (0, 0, part.lower()) for part in re.split(r"[-_.]", found["local"] or "") if part]
    return release, pre, int(found["post"] or -1), (1, 0) if dev is None else (0, dev), bool(local), local


class TorchVersion(str):
    """A version as `torch.__version__` is one: compares with strings, and with tuples of numbers, as versions; a string that is no version is
    compared letter by letter."""

    def _compared(self, other: Any, compare: Any) -> Any:
        if isinstance(other, (tuple, list)):
            other = ".".join(map(str, other))
        if not isinstance(other, str):
            return NotImplemented
        mine, theirs = _key(self), _key(other)
        return compare(str(self), str(other)) if mine is None or theirs is None else compare(mine, theirs)

    def __lt__(self, other: Any) -> bool:
        return self._compared(other, lambda a, b: a < b)

    def __le__(self, other: Any) -> bool:
        return self._compared(other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> bool:
        return self._compared(other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> bool:
        return self._compared(other, lambda a, b: a >= b)

    def __eq__(self, other: Any) -> bool:
        return self._compared(other, lambda a, b: a == b)

    __ne__ = str.__ne__  # PyTorch's `!=` is a string's
    __hash__ = str.__hash__
