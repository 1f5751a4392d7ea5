"""What the import of the package leaves for the garbage collector."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.operators

COUNT = "import gc\nprint(gc.get_freeze_count() > 100_000)"


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
    ended = subprocess.run([sys.executable, "-c", f"{before}\nimport torchgrad_jax\n{COUNT}"], capture_output=True, text=True)
    assert (ended.stdout, ended.returncode) == (f"{frozen}\n", 0), ended.stderr
