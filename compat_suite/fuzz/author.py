"""Who writes a random program: knows what tensors there are, by running each line through PyTorch, and chooses among them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from compat_suite.fuzz.programs import Raised, Run
from compat_suite.fuzz.rules import EXCLUDED

LARGEST = 64  # elements: an expand of an expand must not grow without bound
MODES = ["no_grad", "no_grad", "enable_grad", "inference_mode"]
# The dtypes of a program's leaves.
DTYPES = [["float64"]] * 5 + [["float32"]] * 2 + [["float64", "float64", "int64", "bool"], ["float32", "float64"], ["float32", "int64"]]


def overlaps_itself(x: torch.Tensor) -> bool:
    """Whether two elements that are not `expand`'s copies are one place in memory."""
    x = x.detach()[tuple(0 if s == 0 and n else slice(None) for s, n in zip(x.stride(), x.shape, strict=True))]
    if x.is_contiguous() or not x.numel():
        return False
    places = torch.arange(x.storage_offset() + sum(s * (n - 1) for s, n in zip(x.stride(), x.shape, strict=True)) + 1)
    return x.numel() != len(set(places.as_strided(x.shape, x.stride(), x.storage_offset()).flatten().tolist()))


def memory(x: torch.Tensor) -> int:
    """Where a tensor's memory is."""
    return x.untyped_storage().data_ptr()


# Shapes that programs keep to, so that what they do is found compiled.
FEW = frozenset(s for n in range(4) for s in itertools.product(range(9), repeat=n) if 0 < math.prod(s) < 9 or n == 1)
FEWER = frozenset(s for n in range(3) for s in itertools.product((1, 2), repeat=n)) | {(0,), (3,), (4,), (2, 1, 2), (1, 2, 2)}


def under(mode: str | None, statement: str) -> str:
    """The statement in a grad mode."""
    if mode is None:
        return statement
    if "\n" not in statement:
        return f"with torch.{mode}(): {statement}"
    return f"with torch.{mode}():\n" + "\n".join("    " + line for line in statement.split("\n"))


class Author:
    """Writes a program. pick: chooses from a sequence. excluded: the rules that apply. shapes: those to keep to. dtypes: of the
    leaves; None: one of `DTYPES`."""

    def __init__(
        self,
        pick: Callable[[Any], Any],
        excluded: Iterable[str] = tuple(EXCLUDED),
        shapes: frozenset[tuple[int, ...]] | None = None,
        dtypes: list[str] | None = None,
    ) -> None:
        self.pick = pick
        self.excluded, self.shapes = frozenset(excluded), shapes
        self.run = Run(torch)
        self.count = 0
        self.dtypes = dtypes
        self.viewed: set[int] = set()
        self.twinned: set[int] = set()
        self.kept: list[Any] = []
        self.lines: list[str] = []

    def line(self, statement: str) -> tuple[str, Raised] | None:
        """The statement as it is to be run, and what PyTorch says of it. None: it makes a tensor of an unusual shape, and is left out."""
        mode = self.pick([None] * 7 + [self.pick(MODES)])
        if ("leaf(" in statement or "special(" in statement) and mode == "inference_mode":
            mode = None  # what then requires a gradient is no leaf to PyTorch, nor anything else
        line = under(mode, statement)
        before, counts = self.run.tensors(), self.run.counts
        raised = self.run.do(line)
        now = self.run.tensors()
        made = {name: x for name, x in now.items() if name not in before}
        if self.shapes and made and raised is None and not all(tuple(x.shape) in self.shapes for x in made.values()) and "\n" not in line:
            for name in made:
                del self.run.space[name]
            self.run.counts = counts
            return None
        for x in self.run.tensors().values():
            if x._base is not None:
                self.mark(self.viewed, x)
        self.lines.append(line)
        return line, raised

    # ------------------------------------------------------------------ parts of statements

    def fresh(self, letter: str = "x") -> str:
        """A new name."""
        self.count += 1
        return f"{letter}{self.count}"

    def named(self, kind: type, wanted: Callable[[Any], bool] = lambda x: True) -> Any:
        """The name of an object of the program, often a late one; None where there is none such."""
        names = [n for n, x in self.run.own() if isinstance(x, kind) and wanted(x)]
        return self.pick(names + names[-3:] + names[-1:]) if names else None

    def some(self, wanted: Callable[[Any], bool] = lambda x: True) -> Any:
        """The name of a tensor."""
        return self.named(torch.Tensor, lambda x: x.numel() <= LARGEST and wanted(x))

    def floating(self, wanted: Callable[[Any], bool] = lambda x: True) -> Any:
        """The name of a tensor of floating-point numbers."""
        return self.some(lambda x: x.is_floating_point() and wanted(x))

    def target(self, wanted: Callable[[Any], bool] = lambda x: True) -> Any:
        """A tensor to write to. Where elements overlap under other indices, PyTorch reads what it has just written."""
        return self.some(lambda x: not overlaps_itself(x) and wanted(x))

    def viewable(self, wanted: Callable[[Any], bool] = lambda x: True) -> Any:
        """A tensor to view. Where `data` was taken of it, that is left out for tensors that require a gradient: see `twinnable`."""
        return self.some(lambda x: not (x.requires_grad and memory(x) in self.twinned) and wanted(x))

    def viewable_target(self) -> Any:
        """A tensor to write to a view of."""
        return self.viewable(lambda x: not overlaps_itself(x))

    def twinnable(self, wanted: Callable[[Any], bool] = lambda x: True) -> Any:
        """A tensor to write to by way of `data`. To PyTorch what was saved of views is then the new content, to us the old one."""
        name = self.some(lambda x: memory(x) not in self.viewed and wanted(x))
        if name is not None:
            self.mark(self.twinned, self.of(name))
        return name

    def mark(self, marked: set[int], x: torch.Tensor) -> None:
        """Add a tensor's memory, which is kept: another's at the same place would make a program depend on where there was room."""
        if memory(x) not in marked:
            marked.add(memory(x))
            self.kept.append(x.untyped_storage())

    def of(self, name: str) -> torch.Tensor:
        """PyTorch's tensor of that name."""
        return self.run.space[name]

    def number(self) -> float:
        """A number."""
        return self.pick([0.5, 2, -1.5, 3.0, 0.25])

    def dim(self, name: str, extra: int = 0) -> int:
        """One of a tensor's dimensions."""
        ndim = self.of(name).dim() + extra
        return self.pick(range(-ndim, ndim)) if ndim else 0

    def dtype(self) -> str:
        """The dtype of a new leaf."""
        if self.dtypes is None:
            self.dtypes = self.pick(DTYPES)
        return self.pick(self.dtypes)

    def source(self, a: str) -> Any:
        """A tensor to write into `a`. What overlaps it under other indices is left out: PyTorch reads there what it has just written. So is what
        requires a gradient where `a` has integers: PyTorch says of these that they require one."""
        shape = self.of(a).shape
        if not self.of(a).is_floating_point():
            return self.some(lambda x: not x.requires_grad and memory(x) != memory(self.of(a))) or self.number()
        b = self.pick([self.some, lambda: self.some(lambda x: x.shape == shape)])() or a
        return b if a == b or memory(self.of(a)) != memory(self.of(b)) else self.number()

    def key(self, a: str) -> str:
        """What to index a tensor with."""
        keys = []
        for n in self.of(a).shape:
            kind = self.pick(["int", ":", ":", "slice", "slice", "stop"])
            if kind == "stop":
                break
            if kind == "int":
                kind = str(self.pick(range(-n, n))) if n else ":"
            elif kind == "slice":
                kind = self.pick(["1:", ":2", "::2", ":-1", "0:0", "1:3", "-2:"])
            keys.append(kind)
        extra = self.pick(["", "", "", "None", "..."])
        if extra:
            keys.insert(self.pick(range(len(keys) + 1)), extra)
        return ", ".join(keys) or "..."
