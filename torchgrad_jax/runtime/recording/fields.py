"""The fields of a Signature that each operation reads, and of a Program and its Form that each run does: classes of nothing else, so that compiled
code reads them without asking Python."""

from __future__ import annotations

from typing import Any


class ProgramFields:
    """See Program."""

    __slots__ = ("form", "seen", "repeats")
    form: Any
    seen: int
    repeats: int


class FormFields:
    """See Form."""

    __slots__ = ("function", "ahead", "used", "spent")
    function: Any
    ahead: bool
    used: int
    spent: float


class CallFields:
    """See Step and `structure.Call`."""

    __slots__ = ("signature", "args", "numbers", "slot", "end")
    signature: Any
    args: tuple[Any, ...]
    numbers: tuple[tuple[str, int], ...]
    slot: Any
    end: int


class SignatureFields:
    """See Signature."""

    __slots__ = ("bop", "avals", "single", "check", "plans", "nbytes", "numbered", "cut", "kind")
    bop: Any
    avals: tuple[Any, ...]
    single: bool
    check: Any
    plans: dict[Any, Any]
    nbytes: int
    numbered: bool
    cut: Any
    kind: Any
