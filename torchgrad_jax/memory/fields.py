"""The fields of what describes memory: classes of nothing else, so that compiled code reads them without asking Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchgrad_jax.runtime.value import Value


class CounterFields:
    """See VersionCounter."""

    __slots__ = ("version", "writer")

    def __init__(self) -> None:
        self.version = 0
        self.writer: tuple[int, str] | None = None


class StorageFields:
    """See Storage. What reads `value` or `writes` of any Storage leaves it untyped: there are some that are told of it."""

    __slots__ = ("value", "counter", "writes", "siblings", "_address")
    value: Value
    counter: Any
    writes: int
    siblings: Any
    _address: int


class LinkFields:
    """See Link."""

    __slots__ = ("read", "write", "numbers")
    read: Any
    write: Any
    numbers: tuple[Any, ...]


class ViewFields:
    """See View."""

    __slots__ = ("base", "links", "skip", "seen", "node_seen", "strides", "offset", "made_in", "asked", "replay", "plain", "rows")
    base: Any
    links: tuple[Any, ...]
    skip: int
    seen: int
    node_seen: int
    strides: tuple[int, ...]
    offset: int
    made_in: str
    asked: bool
    replay: bool
    plain: bool | None
    rows: bool
