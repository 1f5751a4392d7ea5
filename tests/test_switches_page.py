"""docs/switches.md is complete: every environment variable of the code, every public setting of the runtime, every option of the command line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torchgrad_jax as torch
from torchgrad_jax.cli import main as cli
from torchgrad_jax.cli.run import RUN_HELP

pytestmark = pytest.mark.operators

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "switches.md").read_text(encoding="utf-8")
VARIABLE = re.compile(r"\bTORCHGRAD_JAX_[A-Z]+\b")


def variables(folder):
    return {name for path in sorted(folder.rglob("*.py")) for name in VARIABLE.findall(path.read_text(encoding="utf-8"))}


def rows(heading):
    """The rows of the tables of a part of the page: the code of the first cell, and the second cell."""
    part = re.split(r"^##+ ", TEXT.partition(f"## {heading}\n")[2], maxsplit=1, flags=re.M)[0]
    return re.findall(r"^\| `(.*?)`.*?\| (.*?) \|", part, re.M)


def printed(capsys, *arguments):
    try:
        cli.main(arguments)
    except SystemExit as ended:
        assert not ended.code
    return capsys.readouterr().out


def test_the_variables_of_the_code_are_those_of_the_page():
    read = variables(Path(torch.__file__).parent)
    assert read == {name for name, _ in rows("Environment variables")}
    assert read == set(VARIABLE.findall(RUN_HELP))
    assert variables(ROOT / "tests") - read <= set(VARIABLE.findall(TEXT))


@pytest.mark.parametrize(
    "name",
    [f"TORCHGRAD_JAX_{name}" for name in ("EXECUTION", "BASELINE", "TYPED", "THIRDS", "TABLE", "CHECK")],
)
def test_a_wrong_value_is_answered_with_those_of_the_page(name):
    done = subprocess.run(
        [sys.executable, "-c", "import torchgrad_jax"], env={**os.environ, "PYTHONPATH": str(ROOT), name: "other"}, capture_output=True, text=True
    )
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"ValueError: {name} must be") and told.endswith("not 'other'")
    assert [value for value in re.findall(r"`(\w+)`", dict(rows("Environment variables"))[name]) if value not in told] == []


def test_public_settings_of_the_runtime_are_on_the_page():
    assert all(f"`torch.runtime.{name}" in TEXT for name in torch.runtime.__all__)


def test_names_on_the_page_are_there():
    found = re.findall(r"`torch\.((?:\w+\.)*\w+)", TEXT)
    assert len(found) > 20
    for name in found:
        value = torch
        for part in name.split("."):
            value = getattr(value, part)


@pytest.mark.parametrize("command", ["scan", "diff"])
def test_the_options_of_a_command_are_those_of_the_page(command, capsys):
    options = set(re.findall(r"(?<![\w-])--[a-z-]+", printed(capsys, command, "--help"))) - {"--help"}
    listed = re.findall(r"^\| `(--[a-z-]+)", TEXT.partition(f"| option of `{command}` |")[2].partition("\n\n")[0], re.M)
    assert options == set(listed) and len(listed) == len(set(listed))


def test_the_commands_are_those_of_the_page(capsys):
    described = re.findall(r"^  torchgrad-jax (\w+)", printed(capsys, "--help"), re.M)
    assert described and set(described) == {row.split()[1] for row, _ in rows("The command line") if row.startswith("torchgrad-jax ")}
    for option in re.findall(r"^  (-\S*)", RUN_HELP, re.M):
        assert option in ("-h,",) or f"run {option}" in TEXT
