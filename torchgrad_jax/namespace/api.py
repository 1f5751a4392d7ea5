"""What `torch.X` is, gathered: operators, factories, dtypes, grad modes."""

from __future__ import annotations

import math
from typing import Any

# What they publish. By their own names: `from torchgrad_jax.nn import` would ask the package for them, and so load it.
import torchgrad_jax.nn.activation  # noqa: F401
import torchgrad_jax.nn.convolution  # noqa: F401
import torchgrad_jax.nn.ctc  # noqa: F401
import torchgrad_jax.nn.distance  # noqa: F401
import torchgrad_jax.nn.dot_product  # noqa: F401
import torchgrad_jax.nn.dropout  # noqa: F401
import torchgrad_jax.nn.grid  # noqa: F401
import torchgrad_jax.nn.linear  # noqa: F401
import torchgrad_jax.nn.loss  # noqa: F401
import torchgrad_jax.nn.margins  # noqa: F401
import torchgrad_jax.nn.multihead  # noqa: F401
import torchgrad_jax.nn.normalization  # noqa: F401
import torchgrad_jax.nn.padding  # noqa: F401
import torchgrad_jax.nn.pooling  # noqa: F401
import torchgrad_jax.nn.recurrent  # noqa: F401
import torchgrad_jax.nn.short_time  # noqa: F401
import torchgrad_jax.nn.sparse  # noqa: F401
import torchgrad_jax.sparse  # noqa: F401
from torchgrad_jax.calling.generate import is_tensor
from torchgrad_jax.calling.overrides import guarded
from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.declaration import dtypes, only_named, strides
from torchgrad_jax.functions import creation, formatting, legacy, limits, overloads
from torchgrad_jax.memory import formats
from torchgrad_jax.namespace import checks, late, methods, symbolic
from torchgrad_jax.runtime.device import device


def public() -> dict[str, Any]:
    """The names of the top-level namespace."""
    methods.install()
    found: dict[str, Any] = {d.name: d for d in dtypes.ALL}
    found.update({n: d for n, d in dtypes.ALIASES.items()})
    found.update(only_named.ALL, **symbolic.ALL)
    found.update(guarded("torch", methods.namespace))
    found.update(legacy.classes(), **formats.FORMATS, memory_format=formats.memory_format, layout=strides.layout, strided=strides.strided)
    found["legacy_contiguous_format"] = formats.contiguous_format
    found.update(inf=math.inf, nan=math.nan, pi=math.pi, e=math.e, newaxis=None)
    found.update(
        Tensor=Tensor, Size=Size, finfo=limits.finfo, iinfo=limits.iinfo, device=device, dtype=dtypes.dtype, is_inference=overloads.is_inference,
        set_printoptions=formatting.set_printoptions,
        get_default_dtype=dtypes.get_default_dtype, set_default_dtype=dtypes.set_default_dtype,
        save=late.save, load=late.load, set_default_device=creation.set_default_device, get_default_device=creation.get_default_device,
    )  # fmt: skip
    found.update(guarded("torch", {"is_tensor": is_tensor, **late.FUNCTIONS}), **checks.FUNCTIONS)
    return found
