"""Programs whose derivatives are more than one backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def maml(T: Any) -> Callable[[], float]:
    """Meta-learning: gradients through a step of descent on each of four tasks."""
    T.manual_seed(0)
    weights = [
        T.randn(1, 40).mul_(0.5).requires_grad_(),
        T.zeros(40, requires_grad=True),
        T.randn(40, 1).mul_(0.2).requires_grad_(),
        T.zeros(1, requires_grad=True),
    ]
    optimizer = T.optim.Adam(weights, 1e-3)
    x = T.randn(4, 10, 1)
    y = T.sin(x)

    def predict(w: list[Any], x: Any) -> Any:
        return T.relu(x @ w[0] + w[1]) @ w[2] + w[3]

    def step() -> float:
        total: Any = 0
        for i in range(4):
            gradients = T.autograd.grad(((predict(weights, x[i]) - y[i]) ** 2).mean(), weights, create_graph=True)
            adapted = [w - 0.01 * g for w, g in zip(weights, gradients, strict=True)]
            total = total + ((predict(adapted, x[i]) - y[i]) ** 2).mean()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        return total.item()

    return step


def hvp_cg(T: Any) -> Callable[[], float]:
    """Products of a logistic regression's Hessian with vectors, one after the other."""
    F = T.nn.functional
    T.manual_seed(0)
    w = T.randn(200, requires_grad=True)
    x, y = T.randn(100, 200), (T.randn(100) > 0).float()

    def step() -> float:
        loss = F.binary_cross_entropy_with_logits(x @ w, y)
        (gradient,) = T.autograd.grad(loss, w, create_graph=True)
        v = gradient.detach().clone()
        total = 0.0
        for _ in range(5):
            (product,) = T.autograd.grad(gradient, w, v, retain_graph=True)
            total += (v @ product).item()
            v = product / product.norm()
        return total

    return step


def newton_func(T: Any) -> Callable[[], float]:
    """Newton's method with the Jacobian of `torch.autograd.functional`."""
    T.manual_seed(0)
    start = T.randn(5)
    A = T.randn(5, 5)

    def step() -> float:
        x = start

        def f(x: Any) -> Any:
            return T.tanh(A @ x) + x - 0.5

        for _ in range(4):
            jacobian = T.autograd.functional.jacobian(f, x)
            x = x - T.linalg.solve(jacobian, f(x))
        return x.sum().item()

    return step


def vmap_jac(T: Any) -> Callable[[], float]:
    """The Jacobians of a network at each of a batch of points, by `torch.func`."""
    nn = T.nn
    T.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 3))
    x = T.randn(32, 3)

    def step() -> float:
        return T.func.vmap(T.func.jacrev(model))(x).pow(2).sum().item()

    return step


def spectral_pinn(T: Any) -> Callable[[], float]:
    """A network that learns to solve the heat equation."""
    nn = T.nn
    T.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = T.optim.Adam(model.parameters(), 1e-3)

    def step() -> float:
        x = T.rand(64, 2, requires_grad=True)
        u = model(x)
        (first,) = T.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = T.autograd.grad(first[:, 0].sum(), x, create_graph=True)
        loss = ((first[:, 1] - 0.1 * second[:, 0]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


PROGRAMS = (maml, hvp_cg, newton_func, vmap_jac, spectral_pinn)
