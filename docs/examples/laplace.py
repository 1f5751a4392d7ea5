"""What does a network not know? A Laplace approximation of its weights says so, far from the data too.

A network is trained to tell two moons from each other. Its weights are then taken for normally distributed around what was found, with the curvature
of the loss there as the inverse covariance (MacKay 1992; Immer, Korzepa and Bauer 2021 on linearizing the network). Curvature and predictions need
the Jacobian of the network in its weights at every point: `torch.func.vmap` of `torch.func.jacrev`. The Hessian proper, `torch.func.hessian`, is
printed beside it: away from a minimum it may have negative eigenvalues, which is why the Gauss-Newton matrix is what is used.

python docs/examples/laplace.py             # under PyTorch
torchgrad-jax run docs/examples/laplace.py  # under torchgrad_jax, the file unchanged
"""

import argparse
import math
import time

import matplotlib
import torch
import torch.nn.functional as F
from sklearn.datasets import make_moons
from torch.func import grad, hessian, jacrev, vmap

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HIDDEN, PRIOR = 12, 1.0
SHAPES = ((HIDDEN, 2), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN,))
COUNT = sum(math.prod(s) for s in SHAPES)


def logit(weights, x):
    """How much a point (2,) looks like the second moon, for all weights in one vector (COUNT,)."""
    parts = [w.reshape(shape) for w, shape in zip(weights.split([math.prod(s) for s in SHAPES]), SHAPES, strict=True)]
    h = torch.tanh(parts[0] @ x + parts[1])
    return parts[4] @ torch.tanh(parts[2] @ h + parts[3])


def energy(weights, points, labels):
    """The negative logarithm of the posterior density, up to a constant."""
    logits = vmap(logit, in_dims=(None, 0))(weights, points)
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="sum") + PRIOR / 2 * weights.square().sum()


def trained(points, labels, steps):
    weights, momentum = 0.5 * torch.randn(COUNT), torch.zeros(COUNT)
    slope = grad(energy)
    for step in range(steps):
        momentum = 0.9 * momentum + slope(weights, points, labels)
        weights = weights - 0.002 * (1 - step / steps) * momentum
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step:3d}  energy {energy(weights, points, labels).item():.3f}")
    return weights


def jacobian(weights, points):
    """The derivative of every point's logit in the weights: (points, COUNT)."""
    return vmap(jacrev(logit), in_dims=(None, 0))(weights, points)


def gauss_newton(weights, points):
    """The curvature of `energy` (COUNT, COUNT) where the network is linearized: never negative."""
    p = torch.sigmoid(vmap(logit, in_dims=(None, 0))(weights, points))
    rows = jacobian(weights, points)
    return rows.T @ (rows * (p * (1 - p))[:, None]) + PRIOR * torch.eye(COUNT)


def predictions(weights, curvature, points):
    """The probability of the second moon: of the best weights alone, and averaged over all that are likely (MacKay's approximation)."""
    logits, rows = vmap(logit, in_dims=(None, 0))(weights, points), jacobian(weights, points)
    variance = (rows * torch.linalg.solve(curvature, rows.T).T).sum(1)
    return torch.sigmoid(logits), torch.sigmoid(logits / (1 + math.pi / 8 * variance).sqrt())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--picture", default="laplace.png", metavar="FILE")
    options = parser.parse_args()

    torch.manual_seed(0)
    points, labels = (torch.tensor(a, dtype=torch.float32) for a in make_moons(100, noise=0.15, random_state=0))
    start = time.perf_counter()
    weights = trained(points, labels, options.steps)
    curvature = gauss_newton(weights, points)
    for name, matrix in (("Gauss-Newton", curvature), ("Hessian", hessian(energy)(weights, points, labels))):
        print(f"{name:12s} eigenvalues from {torch.linalg.eigvalsh(matrix)[0].item():7.3f} to {torch.linalg.eigvalsh(matrix)[-1].item():.1f}")
    side = torch.linspace(-2.5, 3.5, 60)
    x, y = torch.meshgrid(side, side - 0.25, indexing="ij")
    maps = predictions(weights, curvature, torch.stack([x.reshape(-1), y.reshape(-1)], dim=1))
    sure = [((p - 0.5).abs() > 0.45).float().mean().item() for p in maps]
    print(f"{time.perf_counter() - start:.1f} s")
    print(f"sure of {sure[0]:.0%} of the plane with the best weights, of {sure[1]:.0%} with all that are likely")

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axis, p, title in zip(axes, maps, ("the best weights", "all likely weights"), strict=True):
        image = axis.pcolormesh(x.numpy(), y.numpy(), p.reshape(x.shape).numpy(), cmap="RdBu", vmin=0, vmax=1, shading="auto")
        axis.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=10, c=labels.numpy(), cmap="RdBu", edgecolors="black", linewidths=0.5)
        axis.set(title=title)
    figure.colorbar(image, ax=axes, label="probability of the second moon")
    figure.savefig(options.picture, dpi=100, bbox_inches="tight")


if __name__ == "__main__":
    main()
