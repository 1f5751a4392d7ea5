"""The largest elements of windows by loops of C's (`native/pooling.pxd`): primitives that are there only where the loops are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.rules import rule
from torchgrad_jax.runtime.native import handlers

# An element of the images, and one of the windows beyond the first few.
_ELEMENT, _OF_WINDOW = 0.4, 0.6


Ints = tuple[int, ...]


def how_of(image: Sequence[int], kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, sizes: Ints) -> np.ndarray:
    """What the loops are told of windows of images of this height and width: `sizes` of them, two numbers each."""
    return np.array([*image, *sizes, *[n for numbers in zip(kernel, stride, padding, dilation, strict=True) for n in numbers]], np.int64)


def _cost(eqn: Any) -> float:
    x, kernel = eqn.invars[0].aval, eqn.params["kernel"]
    windows = x.size // (x.shape[-2] * x.shape[-1]) * eqn.params["sizes"][0] * eqn.params["sizes"][1]
    return 3_000.0 + _ELEMENT * x.size + _OF_WINDOW * windows * max(kernel[0] * kernel[1] - 4, 0)


@rule("max_pool", "max_pool_grad", cost=_cost, fresh=True)
def _largest(eqn: Any) -> Any:
    how, shape = how_of(eqn.invars[0].aval.shape[-2:], **eqn.params), eqn.outvars[0].aval.shape

    def pool(x: Any, grad: Any = None) -> Any:
        made = np.empty(shape, np.float32)
        handlers.pool(contiguous(x), None if grad is None else contiguous(grad), made, how)
        return made

    return pool
