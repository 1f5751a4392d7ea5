"""One index of each row of weights by what was drawn for all of them: the greatest of weight / exponential sample (Efraimidis and Spirakis, Inf.
Process. Lett. 97(5), 2006). Of arrays; in compiled modules by a loop of C: `choosing.pxd`."""

from __future__ import annotations

from typing import Any

import numpy as np

# What is found of weights: fine; some are negative, infinite or NaN; a row is all zeros.
FINE, IMPROPER, EMPTY = range(3)


def condition(weights: Any) -> int:
    """What is found of `weights` (rows, n), contiguous, of float32 or float64, n at least 1."""
    if not (np.minimum.reduce(weights, None) >= 0 and np.maximum.reduce(weights, None) < np.inf):
        return IMPROPER
    return EMPTY if (np.add.reduce(weights, -1) == 0).any() else FINE


def choose(weights: Any, exponential: Any, places: Any) -> None:
    """Write into `places` (rows,), int64, the index that is chosen in each row of `weights`, which are fine.

    exponential: as many float64 samples of the standard exponential distribution, which are rounded to the weights' dtype."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        key = weights / exponential.astype(weights.dtype).reshape(weights.shape)
    key.argmax(-1, out=places)
