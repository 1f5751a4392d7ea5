"""A step of a merged program."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Call(NamedTuple):
    function: Any
    operands: list[int]
    results: list[int]
    fresh: bool = False
    overwriting: Mapping[int, Any] = MappingProxyType({})
