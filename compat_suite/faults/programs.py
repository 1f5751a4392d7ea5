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

# Functions that are transformed, and what the library keeps for them.
SETUP_OF_TRANSFORMS = """
F = torch.func
A = torch.autograd.functional
D = torch.autograd.forward_ad
x = torch.tensor([0.1, 0.7, -0.4])
v = torch.tensor([1.0, -1.0, 0.5])
batch = torch.linspace(-1, 1, 6).reshape(2, 3)
def f(t): return (t.sin() * t).sum()
def g(t): return t.sin() * t
def captures(t): return (t * w[:, 0]).tanh().sum()
def draws(t): return (t * torch.rand(3)).sum()
def counts(t):
    count.add_(1)
    return (t * w[:, 0]).sum() + count
class Cube(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(t): return t * t * t
    @staticmethod
    def setup_context(ctx, inputs, output): ctx.save_for_backward(*inputs); ctx.save_for_forward(*inputs)
    @staticmethod
    def backward(ctx, g): return g * 3 * ctx.saved_tensors[0] ** 2
    @staticmethod
    def jvp(ctx, v): return v * 3 * ctx.saved_tensors[0] ** 2
def cubes(t): return Cube.apply(t).sum()
lin = torch.nn.Linear(3, 1)
with torch.no_grad(): [p.fill_(0.25) for p in lin.parameters()]
names = {"weight": torch.full((1, 3), 0.5), "bias": torch.zeros(1)}
own, (weight, bias) = lin._parameters, lin.parameters()
checkpoint = torch.utils.checkpoint.checkpoint
whole, updates, pure = torch.jit(f), torch.jit(counts), torch.to_jax(f)
import jax
sines = torch.from_jax(lambda a: jax.numpy.sin(a) * a)
array = jax.numpy.asarray([0.1, 0.7, -0.4])
def moved(t):
    with D.dual_level():
        return D.unpack_dual(f(D.make_dual(t * 1, v))).tangent
"""

# Each is a program of its own, in the order of its statements.
PROGRAMS_OF_TRANSFORMS = {
    "grad": "r = F.grad(f)(x)",
    "vmap": "r = F.vmap(g)(batch)",
    "vmap of grad": "r = F.vmap(F.grad(captures))(batch)",
    "hessian": "r = F.hessian(f)(x)",
    "jacrev": "r = F.jacrev(g)(x)",
    "jacfwd": "r = F.jacfwd(g)(x)",
    "jvp": "r = F.jvp(g, (x,), (v,))[1]",
    "vjp": "out, pull = F.vjp(g, x)\n(r,) = pull(v)\n(r,) = pull(v * 2)",
    "linearize": "out, push = F.linearize(g, x)\nr = push(v)",
    "random numbers": "torch.manual_seed(3); r = F.grad(draws)(x)",
    "random numbers of a batch": "torch.manual_seed(3); r = F.vmap(draws, randomness='different')(batch)",
    "Function in vmap": "r = F.vmap(F.grad(cubes))(batch)",
    "Function": "y = cubes(w)\ny.backward(retain_graph=True)\nw.grad = None",
    "functional_call": "r = F.functional_call(lin, names, (x,))\ny = lin(x)",
    "functional.jacobian": "r = A.jacobian(g, x)",
    "functional.jacobian, forward": "r = A.jacobian(g, x, vectorize=True, strategy='forward-mode')",
    "functional.hessian": "r = A.hessian(f, x)",
    "functional.hvp": "r = A.hvp(f, x, v)[1]",
    "functional.vjp": "r = A.vjp(g, x, v)[1]",
    "functional.jvp": "r = A.jvp(g, x, v)[1]",
    "jit": "r = whole(x)\nr = whole(x)",
    "jit of what writes": "no_grad: updates(x)\nno_grad: updates(x)",
    "jit with a graph": "r = whole(w[:, 0])\nr.backward()\nw.grad = None",
    "to_jax": "r = torch.from_dlpack(pure(array))",
    "to_jax, differentiated": "r = torch.from_dlpack(jax.grad(pure)(array))",
    "from_jax": "r = sines(x)",
    "from_jax in grad": "r = F.grad(lambda t: sines(t).sum())(x)",
    "checkpoint": "y = checkpoint(captures, w[:, 1], use_reentrant=False)\ny.backward(retain_graph=True)\nw.grad = None",
    "checkpoint with reentry": "y = checkpoint(captures, w[:, 1] * 1, use_reentrant=True)\ny.backward(retain_graph=True)\nw.grad = None",
    "dual level": "r = moved(x)",
    "dual level in grad": "r = F.grad(lambda t: moved(t).sum())(x)",
}


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
