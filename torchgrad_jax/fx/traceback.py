"""`torch.fx.traceback`: notes for the nodes that are made next."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

__all__ = [
    "annotate", "format_stack", "get_current_meta", "has_preserved_node_meta", "preserve_node_meta", "set_current_meta", "set_stack_trace",
]  # fmt: skip


class _State(threading.local):
    """meta: the notes; preserved: whether they are to be given to new nodes."""

    def __init__(self) -> None:
        self.meta: dict[str, Any] = {}
        self.preserved = False


_state = _State()


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Within the block, notes are to be kept."""
    before, meta = _state.preserved, dict(_state.meta)
    _state.preserved = enable
    try:
        yield
    finally:
        _state.preserved, _state.meta = before, meta


def has_preserved_node_meta() -> bool:
    """Whether notes are to be kept."""
    return _state.preserved


def set_stack_trace(stack: list[str]) -> None:
    """Let new nodes be from here."""
    if _state.preserved and stack:
        _state.meta["stack_trace"] = "".join(stack)


def format_stack() -> list[str]:
    """Where new nodes are from."""
    return [_state.meta["stack_trace"]] if _state.preserved and "stack_trace" in _state.meta else []


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Within the block, notes have these under "custom" too."""
    before = dict(_state.meta)
    _state.meta["custom"] = {**before.get("custom", {}), **annotation_dict}
    try:
        yield
    finally:
        _state.meta = before


@contextlib.contextmanager
def set_current_meta(node: Any, pass_name: str = "") -> Iterator[None]:
    """Within the block, the notes are those of a node."""
    before = _state.meta
    if _state.preserved and node.meta:
        _state.meta = dict(node.meta)
    try:
        yield
    finally:
        _state.meta = before


def get_current_meta() -> dict[str, Any]:
    """The notes."""
    return _state.meta
