"""`torch.ops.profiler`: ranges that begin by one call and end by another."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from torchgrad_jax._ops import OpOverloadPacket
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import tensor
from torchgrad_jax.profiler.recording import record_function

_numbers = itertools.count(1)
_open: dict[int, record_function] = {}


class _Range:
    """A range that has begun."""

    def __init__(self, name: str, args: str | None) -> None:
        self.range = record_function(name, args)
        self.range.__enter__()


class _Packet(OpOverloadPacket):
    """An operator of this namespace."""

    namespace = "profiler"

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function.__name__)
        self._function = function

    def called(self, *args: Any, **kwargs: Any) -> Any:
        """See OpOverloadPacket."""
        return self._function(*args, **kwargs)


@_Packet
def _record_function_enter_new(name: str, args: str | None = None) -> _Range:
    """Begin a range, which `_record_function_exit` ends."""
    return _Range(name, args)


@_Packet
def _record_function_enter(name: str, args: str | None = None) -> Tensor:
    """Begin a range. Its handle is a tensor, as it was in older versions of PyTorch."""
    number = next(_numbers)
    _open[number] = _Range(name, args).range
    return tensor([number])


@_Packet
def _record_function_exit(handle: Any) -> None:
    """End the range that a call with this result has begun. RuntimeError for anything else."""
    if isinstance(handle, _Range):
        handle.range.__exit__(None, None, None)
        return
    found = _open.pop(int(handle.item()), None) if isinstance(handle, Tensor) and handle.numel() == 1 else None
    if found is None:
        raise RuntimeError(
            "profiler::_record_function_exit() Expected what profiler::_record_function_enter() has returned for argument 'handle' but instead found "
            f"type '{type(handle).__name__}'."
        )
    found.__exit__(None, None, None)
