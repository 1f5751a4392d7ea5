"""`torchgrad-jax diff`: scripts and functions that are run under both libraries, and calls that are computed again."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked import Forked

import torchgrad_jax as tj
from torchgrad_jax.cli import sides
from torchgrad_jax.cli.main import main
from torchgrad_jax.comparing.calls import Call
from torchgrad_jax.comparing.finding import Aligned, Search
from torchgrad_jax.comparing.noting import Noting

pytestmark = pytest.mark.operators

ROOT = Path(tj.__file__).parents[1]
EXAMPLES = ROOT / "docs" / "examples"
TEXT = (ROOT / "docs" / "diff.md").read_text()

with_pytorch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")

TRAINING = """\
import torch
import torch.nn.functional as F

torch.manual_seed(0)
w = torch.randn(5, 4, requires_grad=True)
x, y = torch.randn(8, 4), torch.randint(0, 5, (8,))
for step in range(2):
    h = torch.tanh(F.linear(x, w))
    p = F.softplus(h)
    loss = F.cross_entropy(p, y)
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
print(loss.item())
"""
# What is wrong on purpose; PyTorch asks none of it. What is written down of an operator is right.
WRONG_GRADIENT = """
from torchgrad_jax.runtime import modes
modes.table = False
from torchgrad_jax.operators import registry
registry["softplus"].grads["self"] = lambda grad, self, beta, threshold: grad * 0.9
"""
WRONG_DTYPE = """
from torchgrad_jax.runtime import modes
modes.table = False
from torchgrad_jax.operators import registry
right = registry["softplus"].function
registry["softplus"].function = lambda *args, **kwargs: right(*args, **kwargs).astype("float64")
"""
WRONG_SECOND = """
from torchgrad_jax.runtime import modes
modes.table = False
from torchgrad_jax.declaration.factors import SLOPES
SLOPES["tanh"] = SLOPES["tanh"][0], lambda r: -r
"""
# Pictures are not what is compared.
MATPLOTLIB = {
    "__init__.py": "def use(name):\n    pass\n",
    "pyplot.py": "from unittest.mock import MagicMock\n\n\ndef subplots(rows=1, columns=1, **options):\n"
    "    return MagicMock(), [MagicMock() for _ in range(rows * columns)]\n",
}


@pytest.fixture
def launch_anew(tmp_path):
    """Run `torchgrad-jax diff` with arguments in an empty directory."""

    def launch(*arguments):
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "torchgrad_jax.cli", "diff", *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)

    return launch


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    """For each side what its processes are forked from; None where processes cannot be forked."""
    if not hasattr(os, "fork"):
        yield None
        return
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**sides.environment(), "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    imported = {sides.OURS: ("torchgrad_jax.nn", "torchgrad_jax.optim"), sides.PYTORCH: ("torch", "torch._dynamo")}  # which its optimizers import
    servers = {side: Forked(env, tmp_path_factory.mktemp(side), *names, "torchgrad_jax.cli.sides") for side, names in imported.items()}
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture
def launch(tmp_path, launch_anew, forked, monkeypatch, capsys):
    """The same here, with both sides' processes forked. after: a folder where modules are looked for."""

    def launch(*arguments, after=None):
        if forked is None and after is None:
            return launch_anew(*arguments)
        if forked is None:
            pytest.skip("what is forked is given modules")

        def process(workshop, side, file):
            done = forked[side](side, str(file), folder=tmp_path, path=(after,) if after else ())
            return done.returncode, done.stdout + done.stderr

        monkeypatch.setattr(sides.Workshop, "process", process)
        monkeypatch.chdir(tmp_path)
        code, told = main(["diff", *map(str, arguments)]), capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, told.out, told.err)

    return launch


@pytest.fixture
def planted(tmp_path, launch):
    """What `diff --script --json` finds in TRAINING, changed, with this planted in it."""

    def planted(fault, old="", new=""):
        source = "import planted\n" + TRAINING.replace(old, new)
        (tmp_path / "planted.py").write_text(fault)
        (tmp_path / "train.py").write_text(source)
        done = launch("--json", "--script", "train.py")
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)

    return planted


@with_pytorch
def test_what_each_library_does_in_its_own_way_is_seen_by_what_comes_of_it():
    """Initial values, the clipping of gradients and checks of derivatives call other functions in either library: those are not held together."""
    pytorch = importlib.import_module("torch")

    def program(torch):
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2)
        torch.nn.init.trunc_normal_(layer.weight, std=0.1)
        for _ in range(3):
            layer.zero_grad()
            layer(torch.randn(4, 3)).exp().sum().backward()
            torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.5)
        torch.autograd.gradcheck(lambda x: x.sin() * x, (torch.randn(3, dtype=torch.double, requires_grad=True),))

    def notes(torch):
        with Noting(torch) as noting:
            program(torch)
        return noting.notes

    aligned = Aligned(notes(tj), notes(pytorch))
    assert not aligned.ours_only and not aligned.theirs_only and not Search(aligned).suspects()
    assert [record.name for record in aligned.ours.records].count("randn") == 4


@pytest.mark.parametrize(("dtype", "apart", "differs"), [("float32", 1e-7, False), ("float32", 1e-2, True), ("float64", 1e-7, True)])
def test_a_number_that_is_read_is_as_far_off_as_what_it_is_read_from(dtype, apart, differs):
    """As a float of Python's it would be looked at more closely in every script that prints its loss."""

    def notes(number):
        x = tj.tensor([number], dtype=getattr(tj, dtype))
        with Noting(tj) as noting:
            x.item()
        return noting.notes

    suspects = Search(Aligned(notes(3.0), notes(3.0 * (1 + apart)))).suspects()
    assert bool(suspects) == differs


@with_pytorch
@pytest.mark.slow
class TestScripts:
    def test_a_right_script_has_no_difference(self, tmp_path, launch_anew):
        (tmp_path / "train.py").write_text(TRAINING)
        found = json.loads(launch_anew("--json", "--script", "train.py").stdout)
        assert found["agrees"] and found["difference"] is None and found["compared"] > 20 and found["alone"] == [0, 0]

    def test_an_operator_with_a_wrong_gradient_is_named(self, planted, tmp_path, launch):
        difference = planted(WRONG_GRADIENT)["difference"]
        assert difference["certain"] and difference["operator"] == "torch.nn.functional.softplus"
        assert difference["text"] == "p = F.softplus(h)" and difference["what"] == "gradient of operand 0"
        # Without the fault the call that was kept agrees.
        done = launch("--replay", difference["file"])
        assert done.returncode == 0 and "softplus(float32[8, 5]" in done.stdout and "train.py:10" in done.stdout

    def test_a_script_that_fails_is_said_to_have_failed(self, tmp_path, launch):
        script = tmp_path / "fails.py"
        script.write_text("import torch\ntorch.ones(3).exp().sum().item()\ntorch.nested.nested_tensor([torch.ones(2)])\n")
        done = launch("--script", script)
        assert done.returncode == 1
        first, second, *_ = done.stdout.splitlines()
        assert first == "No difference beyond rounding up to where the program failed."
        assert second.startswith("The script ended with status 1 under torchgrad_jax: AttributeError: torch.nested is not")

    @pytest.mark.parametrize(("rate", "agrees"), [("1e-2", True), ("2e-2 if 'torchgrad' in torch.__version__ else 1e-2", False)])
    def test_optimizers_are_seen_by_what_they_leave(self, tmp_path, launch, rate, agrees):
        script = tmp_path / "steps.py"
        loop = "for i in range(3):\n    opt.zero_grad()\n    loss = (w**2).sum()\n    loss.backward()\n    opt.step()\n"
        script.write_text(f"import torch\nw = torch.ones(3, requires_grad=True)\nopt = torch.optim.Adam([w], lr={rate})\n{loop}")
        done = launch("--script", script)
        assert done.returncode == (not agrees), done.stdout
        assert ("No difference beyond rounding." in done.stdout and "another way" not in done.stdout) is agrees

    def test_a_silent_dtype_is_named(self, planted):
        difference = planted(WRONG_DTYPE)["difference"]
        assert difference["text"] == "p = F.softplus(h)" and difference["distance"]["what"] == "dtype float64 instead of float32"

    def test_a_wrong_second_derivative_is_named(self, planted):
        twice = "(g,) = torch.autograd.grad(loss, w, create_graph=True)\n    (loss + g.square().sum()).backward()"
        difference = planted(WRONG_SECOND, "loss.backward()", twice)["difference"]
        assert difference["operator"] == "torch.tanh" and difference["what"] == "second derivative of operand 0"

    def test_a_hook_that_breaks_a_gradient_is_named(self, planted):
        hook = "h.register_hook(lambda g: g * (2 if torch.__spec__.name == 'torchgrad_jax' else 1))\n    p = F.softplus(h)"
        difference = planted("", "p = F.softplus(h)", hook)["difference"]
        assert difference["operator"] == "hook <lambda>" and difference["text"].startswith("h.register_hook")

    @pytest.mark.parametrize(
        ("name", "needs", "options", "least"),
        [
            ("digits", "sklearn", ["--steps", "12"], 600),
            ("physics_informed", None, ["--steps", "2", "--picture", "x.png"], 500),
            ("laplace", "sklearn", ["--steps", "1", "--picture", "x.png"], 250),
        ],
    )
    def test_examples_have_none(self, tmp_path, launch, name, needs, options, least):
        if needs is not None:
            pytest.importorskip(needs)
        (tmp_path / "fake" / "matplotlib").mkdir(parents=True)
        for file, text in MATPLOTLIB.items():
            (tmp_path / "fake" / "matplotlib" / file).write_text(text)
        done = launch("--json", "--script", EXAMPLES / f"{name}.py", *options, after=str(tmp_path / "fake"))
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(done.stdout)
        assert found["agrees"] and found["compared"] > least and not found["cut"]


@with_pytorch
@pytest.mark.slow
class TestFunctions:
    def test_of_a_module_that_imports_torch(self, tmp_path, launch_anew):
        (tmp_path / "model.py").write_text("import torch\n\n\ndef energy(x, w):\n    return torch.tanh(x @ w).square().sum()\n")
        (tmp_path / "plain.py").write_text("import jax.numpy as jnp\n\n\ndef energy(x, w):\n    return jnp.sum(jnp.tanh(x @ w) ** 2)\n")
        done = launch_anew("model:energy", "--shapes", "3,4", "4,2", "--dtype", "float64", "--second", "--jax", "plain:energy", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(done.stdout)
        assert found["agrees"] and found["reference"] == "pytorch" and {row["way"] for row in found["rows"]} == {"jax", "eager", "fused", "jit"}

    def test_that_differ_are_told_with_their_line(self, tmp_path, launch):
        (tmp_path / "planted.py").write_text(WRONG_GRADIENT)
        (tmp_path / "model.py").write_text("import planted\n\n\ndef energy(torch, x):\n    return torch.nn.functional.softplus(x).sum()\n")
        done = launch(tmp_path / "model.py:energy", "--shapes", "3", "--samples", "1", "--save", "call.npz")
        assert done.returncode == 1 and (tmp_path / "call.npz").exists()
        assert re.search(r"first that differs|first operator that differs is torch.nn.functional.softplus at .*model.py:5", done.stdout)


class TestCommand:
    def test_what_cannot_be_done_is_said(self, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for arguments, said in (
            (["--script", "nothing.py"], "can't open file 'nothing.py'"),
            (["--replay", "nothing.npz"], "nothing.npz"),
            (["model:f"], "--shapes of the inputs are needed"),
            (["model:f", "--shapes", "3,x"], "'3,x' is no shape"),
            (["model:f", "--shapes", "3", "--dtype", "real"], "'real' is none of the dtypes"),
        ):
            assert main(["diff", *arguments]) == 2
            assert said in capsys.readouterr().err

    def test_without_pytorch_a_script_has_nothing_to_be_compared_with(self, tmp_path, capsys, monkeypatch):
        (tmp_path / "script.py").write_text("")
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        assert main(["diff", "--script", str(tmp_path / "script.py")]) == 2
        assert "PyTorch is not installed" in capsys.readouterr().err

    def test_help(self, capsys):
        with pytest.raises(SystemExit) as ended:
            main(["diff", "--help"])
        assert ended.value.code == 0 and "--replay" in capsys.readouterr().out

    def test_a_call_is_computed_again_and_held_against_what_was_kept(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        call = Call.of(tj, "torch.sin", (tj.ones(2, requires_grad=True),), {}, "here.py:3")
        call.compute(tj)
        call.save(tmp_path / "right.npz")
        assert main(["diff", "--replay", str(tmp_path / "right.npz")]) == 0
        assert "torch.sin(float32[2])\n    from here.py:3" in capsys.readouterr().out
        call.results["gradient"] = [(dtype, array * 2) for dtype, array in call.results["gradient"]]
        call.save(tmp_path / "wrong.npz")
        assert main(["diff", "--replay", str(tmp_path / "wrong.npz")]) == 1
        assert "It differs in its gradient of operand 0" in capsys.readouterr().out
        assert main(["diff", "--json", "--replay", str(tmp_path / "wrong.npz")]) == 1
        assert json.loads(capsys.readouterr().out)["agrees"] is False


class TestPage:
    def test_examples_run(self):
        names = {}
        for block in re.findall(r"```python\n(.*?)```", TEXT, re.S):
            exec(block, names)
        assert names["found"].agrees

    def test_every_option_is_told(self, capsys):
        with pytest.raises(SystemExit):
            main(["diff", "--help"])
        options = set(re.findall(r"--[a-z]+", capsys.readouterr().out)) - {"--help"}
        assert options <= set(re.findall(r"--[a-z]+", TEXT))
