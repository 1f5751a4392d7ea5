"""A variational autoencoder (Kingma and Welling 2014) that learns to draw digits.

The digits are scikit-learn's. A convolutional encoder says where in a space of two dimensions an image lies, and how surely; a decoder of
transposed convolutions draws what lies at a place.

python docs/examples/autoencoder.py             # under PyTorch
torchgrad-jax run docs/examples/autoencoder.py  # under torchgrad_jax, the file unchanged
"""

import argparse
import time

import matplotlib
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

PLACES, BATCH = 2, 64


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.SiLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.SiLU(), nn.Flatten(),
            nn.Linear(32 * 2 * 2, 2 * PLACES),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(PLACES, 32 * 2 * 2), nn.SiLU(), nn.Unflatten(1, (32, 2, 2)), nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.SiLU(),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
        )  # fmt: skip

    def places(self, images):
        """Mean and standard deviation of where each image lies."""
        mean, spread = self.encoder(images).chunk(2, dim=1)
        return mean, F.softplus(spread) + 1e-3

    def forward(self, images):
        """The negative evidence lower bound of each image."""
        mean, deviation = self.places(images)
        drawn = self.decoder(mean + deviation * torch.randn_like(mean))
        told = F.binary_cross_entropy_with_logits(drawn, images, reduction="none").sum((1, 2, 3))
        return told + (mean.square() + deviation.square() - 1 - 2 * deviation.log()).sum(1) / 2  # the divergence from N(0, 1)


def picture_of(model, images, labels, path):
    with torch.no_grad():
        means, _ = model.places(images)
        line = torch.linspace(-2, 2, 12)
        places = torch.stack(torch.meshgrid(-line, line, indexing="ij"), dim=-1).reshape(-1, 2).flip(1)
        drawn = model.decoder(places).sigmoid().reshape(12, 12, 8, 8).transpose(1, 2).reshape(96, 96)
    figure, axes = plt.subplots(1, 2, figsize=(11, 5))
    points = axes[0].scatter(means[:, 0].numpy(), means[:, 1].numpy(), c=labels.numpy(), cmap="tab10", s=6)
    figure.colorbar(points, ax=axes[0], label="digit")
    axes[0].set(title="where the digits lie")
    axes[1].imshow(drawn.numpy(), cmap="gray_r")
    axes[1].set(title="what lies there", xticks=[], yticks=[])
    figure.savefig(path, dpi=90, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--picture", default="autoencoder.png", metavar="FILE")
    options = parser.parse_args()

    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]
    labels = torch.tensor(digits.target)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    start = time.perf_counter()
    for epoch in range(options.epochs):
        total = torch.zeros(())
        batches = torch.randperm(len(images))[: len(images) // BATCH * BATCH].split(BATCH)
        for batch in batches:
            loss = model(images[batch]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        if epoch % 5 == 0 or epoch == options.epochs - 1:
            print(f"epoch {epoch:2d}  bound {total.item() / len(batches):.3f}")
    steps, seconds = options.epochs * len(batches), time.perf_counter() - start
    print(f"{steps} steps in {seconds:.1f} s, {steps * BATCH / seconds:.0f} images a second")
    picture_of(model, images, labels, options.picture)


if __name__ == "__main__":
    main()
