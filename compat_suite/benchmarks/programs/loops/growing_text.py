"""Training steps of a Transformer's layer on sequences that are one longer at each step."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

SHORTEST, BATCH, WORDS, WIDTH, RATE = 10, 4, 50, 32, 1e-2


def make_step() -> Callable[[], float]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), layer, nn.Linear(WIDTH, WORDS))
    length = SHORTEST

    def step() -> float:
        nonlocal length
        length += 1
        words = torch.randint(0, WORDS, (BATCH, length))
        loss = F.cross_entropy(model(words)[:, :-1].reshape(-1, WORDS), words[:, 1:].reshape(-1))
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= RATE * p.grad
        return loss.item()

    return step
