"""entmax: a classifier with sparse attention and a sparse loss, and each of the sparse mappings by bisection too."""

import clock
import entmax
import torch
from torch import nn

WORDS, WIDTH, CLASSES, STEPS, RATE = 12, 24, 6, 10, 0.1


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, WIDTH)
        self.query = nn.Parameter(torch.randn(WIDTH))
        self.alpha = nn.Parameter(torch.tensor(1.4))
        self.out = nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, words):
        x = self.embedding(words)
        scores = x @ self.query
        sharp = entmax.entmax15(scores, dim=-1)
        learned = entmax.entmax_bisect(scores, self.alpha, dim=-1)
        pooled = [(weights.unsqueeze(-1) * x).sum(1) for weights in (sharp, learned)]
        return self.out(torch.cat(pooled, -1))


def main():
    torch.manual_seed(0)
    words, labels = torch.randint(0, 50, (32, WORDS)), torch.randint(0, CLASSES, (32,))
    model, losses = Classifier(), []
    criteria = [entmax.Entmax15Loss(), entmax.SparsemaxLoss()]
    for step in range(STEPS):
        loss = criteria[step % 2](model(words), labels)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= RATE * p.grad
        losses.append(loss.item())
    x = torch.randn(16, 20, dtype=torch.float64)
    pairs = {"sparsemax": entmax.sparsemax(x) - entmax.sparsemax_bisect(x), "entmax": entmax.entmax15(x) - entmax.entmax_bisect(x, 1.5)}
    agreement = [float(difference.abs().max() < 1e-6) for difference in pairs.values()]
    return {"losses": losses, "alpha": model.alpha, "agreement": agreement}


clock.run(main)
