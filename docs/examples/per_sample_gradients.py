"""Learn handwritten digits without learning too much of any one of them: the gradient of every single image is bounded, and noise hides the rest.

This is private stochastic gradient descent (Abadi et al. 2016). It needs the gradients of all images of a batch apart from each other:
`torch.func.vmap` of `torch.func.grad` makes them in one pass.

python docs/examples/per_sample_gradients.py             # under PyTorch
torchgrad-jax run docs/examples/per_sample_gradients.py  # under torchgrad_jax, the file unchanged
"""

import argparse
import time

import matplotlib
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.func import functional_call, grad, vmap

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

BATCH, BOUND = 128, 1.0


def load():
    digits = load_digits()
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32)  # pixels are 0 to 16
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.randperm(len(labels))
    train, test = order[:1408], order[1408:]
    return images[train], labels[train], images[test], labels[test]


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(64, 64), torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


def loss_of_one(parameters, model, image, label):
    scores = functional_call(model, parameters, (image[None],))
    return F.cross_entropy(scores, label[None])


# The same parameters for all, one image and one label for each.
gradients_of_each = vmap(grad(loss_of_one), in_dims=(None, None, 0, 0))


def bounded(gradients):
    """The mean of the gradients of a batch, each made no longer than BOUND, and how long they were."""
    lengths = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0).sqrt()
    factors = (BOUND / (lengths + 1e-6)).clamp(max=1.0)
    return {name: torch.einsum("b,b...->...", factors, g) / len(factors) for name, g in gradients.items()}, lengths


def train(model, images, labels, test_images, test_labels, noise, epochs, lr):
    """Accuracies on the test images after each epoch, and the lengths of the last batch's gradients."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    accuracies = []
    for epoch in range(epochs):
        for batch in torch.randperm(len(labels)).split(BATCH):
            mean, lengths = bounded(gradients_of_each(parameters, model, images[batch], labels[batch]))
            for name, g in mean.items():
                hidden = g + noise * BOUND / BATCH * torch.randn(g.shape)
                parameters[name] = parameters[name] - lr * hidden
        scores = functional_call(model, parameters, (test_images,))
        accuracies.append((scores.argmax(1) == test_labels).float().mean().item())
        print(f"noise {noise}  epoch {epoch}  test accuracy {accuracies[-1]:.2%}")
    return accuracies, lengths


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--picture", default="per_sample_gradients.png", metavar="FILE")
    options = parser.parse_args()

    torch.manual_seed(0)
    data = load()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    start = time.perf_counter()
    for noise in (0.0, 1.0, 4.0):
        accuracies, lengths = train(Network(), *data, noise=noise, epochs=options.epochs, lr=1.0)
        left.plot([100 * a for a in accuracies], ".-", label=f"noise {noise:g}")
        right.hist(lengths.numpy(), bins=20, range=(0, 5), histtype="step", label=f"noise {noise:g}")
    print(f"{3 * options.epochs} epochs in {time.perf_counter() - start:.1f} s")
    left.set(xlabel="epoch", ylabel="test accuracy in %", title="digits, learnt privately")
    left.legend()
    right.axvline(BOUND, color="black", linestyle="--", label="bound")
    right.set(xlabel="length of an image's gradient", ylabel="images of the last batch", title="what the bound cuts")
    right.legend()
    figure.savefig(options.picture, dpi=100, bbox_inches="tight")


if __name__ == "__main__":
    main()
