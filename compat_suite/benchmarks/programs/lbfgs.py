"""No package: L-BFGS in plain tensor code, with a backtracking line search, on the chained Rosenbrock function."""

import clock
import torch

SIZE, MEMORY, MOST = 20, 8, 60


def objective(x):
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def value_and_gradient(x):
    x = x.detach().requires_grad_()
    value = objective(x)
    value.backward()
    return value.detach(), x.grad


def direction_of(gradient, pairs):
    q, weights = gradient.clone(), []
    for s, y in reversed(pairs):
        weight = (s @ q) / (y @ s)
        q = q - weight * y
        weights.append(weight)
    if pairs:
        s, y = pairs[-1]
        q = q * ((s @ y) / (y @ y))
    for (s, y), weight in zip(pairs, reversed(weights), strict=True):
        q = q + s * (weight - (y @ q) / (y @ s))
    return -q


def main():
    x = torch.linspace(-1.2, 1.0, SIZE, dtype=torch.float64)
    value, gradient = value_and_gradient(x)
    pairs, values, evaluations = [], [], 1
    for _ in range(MOST):
        direction, length = direction_of(gradient, pairs), 1.0
        slope = (gradient @ direction).item()
        while True:
            moved, new_gradient = value_and_gradient(x + length * direction)
            evaluations += 1
            if moved <= value + 1e-4 * length * slope or length < 1e-10:
                break
            length *= 0.5
        s, y = length * direction, new_gradient - gradient
        if y @ s > 1e-10:
            pairs = [*pairs, (s, y)][-MEMORY:]
        x, value, gradient = x + s, moved, new_gradient
        values.append(value.item())
        if gradient.abs().max() < 1e-6:
            break
    return {"first values": values[:20], "evaluations": [float(evaluations)]}


clock.run(main)
