"""docs/extending.md keeps its word: the code of each exercise, put into a copy of the package and nothing else, has all that belongs to it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "extending.md").read_text()
EXERCISES = dict(re.findall(r"^## (\d)\. [^\n]*\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S))
PUBLIC = """
overridable = {f for functions in torch.overrides.get_overridable_functions().values() for f in functions}
class Answers:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func
class Sub(torch.Tensor):
    pass
"""
USED = {
    "1": """
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
""",
    "2": """
assert torch.logmeanexp(Answers()) is torch.logmeanexp and {torch.logmeanexp, torch.Tensor.logmeanexp} <= overridable
x = torch.arange(6).reshape(2, 3)
assert type(torch.logmeanexp(x.float().as_subclass(Sub))) is Sub
assert torch.logmeanexp(x, 1).dtype is torch.float32 and torch.logmeanexp(x, dim=(0, 1), keepdim=True).shape == (1, 1)
assert torch.isnan(torch.logmeanexp(torch.empty(0, 2), 0)).all() and torch.logmeanexp(torch.empty(0, 2), 1).shape == (0,)
assert torch.logmeanexp(torch.tensor(2.0)).item() == 2 and "logmeanexp" in torch.logmeanexp.__name__
for call, kind, said in (
    (lambda: x.logmeanexp(dim="a"), TypeError, "must be"),
    (lambda: x.float().logmeanexp(1, out=torch.empty(2)), TypeError, "out"),
    (lambda: torch.logmeanexp(x.float(), 2), IndexError, "out of range"),
    (lambda: torch.logmeanexp(x.float().requires_grad_(), 1, out=torch.empty(2)), RuntimeError, "automatic differentiation"),
):
    try:
        call()
    except kind as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)
""",
    "3": """
F = torch.nn.functional
assert F.scale_norm(Answers(), 1.0) is F.scale_norm and F.scale_norm in overridable
module = torch.nn.ScaleNorm(4)
assert type(module(torch.ones(2, 4).as_subclass(Sub))) is Sub and torch.nn.modules.ScaleNorm is torch.nn.ScaleNorm
assert module(torch.zeros(2, 4)).tolist() == [[0.0] * 4] * 2 and module.half()(torch.ones(4).half()).dtype is torch.float16
other = torch.nn.ScaleNorm(9, dtype=torch.float64)
assert other.scale.item() == 3 and other.scale.dtype is torch.float64
other.load_state_dict(module.state_dict())
assert other.scale.item() == 2
for input, scale, argument in ((1.0, other.scale, "input"), (other.scale, 1.0, "scale")):
    try:
        F.scale_norm(input, scale)
    except TypeError as error:
        assert f"argument '{argument}'" in str(error)
    else:
        raise AssertionError(argument)
""",
    "4": """
from torchgrad_jax.autograd import graph
from torchgrad_jax.autograd import tape
from torchgrad_jax.runtime import modes
assert "register_post_backward_hook" in graph.__all__
log = []
def once(leaves):
    log.append((graph.graph_task().accumulate, torch.is_grad_enabled(), [t.grad.tolist() for t in leaves]))
    handle.remove()
handle = graph.register_post_backward_hook(once)
second = graph.register_post_backward_hook(lambda leaves: log.append(len(leaves)))
x, y = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
(x * y).backward()
assert log == [(True, False, [3.0, 2.0]), 2], log
x.register_hook(lambda grad: log.append("hook of x"))
x.register_post_accumulate_grad_hook(lambda t: log.append("accumulated"))
(x * y.detach()).backward()
assert log[2:] == ["hook of x", "accumulated", 1], log
# A graph that comes again runs as one operation.
a = torch.ones(2, requires_grad=True)
for i in range(4):
    (a.sin() * 3).sum().backward()
assert log[5:] == [1] * 4 and (modes.execution == "eager" or any(type(t) is tape.Tape for t in tape._tapes.values()))
# A pass within a pass ends by itself.
del log[:]
class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a.clone()
    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            (y * 2).backward()
        return grad
z = torch.ones(2, requires_grad=True)
Inner.apply(z).sum().backward()
assert log == [1, 1] and z.grad is not None
second.remove()
z.sum().backward()
assert log == [1, 1]
""",
}


def blocks(exercise):
    """The file, the kind and the text of each block of code of an exercise that belongs in a file."""
    path = None
    for named, kind, code in re.findall(r"^In `([^`\n]+)`:$|^```(\w+)\n(.*?)^```$", EXERCISES[exercise], re.M | re.S):
        if named:
            path = named
        elif kind in ("python", "text", "diff"):
            yield path, kind, code


def put(file, kind, code):
    """Do what a block says with its file."""
    if kind == "diff":
        text = file.read_text()
        for hunk in code.split("@@\n"):
            before, after = ("".join(line[1:] for line in hunk.splitlines(True) if line[0] != other) for other in "+-")
            assert ("\n" + text).count("\n" + before) == 1, (file.name, before)
            text = ("\n" + text).replace("\n" + before, "\n" + after)[1:]
        file.write_text(text)
    elif file.exists():
        with file.open("a") as module:
            module.write(code if kind == "text" else "\n\n" + code)
    else:
        file.parent.mkdir(exist_ok=True)
        file.write_text(code)


@pytest.fixture
def extended(request, tmp_path):
    """The number of an exercise, a folder with a copy of the package in which it is done, and the files of its tests there."""
    for name in ("torchgrad_jax", "compat_suite"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    tests = []
    for path, kind, code in blocks(request.param):
        put(tmp_path / path, kind, code)
        if path.startswith("tests/"):
            tests.append(path)
    return request.param, tmp_path, tests


def run(folder, *command):
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    return done.stdout


# The execution mode concerns the passes of the last one alone.
@pytest.mark.parametrize("extended", [*(pytest.param(n, marks=pytest.mark.operators) for n in "123"), "4"], indirect=True)
def test_each_exercise_gives_what_it_says(extended):
    number, folder, tests = extended
    run(folder, "-c", f"import torchgrad_jax as torch\nassert torch.__file__.startswith({str(folder)!r})\n{PUBLIC}{USED[number]}")
    if number == "1":
        said = run(folder, "-m", "compat_suite.self_check", "logcosh", "--jobs", "1")
        assert "second: 1 of 1 samples of 1 operators agree" in said and "forward: 1 of 1" in said
    else:
        assert tests and " passed" in run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *tests)


def test_each_exercise_touches_two_files_at_most():
    assert list(EXERCISES) == ["1", "2", "3", "4"] == list(USED)
    rows = re.findall(r"^\| \[[^\n]*\]\(#(\d)[^|]*\|[^|]*\|([^|]*)\|$", TEXT, re.M)
    for number, listed in rows:
        touched = dict.fromkeys(path for path, _, _ in blocks(number) if not path.startswith("tests/"))
        assert 1 <= len(touched) <= 2 and [f"torchgrad_jax/{name}" for name in re.findall(r"`([^`]+)`", listed)] == list(touched)
    assert len(rows) == 4
    assert sum(len(code.splitlines()) for path, kind, code in blocks("1")) <= 5
