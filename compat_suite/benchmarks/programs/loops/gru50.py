"""Training steps of a GRU cell written by hand and unrolled over fifty items."""

from collections.abc import Callable

import torch
from torch import nn

LENGTH, BATCH, WIDTH, INPUTS, RATE = 50, 8, 32, 8, 0.05


class GRUCell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.stay = nn.Linear(INPUTS, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x, h):
        enter_r, enter_z, enter_n = self.enter(x).chunk(3, dim=-1)
        stay_r, stay_z, stay_n = self.stay(h).chunk(3, dim=-1)
        z = torch.sigmoid(enter_z + stay_z)
        n = torch.tanh(enter_n + torch.sigmoid(enter_r + stay_r) * stay_n)
        return (1 - z) * n + z * h


def make_step() -> Callable[[], float]:
    torch.manual_seed(0)
    cell, head = GRUCell(), nn.Linear(WIDTH, 1)
    items, target = torch.randn(LENGTH, BATCH, INPUTS), torch.randn(BATCH, 1)
    parameters = [*cell.parameters(), *head.parameters()]

    def step() -> float:
        h = torch.zeros(BATCH, WIDTH)
        for item in items:
            h = cell(item, h)
        loss = (head(h) - target).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= RATE * p.grad
                p.grad = None
        return loss.item()

    return step
