"""Autocast: operators that cast their operands, each as PyTorch's table for the type of device says (`declaration/autocast.py`).

It is a setting of the thread. While it is on `Flags.casting` is set, and `Recorder.rare` has a bit for it: dispatch takes its long way, where `apply`
has the operands cast, before levels are asked; outside nobody asks. Casts are operations like any other. What is one operator in PyTorch and a
function here, perhaps of several operators, casts its arguments as a whole (`as_one_operator`, by the guards of public functions).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.autocast import BY_DEFAULT, FLOAT32, LISTED, LOWER, REFUSED, policies
from torchgrad_jax.operators.pointwise import cast_to
from torchgrad_jax.runtime.recorder import Recorder, per_thread, settle_autocast

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


class Autocast:
    """A thread's settings of autocast.

    on: the types of devices for which it is on; dtypes: what lower precision is there, where that was set. keeps: whether conversions of leaves are
    kept (`Flags.casts`) until the outermost block of autocast ends; nesting: how many blocks are open.
    """

    __slots__ = ("on", "dtypes", "keeps", "nesting")

    def __init__(self) -> None:
        self.on: frozenset[str] = frozenset()
        self.dtypes: dict[str, dtypes.dtype] = {}
        self.keeps = True
        self.nesting = 0

    def dtype(self, where: str) -> dtypes.dtype | None:
        """What lower precision is on a type of device; None where there is none."""
        return self.dtypes.get(where) or BY_DEFAULT.get(where)

    def switch(self, rec: Recorder, where: str, on: bool) -> None:
        """Turn it on or off for a type of device."""
        self.on = self.on | {where} if on else self.on - {where}
        _set_casting(rec, self if self.on else None)

    @property
    def key(self) -> Any:
        """What tells it from other settings, as far as values are concerned."""
        return (self.on, *[self.dtype(where) for where in sorted(self.on)])

    def operands(self, bound: Any, operands: Sequence[Any]) -> Sequence[Any]:
        """The operands of an operation as its operator wants them."""
        operator = getattr(bound, "operator", None)
        return operands if operator is None else self.cast(operator.name, operands)

    def cast(self, name: str, given: Sequence[Any]) -> Sequence[Any]:
        """The tensors among `given`, and in lists there, as the operator `name` wants them. RuntimeError where it wants none while autocast is on."""
        if name not in LISTED:
            return given
        where = next((x._aval.device.type for x in given if isinstance(x, Tensor)), None)
        if where not in self.on or (policy := policies(where).get(name)) is None:
            return given
        if policy == REFUSED:
            raise RuntimeError(_UNSAFE)
        lower: Any = self.dtype(where)
        target = _SINGLE if policy == FLOAT32 else lower.np if policy == LOWER else self._widest(given, where, lower.np)

        def converted(x: Any) -> Any:
            if type(x) in (list, tuple):
                return type(x)(map(converted, x))
            return self._converted(x, target, lower.np) if _is_eligible(x, where) else x

        return [converted(x) for x in given]

    def _widest(self, given: Sequence[Any], where: str, lower: np.dtype) -> np.dtype:
        found = {x._aval.dtype for x in given if _is_eligible(x, where)}
        if found - {_SINGLE, lower}:
            raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
        return _SINGLE if _SINGLE in found else lower

    def _converted(self, t: Tensor, target: np.dtype, lower: np.dtype) -> Tensor:
        if t._aval.dtype == target:
            return t
        rec = per_thread.recorder
        leaf = t._rg and t.is_leaf and t._view is None and t._aval.dtype == _SINGLE and target == lower
        if not (leaf and self.keeps) or rec.inference or (rec.level is not None and not rec.level.notes):
            return apply(cast_to(target), (t,))
        casts = rec.flags.casts
        if id(t) not in casts:
            before, rec.grad_enabled = rec.grad_enabled, True  # it may be used again where gradients are wanted
            try:
                casts[id(t)] = apply(cast_to(target), (t,))  # whose graph keeps `t` alive, and with it its id
            finally:
                rec.grad_enabled = before
        return casts[id(t)]


_UNSAFE = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\nMany models use a sigmoid layer right before the binary "
    "cross entropy layer.\nIn this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\nor "
    "torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\nsafe to autocast."
)


def _is_eligible(x: Any, where: str) -> bool:
    """Whether autocast for a type of device converts `x`: double precision, like all that is not real, stays as it is."""
    return isinstance(x, Tensor) and x._aval.dtype != _DOUBLE and dtypes.category(x._aval.dtype) == dtypes.FLOAT and x._aval.device.type == where


def autocast_of(rec: Recorder) -> Autocast:
    """The settings of a recorder's thread."""
    found = rec.flags.autocast
    if found is None:
        found = rec.flags.autocast = Autocast()
    return found


def autocast_key(rec: Recorder) -> Any:
    """What autocast adds to the key of something that is computed otherwise under it."""
    return rec.flags.casting and rec.flags.casting.key


def _set_casting(rec: Recorder, casting: Autocast | None) -> None:
    rec.flags.casting = casting
    settle_autocast(rec)


class Under:
    """A block with the settings of autocast that a thread had when this was made; without any, one where it is off. One after the other."""

    __slots__ = ("_settings", "_before")

    def __init__(self, present: bool = True) -> None:
        self._settings = _settings(per_thread.recorder) if present else (frozenset[str](), {}, True)

    def __enter__(self) -> None:
        rec = per_thread.recorder
        self._before = _settings(rec)
        autocast_of(rec).nesting += 1
        _set(rec, *self._settings)

    def __exit__(self, *exc: object) -> None:
        rec = per_thread.recorder
        autocast = autocast_of(rec)
        autocast.nesting -= 1
        if not autocast.nesting:
            rec.flags.casts.clear()
        _set(rec, *self._before)


def _settings(rec: Recorder) -> tuple[frozenset[str], dict[str, dtypes.dtype], bool]:
    autocast = rec.flags.autocast
    return (frozenset(), {}, True) if autocast is None else (autocast.on, dict(autocast.dtypes), autocast.keeps)


def _set(rec: Recorder, on: frozenset[str], lower: dict[str, dtypes.dtype], keeps: bool) -> None:
    autocast = autocast_of(rec)
    autocast.on, autocast.dtypes, autocast.keeps = on, lower, keeps
    _set_casting(rec, autocast if on else None)


def without_casts(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, whose operations cast nothing."""
    rec = per_thread.recorder
    casting = rec.flags.casting
    if casting is None:
        return function(*args, **kwargs)
    try:
        _set_casting(rec, None)
        return function(*args, **kwargs)
    finally:
        _set_casting(rec, casting)


def as_one_operator(function: Any, name: str) -> Any:
    """A function that is one operator in PyTorch, of this name, and may be several operations: under autocast it casts its arguments, and its
    operations cast nothing. With `out=` none is cast. The function itself where no list has the name, or it does so already."""
    if name not in LISTED or hasattr(function, "casts_for"):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        casting = per_thread.recorder.flags.casting
        if casting is None:
            return function(*args, **kwargs)
        if kwargs.get("out") is None:
            given = (*args, *kwargs.values())
            cast = casting.cast(name, given)
            if cast is given:  # no list of this type of device has it
                return function(*args, **kwargs)
            args, kwargs = tuple(cast[: len(args)]), dict(zip(kwargs, cast[len(args) :], strict=True))
        return without_casts(function, *args, **kwargs)

    call.casts_for = function  # type: ignore[attr-defined] - how it may be called
    return call
