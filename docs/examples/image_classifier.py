"""A small residual network with batch normalization learns digits from a DataLoader that augments them in worker processes.

The digits are scikit-learn's, shifted and made noisy anew in each epoch. The best weights are saved, and loaded for the test.

python docs/examples/image_classifier.py             # under PyTorch
torchgrad-jax run docs/examples/image_classifier.py  # under torchgrad_jax, the file unchanged
"""

import argparse
import os
import tempfile
import time

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


class Digits(Dataset):
    """Digits of 8 x 8, somewhere in 12 x 12."""

    def __init__(self):
        digits = load_digits()
        self.images, self.labels = (digits.images / 16).astype(np.float32), digits.target

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        canvas = np.zeros((1, 12, 12), np.float32)
        down, right = torch.randint(5, (2,)).tolist()
        canvas[0, down : down + 8, right : right + 8] = self.images[index]
        return torch.from_numpy(canvas) + 0.1 * torch.randn(1, 12, 12), self.labels[index]


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.skip = nn.Identity() if stride == 1 else nn.Sequential(nn.AvgPool2d(stride), nn.Conv2d(inputs, outputs, 1, bias=False))

    def forward(self, x):
        return F.relu(self.skip(x) + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 10),
    )  # fmt: skip


@torch.no_grad()
def right(model, loader):
    model.eval()
    found = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return found / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--picture", default="image_classifier.png", metavar="FILE")
    options = parser.parse_args()

    torch.manual_seed(0)
    train, valid, test = random_split(Digits(), [0.7, 0.15, 0.15])
    settings = dict(batch_size=64, num_workers=options.workers, persistent_workers=options.workers > 0)
    training = DataLoader(train, shuffle=True, drop_last=True, **settings)
    validation, testing = DataLoader(valid, **settings), DataLoader(test, **settings)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=options.epochs, steps_per_epoch=len(training))
    best, file = 0.0, os.path.join(tempfile.mkdtemp(), "best.pt")
    start = time.perf_counter()
    for epoch in range(options.epochs):
        for x, y in training:
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        share = right(model, validation)
        print(f"epoch {epoch}  loss {loss.item():.3f}  validation {share:.1%}")
        if share >= best:
            best = share
            torch.save(model.state_dict(), file)
    seconds = time.perf_counter() - start
    print(f"{options.epochs} epochs in {seconds:.1f} s, {options.epochs * len(training) * 64 / seconds:.0f} images a second")

    model.load_state_dict(torch.load(file))
    print(f"test accuracy {right(model, testing):.2%}")
    x, y = next(iter(testing))
    with torch.no_grad():
        found = model.eval()(x).argmax(1)
    figure, axes = plt.subplots(4, 12, figsize=(9, 3.5))
    for axis, image, label, guess in zip(axes.flat, x[:, 0].numpy(), y.tolist(), found.tolist(), strict=False):
        axis.imshow(image, cmap="gray_r")
        axis.set_title(str(guess), fontsize=8, color="black" if guess == label else "red")
        axis.axis("off")
    figure.savefig(options.picture, dpi=100, bbox_inches="tight")


if __name__ == "__main__":
    main()
