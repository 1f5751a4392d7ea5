"""Small programs with a fault in one line, and the tool that finds it: what it prints has that line."""

from __future__ import annotations

import importlib.util
import linecache
import runpy
import warnings

import pytest

import torchgrad_jax as tj
from torchgrad_jax.testing import compare

pytestmark = [pytest.mark.operators, pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled:UserWarning")]

with_pytorch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
MARK = "  # here"


class Program:
    """A script in a file, of which one line ends with the mark."""

    def __init__(self, folder, source):
        self.path = folder / "faulty.py"
        self.path.write_text("import torchgrad_jax as torch\n" + source)
        lines = self.path.read_text().split("\n")
        self.line = next(i for i, text in enumerate(lines, 1) if text.endswith(MARK))
        self.text = lines[self.line - 1].strip().removesuffix(MARK).strip()
        linecache.checkcache(str(self.path))

    def run(self):
        return runpy.run_path(str(self.path), run_name="__main__")

    def is_named_in(self, told):
        return self.path.name in told and (f"line {self.line}" in told or f"{self.path.name}:{self.line}" in told) and self.text in told


NAN_IN_BACKWARD = {
    "a root of zero": """
def loss(x):
    root = x.sqrt()  # here
    return torch.where(x > 0, root, 0.0).sum()

x = torch.tensor([0.0, 4.0], requires_grad=True)
with torch.autograd.detect_anomaly():
    loss(x).backward()
""",
    "0 * inf in a Function": """
class Inverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 1 / x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return -grad / x**2

x = torch.tensor([0.0, 4.0], requires_grad=True)
with torch.autograd.detect_anomaly():
    inverse = Inverse.apply(x)  # here
    (inverse * torch.tensor([0.0, 1.0])).sum().backward()
""",
    "a second derivative": """
x = torch.tensor([0.0, 4.0], requires_grad=True)
with torch.autograd.detect_anomaly():
    y = (x**1.5).sum()  # here
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    (gradient * torch.tensor([0.0, 1.0])).sum().backward()
""",
}


@pytest.mark.parametrize("name", NAN_IN_BACKWARD)
def test_nan_in_a_backward_pass(tmp_path, name):
    program = Program(tmp_path, NAN_IN_BACKWARD[name])
    with warnings.catch_warnings(record=True) as caught, pytest.raises(RuntimeError, match="returned nan values"):
        warnings.simplefilter("always")
        program.run()
    assert program.is_named_in("".join(str(w.message) for w in caught))


def test_the_logarithm_of_a_negative_number(tmp_path):
    program = Program(
        tmp_path,
        """
x = torch.tensor([-1.0, 4.0])
with torch.autograd.detect_anomaly(check_forward=True):
    y = x * 2
    y = y.log()  # here
    print(y.sum())
""",
    )
    with pytest.raises(RuntimeError, match="Operation 'log' returned nan values") as caught:
        program.run()
    places = [(str(entry.path), entry.lineno + 1) for entry in caught.traceback]
    assert (str(program.path), program.line) in places


def test_a_shape_that_makes_every_turn_a_new_program(tmp_path):
    program = Program(
        tmp_path,
        """
def turn(n):
    x = torch.ones(n, 8)  # here
    y = torch.tanh(x @ torch.ones(8, 3))
    return y.sum().item()

for n in range(5, 11):
    turn(n)
""",
    )
    told = explained(program)
    assert program.is_named_in(told)
    assert "[5, 8]" in told and "[6, 8]" in told


def test_a_hidden_transfer_in_a_loop(tmp_path):
    program = Program(
        tmp_path,
        """
x, total = torch.ones(4), 0.0
for _ in range(20):
    x = torch.sin(x)
    if x.sum() > 100:  # here
        break
""",
    )
    told = explained(program)
    assert program.is_named_in(told)
    assert "20 x" in told


def explained(program):
    with tj.explain() as report:
        program.run()
    return str(report)


def wrong_formula(torch, x):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * x if torch is tj else grad * x * 2

    return Square.apply(torch.sin(x)).sum()


def other_dtype(torch, x):
    y = torch.sin(x)
    y = y.to(torch.float64) if torch is tj else y * 1
    return (y * 2).sum()


def broken_by_a_hook(torch, x):
    y = torch.sin(x)
    if torch is tj:
        y.register_hook(lambda grad: grad * 2)
    return (y * y).sum()


@with_pytorch
@pytest.mark.parametrize(
    ("function", "text"),
    [(wrong_formula, "Square"), (other_dtype, "y = y.to(torch.float64)"), (broken_by_a_hook, "y.register_hook(lambda grad: grad * 2)")],
)
def test_what_differs_from_the_original(function, text):
    found = compare(function, shapes=[(4,)], samples=1, second=False)
    assert not found.agrees
    told = str(found)
    start = function.__code__.co_firstlineno
    source = linecache.getlines(__file__)
    wanted = [i for i in range(start, start + 20) if text in source[i - 1]] if text != "Square" else range(start, start + 13)
    assert any(f"test_planted_faults.py:{line}" in told for line in wanted), told


def test_a_checkpoint_that_is_not_deterministic(tmp_path):
    program = Program(
        tmp_path,
        """
from torchgrad_jax.utils.checkpoint import checkpoint

calls = []

def block(x):
    calls.append(1)
    y = x.sin()
    if len(calls) > 1:
        y = y[:2]  # here
    return y.cos()

x = torch.ones(3, requires_grad=True)
checkpoint(block, x, use_reentrant=False, debug=True).sum().backward()
""",
    )
    with pytest.raises(RuntimeError, match="metadata") as caught:
        program.run()
    assert f"{program.path}:{program.line}" in str(caught.value)
