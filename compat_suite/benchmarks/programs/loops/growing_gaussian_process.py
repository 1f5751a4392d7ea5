"""Steps on the likelihood of a Gaussian process that has one observation more at each step."""

from collections.abc import Callable

import torch

OBSERVATIONS, RATE = 10, 1e-3


def make_step() -> Callable[[], float]:
    width, noise = torch.zeros((), requires_grad=True), torch.tensor(-2.0, requires_grad=True)
    count = OBSERVATIONS

    def step() -> float:
        nonlocal count
        count += 1
        x = torch.linspace(0, 1, count)
        y = torch.sin(6 * x)
        covariance = torch.exp(-0.5 * (x[:, None] - x[None]).square() / width.exp() ** 2) + noise.exp() * torch.eye(count)
        factor = torch.linalg.cholesky(covariance)
        loss = 0.5 * y @ torch.cholesky_solve(y[:, None], factor)[:, 0] + factor.diagonal().log().sum()
        loss.backward()
        with torch.no_grad():
            for p in (width, noise):
                p -= RATE * p.grad
                p.grad = None
        return loss.item()

    return step
