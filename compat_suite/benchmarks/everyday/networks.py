"""Networks that learn to tell things apart, and how they are trained and judged."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def conv_bn(T: Any) -> Callable[[], float]:
    """An image classifier of convolutions with batch norm."""
    nn, F = T.nn, T.nn.functional
    T.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    optimizer = T.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x, y = T.randn(16, 3, 32, 32), T.randint(0, 10, (16,))

    def step() -> float:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def gnn(T: Any) -> Callable[[], float]:
    """A graph network that adds up what comes along the edges."""
    nn, F = T.nn, T.nn.functional
    T.manual_seed(0)
    nodes, edges = 300, 1500
    sources, targets = T.randint(0, nodes, (edges,)), T.randint(0, nodes, (edges,))
    x = T.randn(nodes, 32)
    first, second = nn.Linear(32, 64), nn.Linear(64, 7)
    y = T.randint(0, 7, (nodes,))
    optimizer = T.optim.Adam([*first.parameters(), *second.parameters()], 1e-2)

    def convolve(h: Any, layer: Any) -> Any:
        h = layer(h)
        return T.zeros(nodes, h.shape[1]).index_add(0, targets, h[sources])

    def step() -> float:
        loss = F.cross_entropy(convolve(convolve(x, first).relu(), second), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def contrastive(T: Any) -> Callable[[], float]:
    """Contrastive learning: which of two batches belong together."""
    nn, F = T.nn, T.nn.functional
    T.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    optimizer = T.optim.Adam(model.parameters(), 1e-3)
    a, b = T.randn(64, 64), T.randn(64, 64)
    labels = T.arange(64)

    def step() -> float:
        u, v = F.normalize(model(a), dim=1), F.normalize(model(b), dim=1)
        scores = u @ v.t() / 0.1
        loss = F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def clipped_accum(T: Any) -> Callable[[], float]:
    """Gradients accumulated over four batches and clipped, dropout, and a schedule of rates."""
    nn, F = T.nn, T.nn.functional
    T.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Dropout(0.1), nn.Linear(64, 10))
    optimizer = T.optim.AdamW(model.parameters(), 1e-3)
    schedule = T.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    x, y = T.randn(4, 32, 32), T.randint(0, 10, (4, 32))

    def step() -> float:
        total = 0.0
        optimizer.zero_grad()
        for i in range(4):
            loss = F.cross_entropy(model(x[i]), y[i]) / 4
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return total

    return step


def checkpointed(T: Any) -> Callable[[], float]:
    """Layers under checkpoints, computed again in the backward pass."""
    nn = T.nn
    T.manual_seed(0)
    checkpoint = import_module(T.__name__ + ".utils.checkpoint").checkpoint
    layers = nn.ModuleList([nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)])
    optimizer = T.optim.SGD(layers.parameters(), 0.1)
    x = T.randn(32, 64)

    def step() -> float:
        h = x
        for layer in layers:
            h = checkpoint(layer, h, use_reentrant=False)
        loss = (h**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def eval_loop(T: Any) -> Callable[[], float]:
    """The evaluation of a classifier: how many of eight batches are right."""
    nn = T.nn
    T.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).eval()
    inputs = [T.randn(32, 64) for _ in range(8)]
    labels = [T.randint(0, 10, (32,)) for _ in range(8)]

    def step() -> float:
        correct = 0
        with T.no_grad():
            for x, y in zip(inputs, labels, strict=True):
                correct += (model(x).argmax(1) == y).sum().item()
        return correct

    return step


PROGRAMS = (conv_bn, gnn, contrastive, clipped_accum, checkpointed, eval_loop)
