"""Values that are one number everywhere."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime import device as devices
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Value, aval_of, constant


@lru_cache(maxsize=4096)
def constant_op(size: tuple[int, ...], fill_value: int, dtype: np.dtype, where: devices.device) -> Any:
    """The operation that makes zeros or ones: the number is part of the program, where XLA can use that it is known."""
    return registry["_constant"].bind((Static(size), Static(fill_value), Static(dtype)), where)


def full_value(size: tuple[int, ...], number: Any, dtype: np.dtype, where: devices.device) -> Value:
    """A Value of that shape filled with a number."""
    if where is devices.META:
        return constant(None, aval_of(tuple(size), dtype, where))
    rec = per_thread.recorder
    if rec.device is not where:
        rec.switch_device(where)
    if type(number) is int and (number == 0 or number == 1):
        return rec.call(constant_op(size, number, dtype, where), ())[0]
    bound = registry["full_"].bind((Static(size), ARRAY, Static(dtype)), where)
    return rec.call(bound, (number,))[0]
