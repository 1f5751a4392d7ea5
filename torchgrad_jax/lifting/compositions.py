"""Functions of the library's own that are made of many operations: from the third call of a kind on, where no graph follows, they are one.

Working out what attention of several heads comes to takes as long in Python as PyTorch takes for all of it. What it records is told by the shapes,
dtypes and order in memory of its tensors, by which of them are one tensor, and by its other arguments, whatever the tensors hold: so it is rehearsed
once for each of these, and then recorded as one operation (`remembered.py`, without asking whether a function is pure, which is known of ours).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NamedTuple

from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.lifting.remembered import NEVER, ONCE, recorded_again
from torchgrad_jax.lifting.replaced import state
from torchgrad_jax.runtime import modes, user_code
from torchgrad_jax.runtime.recorder import Recorder, per_thread

MOST_KEPT = 512
_PLAIN = frozenset((type(None), bool, int, float, str))


class _Given(NamedTuple):
    """What a call of ours reaches: its tensors."""

    tensors: list[Any]
    containers: tuple[()] = ()


def composition(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors, numbers and strings, and of tuples and lists of these, that reads nothing else and writes nothing, and whose results are
    tensors of their own or None. What looks at a value, or draws random numbers, is done in full each time."""
    known: dict[Any, Any] = {}

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        rec = per_thread.recorder
        if rec.grad_enabled or rec.rare or rec.inference or type(rec) is not Recorder or modes.execution == "eager":
            return function(*args, **kwargs)
        tensors: list[Any] = []
        parts: list[Any] = [dtypes.get_default_dtype(), modes.matmul_precision, state(), *kwargs]
        if not (_add(args, parts, tensors) and _add(kwargs.values(), parts, tensors)):
            return function(*args, **kwargs)
        key = tuple(parts)
        if key not in known:
            if len(known) >= MOST_KEPT:
                known.clear()
            said = user_code.said
            made = function(*args, **kwargs)
            known[key] = ONCE if user_code.said == said else NEVER  # what warns is to warn again
            return made
        return recorded_again(known, key, rec, function, args, kwargs, _Given(tensors), [t._read() for t in tensors])

    return call


def _add(given: Iterable[Any], key: list[Any], tensors: list[Any]) -> bool:
    """Add to a key what tells arguments from others, and to `tensors` theirs, each once. Whether nothing else among them could tell more."""
    for a in given:
        kind = type(a)
        if kind is Tensor or kind is Parameter:
            place = next((i for i, t in enumerate(tensors) if t is a), -1)
            if place < 0:
                place = len(tensors)
                tensors.append(a)
                key.append((a._aval, None if a._view is None else a._strides()))
            key.append(place)
        elif kind in _PLAIN:
            key.append((kind, a))
        elif kind is tuple or kind is list:
            key.append((kind, len(a)))
            if not _add(a, key, tensors):
                return False
        else:
            return False
    return True
