"""Training steps on the distance between two clouds of points, each of another number at each step, to the nearest of the other cloud."""

from collections.abc import Callable

import torch
from torch import nn

FIRST, SECOND, WIDTH, RATE = 30, 50, 32, 1e-2


def make_step() -> Callable[[], float]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3))
    turn = 0

    def step() -> float:
        nonlocal turn
        turn += 1
        moved, target = net(torch.randn(FIRST + turn, 3)), torch.randn(SECOND + 2 * turn, 3)
        distances = (moved[:, None] - target[None]).square().sum(-1)
        loss = distances.min(1).values.mean() + distances.min(0).values.mean()
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= RATE * p.grad
        return loss.item()

    return step
