"""docs/anomaly.md keeps its word: its programs say what is printed below them."""

import linecache
import re
import warnings
from itertools import pairwise
from pathlib import Path

import pytest

import torchgrad_jax as torch

pytestmark = pytest.mark.operators

TEXT = (Path(__file__).parents[1] / "docs" / "anomaly.md").read_text()
BLOCKS = re.findall(r"```(python|text)\n(.*?)```", TEXT, re.S)
NAMES = {}


@pytest.fixture(autouse=True)
def off_again():
    yield
    torch.autograd.set_detect_anomaly(False)
    linecache.cache.pop("train.py", None)


def printed(block):
    """What a program prints of warnings and its error, with the frames of its own file."""
    linecache.cache["train.py"] = (len(block), None, block.splitlines(keepends=True), "train.py")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(block, "train.py", "exec"), NAMES)
            error = ""
        except RuntimeError as raised:
            error = f"RuntimeError: {raised}\n"
    texts = [f"UserWarning: {w.message}" for w in caught if not re.match("Anomaly Detection|Using backward", str(w.message))]
    others = r'  File "(?!train\.py").*\n(?:    .*\n)?'
    return re.sub(others, "", "".join(texts)) + error


SAID = [(program, text) for (kind, program), (after, text) in pairwise(BLOCKS) if (kind, after) == ("python", "text")]


@pytest.mark.parametrize(("program", "text"), SAID, ids=[f"program {i}" for i in range(len(SAID))])
def test_what_is_said(program, text):
    assert printed(program) == text


def test_all_programs_are_tried():
    silent = [block for (kind, block), (after, _) in pairwise([*BLOCKS, ("", "")]) if kind == "python" and after != "text"]
    assert len(SAID) == 6 and len(silent) == 1
    assert printed(SAID[0][0]) == SAID[0][1]
    *lines, shown, comment = silent[0].strip().splitlines()
    NAMES["x"].grad = None
    assert printed("\n".join(lines)) == ""
    assert f"# {eval(shown, NAMES)!r}" == comment


def test_the_names_are_there():
    for name in re.findall(r"`torch\.([\w.]+)\(", TEXT):
        found = torch
        for part in name.split("."):
            found = getattr(found, part)
