"""torchsde: the drift of a stochastic differential equation is fitted through two solvers, on noise that is drawn where it is asked for."""

import clock
import torch
import torchsde
from torch import nn

BATCH, SIZE, STEPS, RATE = 16, 3, 3, 0.05


class Equation(nn.Module):
    noise_type = "diagonal"
    sde_type = "ito"

    def __init__(self) -> None:
        super().__init__()
        self.drift = nn.Sequential(nn.Linear(SIZE, 8), nn.Tanh(), nn.Linear(8, SIZE))
        self.scale = nn.Parameter(torch.full((SIZE,), 0.2))

    def f(self, t, y):
        return self.drift(y)

    def g(self, t, y):
        return (self.scale * torch.cos(y)).expand(BATCH, SIZE)


def main():
    torch.manual_seed(0)
    equation, start, times = Equation(), torch.ones(BATCH, SIZE), torch.linspace(0.0, 1.0, 5)
    losses = []
    for step in range(STEPS):
        noise = torchsde.BrownianInterval(t0=0.0, t1=1.0, size=(BATCH, SIZE), entropy=step, levy_area_approximation="space-time")
        y = torchsde.sdeint(equation, start, times, bm=noise, method="euler" if step % 2 else "milstein", dt=0.1)
        loss = (y[-1] - 0.5).square().mean()
        equation.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in equation.parameters():
                p -= RATE * p.grad
        losses.append(loss.item())
    return {"losses": losses, "scale": equation.scale}


clock.run(main)
