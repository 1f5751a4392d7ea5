"""xitorch: implicit derivatives of a root, a fixed point, a minimum, a linear system, an eigenproblem and an integral."""

import clock
import torch
from xitorch import LinearOperator
from xitorch.integrate import quad
from xitorch.interpolate import Interp1D
from xitorch.linalg import solve, symeig
from xitorch.optimize import equilibrium, rootfinder

SIZE = 8


def cubic(y, a, b):
    return torch.tanh(a @ y + 0.1) + b * y / 2.0


def contraction(y, a, b):
    return torch.tanh(0.3 * a @ y + b) * 0.5


def bump(t, scale):
    return torch.exp(-scale * t * t)


def main():
    torch.manual_seed(0)
    a = (torch.randn(SIZE, SIZE, dtype=torch.float64) / SIZE).requires_grad_()
    b = torch.rand(SIZE, 1, dtype=torch.float64).add(1.0).requires_grad_()
    y = torch.zeros(SIZE, 1, dtype=torch.float64)
    bounds = torch.tensor(0.0, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)
    found = {}
    for name, value in {
        "root": rootfinder(cubic, y, params=(a, b)),
        "fixed point": equilibrium(contraction, y, params=(a, b)),
        "system": solve(LinearOperator.m(a + 2.0 * torch.eye(SIZE, dtype=torch.float64)), b),
        "eigenvalues": symeig(LinearOperator.m(a + a.transpose(-2, -1)))[0],
        "integral": quad(bump, *bounds, params=(b[:, 0],), n=40),
    }.items():
        grads = torch.autograd.grad(value.square().sum(), (a, b), allow_unused=True)
        found[name] = value
        found[name + ", gradients"] = [0.0 if g is None else g.abs().sum().item() for g in grads]
    knots = torch.linspace(0, 1, 9, dtype=torch.float64)
    values = torch.sin(5.0 * knots).requires_grad_()
    spline = Interp1D(knots, method="cspline", bc_type="natural")(torch.linspace(0.01, 0.99, 40, dtype=torch.float64), values)
    found["spline"] = spline.sum()
    found["spline, gradients"] = torch.autograd.grad(spline.sum(), values)[0]
    return found


clock.run(main)
