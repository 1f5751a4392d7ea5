"""What a call of the library has set in its thread is put back when it raises, wherever an interrupt came.

`with` and `finally` put a mode back where an exception passes through them. An interrupt may come just as they begin to do so, or while a mode is
being set. So the functions that users call and that open levels look once more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from torchgrad_jax.autograd import forward_ad
from torchgrad_jax.runtime.flags import Flags
from torchgrad_jax.runtime.recorder import TURNED, per_thread

_MODES = ("level", "rare", "grad_enabled", "inference")
_modes_of, _flags_of = attrgetter(*_MODES), attrgetter(*Flags.__slots__)


class _Repeating:
    """Where what calls functions that are `repeated` has its place, which `lifting/remembered.py` fills."""

    __slots__ = ("call",)

    def __init__(self) -> None:
        self.call: Callable[..., Any] = lambda rec, parts, body, args, kwargs: body(*args, **kwargs)


repeating = _Repeating()


class ThreadState:
    """The recorder, the modes and the levels of the calling thread."""

    __slots__ = ("recorder", "modes", "flags", "packing", "dual_level")

    def __init__(self) -> None:
        self.recorder = rec = per_thread.recorder
        self.modes, self.flags, self.packing = _modes_of(rec), _flags_of(rec.flags), tuple(rec.flags.packing)
        self.dual_level = forward_ad._current_level

    def put_back(self) -> None:
        """Let the thread have them again."""
        per_thread.recorder = rec = self.recorder
        for name, mode in zip(_MODES, self.modes, strict=True):
            setattr(rec, name, mode)
        for name, flag in zip(Flags.__slots__, self.flags, strict=True):
            setattr(rec.flags, name, flag)
        rec.flags.packing[:] = self.packing
        forward_ad._current_level = self.dual_level


def undisturbed(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which leaves its thread as it was where it raises."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = ThreadState()
        try:
            return function(*args, **kwargs)
        except BaseException:
            before.put_back()
            raise

    return call


def repeated(function: Callable[..., Any]) -> Callable[..., Any]:
    """`undisturbed`, for a function of a function and of tensors whose results have no history unless `create_graph` is set: where the function that
    it is given is pure, what it has recorded is recorded again from its third call on."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = ThreadState()
        rec = before.recorder
        try:
            if rec.rare or len(args) < 2 or any([a is True for a in args]) or kwargs.get("create_graph"):
                return function(*args, **kwargs)
            func = args[0]
            outs = repeating.call(rec, (function.__name__, func), lambda *rest, **options: function(func, *rest, **options), args[1:], kwargs)
            if rec.flags.task is None:
                rec.turned |= TURNED
            return outs
        except BaseException:
            before.put_back()
            raise

    return call
