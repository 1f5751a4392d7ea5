"""In what two programs differ: why the one does not serve as the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

SHAPE, DTYPE, DEVICE, NUMBER = "shape", "dtype", "device", "number"
STATIC, OPERANDS, ORDER, OPERATIONS, INPUTS = "static argument", "operands", "order", "operations", "inputs"

# The name of a backward pass that is recorded as one operation.
TAPE = "backward"


class Difference(NamedTuple):
    """Where two programs first differ.

    kind: one of the names above. text: in words; was, now: what differs, where it is one thing. operator: the name of the operation concerned;
    place: which it is of its program, from 0; line: the user's that recorded it, "" where that is not known.
    """

    kind: str
    text: str
    was: str = ""
    now: str = ""
    operator: str = ""
    place: int = 0
    line: str = ""


class Outline:
    """What is compared of a program: its Steps or Calls that are operations, their names, and what goes in. forward: how often each name occurs, but
    for those of a backward pass, which is recorded otherwise when it comes back (see `autograd/tape.py`)."""

    __slots__ = ("operations", "names", "counts", "forward", "inputs")

    def __init__(self, steps: Iterable[Any]) -> None:
        steps = list(steps)
        self.operations = [s for s in steps if s.signature is not None]
        self.names = [name_of(s) for s in self.operations]
        self.counts = Counter(self.names)
        self.forward = Counter([name for name in self.names if name != TAPE and not name.rstrip("0123456789").endswith("Backward")])
        self.inputs = [s.aval for s in steps if s.signature is None]


def name_of(operation: Any) -> str:
    """The name of a Step's or Call's operator."""
    return operation.signature.bop.name.removeprefix("_")


def difference(old: Outline, new: Outline) -> Difference | None:
    """Where `new` first differs from `old`; None where they are alike, so that at most what is kept of their results differs."""
    if old.names != new.names:
        return _other_operations(old, new)
    for place, (a, b) in enumerate(zip(old.operations, new.operations, strict=True)):
        was, now = a.signature, b.signature
        if was.specs != now.specs:
            return _other_operand(was, now, b, place)
        if was.bop is not now.bop:
            return _other_argument(was.bop, now.bop, b, place)
        if a.args != b.args:
            return _at(OPERANDS, "{} has other operands", b, place)
    if old.inputs != new.inputs:
        return Difference(INPUTS, "an input differs that nothing is computed of")
    return None


def distance(old: Outline, new: Outline) -> tuple[int, int]:
    """How far two programs are from each other, to be compared: how many operations the one has and the other has not (without their backward
    passes), one more where they come in another order; and where they come in the same, in how many something differs."""
    if old.names == new.names:
        return 0, sum([a.signature is not b.signature or a.args != b.args for a, b in zip(old.operations, new.operations, strict=True)])
    unlike = max((old.forward - new.forward).total(), (new.forward - old.forward).total())
    return unlike + (unlike == 0), 0


def shown(spec: Any) -> str:
    """An operand in words: its dtype and shape, or a number's type."""
    return spec.__name__ if isinstance(spec, type) else f"{spec.dtype}{list(spec.shape)}"


def _at(kind: str, text: str, operation: Any, place: int, was: str = "", now: str = "") -> Difference:
    """text: with the place of the operation's name left open."""
    name = name_of(operation)
    text = text.format(f"{name} (operation {place})")
    if was:
        text += f" was {was} and is now {now}"
    return Difference(kind, text, was, now, name, place, getattr(operation, "line", ""))


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many of their first ones are the same."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _other_operations(old: Outline, new: Outline) -> Difference:
    was, now = old.names, new.names
    place = _common(was, now)
    operation = new.operations[min(place, len(now) - 1)] if now else None
    line = getattr(operation, "line", "")
    if len(was) == len(now):
        kind, text = OPERATIONS, f"operation {place} was {was[place]} and is now {now[place]}"
        if old.counts == new.counts:
            kind, text = ORDER, f"{text}; it is the same operations"
        return Difference(kind, text, was[place], now[place], now[place], place, line)
    gone, added = old.counts - new.counts, new.counts - old.counts
    changes = [f"{word} {_counted(found)}" for found, word in ((gone, "without"), (added, "with")) if found]
    count = f"{len(was)} recorded operation{'s' * (len(was) != 1)}"
    text = f"it was {count} and is now {len(now)}, {', '.join(changes)}; they differ from operation {place} on"
    return Difference(OPERATIONS, text, str(len(was)), str(len(now)), now[place] if place < len(now) else "", place, line)


def _counted(names: Counter[str]) -> str:
    return ", ".join([name if count == 1 else f"{count} {name}" for name, count in names.most_common(4)]) + (", ..." if len(names) > 4 else "")


def _other_operand(was: Any, now: Any, operation: Any, place: int) -> Difference:
    """The first operand in which two Signatures of operators of one name differ."""
    if len(was.specs) != len(now.specs):
        return _at(OPERANDS, "the number of operands of {}", operation, place, str(len(was.specs)), str(len(now.specs)))
    i = next(i for i, (a, b) in enumerate(zip(was.specs, now.specs, strict=True)) if a != b)
    a, b = was.specs[i], now.specs[i]
    names = getattr(now.bop, "names", ())
    text = f"the operand {names[i] if i < len(names) else i} of {{}}"
    if isinstance(a, type) or isinstance(b, type):
        kind = NUMBER
    elif a.device is not b.device:
        return _at(DEVICE, text, operation, place, str(a.device), str(b.device))
    else:
        kind = DTYPE if a.dtype != b.dtype else SHAPE
    return _at(kind, text, operation, place, shown(a), shown(b))


def _other_argument(was: Any, now: Any, operation: Any, place: int) -> Difference:
    """The first static argument in which two BoundOps of one name differ."""
    before, after = getattr(was, "statics", {}), getattr(now, "statics", {})
    for name, value in after.items():
        if name not in before or before[name] != value:
            shown_before = repr(before[name]) if name in before else "a tensor"
            kind = SHAPE if name in ("size", "shape") else STATIC
            return _at(kind, f"the argument {name} of {{}}", operation, place, shown_before, repr(value))
    return _at(STATIC, "an argument of {} differs", operation, place)
