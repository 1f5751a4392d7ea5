"""einops: an image classifier of patch mixing layers, trained for a few steps."""

import clock
import torch
import torch.nn.functional as F
from einops import rearrange, reduce, repeat
from einops.layers.torch import Rearrange
from torch import nn

PATCH, WIDTH, CLASSES, STEPS, RATE = 4, 32, 10, 8, 0.05


class Mixer(nn.Module):
    def __init__(self, patches: int) -> None:
        super().__init__()
        self.cut = Rearrange("b c (h i) (w j) -> b (h w) (i j c)", i=PATCH, j=PATCH)
        self.enter = nn.Linear(3 * PATCH * PATCH, WIDTH)
        self.tokens = nn.ModuleList(nn.Linear(patches, patches) for _ in range(3))
        self.channels = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.place = nn.Parameter(torch.zeros(WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images):
        x = self.enter(self.cut(images))
        x = x + repeat(self.place, "d -> b n d", b=x.shape[0], n=x.shape[1])
        for tokens, channels in zip(self.tokens, self.channels, strict=True):
            x = x + rearrange(F.gelu(tokens(rearrange(x, "b n d -> b d n"))), "b d n -> b n d")
            x = x + F.gelu(channels(x))
        return self.head(reduce(x, "b n d -> b d", "mean"))


def main():
    torch.manual_seed(0)
    images, labels = torch.randn(16, 3, 24, 24), torch.randint(0, CLASSES, (16,))
    model, losses = Mixer(36), []
    for _ in range(STEPS):
        loss = F.cross_entropy(model(images), labels)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= RATE * p.grad
        losses.append(loss.item())
    return {"losses": losses, "head": model.head.weight.sum()}


clock.run(main)
