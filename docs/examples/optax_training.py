"""The same model, trained by PyTorch-style code and by optax: `to_jax` makes a pure JAX function of it.

The network is written once, as a `torch.nn.Module`. By itself it is trained with `backward()`. `to_jax` of it is a JAX function of its parameters, a
dict of arrays: `jax.value_and_grad` and `jax.jit` take it, and optax's optimisers update the dict. Both begin at the same weights and see the same
batches; with plain gradient descent they go the same way.

python docs/examples/optax_training.py
"""

import argparse
import time

import jax
import matplotlib
import numpy as np
import optax
from sklearn.datasets import load_digits

import torchgrad_jax as torch
import torchgrad_jax.nn.functional as F

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

BATCH = 128


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(64, 64), torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


def batches(steps):
    """Images (BATCH, 64) and labels (BATCH,) as NumPy arrays, the same each time."""
    digits, rng = load_digits(), np.random.default_rng(0)
    for _ in range(steps):
        chosen = rng.integers(0, len(digits.target), BATCH)
        yield (digits.data[chosen] / 16.0).astype(np.float32), digits.target[chosen].astype(np.int32)


def by_backward(model, steps, lr):
    """The losses of gradient descent in PyTorch's style."""
    losses = []
    for images, labels in batches(steps):
        loss = F.cross_entropy(model(torch.as_tensor(images)), torch.as_tensor(labels).long())
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(lr * p.grad)
                p.grad = None
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def by_optax(model, optimiser, steps):
    """The losses of an optax optimiser, which updates a dict of JAX arrays. The model itself stays as it is."""
    apply, parameters, buffers = torch.to_jax(model)

    @jax.value_and_grad
    def loss_and_gradients(parameters, images, labels):
        scores, _ = apply(parameters, buffers, images)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    @jax.jit
    def step(parameters, state, images, labels):
        loss, gradients = loss_and_gradients(parameters, images, labels)
        updates, state = optimiser.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    state, losses = optimiser.init(parameters), []
    for images, labels in batches(steps):
        parameters, state, loss = step(parameters, state, images, labels)
        losses.append(loss)
    return [float(loss) for loss in losses]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--picture", default="optax_training.png", metavar="FILE")
    options = parser.parse_args()

    torch.manual_seed(0)
    model, start = Network(), time.perf_counter()
    curves = {
        "optax, adam(0.01)": by_optax(model, optax.adam(0.01), options.steps),
        "optax, sgd(0.3)": by_optax(model, optax.sgd(0.3), options.steps),
        "backward(), 0.3 times the gradient": by_backward(model, options.steps, 0.3),
    }
    print(f"{3 * options.steps} steps in {time.perf_counter() - start:.1f} s")
    for name, losses in curves.items():
        print(f"{name:36s} last loss {losses[-1]:.4f}")
        plt.plot(losses, "--" if "backward" in name else "-", label=name)
    adam, sgd, ours = curves.values()
    print(f"the two ways of plain descent differ by at most {max(abs(a - b) for a, b in zip(sgd, ours, strict=True)):.1e}")
    plt.gca().set(xlabel="step", ylabel="loss", yscale="log", title="one model, three ways to train it")
    plt.legend()
    plt.savefig(options.picture, dpi=100, bbox_inches="tight")


if __name__ == "__main__":
    main()
