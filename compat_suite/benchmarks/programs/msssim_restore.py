"""pytorch-msssim: an image is restored by descending on its structural dissimilarity to the original."""

import clock
import torch
from pytorch_msssim import SSIM, ms_ssim, ssim

SIZE, STEPS, RATE = 48, 8, 30.0


def main():
    torch.manual_seed(0)
    across = torch.linspace(0.0, 6.0, SIZE)
    image = (0.5 + 0.5 * torch.sin(across[:, None] * across[None, :])).expand(1, 3, SIZE, SIZE).contiguous()
    guess = (image + 0.3 * torch.randn(1, 3, SIZE, SIZE)).clamp(0.0, 1.0).requires_grad_()
    criterion, values = SSIM(data_range=1.0, channel=3), []
    for _ in range(STEPS):
        loss = 1.0 - criterion(guess, image)
        (grad,) = torch.autograd.grad(loss, guess)
        with torch.no_grad():
            guess.sub_(RATE * grad).clamp_(0.0, 1.0)
        values.append(loss.item())
    large = torch.nn.functional.interpolate(guess.detach(), scale_factor=4, mode="bilinear", align_corners=False)
    original = torch.nn.functional.interpolate(image, scale_factor=4, mode="bilinear", align_corners=False)
    return {"values": values, "scales": ms_ssim(large, original, data_range=1.0), "each": ssim(large, original, data_range=1.0, size_average=False)}


clock.run(main)
