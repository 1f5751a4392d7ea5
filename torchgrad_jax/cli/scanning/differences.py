"""Which names differ from PyTorch's: told by the tables of docs/differences.md, which the package carries along."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import NamedTuple

from torchgrad_jax.cli.alias import PACKAGE
from torchgrad_jax.cli.scanning.names import look_up

_SPACES = ("torch", "torch.Tensor", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.autograd", "torch.autograd.graph")
_BEGINNING = re.compile(r"(`[^`]+`(\s*\([^`)]*\))?(,| and|, and)?\s*)+")
_NAME = re.compile(r"((?:[a-zA-Z]\w*\.)*[a-zA-Z]\w*)(\(.*\))?(?: = .*)?")


class Difference(NamedTuple):
    """A row of the tables: what it is about, and what is so here."""

    about: str
    here: str


def page() -> str:
    """docs/differences.md. FileNotFoundError where neither the package nor the folder around it has it."""
    package = Path(sys.modules[PACKAGE].__path__[0])
    for path in (package / "cli" / "scanning" / "differences.md", package.parent / "docs" / "differences.md"):
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise FileNotFoundError("differences.md")


@functools.cache
def by_name() -> dict[str, list[Difference]]:
    """For each name of torch's that a row names, the rows."""
    found: dict[str, list[Difference]] = {}
    here = None
    for line in page().splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            here = None
        elif here is None:
            here = cells.index("here") if "here" in cells else len(cells)
        elif here < len(cells) and not set(cells[0]) <= set("-: "):
            for name in names_in(cells[0]):
                found.setdefault(name, []).append(Difference(cells[0], cells[here]))
    return found


def names_in(cell: str) -> list[str]:
    """The names of torch's that a cell begins with: what comes later is what it is about them."""
    found: list[str] = []
    beginning = _BEGINNING.match(cell)
    for code in re.findall(r"`([^`]+)`", beginning[0] if beginning else ""):
        match = _NAME.fullmatch(code.lstrip("."))
        if match is None:
            continue
        first, _, rest = match[1].partition(".")
        if not rest:
            spaces = ("torch.Tensor",) if code.startswith(".") else _SPACES
            candidates = [f"{space}.{first}" for space in spaces]
        elif first == "torch":
            candidates = [match[1]]
        elif first in ("t", "x", "Tensor"):
            candidates = [f"torch.Tensor.{rest}"]
        else:
            candidates = [f"torch.{match[1]}"]
        found += [name for name in candidates if _is_function_or_class(name)]
    return list(dict.fromkeys(found))


def _is_function_or_class(name: str) -> bool:
    answer = look_up(name)
    return answer.found and answer.name == name and not answer.is_module
