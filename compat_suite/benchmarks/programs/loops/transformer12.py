"""Training steps of a causal language model: twelve transformer blocks of width 128, written as modules."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, LENGTH, BATCH, WORDS, RATE = 12, 128, 4, 32, 2, 100, 0.1


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        q, k, v = (part.view(BATCH, LENGTH, HEADS, -1).transpose(1, 2) for part in self.mixed(self.first(x)).split(WIDTH, dim=-1))
        scores = (q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5).masked_fill(mask, float("-inf"))
        attended = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        x = x + self.out(attended)
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


def make_step() -> Callable[[], float]:
    torch.manual_seed(0)
    words, places, head = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH), nn.Linear(WIDTH, WORDS)
    blocks = nn.ModuleList(Block() for _ in range(LAYERS))
    text = torch.randint(0, WORDS, (BATCH, LENGTH + 1))
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    parameters = [p for module in (words, places, head, blocks) for p in module.parameters()]

    def step() -> float:
        x = words(text[:, :-1]) + places(torch.arange(LENGTH))
        for block in blocks:
            x = block(x, mask)
        loss = F.cross_entropy(head(x).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= RATE * p.grad
                p.grad = None
        return loss.item()

    return step
