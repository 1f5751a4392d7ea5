"""Small programs, one statement each line, run with PyTorch or with torchgrad_jax: `Run`, and `same`, which compares the two."""

from __future__ import annotations

import ast
import textwrap
import warnings
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any

import torchgrad_jax
from compat_suite.fuzz.comparison import difference
from compat_suite.fuzz.observation import Seen, State, seen

try:
    import torch
except ImportError:
    torch = None

HELPERS = Path(__file__).with_name("helpers.py")
MESSAGE = 250  # characters of an exception's message that must agree
Raised = tuple[str, str] | None


@lru_cache(8192)
def _compiled(statement: str) -> CodeType:
    return compile(statement, statement, "exec")


@cache
def _helpers() -> CodeType:
    """The helpers without their import of the library, which is in the namespace already."""
    tree = ast.parse(HELPERS.read_text())
    tree.body = [node for node in tree.body if not (isinstance(node, ast.Import) and node.names[0].name == "torch")]
    return compile(tree, str(HELPERS), "exec")


class Run:
    """A program's namespace in one library, and what was observed."""

    def __init__(self, library: Any, nudges: dict[str, float] | None = None) -> None:
        self.library = library
        self.counts = True  # PyTorch counts what it does itself to results of inference tensors
        self.space: dict[str, Any] = {"torch": library}
        exec(_helpers(), self.space)
        self.helpers = len(self.space)
        self.calls: list[Any] = self.space["calls"]
        if nudges is not None:
            exact = self.space["leaf"]
            self.space["leaf"] = lambda *shape, **options: exact(*shape, **options, nudge=nudges.get(options.get("dtype", "float64"), 0.0))

    def do(self, statement: str) -> Raised:
        """Run a statement. What it raised: class and the beginning of the message."""
        self.counts = self.counts and "inference_mode()" not in statement
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(_compiled(statement), self.space)
        except AssertionError:
            raise
        except Exception as error:
            return type(error).__name__, str(error)[:MESSAGE]
        return None

    def tensors(self) -> dict[str, Any]:
        """The program's tensors by name."""
        kind = self.library.Tensor
        return {name: x for name, x in self.own() if isinstance(x, kind)}

    def own(self) -> Iterable[tuple[str, Any]]:
        """What the program has made, by name."""
        return islice(self.space.items(), self.helpers, None)

    def observe(self, values: bool = True) -> State:
        """All that can be seen of all tensors."""
        tensors = self.tensors()
        names = {id(x): name for name, x in reversed(tensors.items())}
        return {name: seen(x, names, values, self.counts) for name, x in tensors.items()}

    def trace(self, program: list[str], each: bool) -> list[Seen]:
        """The observations of a whole program: after each line if `each` says so, and at the end."""
        found = [Seen(line, self.do(line), self.observe() if each else None) for line in program]
        return [*found, Seen("the end", list(self.calls), self.observe())]


def lines(program: str) -> list[str]:
    """A program's text as its lines."""
    return [line for line in textwrap.dedent(program).splitlines() if line.strip()]


def same(program: str | list[str]) -> None:
    """Assert that a program behaves as in PyTorch (where that is installed), whether tensors are looked at after each line or at the end."""
    program = lines(program) if isinstance(program, str) else program
    for each in (False, True):
        ours = Run(torchgrad_jax).trace(program, each)
        if torch is not None:
            found = difference(ours, Run(torch).trace(program, each))
            assert found is None, "\n".join(["", *program, str(found), "looked at after each line" if each else "looked at in the end"])
