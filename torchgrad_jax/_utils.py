"""What pickles name: see `runtime/pickles.py`."""

from collections.abc import Sequence as _Sequence

import torchgrad_jax.nn.modules.calling  # noqa: F401 - loaded late, and has a class that pickles name
from torchgrad_jax.core.tensor import Tensor as _Tensor
from torchgrad_jax.declaration.dtypes import dtype as _dtype
from torchgrad_jax.functions.shaping import cat as _cat
from torchgrad_jax.runtime.pickles import rebuilding as _rebuilding

globals().update(_rebuilding)


def _element_size(dtype: _dtype) -> int:
    """The bytes of one element."""
    return dtype.itemsize


def _flatten_dense_tensors(tensors: _Sequence[_Tensor]) -> _Tensor:
    """The elements of all tensors in one row."""
    return _cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat: _Tensor, tensors: _Sequence[_Tensor]) -> tuple[_Tensor, ...]:
    """`flat` taken apart again into tensors of the shapes of `tensors`."""
    return tuple(part.view_as(t) for part, t in zip(flat.split([t.numel() for t in tensors]), tensors, strict=True))
