"""torchcde: cubic splines through irregular series, and a controlled differential equation that classifies them."""

import clock
import torch
import torch.nn.functional as F
import torchcde
from torch import nn

BATCH, LENGTH, HIDDEN, STEPS, RATE = 12, 10, 6, 3, 0.1


class Field(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.first, self.second = nn.Linear(HIDDEN, 16), nn.Linear(16, HIDDEN * channels)

    def forward(self, t, z):
        return torch.tanh(self.second(F.relu(self.first(z)))).view(*z.shape[:-1], HIDDEN, self.channels)


def main():
    torch.manual_seed(0)
    times = torch.linspace(0.0, 1.0, LENGTH)
    labels = (torch.rand(BATCH) > 0.5).float()
    series = torch.sin(times * (3.0 + 3.0 * labels[:, None]) + torch.rand(BATCH, 1))
    x = torch.stack([times.expand(BATCH, LENGTH), series], -1)
    natural = torchcde.natural_cubic_coeffs(x)
    hermite = torchcde.hermite_cubic_coefficients_with_backward_differences(x)
    enter, field, leave = nn.Linear(2, HIDDEN), Field(2), nn.Linear(HIDDEN, 1)
    parameters = [p for module in (enter, field, leave) for p in module.parameters()]
    losses = []
    for step in range(STEPS):
        path = torchcde.CubicSpline(hermite if step % 2 else natural)
        start = enter(path.evaluate(path.interval[0]))
        z = torchcde.cdeint(path, field, start, path.interval, adjoint=False, method="rk4", options={"step_size": 0.1})
        loss = F.binary_cross_entropy_with_logits(leave(z[:, -1]).squeeze(-1), labels)
        grads = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, g in zip(parameters, grads, strict=True):
                p -= RATE * g
        losses.append(loss.item())
    path = torchcde.CubicSpline(natural)
    return {"losses": losses, "slope": path.derivative(torch.tensor(0.33)).sum(), "value": path.evaluate(torch.tensor(0.77)).sum()}


clock.run(main)
