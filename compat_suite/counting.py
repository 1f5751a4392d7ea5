"""How many samples of an operator agree, and what differed. Needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field

# Relative and absolute differences that rounding may make.
TOLERANCES = {
    "float16": (2e-3, 1e-4), "bfloat16": (1.6e-2, 1e-3), "float32": (1e-4, 2e-5), "complex64": (1e-4, 2e-5),
    "float64": (1e-7, 1e-8), "complex128": (1e-7, 1e-8),
}  # fmt: skip


@dataclass
class Count:
    """How many of the samples agree, and what differed."""

    agree: int = 0
    samples: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, difference: str | None) -> None:
        """One more sample."""
        self.samples += 1
        if difference is None:
            self.agree += 1
        elif len(self.differences) < 3:
            self.differences.append(difference[:400])


class Difference(Exception):
    """What differs, in words."""


class NotApplicable(Exception):
    """What is checked cannot be done with this sample, in PyTorch neither: it is not counted."""
