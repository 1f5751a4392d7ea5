"""Random programs behave as in PyTorch; what does not is found, made short and printed as a script. `python -m compat_suite fuzz` runs more of them.

TORCHGRAD_JAX_PROGRAMS: how many programs (default 240).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

import torchgrad_jax
from torchgrad_jax.runtime import execution_mode

torch = pytest.importorskip("torch")

from compat_suite.fuzz import command  # noqa: E402 - needs torch
from compat_suite.fuzz.author import FEW, FEWER  # noqa: E402
from compat_suite.fuzz.relatives import family, relative  # noqa: E402
from compat_suite.fuzz.rules import EXCLUDED  # noqa: E402
from compat_suite.fuzz.scripts import script  # noqa: E402
from compat_suite.fuzz.search import Look, Step, differs, generate  # noqa: E402
from compat_suite.fuzz.shrinking import shrunk  # noqa: E402

COUNT = int(os.environ.get("TORCHGRAD_JAX_PROGRAMS", "240"))
pytestmark = pytest.mark.operators


def differing(seeds, shapes):
    found = ((seed, *generate(seed, EXCLUDED, shapes)) for seed in seeds)
    return [(seed, str(difference)) for seed, steps, first in found if first and (difference := differs(steps, EXCLUDED))]


def test_random_programs_behave_as_in_pytorch():
    with execution_mode("fused"):
        assert differing(range(COUNT), FEW) == []


def test_programs_that_differ_in_a_detail_are_told_apart():
    with execution_mode("fused"):
        for seed in range(COUNT, COUNT + COUNT // 10):
            steps, found = family(seed, generate(seed, EXCLUDED)[0], EXCLUDED, 12)
            assert found is None, script(steps, found)


@pytest.mark.slow
def test_random_programs_behave_as_in_pytorch_in_eager_mode():
    with execution_mode("eager"):
        assert differing(range(COUNT // 20), FEWER) == []


WRONG = ["x1 = leaf(4, seed=1)", "x2 = leaf(2, 3)", "x3 = x1.sin()", "x4 = x2 * 2", "h5 = x1.register_hook(hook(5))", "x3.sum().backward()"]


def steps_of(lines, look=Look.VALUES):
    return [Step(line, look) for line in lines]


@pytest.fixture
def wrong(monkeypatch):
    """A library whose sine is wrong."""
    monkeypatch.setattr(torchgrad_jax.Tensor, "sin", lambda self: self.cos())


def test_a_program_that_differs_is_made_short(wrong):
    found = differs(steps_of(WRONG), EXCLUDED)
    assert found.name == "x3" and found.what == "grad_fn"
    steps, found = shrunk(steps_of(WRONG), found, EXCLUDED)
    assert [s.statement for s in steps] == ["x1 = leaf(2, seed=1)", "x3 = x1.sin()"] and not any(s.look for s in steps)


def test_a_relative_that_differs_is_found(wrong):
    steps = steps_of([line.replace("sin", "cos") for line in WRONG])
    assert differs(steps, EXCLUDED) is None
    last, found = family(0, steps, EXCLUDED, 400)
    assert "sin()" in found.statement and last != steps


def test_relatives_differ_in_a_detail():
    steps, chance = steps_of(WRONG), random.Random(0)
    relatives = [relative(chance, steps) for _ in range(200)]
    assert all(abs(len(r) - len(steps)) <= 2 and len(set(steps) - set(r)) <= 2 for r in relatives)
    assert len({tuple(r) for r in relatives}) > 30


def test_its_script_runs_with_both_libraries(wrong, tmp_path):
    steps = steps_of([*WRONG, "x6 = special(3)", "x1.no_such()", "for i in range(2):\n    x7 = x1 * i"])
    text = script(steps, differs(steps, EXCLUDED))
    assert text.startswith("import math\nimport torch\n") and "def prehook" not in text
    for library in ("torch", "torchgrad_jax as torch"):
        path = tmp_path / f"{library.split()[0]}_program.py"
        path.write_text(text.replace("import torch\n", f"import {library}\n"))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, check=True)
        assert "SinBackward0" in done.stdout and "AttributeError" in done.stdout


def test_what_rounding_decides_is_no_difference(monkeypatch):
    monkeypatch.setattr(torchgrad_jax.Tensor, "sin", lambda self, sin=torchgrad_jax.Tensor.sin: sin(self * (1 + 1e-13)))
    program = ["x1 = leaf(4, seed=1, requires_grad=False)", "x2 = x1.sin()", "x3 = (x2 - x1) * 1e12"]
    steps = steps_of(program, Look.NOTHING)
    assert differs(steps, EXCLUDED) is None
    assert differs(steps_of([*program[:2], "x3 = x2 + 1e-3 * (torch.__name__ == 'torch')"]), EXCLUDED) is not None


def test_what_the_sign_of_a_sum_of_nothing_decides_is_no_difference():
    program = ["x1 = leaf(seed=2)", "x2 = ((x1 - 3.0) * (x1 == 0.25)).sum()", "x3 = torch.atan2(x2, x1 - 3.0)"]
    assert differs(steps_of(program), EXCLUDED) is None


@pytest.mark.parametrize("number", ["1.0", "x1 - x1 + 1"])
def test_what_is_equal_but_for_rounding_is_no_difference(monkeypatch, number):
    monkeypatch.setattr(torchgrad_jax.Tensor, "sin", lambda self, sin=torchgrad_jax.Tensor.sin: sin(self) / sin(self))
    monkeypatch.setattr(torch.Tensor, "sin", lambda self: self / self + 1e-9)
    program = ["x1 = leaf(4, seed=1, requires_grad=False)", "x2 = x1.sin()", f"x3 = x2 == {number}"]
    assert differs(steps_of(program, Look.NOTHING), EXCLUDED) is None
    monkeypatch.setattr(torch.Tensor, "sin", lambda self: self / self + 1e-3)
    assert differs(steps_of(program, Look.NOTHING), EXCLUDED) is not None


def test_the_command(capsys):
    with pytest.raises(SystemExit) as exit:
        command.main(["--help"])
    assert exit.value.code == 0 and "--mode {fused,eager}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as exit:
        command.main(["3", "--jobs", "1", "--seed", "2"])
    assert exit.value.code == 0 and capsys.readouterr().out.startswith("# 3 programs")
