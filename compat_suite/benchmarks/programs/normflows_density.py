"""normflows: a flow of masked autoregressive layers and of mixing layers is fitted to a three-dimensional density."""

import clock
import normflows as nf
import torch

LAYERS, BATCH, STEPS, RATE = 3, 128, 6, 0.01


def main():
    torch.manual_seed(0)
    flows = []
    for _ in range(LAYERS):
        flows.append(nf.flows.MaskedAffineAutoregressive(3, 24, num_blocks=1))
        flows.append(nf.flows.LULinearPermute(3))
    model = nf.NormalizingFlow(nf.distributions.base.DiagGaussian(3), flows)
    angle = 3.14159 * torch.rand(BATCH)
    x = torch.stack([torch.cos(angle), torch.sin(angle), angle], -1) + 0.1 * torch.randn(BATCH, 3)
    losses = []
    for _ in range(STEPS):
        loss = model.forward_kld(x)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                if p.grad is not None:
                    p -= RATE * p.grad
        losses.append(loss.item())
    with torch.no_grad():
        sample, log_density = model.sample(32)
    return {"losses": losses, "sample": sample.mean(0), "log density": log_density.mean()}


clock.run(main)
