"""No package: Newton's method with a line search that the data steer, on a regularized logistic regression."""

import clock
import torch

SAMPLES, FEATURES, MOST = 200, 12, 30


def main():
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, FEATURES, dtype=torch.float64)
    y = (x @ torch.randn(FEATURES, dtype=torch.float64) + 0.5 * torch.randn(SAMPLES, dtype=torch.float64) > 0).double()

    def objective(w):
        z = x @ w
        return (torch.logaddexp(z, torch.zeros_like(z)) - y * z).mean() + 1e-3 * w.square().sum()

    w, losses, halvings = torch.full((FEATURES,), 3.0, dtype=torch.float64), [], 0
    for _ in range(MOST):
        w = w.detach().requires_grad_()
        loss = objective(w)
        (gradient,) = torch.autograd.grad(loss, w, create_graph=True)
        losses.append(loss.item())
        if gradient.norm() < 1e-9:
            break
        hessian = torch.stack([torch.autograd.grad(g, w, retain_graph=True)[0] for g in gradient])
        with torch.no_grad():
            direction, length = torch.linalg.solve(hessian, -gradient), 1.0
            slope = gradient @ direction
            while objective(w + length * direction) > loss + 1e-4 * length * slope and length > 1e-8:
                length, halvings = length / 2, halvings + 1
            w = w + length * direction
    return {"losses": losses, "solution": w.detach(), "halvings": halvings}


clock.run(main)
