"""Training steps, one operation a statement, and the state that a user sees between two of them."""

from __future__ import annotations

from typing import Any

import torchgrad_jax

SETUP = """
torch.manual_seed(0)
w = torch.randn(3, 2, requires_grad=True)
b = torch.zeros(2, requires_grad=True)
m = torch.zeros(3, 2)
data = torch.linspace(-1, 1, 12).reshape(4, 3)
rows = torch.tensor([2, 0, 1, 3])
count = torch.zeros(())
losses = torch.zeros(5)
"""

# The same two statements more than once: their second and later runs take other ways through the library than the first.
STEP = """
x = data[rows] * 1.5
h = x @ w
y = (h + b).sin()
part = y[1:3]
part.mul_(2)
loss = (y * y).sum()
loss.backward()
no_grad: m.mul_(0.9)
no_grad: m.add_(w.grad)
no_grad: w.sub_(m, alpha=0.1)
no_grad: b.sub_(0.1 * b.grad)
no_grad: losses[int(count) % 5] = loss
w.grad = None
b.grad.zero_()
count += 1
"""

# With a number that is looked at in the step, and a graph that is kept.
LOOKING = """
y = torch.nn.functional.linear(data, w.t(), b).relu()
loss = torch.nn.functional.cross_entropy(y, rows % 2)
value = loss.item()
(g,) = torch.autograd.grad(loss, [w], create_graph=True)
penalty = (g * g).sum()
penalty.backward()
no_grad: w.add_(w.grad, alpha=-0.1)
w.grad = None
b.grad = None
count.add_(value > 0)
"""

PROGRAMS = {"views": STEP, "looking": LOOKING}


def statements(source: str) -> list[tuple[Any, bool]]:
    """The code of each line, and whether it runs in grad mode: the mode is set before a fault can come."""
    parts = [line.rpartition("no_grad: ") for line in source.strip().splitlines()]
    return [(compile(code, "<step>", "exec"), not mark) for _, mark, code in parts]


def state(names: dict[str, Any]) -> list[Any]:
    """What can be seen of the tensors of a program."""
    found = []
    for name, t in names.items():
        if isinstance(t, torchgrad_jax.Tensor):
            grad = t.grad if t.is_leaf else None
            shown = None if grad is None else (grad.tolist(), grad._version)
            found.append((name, t.tolist(), t._version, t.requires_grad, t.is_leaf, type(t.grad_fn).__name__, shown))
    return found
