"""The fields of what there are most of, tensors and nodes: classes of nothing else, so that compiled code reads them without asking Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchgrad_jax.runtime.value import Value


class TensorFields:
    """See Tensor."""

    __slots__ = ("_value", "_storage", "_view", "_rg", "_node", "_nr", "_extra")
    _value: Value
    _storage: Any
    _view: Any
    _rg: bool
    _node: Any
    _nr: int
    _extra: Any


class NodeFields:
    """See Node."""

    __slots__ = ("next", "seq", "hooks")
    next: tuple[Any, ...]
    seq: int
    hooks: Any


class OpNodeFields(NodeFields):
    """See OpNode."""

    __slots__ = ("plan", "saved")
    plan: Any
    saved: tuple[Any, ...] | None
