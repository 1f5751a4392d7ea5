"""docs/autograd_from_scratch.md keeps its word: its code runs, block after block, and what it names in the library exists."""

from __future__ import annotations

import importlib
import re
from functools import cache, reduce
from pathlib import Path

import pytest

import torchgrad_jax

pytestmark = pytest.mark.operators

PACKAGE = Path(torchgrad_jax.__file__).parent
CHAPTER = Path(__file__).parents[1] / "docs" / "autograd_from_scratch.md"
TEXT = CHAPTER.read_text()
REFERENCE = re.compile(r"([\w/]+\.py)(?::([\w.]+))?")


def blocks():
    """Each block of Python with the heading above it and its first line's number in the chapter."""
    found, heading, begun = [], "", None
    lines = TEXT.splitlines()
    for number, line in enumerate(lines, 1):
        if begun is None and line.startswith("## "):
            heading = line[3:]
        elif begun is None and line == "```python":
            begun = number + 1
        elif begun is not None and line == "```":
            found.append((heading, begun, lines[begun - 1 : number - 1]))
            begun = None
    return found


def test_the_code_runs_block_after_block():
    names = {"__name__": "autograd_from_scratch"}
    for count, (heading, begun, lines) in enumerate(blocks(), 1):
        # Line numbers are the chapter's, so a traceback leads to the line in it.
        source = "\n" * (begun - 1) + "\n".join(lines)
        try:
            exec(compile(source, str(CHAPTER), "exec"), names)
        except Exception as error:
            place, tb = getattr(error, "lineno", None) or begun, error.__traceback__
            while tb is not None:
                place = tb.tb_lineno if tb.tb_frame.f_code.co_filename == str(CHAPTER) else place
                tb = tb.tb_next
            line = TEXT.splitlines()[place - 1].strip()
            pytest.fail(f"block {count}, in '{heading}', {CHAPTER.name}:{place}: {line}\n{type(error).__name__}: {error}")
    assert count > 20


def test_blocks_are_small():
    for heading, begun, lines in blocks():
        assert len(lines) <= 40 and max(map(len, lines)) <= 100, f"{heading}, line {begun}"


@cache
def module_of(path):
    return importlib.import_module("torchgrad_jax." + path.removesuffix(".py").replace("/", "."))


def resolve(path, name):
    """What `path/file.py:Name` refers to."""
    assert (PACKAGE / path).is_file(), path
    return reduce(getattr, name.split("."), module_of(path)) if name else None


def test_what_the_chapter_names_exists():
    found = [REFERENCE.fullmatch(code) for code in re.findall(r"`([^`\n]+)`", TEXT)]
    named = [m.groups() for m in found if m is not None and not m[1].startswith("torchgrad_jax/")]
    assert len(named) > 60
    for path, name in named:
        resolve(path, name)


def test_words_of_the_library_are_in_the_files_beside_them():
    paragraphs = [p for p in TEXT.split("\n\n") if p.startswith("**In torchgrad_jax:**")]
    assert len(paragraphs) == len(re.findall(r"^## \d+\. ", TEXT, re.M)) == 10
    for paragraph in paragraphs:
        spans = re.findall(r"`([^`]+)`", paragraph)
        matches = [(span, REFERENCE.fullmatch(span)) for span in spans]
        sources = "\n".join((PACKAGE / m[1]).read_text() for _, m in matches if m is not None)
        assert sources
        for span, match in matches:
            assert match is not None or re.search(rf"\b{re.escape(span)}\b", sources), span
