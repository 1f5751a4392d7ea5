"""Where two observations of a program first differ."""

from __future__ import annotations

import marshal
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from compat_suite.fuzz.observation import Seen
from compat_suite.fuzz.rules import FAULTS

# How far numbers may be from PyTorch's, relative to the larger of them and to 1: both libraries round, in other orders.
TOLERANCES = {"torch.float64": 1e-9, "torch.float32": 1e-4, "torch.complex128": 1e-9, "torch.complex64": 1e-4}
_RUNTIME = ("RuntimeError", "NotImplementedError")
_MODIFIED = re.compile(
    r"(.*modified by an inplace operation: \[torch\.\w+) \[([\d, ]*)\]\](, which is output 0 of \w+,)?( is at version \d+; expected version \d+)"
)
_RELAYOUT = re.compile(r"Squeeze\d|Unsqueeze1|T1|Transpose1")
CONTENTS = ("value", "grad", "calls")


class Difference(NamedTuple):
    """What differs first in a program."""

    statement: str
    name: str | None  # the tensor; None: the statement itself
    what: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        if self.name is None:
            return f"at `{self.statement}`: {self.what} {self.ours}, PyTorch: {self.theirs}"
        return f"after `{self.statement}`: {self.name}'s {self.what} is {self.ours}, PyTorch: {self.theirs}"

    @property
    def kind(self) -> str:
        """The difference without names and numbers."""
        return f"{self.what} {re.sub(r'[a-z]*[0-9]+|nan|inf|[^A-Za-z ]', '', f'{self.ours} {self.theirs}')[:80]}"

    @property
    def of_numbers(self) -> bool:
        """Whether it may be a matter of rounding: numbers differ, and nothing else."""
        return self.what in CONTENTS and _without_numbers(self.ours) == _without_numbers(self.theirs)


def difference(ours: Sequence[Seen], theirs: Sequence[Seen], tolerance: float = 0.0, second: bool = False) -> Difference | None:
    """Where two observations first differ; None where they agree. tolerance: of contents at least. second: whether the two may tell of different
    faults of one call (`FAULTS`)."""
    for (line, raised, state), (_, expected, wanted) in zip(ours, theirs, strict=True):
        if _same_bytes((raised, state), (expected, wanted)):
            continue
        if not equal(raised, expected, tolerance) and not _told_otherwise(raised, expected, second):
            return Difference(line, None, "calls" if isinstance(expected, list) else "raised", raised, expected)
        if state is None or wanted is None:
            continue
        if state.keys() != wanted.keys():
            return Difference(line, None, "tensors", sorted(state), sorted(wanted))
        for name, what in ((n, question) for n in state for question in wanted[n] | state[n]):
            a, b = state[name].get(what), wanted[name].get(what)
            if not _same_bytes(a, b) and not equal(a, b, tolerance):
                return Difference(line, name, what, a, b)
    return None


def equal(a: Any, b: Any, tolerance: float = 0.0) -> bool:
    """Whether nested observations agree. A tuple that begins with a dtype is a tensor's contents, which may differ by rounding."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if isinstance(a, tuple) and a and isinstance(a[0], str):
            tolerance = max(TOLERANCES.get(a[0], 0.0), tolerance)
        return len(a) == len(b) and all(equal(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, complex) and isinstance(b, complex):
        return equal(a.real, b.real, tolerance) and equal(a.imag, b.imag, tolerance)
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or (math.isfinite(a) and math.isfinite(b) and abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)))
    return a == b and type(a) is type(b)


def _same_bytes(a: Any, b: Any) -> bool:
    """Whether plain data is the same to the bit: most is, and `equal` takes many times as long to say so."""
    try:
        return marshal.dumps(a, 2) == marshal.dumps(b, 2)  # from version 3 on the bytes tell which objects are shared
    except ValueError:  # not plain data
        return False


def _without_numbers(x: Any) -> Any:
    if isinstance(x, list | tuple):
        return [_without_numbers(y) for y in x]
    return type(x) if isinstance(x, float | int | complex) else x


def _told_otherwise(raised: Any, expected: Any, second: bool) -> bool:
    """Whether two refusals are of one kind: a call that is wrong in two ways, of which PyTorch tells what is saved first, and torchgrad_jax the
    shapes; or an outdated result of an in-place operation on a view, which PyTorch may name after the view, or a view that was given another layout
    since, which PyTorch names after that; and outdated indices, of which a
    gradient's own graph may have saved a view. What is not implemented is a RuntimeError too. second: see `difference`."""
    if not isinstance(raised, tuple) or not isinstance(expected, tuple):
        return False
    if raised[0] not in _RUNTIME or expected[0] not in _RUNTIME:
        return False
    ours, theirs = raised[1], expected[1]
    if second and any(re.match(one, a) and re.match(other, b) for one, other in FAULTS.items() for a, b in ((ours, theirs), (theirs, ours))):
        return True
    indices = re.compile(r"(?<=\[torch\.LongTensor )\[[\d, ]*\]")
    if indices.search(ours) and indices.split(ours)[0] == indices.split(theirs)[0]:
        return True
    name = re.compile(r"which is output 0 of \w+, ")
    if _of_a_view_laid_out_since(ours, theirs):
        return True
    return "of AsStrided," in theirs and name.split(ours)[0] == name.split(theirs)[0]


def _of_a_view_laid_out_since(ours: str, theirs: str) -> bool:
    """Whether both tell that a saved tensor was modified, and PyTorch the sizes and the node that it has been given since by a change of layout."""
    one, other = _MODIFIED.match(ours), _MODIFIED.match(theirs)
    if one is None or other is None or (one[1], one[4]) != (other[1], other[4]):
        return False
    sizes = [math.prod(map(int, found[2].split(", "))) if found[2] else 1 for found in (one, other)]
    return sizes[0] == sizes[1] and (one[3] == other[3] or ("AsStrided" in (one[3] or "AsStrided") and bool(_RELAYOUT.search(other[3] or ""))))
