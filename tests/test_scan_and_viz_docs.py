"""docs/scan.md and docs/viz.md keep their word: their examples run, and give what is shown."""

import contextlib
import io
import itertools
import json
import re
from pathlib import Path

import pytest

from torchgrad_jax import viz
from torchgrad_jax.cli import main as cli

pytestmark = pytest.mark.operators
DOCS = Path(__file__).parents[1] / "docs"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)


def test_the_scan_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(blocks("scan.md", "python")[0])
    command, *shown = blocks("scan.md", "console")[0].splitlines()
    assert cli.main(command.split()[2:]) == 1
    assert capsys.readouterr().out.splitlines() == shown


def test_the_page_names_what_json_has(tmp_path, capsys):
    (tmp_path / "a.py").write_text("import torch\ntorch.sin\n")
    cli.main(["scan", "--json", str(tmp_path)])
    found = json.loads(capsys.readouterr().out)
    text = (DOCS / "scan.md").read_text(encoding="utf-8")
    assert all(f"`{key}`" in text for part in (found["summary"], found["names"][0], found["names"][0]["places"][0]) for key in part)


def test_the_pictures_of_the_page():
    names, compared = {}, 0
    for block in blocks("viz.md", "python"):
        lines = block.splitlines()
        at = 0
        while at < len(lines):
            code = list(itertools.takewhile(lambda line: not line.startswith("# "), lines[at:]))
            shown = [line[2:] for line in itertools.takewhile(lambda line: line.startswith("# "), lines[at + len(code) :])]
            at += len(code) + len(shown)
            last = code.pop() if shown else "pass"
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec("\n".join(code), names)
                value = eval(last, names) if shown else None
            if shown:
                assert (printed.getvalue().splitlines() or [repr(value)]) == shown
                compared += 1
    assert compared == 3
    assert {path.suffix for path in names["folder"].iterdir()} == {".svg", ".dot", ".txt"}


def test_every_public_name_of_viz_is_told_of():
    text = (DOCS / "viz.md").read_text(encoding="utf-8")
    assert "viz.graph" in text and "viz.record_lines" in text
    assert all(getattr(viz, name).__doc__ for name in viz.__all__)
