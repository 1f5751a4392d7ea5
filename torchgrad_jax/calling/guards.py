"""The guards themselves, and their short ways: see `overrides.py`, which puts them around what is public. Compiled where there is a compiler.

Every call of a public function comes by one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from torchgrad_jax.calling.entries import Calls
from torchgrad_jax.calling.recalled import recall
from torchgrad_jax.core.elements import put_at_hand, put_quickly
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.core.viewing import indexed, picked_beside
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.device import CPU, device
from torchgrad_jax.runtime.recorder import FUNCTIONS

# Types that answer no calls. Lists and tuples are not among them: they may hold what does.
PLAIN = frozenset({
    Tensor, Parameter, int, float, bool, complex, str, bytes, type(None), slice, type(Ellipsis), Size, dtypes.dtype, device, np.ndarray,
    range, type, *FUNCTIONS,
})  # fmt: skip


class Active:
    """How many modes are active in all threads: guards read this first, because looking into a thread's own state costs more."""

    __slots__ = ("modes",)

    def __init__(self) -> None:
        self.modes = 0


class Ways:
    """The long ways of the guards, which `overrides.py` puts here.

    at_first(public, implementation, args, kwargs, kinds): a call whose types are new, or while a mode is active. looked_through(public,
    implementation, args, kwargs, settled): a call with sequences, or with `out`. answer(public, implementation, args, kwargs): a mode or an
    argument's class is asked.
    """

    __slots__ = ("at_first", "looked_through", "answer")
    at_first: Callable[..., Any]
    looked_through: Callable[..., Any]
    answer: Callable[..., Any]


active = Active()
ways = Ways()
_active, _ways = active, ways  # typed, where this is compiled


def hold_plain(arguments: Iterable[Any]) -> bool:
    """Whether the arguments are plain or sequences of what is."""
    for a in arguments:
        kind = type(a)
        if kind not in PLAIN:
            if kind is not tuple and kind is not list:
                return False
            for b in a:
                if type(b) not in PLAIN:
                    return False
    return True


def _kinds(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    found: list[Any] = [type(a) for a in args]
    if kwargs:
        found.extend(kwargs)
        found.extend([type(a) for a in kwargs.values()])
    return tuple(found)


def around(implementation: Callable[..., Any], public: Any, calls: Calls | None = None) -> Callable[..., Any]:
    """The guard of a function of any arguments. calls: see `recalls`."""
    known: dict[Any, bool] = public.known

    def call(*args: Any, **kwargs: Any) -> Any:
        kinds = _kinds(args, kwargs)
        settled = known.get(kinds)
        if settled is None or _active.modes:
            return _ways.at_first(public, implementation, args, kwargs, kinds)
        if not settled or (kwargs and kwargs.get("out") is not None):
            return _ways.looked_through(public, implementation, args, kwargs, settled)
        return implementation(*args, **kwargs)

    return call if calls is None else _recalled(calls, call)


def _recalled(calls: Calls, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def recalled(*args: Any, **kwargs: Any) -> Any:
        return recall(calls, otherwise, args, kwargs)

    return recalled


def around_item(implementation: Callable[..., Any], public: Any) -> Callable[..., Any]:
    """The guard of `__getitem__`."""

    def call(self: Any, key: Any) -> Any:
        kind = type(self)
        if (kind is Tensor or kind is Parameter) and not _active.modes and (type(key) in PLAIN or (type(key) is tuple and hold_plain(key))):
            of = type(key)
            if of is tuple or of is int or of is slice:
                found = indexed(self, key if of is tuple else (key,))
                if found is None and of is tuple and self._aval.device is CPU:
                    found = picked_beside(self, key)
                if found is not None:
                    return found
            return implementation(self, key)
        return _ways.answer(public, implementation, (self, key), {})

    return call


def around_put(implementation: Callable[..., Any], public: Any) -> Callable[..., Any]:
    """The guard of `__setitem__`."""
    otherwise = around(implementation, public)

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 3 and not kwargs and not _active.modes:
            self, key, value = args
            kind, of, given = type(self), type(key), type(value)
            plainly = (kind is Tensor or kind is Parameter) and (given is Tensor or given is float or given is int or given is bool)
            if plainly and (of is int or of is tuple or of is slice):
                keys = key if of is tuple else (key,)
                if put_at_hand(self, keys, value) or put_quickly(self, keys, value):
                    return None
        return otherwise(*args, **kwargs)

    return call


def around_look(implementation: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """The guard of a method without arguments. otherwise: that of any arguments."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and type(args[0]) is Tensor and not kwargs and not _active.modes:
            return implementation(args[0])
        return otherwise(*args, **kwargs)

    return call


def around_factory(
    implementation: Callable[..., Any], public: Any, at_first: Callable[..., Any], calls: Calls | None = None, looks: bool = False
) -> Callable[..., Any]:
    """The guard of a factory. calls: see `recalls`. looks: whether sequences among its arguments may hold what answers; else they are data."""
    known: dict[Any, bool] = public.known

    def call(*args: Any, **kwargs: Any) -> Any:
        kinds = _kinds(args, kwargs)
        if _active.modes:
            return _ways.answer(public, implementation, args, kwargs)
        settled = known.get(kinds)
        if settled is None or (looks and not settled and not hold_plain(args)):
            return at_first(public, implementation, args, kwargs, kinds)
        return implementation(*args, **kwargs)

    return call if calls is None else _recalled(calls, call)


def around_getter(fget: Callable[[Any], Any], public: Any) -> Callable[[Any], Any]:
    """The guard of an attribute that is read."""

    def get(self: Any) -> Any:
        kind = type(self)
        if (kind is Tensor or kind is Parameter) and not _active.modes:
            return fget(self)
        return _ways.answer(public, fget, (self,), {})

    return get


def around_setter(fset: Callable[[Any, Any], None], public: Any) -> Callable[[Any, Any], None]:
    """The guard of an attribute that is set."""

    def put(self: Any, value: Any) -> None:
        kind = type(self)
        if (kind is Tensor or kind is Parameter) and not _active.modes and (value is None or type(value) in PLAIN):
            fset(self, value)
        else:
            _ways.answer(public, fset, (self, value), {})

    return put
