"""The safetensors package's functions for PyTorch, in a program that `torchgrad-jax run` runs, against the same with PyTorch."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys

import pytest

import torchgrad_jax

pytestmark = pytest.mark.operators
numpy_face = pytest.importorskip("safetensors.numpy")

PROGRAM = """
import json, torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model

def error_of(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error).replace("{'b', 'a'}", "{'a', 'b'}")]

names = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64".split()
x = torch.arange(6.0).view(2, 3)
content = {name: torch.tensor([[0, 1, 2]]).to(getattr(torch, name)) for name in names}
content |= {"scalar": torch.tensor(2.5), "nothing": torch.zeros(0, 3), "row": x.clone()[1], "written": x.clone().add_(1), "result": (x * 2 + 1)}
save_file(content, "all.safetensors", metadata={"format": "pt"})
told = {k: [str(v.dtype), list(v.shape), str(v.tolist()), v.requires_grad] for k, v in sorted(load_file("all.safetensors").items())}
told["bytes"] = load(save({"x": x}))["x"].tolist()
with safe_open("all.safetensors", framework="pt", device="cpu") as f:
    told["parts"] = [f.metadata(), f.get_tensor("float32").tolist(), f.get_slice("written")[:, 1:].tolist(), f.get_slice("row").get_shape()]
told["refused"] = [error_of(lambda: save_file(c, "no.safetensors")) for c in ({"a": x.t()}, {"a": x, "b": x}, {"a": x, "b": x[0]}, {"a": 1})]
torch.manual_seed(0)
make = lambda: torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
first, second = make(), make()
first[1].weight, second[1].weight = first[0].weight, second[0].weight
save_model(first, "model.safetensors")
told["model"] = [str(load_model(second, "model.safetensors")), [p.tolist() for p in second.parameters()], [p.tolist() for p in first.parameters()]]
told["absent"] = error_of(lambda: load_file("no such file"))
print(json.dumps(told))
"""


def with_ours(folder):
    """What the program says in a process of its own, where torch is this package."""
    (folder / "program.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(torchgrad_jax.__file__))}
    ended = subprocess.run([sys.executable, "-m", "torchgrad_jax.cli", "run", "program.py"], cwd=folder, capture_output=True, text=True, env=env)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def with_pytorch(folder):
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(PROGRAM, {})
    return json.loads(printed.getvalue())


def test_files_are_saved_and_loaded(tmp_path):
    (tmp_path / "ours").mkdir()
    ours = with_ours(tmp_path / "ours")
    assert ours["float32"] == ["torch.float32", [1, 3], "[[0.0, 1.0, 2.0]]", False] and ours["model"][1] == ours["model"][2]
    found = numpy_face.load_file(tmp_path / "ours" / "all.safetensors")
    assert found["written"].tolist() == [[1, 2, 3], [4, 5, 6]] and found["row"].tolist() == [3, 4, 5] and found["scalar"].shape == ()
    if importlib.util.find_spec("torch"):
        (tmp_path / "theirs").mkdir()
        assert with_pytorch(tmp_path / "theirs") == ours
        for name in ("all.safetensors", "model.safetensors"):
            assert (tmp_path / "theirs" / name).read_bytes() == (tmp_path / "ours" / name).read_bytes()
