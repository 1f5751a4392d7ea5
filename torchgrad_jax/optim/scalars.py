"""Numbers that are tensors: settings of groups, and 0-dim tensors of states, which the host keeps wherever it can.

A count of steps that were an operation's result would have to be waited for to be computed with. It is the host's instead: each step it gets a new
content that is a constant, and nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import overwrite
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Value, constant, is_tracer, watches


def settings_of(group: dict[str, Any]) -> SimpleNamespace:
    """The settings of a group: numbers in place of tensors whose values are at hand, unless a graph is to lead to them."""
    found = SimpleNamespace(maximize=False, fused=False)
    vars(found).update({k: v if type(v) in _AS_THEY_ARE else _setting(v) for k, v in group.items() if k not in ("params", "param_names")})
    found.fused = bool(found.fused)
    level = per_thread.recorder.level
    if level is not None and type(group.get("lr")) is float:
        lr = level.renewed(group, "lr")
        found.lr = found.lr if lr is None else lr
    return found


_AS_THEY_ARE = frozenset((float, int, bool, type(None)))


def _setting(v: Any) -> Any:
    if isinstance(v, Tensor):
        known = None if per_thread.recorder.grad_enabled else v._read().at_hand()
        return (v.reshape(()) if v.dim() else v) if known is None or is_tracer(known) else known.item()
    if isinstance(v, (float, np.floating)):
        return float(v)
    return tuple(map(_setting, v)) if type(v) in (tuple, list) else v


def by_scalars(names: Sequence[str], states: Sequence[dict[str, Any]]) -> list[tuple[SimpleNamespace, list[int]]]:
    """The different scalars, and which states have them."""
    found: dict[Any, tuple[SimpleNamespace, list[int]]] = {}
    read: dict[Value, float | None] = {}
    for i, state in enumerate(states):
        scalars: list[Any] = []
        for name in names:
            t = state[name]
            value = t._value if t._storage is None else t._read()
            if value not in read:
                read[value] = _number_of(value)
            number = read[value]
            scalars.append(t if number is None else number)
        key = tuple(scalars)
        if key not in found:
            found[key] = SimpleNamespace(**dict(zip(names, scalars, strict=True))), []
        found[key][1].append(i)
    return list(found.values())


def _number_of(value: Value) -> float | None:
    array = value.at_hand()
    if array is None:
        if value.aval.device.type != "cpu" or is_tracer(value.array) or any(w.hides(value) for w in watches):
            return None
        array = np.asarray(value.concrete())
    return float(array)


def write_scalars(c: SimpleNamespace, before: dict[str, Any], states: Sequence[dict[str, Any]]) -> None:
    """Put the scalars that are not what they were `before` into the states; they are then what these hold."""
    rare = per_thread.recorder.rare
    for name, number in vars(c).items():
        if number is before[name]:
            continue
        if isinstance(number, Tensor):
            for state in states:
                state[name].copy_(number)
            setattr(c, name, states[0][name])
            continue
        made: dict[Any, Value] = {}
        for state in states:
            t = state[name]
            aval = t._aval
            value = made.get(aval)
            if value is None:
                value = made[aval] = constant(np.asarray(number, aval.dtype), aval)
            if t._storage is None and not rare:  # nobody shares it, so that the Value may be everybody's
                t._value = value
            else:
                overwrite(t, constant(value.array, aval))
        setattr(c, name, float(value.array))


def number_of(t: Tensor) -> float | None:
    """The number that a tensor of one element is; None where it may not be looked at, and where a device would have to be waited for."""
    return _number_of(t._read())


def set_number(t: Tensor, number: Any) -> None:
    """Let a tensor of one element be a number, or what another tensor is."""
    if isinstance(number, Tensor) or t._aval.device.type != "cpu":
        t.fill_(number)
    else:
        overwrite(t, constant(np.full(t._aval.shape, number, t._aval.dtype), t._aval))
