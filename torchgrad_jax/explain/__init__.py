"""`torchgrad_jax.explain`: what was recorded, what ran it, which programs there are, and why.

``with torchgrad_jax.explain() as report: step()`` and then ``print(report)``; `report()` is of the whole process. The way of an operation is that of
docs/architecture.md: it is recorded (runtime/recorder.py), something has it run (`flushing`), it is part of a program that is known or new
(`program`), which is interpreted or compiled (runtime/tiers); an Explanation is told of each of these by runtime/observing.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from torchgrad_jax.runtime import lazy

if TYPE_CHECKING:
    from torchgrad_jax.explain import explanation, whole
else:  # few programs ask, and every start would pay
    globals().update(lazy.submodules(__name__, ("data", "explanation", "whole")))

__all__ = ["report"]


def report() -> whole.Report:
    """What is known of the whole process, of all threads: what ran programs how often, which programs are kept and how they are run, and functions
    under `jit`. `print` shows it, `as_dict()` and `data` are for programs.

    Lines, times, and why a program was new are known only of what runs within ``torchgrad_jax.explain()``.
    """
    return whole.report()


class _Callable(ModuleType):
    """The module as the function that it is too."""

    def __call__(self) -> explanation.Explanation:
        """A context manager that watches what runs within it, in all threads, and explains it: ``with torchgrad_jax.explain() as report``.

        `print(report)` is for people, `report.as_dict()` and its attributes (`findings`, `flushes`, `programs`, `jitted`, `data`) for programs.
        Nothing is run, compiled or ordered otherwise while it is on. It may be asked within the block, nested, and overlap with others. An exception
        that ends the block passes, and what was gathered stays. RuntimeError where one is entered a second time, or asked before it was entered.
        """
        return explanation.Explanation()


sys.modules[__name__].__class__ = _Callable
