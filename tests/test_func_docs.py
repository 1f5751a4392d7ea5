"""docs/func.md keeps its word: its examples run, and give what the comments say."""

import itertools
import re
from pathlib import Path

import pytest

import torchgrad_jax as torch

pytestmark = pytest.mark.operators

TEXT = (Path(__file__).parents[1] / "docs" / "func.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.S)


def test_examples_run():
    names = {}
    for block in BLOCKS:
        exec(block, names)
    assert [list(g.shape) for g in names["per_sample"].values()] == [[5, 1, 2], [5, 1]]
    assert names["value"].item() == torch.tensor(1.0).sin().item()


def test_what_is_shown_is_what_is_given():
    """An expression with its result in the comment below it."""
    names, compared = {}, 0
    for block in BLOCKS:
        lines, done = block.splitlines(), 0
        for i in range(1, len(lines)):
            if lines[i].startswith("# ") and not lines[i - 1].startswith("# ") and re.match(r"# \(?(tensor|torch)", lines[i]):
                shown = list(itertools.takewhile(lambda line: line.startswith("#"), lines[i:]))
                exec("\n".join(lines[done : i - 1]), names)
                assert repr(eval(lines[i - 1], names)) == "\n".join(line[2:] for line in shown)
                done, compared = i, compared + 1
        exec("\n".join(lines[done:]), names)
    assert compared == 7


def test_every_public_name_is_there():
    assert all(f"`{name}" in TEXT or f"`torch.func.{name}" in TEXT for name in torch.func.__all__)
