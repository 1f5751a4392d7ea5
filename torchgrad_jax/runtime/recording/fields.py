"""The fields of a Signature that each operation reads: a class of nothing else, so that compiled code reads them without asking Python."""

from __future__ import annotations

from typing import Any


class SignatureFields:
    """See Signature."""

    __slots__ = ("bop", "avals", "single", "check", "plans", "nbytes", "numbered")
    bop: Any
    avals: tuple[Any, ...]
    single: bool
    check: Any
    plans: dict[Any, Any]
    nbytes: int
    numbered: bool
