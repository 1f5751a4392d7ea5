"""A thread that ends, well or not, while what it has recorded is pending: others can look at it nevertheless."""

from __future__ import annotations

import threading
from typing import Any

import torchgrad_jax


def look_at_a_dead_threads_tensors(number: int) -> bool:
    """Whether the tensors that a thread left pending, ended by an error, have their values."""
    kept: list[Any] = []

    def work() -> None:
        x = torchgrad_jax.full((3,), float(number), requires_grad=True)
        y = (x * 2).sin()
        kept.extend((x, y, y + 1))
        (y * y).sum().backward()
        raise SystemExit

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    x, y, z = kept
    expected = torchgrad_jax.tensor(2.0 * number).sin()
    close = (y - expected).abs().max() < 1e-6 and (z - expected - 1).abs().max() < 1e-6
    return bool(close) and bool((x.grad - 4 * expected * torchgrad_jax.tensor(2.0 * number).cos()).abs().max() < 1e-5)
