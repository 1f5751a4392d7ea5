"""Training steps of an LSTM written by hand, on sequences of 5 to 20 items, a length that changes from step to step."""

import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

SHORTEST, LONGEST, BATCH, WIDTH, INPUTS, CLASSES, RATE = 5, 20, 8, 32, 12, 4, 0.1


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.stay = nn.Linear(INPUTS, 4 * WIDTH), nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, items):
        h = c = torch.zeros(BATCH, WIDTH)
        for item in items:
            i, f, g, o = (self.enter(item) + self.stay(h)).chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


def make_step() -> Callable[[], float]:
    torch.manual_seed(0)
    lengths = random.Random(0)
    model = LSTM()

    def step() -> float:
        items, labels = torch.randn(lengths.randint(SHORTEST, LONGEST), BATCH, INPUTS), torch.randint(0, CLASSES, (BATCH,))
        loss = F.cross_entropy(model(items), labels)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= RATE * p.grad
        return loss.item()

    return step
