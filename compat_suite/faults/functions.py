"""Functions to be transformed, of several lines each, and worlds of tensors for them to read and write."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

# Where the code of the functions says that it is from.
FILE = "<function that is transformed>"

# `t` is the library, `F` its `func`, `w` a leaf that requires a gradient, `c` and `d` plain tensors, `m` a module with a buffer.
FUNCTIONS = {
    "written in place": """
def f(x):
    y = x * 2
    y[0] = 5.0
    y.mul_(x)
    z = y[1:]
    z.add_(1)
    return (y * y).sum()
""",
    "captured": """
def f(x):
    h = x * w
    h = (h + c).tanh()
    def inner(a):
        b = a * d
        return b.sin()
    return (inner(h) * w).sum()
""",
    "captured, written": """
def f(x):
    c.add_(1)
    y = x * c.clone()
    c.mul_(2)
    d[1:].sub_(1)
    return (y * d.clone()).sum()
""",
    "argument, written": """
def f(x):
    y = x.sin()
    x.mul_(3)
    v = x[:2]
    v.add_(1)
    return (x * y).sum()
""",
    "hooks": """
def hook(g):
    h = g * 2
    return h + 1

def f(x):
    y = x * w
    y.register_hook(hook)
    z = y.exp()
    handle = z.register_hook(hook)
    out = (z * y).sum()
    handle.remove()
    return out
""",
    "random": """
def f(x):
    a = t.rand(3)
    y = x * a
    b = t.randn(3)
    y = t.nn.functional.dropout(y, 0.5)
    return ((y + b) ** 2).sum()
""",
    "module": """
def f(x):
    y = m(x)
    m.count += 1
    y = y + m(y)
    return (y * m.weight).sum()
""",
    "views": """
def f(x):
    v = x.view(3, 1)
    e = v.expand(3, 2).clone()
    s = e.t()[0]
    s.mul_(2)
    e.diagonal().add_(1)
    return (e * e).sum()
""",
    "no_grad": """
def f(x):
    with t.no_grad():
        a = x * w
        with t.enable_grad():
            b = (x * w).sin()
        a = a + 1
    t.set_grad_enabled(False)
    c0 = x * 2
    t.set_grad_enabled(True)
    return (a * b * c0).sum()
""",
    "inference": """
def f(x):
    with t.inference_mode():
        a = c * 2
        b = a + 1
    with t.inference_mode(False):
        y = x * 2
    return (y * y).sum()
""",
    "Function": """
class Cube(t.autograd.Function):
    @staticmethod
    def forward(x):
        y = x * x
        return y * x
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        h = g * 3
        return h * x * x
    @staticmethod
    def jvp(ctx, v):
        x, = ctx.saved_tensors
        h = v * 3
        return h * x * x
    @staticmethod
    def vmap(info, in_dims, x):
        y = Cube.apply(x)
        return y, in_dims[0]

def f(x):
    y = Cube.apply(x)
    return (y * w).sum()
""",
    "Function, batched by parts": """
class Double(t.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x):
        y = x.sin()
        return y * 2
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * x.cos() * 2
    @staticmethod
    def jvp(ctx, v):
        x, = ctx.saved_tensors
        return v * x.cos() * 2

def f(x):
    y = Double.apply(x)
    return (y * y).sum()
""",
    "nested": """
def g(a):
    b = a.sin()
    return (b * a * w).sum()

def f(x):
    r = F.grad(g)(x)
    y, s = F.jvp(g, (x,), (c,))
    u = F.vmap(lambda a: a * y)(x)
    q, pull = F.vjp(g, r)
    p, = pull(q)
    return (r * u * p).sum() + s
""",
    "graph within": """
def f(x):
    y = (w * w * c).sum()
    g, = t.autograd.grad(y, w, create_graph=True)
    z = (g * x).sum()
    a = d.detach().clone().requires_grad_()
    (a * a).sum().backward()
    return z + a.grad.sum()
""",
    "gradients written": """
def f(x):
    (w * c).sum().backward()
    y = x * 2
    w.grad.mul_(2)
    (w * w).sum().backward()
    return (y * y).sum()
""",
    "hooks of saved tensors": """
def pack(a):
    b = a * 1
    return b

def unpack(a):
    b = a * 1
    return b

def f(x):
    with t.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x * x
        y = y.exp()
    return (y * w).sum()
""",
    "checkpoint": """
from_utils = t.utils.checkpoint.checkpoint

def g(a):
    b = (a * w).sin()
    return b * a

def f(x):
    y = from_utils(g, x, use_reentrant=False)
    z = y * y
    return z.sum()
""",
    "dual level": """
fa = t.autograd.forward_ad

def f(x):
    with fa.dual_level():
        a = fa.make_dual(c, d)
        b = (a * a).sin()
        v = fa.unpack_dual(b).tangent
    return (x * v * x).sum()
""",
}

# Those that PyTorch has no counterpart of.
OURS = {
    "JAX's": """
import jax
def g(a, b):
    h = jax.numpy.sin(a) * b
    h = h + 1
    return h * a

op = t.from_jax(g)

def f(x):
    y = op(x, w)
    z = op(y, c)
    return (z * y).sum()
""",
    "JAX's own derivative": """
import jax
@jax.custom_vjp
def g(a):
    return a * a * a

def forward(a):
    h = g(a)
    return h, a

def backward(a, ct):
    h = ct * 3
    return h * a * a,

g.defvjp(forward, backward)
op = t.from_jax(g)

def f(x):
    y = op(x * w)
    return (y * y).sum()
""",
    "jit within": """
@t.jit
def g(a):
    b = a.sin()
    return b * w

def f(x):
    y = g(x)
    z = g(x)
    return (z * y).sum()
""",
}

_MODULE = """
class M(t.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = t.nn.Parameter(t.tensor([0.5, -1.0, 2.0]))
        self.register_buffer("count", t.zeros(3))
    def forward(self, x):
        y = x * self.weight
        self.count.add_(1)
        return y + self.count * 0.1
m = M()
"""


def world(library: Any, name: str) -> Any:
    """The function of this name with what it reads: `.f`, and the tensors `x`, `w`, `c`, `d` and the module `m`."""
    names: dict[str, Any] = {
        "t": library, "F": library.func, "w": library.tensor([1.0, 2.0, -0.5], requires_grad=True), "c": library.tensor([0.5, 0.25, 1.0]),
        "d": library.tensor([1.0, -1.0, 3.0]), "x": library.tensor([0.1, 0.7, -0.4]),
    }  # fmt: skip
    exec(_code("module of the world"), names)
    exec(_code(name), names)
    return SimpleNamespace(**names)


@functools.cache
def _code(name: str) -> Any:
    return compile(_MODULE if name == "module of the world" else (FUNCTIONS.get(name) or OURS[name]), FILE, "exec")
