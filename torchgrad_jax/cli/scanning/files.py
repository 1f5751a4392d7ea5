"""Which files a scan reads, and what of them is Python."""

from __future__ import annotations

import ast
import json
import os
import re
import stat
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

SUFFIXES = (".py", ".pyw", ".ipynb")
# Folders with other people's code, or none; those with a name that begins with a dot are left out too.
_LEFT_OUT = {"__pycache__", "__pypackages__", "node_modules", "site-packages"}
_LARGEST = 32 * 2**20
# Statements that Python 2 alone has, by what Python says to them.
_PYTHON_2 = re.compile(
    r"Missing parentheses in call to '(print|exec)'|multiple exception types must be parenthesized|leading zeros|<>|inconsistent use of tabs"
)


class Skipped(NamedTuple):
    """A file, or a part of one, that was not read, and why."""

    file: str
    reason: str


class Place(NamedTuple):
    """Where a name stands. line: of the file, in a notebook of its cell. cell: the cell's number from 1, or None."""

    file: str
    line: int
    cell: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.cell is None else f"{self.file}[{self.cell}]:{self.line}"


class Source(NamedTuple):
    """A file's code. cells: of a notebook, the line of `tree` with which each code cell begins, and its number; none for other files."""

    file: str
    tree: ast.Module
    cells: list[tuple[int, int]]

    def place(self, line: int) -> Place:
        """Where a line of `tree` is for the user."""
        for begin, number in reversed(self.cells):
            if begin <= line:
                return Place(self.file, line - begin + 1, number)
        return Place(self.file, line)


def found(root: str) -> Iterator[tuple[str, str] | Skipped]:
    """The files of a tree in order, each with its name within the tree, and what is left out. `root` itself is read whatever its name; links in it
    are not followed."""
    if not os.path.isdir(root):
        yield root, root
        return
    failed: list[OSError] = []
    for folder, folders, files in os.walk(root, onerror=failed.append):
        folders[:] = sorted(name for name in folders if not _is_left_out(os.path.join(folder, name)))
        for name in sorted(files):
            path = os.path.join(folder, name)
            shown = os.path.relpath(path, root)
            if name.endswith(SUFFIXES):
                yield Skipped(shown, "a link") if os.path.islink(path) else (path, shown)
    for error in failed:
        yield Skipped(os.path.relpath(error.filename, root), f"cannot be read: {error.strerror}")


def _is_left_out(folder: str) -> bool:
    name = os.path.basename(folder)
    return name.startswith(".") or name in _LEFT_OUT or os.path.islink(folder) or os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def read(path: str, shown: str, skipped: list[Skipped]) -> Source | None:
    """The code of a file that is called `shown`; None where there is none to be read. What could not be is added to `skipped`."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            reason = "not a regular file"
        elif status.st_size > _LARGEST:
            reason = f"larger than {_LARGEST >> 20} MiB"
        else:
            with open(path, "rb") as file:
                content = file.read()
            reason = "binary" if b"\0" in content else ""
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    if reason:
        skipped.append(Skipped(shown, reason))
        return None
    if path.endswith(".ipynb"):
        return _notebook(shown, content, skipped)
    tree = _parsed(content, shown, skipped)
    return None if tree is None else Source(shown, tree, [])


def _parsed(code: bytes | str, name: str, skipped: list[Skipped]) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's escapes and comparisons
            return ast.parse(code)
    except SyntaxError as error:
        hint = " (Python 2?)" if _PYTHON_2.search(error.msg or "") else ""
        where = f" in line {error.lineno}" if error.lineno else ""
        skipped.append(Skipped(name, f"syntax error{where}: {error.msg}{hint}"))
    except (RecursionError, MemoryError):
        skipped.append(Skipped(name, "nested too deeply"))
    except ValueError as error:  # a character that no source may have
        skipped.append(Skipped(name, f"not Python: {error}"))
    return None


def _notebook(shown: str, content: bytes, skipped: list[Skipped]) -> Source | None:
    """The code cells of a notebook as one module: a name bound in a cell is known in the others."""
    try:
        document = json.loads(content.decode("utf-8-sig"))
        cells = _cells(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        skipped.append(Skipped(shown, "not a notebook"))
        return None
    body: list[ast.stmt] = []
    begins: list[tuple[int, int]] = []
    line = 1
    for number, text in enumerate(cells, 1):
        code = _without_magic(text)
        tree = None if code is None else _parsed(code, f"{shown}[{number}]", skipped)
        if code is not None and tree is not None:
            body += ast.increment_lineno(tree, line - 1).body
            begins.append((line, number))
            line += code.count("\n") + 1
    return Source(shown, ast.Module(body, []), begins)


def _cells(document: Any) -> list[str]:
    cells = document["cells"] if "cells" in document else [cell for sheet in document["worksheets"] for cell in sheet["cells"]]
    found = []
    for cell in cells:
        if cell["cell_type"] == "code":
            text = cell["source"] if "source" in cell else cell["input"]  # the latter before format 4
            found.append(text if isinstance(text, str) else "".join(text))
    return found


_CELL_MAGIC = re.compile(r"\s*%%(\w*)")
_MAGIC = re.compile(r"^(\s*)(?:[%!?]|[\w.]+\?{1,2}\s*$)")
_ASSIGNED_MAGIC = re.compile(r"^(\s*[\w.,\s]+=\s*)[%!]")
_PYTHON_CELLS = {"time", "timeit", "capture", "prun", "python", "python3"}


def _without_magic(text: str) -> str | None:
    """A cell's Python, what IPython alone understands replaced line by line; None for a cell in another language."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return ""
    magic = _CELL_MAGIC.match(lines[first])
    if magic:
        if magic[1] not in _PYTHON_CELLS:
            return None
        lines[first] = ""
    for i, line in enumerate(lines):
        if plain := _MAGIC.match(line):
            lines[i] = plain[1] + "pass"
        elif assigned := _ASSIGNED_MAGIC.match(line):
            lines[i] = assigned[1] + "None"
    return "\n".join(lines)
