"""torchdiffeq: a small neural differential equation is fitted to a spiral, through the solver and by the adjoint method."""

import clock
import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint

POINTS, STEPS, RATE = 12, 4, 0.05


class Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, t, y):
        return self.net(y**3)


class Spiral(nn.Module):
    def forward(self, t, y):
        return (y**3) @ torch.tensor([[-0.1, 2.0], [-2.0, -0.1]], dtype=torch.float64)


def main():
    torch.manual_seed(0)
    times = torch.linspace(0.0, 2.0, POINTS, dtype=torch.float64)
    start = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    with torch.no_grad():
        truth = odeint(Spiral(), start, times, method="dopri5", rtol=1e-5, atol=1e-6)
    field, losses = Field().double(), []
    for step in range(STEPS):
        integrate = odeint_adjoint if step % 2 else odeint
        loss = (integrate(field, start, times, method="dopri5", rtol=1e-4, atol=1e-5) - truth).abs().mean()
        field.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in field.parameters():
                p -= RATE * p.grad
        losses.append(loss.item())
    fixed = odeint(field, start, times, method="rk4")
    return {"truth": truth[-1], "losses": losses, "fixed steps": fixed[-1]}


clock.run(main)
