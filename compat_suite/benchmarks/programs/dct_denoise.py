"""torch-dct: a signal is denoised by shrinking its cosine coefficients, by proximal gradient steps."""

import clock
import torch
import torch_dct

SIZE, STEPS, RATE, SHRINK = 64, 20, 0.4, 0.02


def main():
    torch.manual_seed(0)
    across = torch.linspace(0.0, 3.0, SIZE, dtype=torch.float64)
    image = torch.cos(across[:, None]) * torch.sin(2.0 * across[None, :]) + 0.2 * torch.randn(SIZE, SIZE, dtype=torch.float64)
    mask = (torch.rand(SIZE, SIZE) > 0.3).double()
    coefficients, losses = torch.zeros(SIZE, SIZE, dtype=torch.float64, requires_grad=True), []
    for _ in range(STEPS):
        loss = (mask * (torch_dct.idct_2d(coefficients, norm="ortho") - image)).square().sum()
        (grad,) = torch.autograd.grad(loss, coefficients)
        with torch.no_grad():
            moved = coefficients - RATE * grad
            coefficients.copy_(moved.sign() * (moved.abs() - SHRINK).clamp(min=0.0))
        losses.append(loss.item())
    return {"losses": losses, "kept": (coefficients != 0).sum(), "row": torch_dct.dct(image, norm="ortho")[0]}


clock.run(main)
