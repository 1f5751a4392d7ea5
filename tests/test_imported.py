"""What the import of the package leaves for the garbage collector."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import torchgrad_jax

pytestmark = pytest.mark.operators

ROOT = Path(torchgrad_jax.__file__).parents[1]
COUNT = "import gc\nprint(gc.get_freeze_count() > 100_000)"


def printed(command, **options):
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, **options)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_is_frozen_where_a_tool_runs_the_imports_of_a_program(tmp_path):
    (tmp_path / "test_it.py").write_text(f"import torchgrad_jax\n\ndef test_it():\n    {COUNT.replace(chr(10), '; ')}\n")
    path = os.pathsep.join(map(str, (ROOT, *filter(None, [os.environ.get("PYTHONPATH")]))))
    environment = {**os.environ, "PYTHONPATH": path}
    assert "True\n" in printed(["-m", "pytest", "-sq", "-p", "no:cacheprovider", "test_it.py"], cwd=tmp_path, env=environment)


@pytest.mark.parametrize(
    ("before", "frozen"),
    [
        ("from __future__ import annotations\nimport os\nfrom math import pi\nNAMES = 'x', (1, os)\ndef main(): pass", True),
        ("import gc\ngc.freeze()\ngc.unfreeze()", True),
        ("made = []\nmade.append(made)", False),  # garbage is looked for as before
        ("made = ([],)", False),
        ("def main():\n    import torchgrad_jax\nmain()", False),
        ("import gc, jax\ngc.freeze()\nimport torchgrad_jax\ngc.unfreeze()", False),
    ],
)
def test_is_frozen_where_nothing_else_was_made(before, frozen):
    assert printed(["-c", f"{before}\nimport torchgrad_jax\n{COUNT}"], cwd=ROOT) == f"{frozen}\n"
