"""docs/extending.md keeps its word: its declaration, put into a copy of the package and nothing else, is an operator with all that belongs to it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
USED = """
import torchgrad_jax as torch
x = torch.tensor([[0.5, -2.0]], requires_grad=True)
y = torch.logcosh(x)
assert y.grad_fn.name() == "LogcoshBackward0" and y.grad_fn._saved_self is x
y.sum().backward()
assert torch.allclose(x.grad, x.tanh()) and torch.allclose(y, x.cosh().log())
assert torch.logcosh(torch.tensor([1, 2])).dtype is torch.float32
out = torch.empty(1, 2)
assert torch.logcosh(x.detach(), out=out) is out and torch.equal(x.detach().clone().logcosh_(), out)
try:
    torch.logcosh(2.0)
except TypeError as error:
    assert "must be Tensor" in str(error)
"""


def test_the_declaration_of_the_docs_is_all_that_an_operator_needs(tmp_path):
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.S)[1]
    assert len(code.splitlines()) <= 5
    for name in ("torchgrad_jax", "compat_suite"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "torchgrad_jax" / "ops" / "special.py").open("a") as module:
        module.write("\n\n" + code)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for command in (["-c", USED], ["-m", "compat_suite.self_check", "logcosh", "--jobs", "1"]):
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    assert "second: 1 of 1 samples of 1 operators agree" in done.stdout and "forward: 1 of 1" in done.stdout
