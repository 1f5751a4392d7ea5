"""Runs the code blocks of a page of docs/ and compares what they print with the blocks below them: ``python tests/pages.py docs/PAGE.md``

- ``python`` blocks run in order, in one namespace. A ``text`` block right after one is what it printed, warnings (``UserWarning: ...``) and the
  exception that ended it (``RuntimeError: ...``) included. ``...`` stands for anything.
- ``python title="name.py"`` is a file, written into the directory of the page.
- ``sh`` blocks run in that directory; ``python`` and ``torchgrad-jax`` are those of this process. Both its streams are compared.
- ``{.sh .pytorch}`` is run where PyTorch is installed, ``{.python .norun}`` nowhere.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import itertools
import linecache
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(
    r"^```(?:(?P<kind>\w+)|\{\.(?P<language>\w+) \.(?P<how>\w+)\})?(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^```$", re.S | re.M
)
FILE = "example.py"  # what tracebacks, and tools that name lines, call a block


class Block(NamedTuple):
    kind: str  # python, sh, text, or what is only shown
    title: str | None
    text: str
    line: int  # in the page


class Different(Exception):
    """A block does not do what its page says."""


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(kind_of(m), m["title"], m["text"], text.count("\n", 0, m.start()) + 2) for m in FENCE.finditer(text)]


def kind_of(fence: re.Match) -> str:
    if fence["how"] == "pytorch" and importlib.util.find_spec("torch"):
        return fence["language"]
    return fence["kind"] or ""


def agrees(shown: str, printed: str) -> bool:
    """Whether `printed` is `shown`, where ``...`` stands for anything, spaces at the ends of lines aside."""
    shown, printed = ("\n".join(line.rstrip() for line in text.strip().splitlines()) for text in (shown, printed))
    return re.fullmatch(".*".join(re.escape(part) for part in shown.split("...")), printed, re.S) is not None


def run_python(block: Block, names: dict) -> tuple[str, bool]:
    """What the block prints, and whether a warning or an exception is part of it."""
    out, disturbed = io.StringIO(), False

    def show(message, category, *_):
        nonlocal disturbed
        disturbed = True
        print(f"{category.__name__}: {message}", file=out)

    linecache.cache[FILE] = (len(block.text), None, block.text.splitlines(keepends=True), FILE)
    with warnings.catch_warnings(), contextlib.redirect_stdout(out):
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "This DataLoader will create")  # where there is one processor
        warnings.showwarning = show
        try:
            exec(compile(block.text, FILE, "exec"), names)
        except Exception as error:
            disturbed = True
            print(f"{type(error).__name__}: {error}", file=out)
    return out.getvalue(), disturbed


def run_shell(block: Block, directory: Path, commands: Path) -> tuple[str, bool]:
    """What the block prints, and whether it failed."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "MPLCONFIGDIR": str(directory)}
    done = subprocess.run(
        ["bash", "-ec", block.text], cwd=directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    return done.stdout, done.returncode != 0


def make_commands(directory: Path) -> None:
    """``python`` and ``torchgrad-jax`` as they are where this process runs, installed or not."""
    for name, arguments in (("python", ""), ("torchgrad-jax", "-m torchgrad_jax.cli")):
        command = directory / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        command.chmod(0o755)


def run(page: Path) -> int:
    """Runs the page's blocks in this process; how many were compared with what is shown.

    Raises Different where a block prints something else than is shown, or warns, raises or fails and nothing is shown.
    """
    found = blocks(page)
    names, compared = {"__name__": "__main__"}, 0
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as commands:
        make_commands(Path(commands))
        here = os.getcwd()
        os.chdir(made)
        try:
            for block, after in itertools.zip_longest(found, found[1:], fillvalue=Block("", None, "", 0)):
                if block.title is not None:
                    Path(made, block.title).write_text(block.text)
                    continue
                if block.kind not in ("python", "sh"):
                    continue
                printed, disturbed = run_python(block, names) if block.kind == "python" else run_shell(block, Path(made), Path(commands))
                if after.kind == "text":
                    compared += 1
                    if not agrees(after.text, printed):
                        raise Different(f"{page.name}:{block.line} prints\n{printed}\nwhere line {after.line} shows\n{after.text}")
                elif disturbed:
                    raise Different(f"{page.name}:{block.line} shows nothing of\n{printed}")
        finally:
            os.chdir(here)
    return compared


def main() -> int:
    """Run the pages that the command line names."""
    sys.path.insert(0, str(ROOT))
    try:
        for argument in sys.argv[1:]:
            print(f"{argument}: {run(Path(argument).resolve())} compared")
    except Different as different:
        print(different, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
