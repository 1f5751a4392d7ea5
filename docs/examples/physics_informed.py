"""How fast does a rod conduct heat? A network that obeys the heat equation finds out from 40 noisy measurements.

The network u(x, t) is trained to fit the measurements and to fulfil u_t = k u_xx everywhere; the conductivity k is trained with it. The second
derivative in x is a derivative of a derivative, and the loss is differentiated through both (Raissi, Perdikaris and Karniadakis 2019).

python docs/examples/physics_informed.py             # under PyTorch
torchgrad-jax run docs/examples/physics_informed.py  # under torchgrad_jax, the file unchanged
"""

import argparse
import math
import time

import matplotlib
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

CONDUCTIVITY = 0.1


def exact(x, t):
    """The temperature of a rod that has sin(pi x) at first and 0 at its ends."""
    return torch.sin(math.pi * x) * torch.exp(-CONDUCTIVITY * math.pi**2 * t)


def initialise(sizes):
    parameters = []
    for inputs, outputs in zip(sizes[:-1], sizes[1:], strict=True):
        weight = torch.randn(outputs, inputs) * (1.0 / inputs) ** 0.5
        parameters += [weight.requires_grad_(), torch.zeros(outputs, requires_grad=True)]
    return parameters


def network(parameters, x, t):
    """The temperature at the points (x, t), each of shape (n,); the ends of the rod are 0 by construction."""
    h = torch.stack([2 * x - 1, 2 * t - 1], dim=1)
    for weight, bias in zip(parameters[0:-2:2], parameters[1:-2:2], strict=True):
        h = torch.tanh(h @ weight.T + bias)
    return (h @ parameters[-2].T + parameters[-1]).squeeze(1) * x * (1 - x) * 4


def residual(parameters, k, x, t):
    """u_t - k u_xx at the points (x, t): 0 where the heat equation holds."""
    x, t = x.requires_grad_(), t.requires_grad_()
    u = network(parameters, x, t)
    u_x, u_t = torch.autograd.grad(u.sum(), [x, t], create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
    return u_t - k * u_xx


class Adam:
    """Kingma and Ba 2014, with a step that falls to zero."""

    def __init__(self, parameters, steps, lr=0.03):
        self.parameters, self.steps, self.lr, self.count = parameters, steps, lr, 0
        self.means = [torch.zeros_like(p) for p in parameters]
        self.squares = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self):
        self.count += 1
        lr = self.lr * (1 - (self.count - 1) / self.steps) * math.sqrt(1 - 0.999**self.count) / (1 - 0.9**self.count)
        for p, mean, square in zip(self.parameters, self.means, self.squares, strict=True):
            mean.mul_(0.9).add_(p.grad, alpha=0.1)
            square.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            p.sub_(lr * mean / (square.sqrt() + 1e-8))
            p.grad = None


def draw(parameters, found, measured, path):
    x, t = torch.meshgrid(torch.linspace(0, 1, 81), torch.linspace(0, 1, 81), indexing="ij")
    with torch.no_grad():
        u = network(parameters, x.reshape(-1), t.reshape(-1)).reshape(x.shape)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    image = left.pcolormesh(t.numpy(), x.numpy(), u.numpy(), shading="auto", cmap="inferno")
    left.scatter(measured[1].numpy(), measured[0].numpy(), s=12, c="white", edgecolors="black", label="measurements")
    left.set(xlabel="time", ylabel="place", title=f"temperature; at most {(u - exact(x, t)).abs().max().item():.3f} from the exact one")
    left.legend(loc="upper right")
    figure.colorbar(image)
    right.plot(found)
    right.axhline(CONDUCTIVITY, color="black", linestyle="--", label="true")
    right.set(xlabel="step", ylabel="conductivity k", title="what the network makes of it")
    right.legend()
    figure.savefig(path, dpi=100, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--picture", default="physics_informed.png", metavar="FILE")
    options = parser.parse_args()

    torch.manual_seed(0)
    parameters = initialise([2, 16, 16, 1])
    log_k = torch.tensor(-1.0, requires_grad=True)
    measured = torch.rand(2, 40)
    values = exact(*measured) + 0.01 * torch.randn(40)
    optimiser, found, start = Adam([*parameters, log_k], options.steps), [], time.perf_counter()
    for step in range(options.steps):
        k = log_k.exp()
        misfit = (network(parameters, *measured) - values).square().mean()
        loss = misfit + 0.05 * residual(parameters, k, *torch.rand(2, 128)).square().mean()
        loss.backward()
        optimiser.step()
        found.append(k.item())
        if step % 100 == 0 or step == options.steps - 1:
            print(f"step {step:4d}  loss {loss.item():.5f}  k {found[-1]:.4f}")
    print(f"{options.steps} steps in {time.perf_counter() - start:.1f} s")
    print(f"conductivity {found[-1]:.3f}, true {CONDUCTIVITY}")
    draw(parameters, found, measured, options.picture)


if __name__ == "__main__":
    main()
