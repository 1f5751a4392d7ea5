"""A Gaussian process written by hand: which of its inputs matter, found by L-BFGS on the evidence.

How far a diabetes disease advances in a year, from body mass index, blood pressure and blood values (scikit-learn's copy of Efron et al. 2004). Each
input has a length scale of its own; those that grow say that their input tells nothing ("automatic relevance", Rasmussen and Williams 2006, 5.1).

python docs/examples/gaussian_process.py             # under PyTorch
torchgrad-jax run docs/examples/gaussian_process.py  # under torchgrad_jax, the file unchanged
"""

import argparse
import math
import time

import matplotlib
import torch
from sklearn.datasets import load_diabetes

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

COLUMNS = ("bmi", "bp", "s5", "s6", "age")


class Process(torch.nn.Module):
    """y ~ N(0, K + noise), K(a, b) = scale exp(-|(a - b) / lengths|^2 / 2)."""

    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y
        self.lengths = torch.nn.Parameter(torch.zeros(x.shape[1], dtype=x.dtype))
        self.scale = torch.nn.Parameter(torch.zeros((), dtype=x.dtype))
        self.noise = torch.nn.Parameter(torch.zeros((), dtype=x.dtype))

    def kernel(self, a, b):
        return self.scale.exp() * torch.exp(-torch.cdist(a / self.lengths.exp(), b / self.lengths.exp()).square() / 2)

    def factor(self):
        return torch.linalg.cholesky(self.kernel(self.x, self.x) + (self.noise.exp() + 1e-6) * torch.eye(len(self.y), dtype=self.x.dtype))

    def surprise(self):
        """The negative logarithm of the evidence, for each observation."""
        factor = self.factor()
        whitened = torch.linalg.solve_triangular(factor, self.y[:, None], upper=False)
        return (whitened.square().sum() / 2 + factor.diagonal().log().sum()) / len(self.y) + math.log(2 * math.pi) / 2

    def forward(self, points):
        """Mean and standard deviation at points (n, inputs)."""
        factor, across = self.factor(), self.kernel(points, self.x)
        mean = across @ torch.cholesky_solve(self.y[:, None], factor)[:, 0]
        reduced = torch.linalg.solve_triangular(factor, across.T, upper=False).square().sum(0)
        return mean, (self.scale.exp() - reduced + self.noise.exp()).sqrt()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--picture", default="gaussian_process.png", metavar="FILE")
    options = parser.parse_args()

    torch.manual_seed(0)
    data = load_diabetes()
    x = torch.tensor(data.data[:, [data.feature_names.index(c) for c in COLUMNS]], dtype=torch.float64)
    y = torch.tensor(data.target, dtype=torch.float64)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    order = torch.randperm(len(y))
    train, test = order[:200], order[200:]

    process = Process(x[train], y[train])
    optimizer = torch.optim.LBFGS(process.parameters(), lr=1, max_iter=options.iterations, line_search_fn="strong_wolfe")
    looks = 0

    def closure():
        nonlocal looks
        optimizer.zero_grad()
        surprise = process.surprise()
        surprise.backward()
        looks += 1
        return surprise

    start = time.perf_counter()
    before, after = optimizer.step(closure).item(), process.surprise().item()
    print(f"surprise {before:.4f}, after {looks} looks at the evidence {after:.4f}; {time.perf_counter() - start:.2f} s")
    with torch.no_grad():
        mean, deviation = process(x[test])
        explained = 1 - ((y[test] - mean).square().mean() / y[test].var()).item()
        within = ((y[test] - mean).abs() < 1.96 * deviation).double().mean().item()
    print(f"of the test's variance {explained:.3f} explained; {within:.0%} within what should be 95%")
    print("length scales: " + ", ".join(f"{c} {length:.1f}" for c, length in zip(COLUMNS, process.lengths.exp().tolist(), strict=True)))

    figure, axes = plt.subplots(1, len(COLUMNS), figsize=(15, 3.2), sharey=True)
    for i, axis in enumerate(axes):
        line = torch.zeros(80, len(COLUMNS), dtype=x.dtype)
        line[:, i] = torch.linspace(-2.5, 2.5, 80, dtype=x.dtype)
        with torch.no_grad():
            mean, deviation = process(line)
        axis.scatter(x[:, i].numpy(), y.numpy(), s=4, color="silver")
        axis.plot(line[:, i].numpy(), mean.numpy())
        axis.fill_between(line[:, i].numpy(), (mean - 2 * deviation).numpy(), (mean + 2 * deviation).numpy(), alpha=0.2)
        axis.set(xlabel=COLUMNS[i], xlim=(-2.6, 2.6))
    axes[0].set(ylabel="progression, standardized")
    figure.savefig(options.picture, dpi=80, bbox_inches="tight")


if __name__ == "__main__":
    main()
