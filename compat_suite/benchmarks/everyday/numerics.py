"""Numerical work: solvers, statistics, sorting and transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def lbfgs(T: Any) -> Callable[[], float]:
    """L-BFGS on a quadratic function with a quartic term."""
    T.manual_seed(0)
    x = T.randn(20, requires_grad=True)
    A = T.randn(20, 20)
    A = A @ A.t() + T.eye(20)
    b = T.randn(20)
    optimizer = T.optim.LBFGS([x], lr=0.1, max_iter=4)

    def step() -> float:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = 0.5 * x @ A @ x - b @ x + (x**4).sum() * 0.01
            loss.backward()
            return loss

        return optimizer.step(closure).item()

    return step


def gp(T: Any) -> Callable[[], float]:
    """The likelihood of a Gaussian process, by its Cholesky factor."""
    T.manual_seed(0)
    x = T.linspace(0, 1, 50)[:, None]
    y = T.sin(6 * x[:, 0])
    parameters = T.zeros(3, requires_grad=True)
    optimizer = T.optim.Adam([parameters], 0.01)

    def step() -> float:
        length, scale, noise = parameters.exp()
        kernel = scale * T.exp(-0.5 * T.cdist(x, x) ** 2 / length**2) + (noise * 0.1 + 1e-4) * T.eye(50)
        factor = T.linalg.cholesky(kernel)
        solution = T.cholesky_solve(y[:, None], factor)
        loss = 0.5 * y @ solution[:, 0] + factor.diagonal().log().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def neural_ode(T: Any) -> Callable[[], float]:
    """A differential equation that is learnt, solved in ten Runge-Kutta steps."""
    nn = T.nn
    T.manual_seed(0)
    f = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = T.optim.Adam(f.parameters(), 1e-3)
    start, y = T.randn(64, 2), T.randn(64, 2)

    def step() -> float:
        x, h = start, 0.1
        for _ in range(10):
            k1 = f(x)
            k2 = f(x + h / 2 * k1)
            k3 = f(x + h / 2 * k2)
            k4 = f(x + h * k3)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        loss = ((x - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def kmeans(T: Any) -> Callable[[], float]:
    """Clustering by k-means, without gradients."""
    T.manual_seed(0)
    x = T.randn(500, 8)
    centers = x[:10].clone()

    def step() -> float:
        nonlocal centers
        nearest = T.cdist(x, centers).argmin(1)
        sums = T.zeros_like(centers).index_add_(0, nearest, x)
        counts = T.bincount(nearest, minlength=10).clamp(min=1)
        centers = sums / counts[:, None]
        return centers.sum().item()

    return step


def topk_sort(T: Any) -> Callable[[], float]:
    """Gradients through the largest values, sorting and running sums."""
    T.manual_seed(0)
    x = T.randn(64, 200, requires_grad=True)

    def step() -> float:
        x.grad = None
        largest, _ = x.topk(10, 1)
        ordered, _ = x.sort(1)
        loss = (largest * ordered[:, :10]).sum() + x.cumsum(1).logsumexp(1).mean()
        loss.backward()
        return loss.item() + x.grad.abs().sum().item()

    return step


def fft_einsum(T: Any) -> Callable[[], float]:
    """A convolution by Fourier transforms, and an `einsum` over its channels."""
    T.manual_seed(0)
    kernel = T.randn(16, 64, requires_grad=True)
    x = T.randn(8, 16, 64)
    w = T.randn(16, 16, requires_grad=True)

    def step() -> float:
        kernel.grad = w.grad = None
        y = T.fft.irfft(T.fft.rfft(x) * T.fft.rfft(kernel), n=64)
        z = T.einsum("bcl,cd->bdl", y, w)
        loss = (z**2).mean()
        loss.backward()
        return loss.item() + kernel.grad.sum().item()

    return step


PROGRAMS = (lbfgs, gp, neural_ode, kmeans, topk_sort, fft_einsum)
