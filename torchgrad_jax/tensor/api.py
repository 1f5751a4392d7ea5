"""What `torch.X` is, gathered: operators, factories, dtypes, grad modes."""

from __future__ import annotations

import math
from typing import Any

from torchgrad_jax.ops import dtypes, strides
from torchgrad_jax.runtime.device import device
from torchgrad_jax.tensor import creation, formatting, functions, layout, legacy, limits, methods
from torchgrad_jax.tensor.generate import is_tensor
from torchgrad_jax.tensor.overrides import guarded
from torchgrad_jax.tensor.tensor import Size, Tensor


def public() -> dict[str, Any]:
    """The names of the top-level namespace."""
    methods.install()
    found: dict[str, Any] = {d.name: d for d in dtypes.ALL}
    found.update({n: d for n, d in dtypes.ALIASES.items()})
    found.update(guarded("torch", methods.namespace))
    found.update(legacy.classes(), **layout.FORMATS, memory_format=layout.memory_format, layout=strides.layout, strided=strides.strided)
    found.update(inf=math.inf, nan=math.nan, pi=math.pi, e=math.e, newaxis=None)
    found.update(
        Tensor=Tensor, Size=Size, finfo=limits.finfo, iinfo=limits.iinfo, device=device, dtype=dtypes.dtype, is_inference=functions.is_inference,
        set_printoptions=formatting.set_printoptions,
        get_default_dtype=dtypes.get_default_dtype, set_default_dtype=dtypes.set_default_dtype,
        set_default_device=creation.set_default_device, get_default_device=creation.get_default_device,
    )  # fmt: skip
    found.update(guarded("torch", {"is_tensor": is_tensor, **{name: getattr(Tensor, name) for name in ("numel", "is_floating_point", "is_complex")}}))
    return found
