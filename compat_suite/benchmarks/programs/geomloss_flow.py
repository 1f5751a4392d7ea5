"""geomloss: a cloud of points follows the gradient of an optimal transport divergence to another cloud."""

import clock
import torch
from geomloss import SamplesLoss

POINTS, STEPS, RATE = 60, 6, 0.5


def main():
    torch.manual_seed(0)
    target = torch.rand(POINTS, 2, dtype=torch.float64) + torch.tensor([0.5, 0.0], dtype=torch.float64)
    start = torch.rand(POINTS, 2, dtype=torch.float64)
    found = {}
    for name, options in {"sinkhorn": {"p": 2, "blur": 0.05}, "gaussian": {"blur": 0.5}, "energy": {}}.items():
        loss = SamplesLoss(name, backend="tensorized", **options)
        x, losses = start.clone().requires_grad_(), []
        for _ in range(STEPS):
            value = loss(x, target)
            (grad,) = torch.autograd.grad(value, [x])
            with torch.no_grad():
                x -= RATE * POINTS * grad
            losses.append(value.item())
        found[name], found[name + ", center"] = losses, x.mean(0)
    return found


clock.run(main)
