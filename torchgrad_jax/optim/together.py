"""A step's updates of many parameters as one operation.

What a step does to one parameter is an ordinary function of tensors, a formula. For parameters of the same structure it is always the same
operations, so from its second sighting on the formula is not run: it has been rehearsed once for all of them, without computing anything, and what
it recorded is recorded as one operation, of the tensors and of the numbers that change from step to step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from torchgrad_jax.autograd.batched import standing_for
from torchgrad_jax.core.history import repeats
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import memory_of, overwrite
from torchgrad_jax.optim.formula import Formula
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.composite import Composed, Looked, composed, rehearsing
from torchgrad_jax.runtime.recorder import Recorder, call_values, per_thread
from torchgrad_jax.runtime.recording.interrupts import from_outside
from torchgrad_jax.runtime.value import Value

MAX_KEPT = 256
# Of how many parameters one operation is to be at most: XLA would take long to compile more as one program.
MAX_ROWS = 500
_are_plain = frozenset((Tensor, Parameter)).issuperset
# Of a structure that was seen once, and of one whose formula must be run each time.
_ONCE, _NEVER = object(), object()
_kept: dict[Any, Any] = {}
# What stands in a key for what may be another number at the next step.
_ZERO, _NUMBER = object(), object()


class Whole:
    """The updates of several parameters as one operation. numbers: for each number among its operands which of the step's it is, or, where it is none
    of them, -1 and the number. fixed: the step's numbers that are none of its operands, by their places: it is right for just these. written: which
    of the tensors its results are the contents of."""

    __slots__ = ("found", "numbers", "fixed", "written")

    def __init__(self, found: Composed, numbers: Sequence[float], written: list[int]) -> None:
        places = {id(n): i for i, n in enumerate(numbers)}
        self.found, self.written = found, written
        self.numbers = [(places.get(id(n), -1), n) for n in found.numbers]
        used = {place for place, _ in self.numbers}
        self.fixed = [(i, n) for i, n in enumerate(numbers) if i not in used]

    def fits(self, numbers: Sequence[float]) -> bool:
        """Whether it is the operation for a step with these numbers."""
        return all([numbers[i] == n for i, n in self.fixed])

    def __call__(self, values: Sequence[Value], numbers: Sequence[float]) -> tuple[Value, ...]:
        """The new contents of what is written."""
        given = [n if place < 0 else numbers[place] for place, n in self.numbers]
        outs = call_values(self.found.whole, (*values, *self.found.constants, *given))
        return outs if type(outs) is tuple else (outs,)


def update(
    name: str, formula: Formula, names: Sequence[str], rows: Sequence[Sequence[Any]], settings: dict[str, Any]
) -> Sequence[SimpleNamespace] | None:
    """Carry out a formula for each row: a parameter, its gradient, and the tensors of its state, by `names`, None for one that is not there. name: of
    the whole operation.

    settings: of the step. Floats and tensors among them may be others at the next step, all else makes the formula another one. Returns the states,
    if a formula may have put other tensors in the place of those that it was given.
    """
    numbers = [v for v in settings.values() if type(v) is float]
    entries = [t for row in rows for t in row]
    tensors = [t for t in entries if t is not None]
    absent = () if len(tensors) == len(entries) else tuple([t is None for t in entries])
    count = len(tensors)
    tensors += [v for v in settings.values() if isinstance(v, Tensor)]
    rec = per_thread.recorder
    if rec.rare or rec.grad_enabled or modes.execution == "eager" or not _are_plain(map(type, tensors)):
        return _each(formula, names, rows, settings)
    values = [t._value if (held := t._storage) is None else held.value if t._view is None else t._read() for t in tensors]
    structure = [(_ZERO if v == 0 else _NUMBER) if type(v) is float else _NUMBER if isinstance(v, Tensor) else v for v in settings.values()]
    key = (formula, *names, *absent, *settings, *structure, *[v.aval for v in values])
    whole = _kept.get(key)
    if whole is None:
        if len(_kept) >= MAX_KEPT:
            _kept.clear()
        _kept[key] = _ONCE
    elif whole is _ONCE or (type(whole) is Whole and not whole.fits(numbers)):
        whole = _kept[key] = _rehearsed(rec, name, formula, names, rows, settings, values) or _NEVER
    if type(whole) is not Whole or not _are_apart(tensors[:count], whole.written):
        return _each(formula, names, rows, settings)
    for i, value in zip(whole.written, whole(values, numbers), strict=True):
        t = tensors[i]
        if t._view is None and t._storage is not None:  # what `overwrite` comes down to then
            t._storage.write(value)
            t._value = value
        else:
            overwrite(t, value)
    return None


def _each(formula: Formula, names: Sequence[str], rows: Sequence[Sequence[Any]], settings: dict[str, Any]) -> Sequence[SimpleNamespace]:
    numbers = SimpleNamespace(**settings)
    states = []
    for p, grad, *state in rows:
        states.append(SimpleNamespace(**dict(zip(names, state, strict=True))))
        formula(p, grad, states[-1], numbers)
    return states


def _are_apart(tensors: Sequence[Tensor], written: Sequence[int]) -> bool:
    """Whether no two tensors share memory of which one is written to: then it does not matter that all of them are read first."""
    for i in written:
        view = tensors[i]._view
        if view is not None and repeats(view, tensors[i]._aval):
            return False
    memory = [memory_of(t) for t in tensors]
    if len(set(memory)) == len(memory):
        return True
    several = {m for m, count in Counter(memory).items() if count > 1}
    return not any(memory[i] in several for i in written)


def _rehearsed(
    rec: Recorder, name: str, formula: Formula, names: Sequence[str], rows: Sequence[Sequence[Any]], settings: dict[str, Any],
    values: Sequence[Value],
) -> Whole | None:  # fmt: skip
    """The updates as one operation, found on tensors that stand for those of these contents; None where they must be done one by one: the formula
    looks at a value, or replaces a tensor of the state."""
    given = [standing_for(v.aval.shape, v.aval) for v in values]
    tensors = [wrap(v) for v in given]
    rest = iter(tensors)
    rows = [[None if t is None else next(rest) for t in row] for row in rows]
    # Numbers that are equal are told apart by being different objects.
    settings = {k: v * 1.0 if type(v) is float else next(rest) if isinstance(v, Tensor) else v for k, v in settings.items()}
    try:
        with rehearsing(rec) as scratch:
            states = _each(formula, names, rows, settings)
            if any(getattr(s, n) is not t for s, row in zip(states, rows, strict=True) for n, t in zip(names, row[2:], strict=True)):
                return None
            written = [i for i, t in enumerate(tensors) if t._version]
            found = composed(name, scratch, [tensors[i]._read() for i in written], given)
        return None if found is None else Whole(found, [v for v in settings.values() if type(v) is float], written)
    except (Exception, Looked) as error:  # the user is told by the same formula on his tensors
        if from_outside(error):
            raise
        return None
