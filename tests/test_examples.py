"""The scripts of docs/examples/ run, find what they are after, and draw it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torchgrad_jax

pytestmark = [pytest.mark.operators, pytest.mark.slow]

ROOT = Path(torchgrad_jax.__file__).parents[1]
EXAMPLES = ROOT / "docs" / "examples"
# What each needs, what it is told, a number in what it prints, and where that lies.
KNOWN = {
    "digits": (["sklearn"], ["--steps", "200"], r"test accuracy ([\d.]+)%", (90, 100)),
    "physics_informed": (["matplotlib"], [], r"conductivity ([\d.]+), true 0.1", (0.095, 0.115)),
    "per_sample_gradients": (["matplotlib", "sklearn"], ["--epochs", "4"], r"noise 0.0  epoch 3  test accuracy ([\d.]+)%", (75, 100)),
    "jax_kernel": (["matplotlib"], [], r"off by ([\d.]+) of a side", (0, 0.01)),
    "optax_training": (["matplotlib", "optax", "sklearn"], [], r"backward\(\), .* last loss ([\d.]+)", (0, 0.2)),
    "laplace": (["matplotlib", "sklearn"], [], r"of (\d+)% with all that are likely", (30, 75)),
    "character_gpt": ([], ["--steps", "30", "--characters", "20"], r"step   29  loss ([\d.]+)", (2.3, 3.3)),
    "image_classifier": (["matplotlib", "sklearn"], ["--epochs", "3"], r"test accuracy ([\d.]+)%", (60, 100)),
    "autoencoder": (["matplotlib", "sklearn"], ["--epochs", "6"], r"epoch  5  bound ([\d.]+)", (24, 28)),
    "gaussian_process": (["matplotlib", "sklearn"], ["--iterations", "15"], r"variance ([\d.]+) explained", (0.4, 0.6)),
    "cart_pole": (["matplotlib"], ["--steps", "1500"], r"last ten episodes lasted ([\d.]+) of", (8, 200)),
}


WITHOUT_PICTURE = ("digits", "character_gpt")


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_example(name, tmp_path):
    needs, options, printed, (least, most) = KNOWN[name]
    for module in needs:
        pytest.importorskip(module)
    if name not in WITHOUT_PICTURE:
        options = [*options, "--picture", str(tmp_path / "picture.png")]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, "MPLCONFIGDIR": str(tmp_path), "TORCHGRAD_JAX_TRACEBACK": ""}
    command = [sys.executable, "-m", "torchgrad_jax.cli", "run", str(EXAMPLES / f"{name}.py"), *options]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = re.search(printed, done.stdout)
    assert found and least <= float(found[1]) <= most, done.stdout
    if name not in WITHOUT_PICTURE:
        picture = (tmp_path / "picture.png").read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_small(path):
    assert len(path.read_text().splitlines()) <= 125
