"""A residual network's training step on 32x32 images: convolutions, batch normalization, SGD with momentum (He et al. 2016, one block a stage)."""

from __future__ import annotations

from typing import Any

import numpy as np

from compat_suite.benchmarks.workloads.workload import Step, Workload, hand_over, load, normal, training_step

BATCH, WIDTHS, STRIDES, CLASSES = 32, (16, 16, 32, 64), (1, 2, 2), 10
RATE, MOMENTUM, DECAY = 0.05, 0.9, 1e-4


def data(random: np.random.RandomState) -> dict[str, Any]:
    """Weights in the order of the modules' parameters below, and a batch of images."""

    def convolution(inputs: int, outputs: int, side: int) -> np.ndarray:
        return normal(random, outputs, inputs, side, side, scale=(2 / (inputs * side * side)) ** 0.5)

    def normed(width: int) -> list[np.ndarray]:
        return [np.ones(width, np.float32), np.zeros(width, np.float32)]

    weights = [convolution(3, WIDTHS[0], 3), *normed(WIDTHS[0])]
    for inputs, outputs, stride in zip(WIDTHS, WIDTHS[1:], STRIDES, strict=False):
        weights += [convolution(inputs, outputs, 3), *normed(outputs), convolution(outputs, outputs, 3), *normed(outputs)]
        weights += [convolution(inputs, outputs, 1)] if stride > 1 else []
    weights += [normal(random, CLASSES, WIDTHS[-1], scale=0.1), normal(random, CLASSES, scale=0.1)]
    return {"weights": weights, "x": normal(random, BATCH, 3, 32, 32), "labels": random.randint(0, CLASSES, size=BATCH)}


def in_torch(T: Any, make: Any, weights: list[np.ndarray], x: np.ndarray, labels: np.ndarray) -> Step:
    nn, F = T.nn, T.nn.functional

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
            self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
            self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

        def forward(self, x: Any) -> Any:
            y = F.relu(self.norm1(self.conv1(x)))
            return F.relu(self.norm2(self.conv2(y)) + self.skip(x))

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTHS[0])
            self.blocks = nn.Sequential(*[Block(*sizes) for sizes in zip(WIDTHS, WIDTHS[1:], STRIDES, strict=False)])
            self.head = nn.Linear(WIDTHS[-1], CLASSES)

        def forward(self, x: Any) -> Any:
            return self.head(self.blocks(F.relu(self.norm(self.conv(x)))).mean((2, 3)))

    model, images, targets = load(T, ResNet(), weights, make), make(x), make(labels)
    optimizer = T.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    return training_step(model.parameters(), optimizer, lambda: F.cross_entropy(model(images), targets))


def in_jax(weights: list[np.ndarray], x: np.ndarray, labels: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    images, parameters = jnp.asarray(x), [jnp.asarray(w) for w in weights]
    speeds = [jnp.zeros_like(p) for p in parameters]
    sums = [(jnp.zeros(w), jnp.ones(w)) for w in (WIDTHS[0], *(w for w in WIDTHS[1:] for _ in range(2)))]

    def convolution(x: Any, w: Any, stride: int = 1) -> Any:
        edge = w.shape[-1] // 2
        return jax.lax.conv_general_dilated(x, w, (stride, stride), [(edge, edge)] * 2)

    def loss_of(parameters: Any, sums: Any) -> Any:
        weights, old, new = iter(parameters), iter(sums), []

        def normed(x: Any) -> Any:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
            count = x.size / x.shape[1]
            m, v = next(old)
            new.append((0.9 * m + 0.1 * mean, 0.9 * v + 0.1 * variance * count / (count - 1)))
            scale, shift = next(weights) * jax.lax.rsqrt(variance + 1e-5), next(weights)
            return (x - mean[:, None, None]) * scale[:, None, None] + shift[:, None, None]

        x = jax.nn.relu(normed(convolution(images, next(weights))))
        for stride in STRIDES:
            y = jax.nn.relu(normed(convolution(x, next(weights), stride)))
            y = normed(convolution(y, next(weights)))
            x = jax.nn.relu(y + (convolution(x, next(weights), stride) if stride > 1 else x))
        found = jax.nn.log_softmax(x.mean((2, 3)) @ next(weights).T + next(weights))
        return -found[jnp.arange(BATCH), labels].mean(), new

    @jax.jit
    def update(parameters: Any, speeds: Any, sums: Any) -> Any:
        (loss, sums), grads = jax.value_and_grad(loss_of, has_aux=True)(parameters, sums)
        speeds = [MOMENTUM * v + g + DECAY * p for v, g, p in zip(speeds, grads, parameters, strict=True)]
        return loss, grads, [p - RATE * v for p, v in zip(parameters, speeds, strict=True)], speeds, sums

    def step(gradients: list[Any] | None = None) -> float:
        nonlocal parameters, speeds, sums
        loss, grads, parameters, speeds, sums = update(parameters, speeds, sums)
        hand_over(gradients, grads)
        return float(loss)

    return step


WORKLOADS = {"resnet8": Workload(data, in_torch, in_jax)}
