"""Train a small network on scikit-learn's handwritten digits, in plain PyTorch.

python docs/examples/digits.py             # under PyTorch
torchgrad-jax run docs/examples/digits.py  # under torchgrad_jax, the file unchanged
"""

import argparse
import time

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits


def load(train_fraction=0.8):
    digits = load_digits()
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32)  # pixels are 0 to 16
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.randperm(len(labels))
    split = int(train_fraction * len(labels))
    train, test = order[:split], order[split:]
    return images[train], labels[train], images[test], labels[test]


def initialise(sizes):
    parameters = []
    for inputs, outputs in zip(sizes[:-1], sizes[1:], strict=True):
        weight = torch.randn(outputs, inputs) * (2.0 / inputs) ** 0.5
        parameters += [weight.requires_grad_(), torch.zeros(outputs, requires_grad=True)]
    return parameters


def network(parameters, x, training):
    w1, b1, w2, b2, w3, b3 = parameters
    x = F.dropout(F.relu(F.linear(x, w1, b1)), p=0.2, training=training)
    x = F.dropout(F.relu(F.linear(x, w2, b2)), p=0.2, training=training)
    return F.linear(x, w3, b3)


def update(parameters, velocities, lr, momentum=0.9):
    with torch.no_grad():
        for p, v in zip(parameters, velocities, strict=True):
            v.mul_(momentum).add_(p.grad)
            p.sub_(lr * v)
            p.grad = None


def accuracy(parameters, images, labels):
    with torch.no_grad():
        predictions = network(parameters, images, training=False).argmax(dim=1)
        return (predictions == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--steps", type=int, help="stop after this many steps")
    parser.add_argument("--losses", metavar="FILE", help="write the loss of every step, one per line")
    options = parser.parse_args()

    torch.manual_seed(0)
    images, labels, test_images, test_labels = load()
    parameters = initialise([64, 128, 64, 10])
    velocities = [torch.zeros_like(p) for p in parameters]

    batch_size = 64
    batches = len(labels) // batch_size  # full batches only; the shuffle varies what is left out
    steps = options.epochs * batches
    if options.steps is not None:
        steps = min(steps, options.steps)
    losses = []
    start = time.perf_counter()
    for step in range(steps):
        if step % batches == 0:
            order = torch.randperm(len(labels))
        first = step % batches * batch_size
        batch = order[first : first + batch_size]
        loss = F.cross_entropy(network(parameters, images[batch], training=True), labels[batch])
        loss.backward()
        update(parameters, velocities, lr=0.1 * (1 - step / steps))
        losses.append(loss.detach())
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:4d}  loss {loss.item():.4f}")
    print(f"{steps} steps in {time.perf_counter() - start:.1f} s")
    print(f"test accuracy {accuracy(parameters, test_images, test_labels):.2%}")

    if options.losses:
        with open(options.losses, "w") as file:
            file.writelines(f"{loss.item():.9g}\n" for loss in losses)


if __name__ == "__main__":
    main()
