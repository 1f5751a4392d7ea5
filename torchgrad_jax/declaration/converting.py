"""Arrays brought to a dtype and a shape, as PyTorch converts and expands."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes


def is_half(dtype: np.dtype) -> bool:
    """Whether this is float16 or bfloat16."""
    return dtype.itemsize == 2 and dtype.kind not in "iu"


def wide(x: Any) -> Any:
    """`x` in the precision PyTorch computes in: half precision in float32."""
    return convert(x, np.dtype(np.float32)) if is_half(x.dtype) else x


def rounded(x: Any, like: Any) -> Any:
    """`x` with no more digits than `like` has, in the precision PyTorch computes in."""
    return wide(convert(x, like.dtype))


def convert(x: Any, target: np.dtype) -> Any:
    """`x` as `target`, as PyTorch converts: complex to real drops the imaginary part, to bool is `!= 0`."""
    if x.dtype == target:
        return x
    if target == np.bool_:
        return x != 0
    if x.dtype.kind == "c" and target.kind != "c":
        x = lax.real(x)
    if target.kind in "iu" and dtypes.category(np.dtype(x.dtype)) == dtypes.FLOAT and target != np.uint64:
        return _to_integer(x, target)
    return lax.convert_element_type(x, target)


def _to_integer(x: Any, target: np.dtype) -> Any:
    """Floating point to integer as PyTorch's processors do it: what does not fit, and nan, is the smallest number; narrow types wrap around."""
    whole = target if target in (np.int32, np.int64) else np.dtype(np.int64)
    x = x if x.dtype.itemsize >= 4 else lax.convert_element_type(x, np.float32)
    lowest = float(np.iinfo(whole).min)
    x = jnp.where((x >= lowest) & (x < -lowest), x, jnp.asarray(lowest, x.dtype))
    return lax.convert_element_type(lax.convert_element_type(x, whole), target)


@lru_cache(4096)
def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape all of `shapes` expand to. RuntimeError with PyTorch's text where there is none."""
    found: tuple[int, ...] = ()
    for shape in shapes:
        out = list(shape if len(shape) > len(found) else found)
        for i in range(1, min(len(shape), len(found)) + 1):
            a, b = found[-i], shape[-i]
            if a != b and a != 1 and b != 1:
                raise RuntimeError(f"The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {len(out) - i}")
            out[-i] = b if a == 1 else a
        found = tuple(out)
    return found


def check_added(shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    """RuntimeError with PyTorch's text where something of the first shape cannot be written over with what it and the other one make together."""
    whole = broadcast_shapes(shape, other)
    if whole != shape:
        raise RuntimeError(f"output with shape {[*shape]} doesn't match the broadcast shape {[*whole]}")


def check_expands(a: Any, shape: tuple[int, ...]) -> None:
    """RuntimeError with PyTorch's text where something like `a`, an aval or an array, cannot be expanded to `shape`."""
    if len(a.shape) > len(shape):
        raise RuntimeError(
            f"expand({dtypes.of(a.dtype).tensor_type}{{{list(a.shape)}}}, size={list(shape)}): the number of sizes provided ({len(shape)}) "
            f"must be greater or equal to the number of dimensions in the tensor ({len(a.shape)})"
        )
    for i in range(1, len(a.shape) + 1):
        if a.shape[-i] not in (1, shape[-i]):
            raise RuntimeError(
                f"The expanded size of the tensor ({shape[-i]}) must match the existing size ({a.shape[-i]}) at non-singleton dimension "
                f"{len(shape) - i}.  Target sizes: {list(shape)}.  Tensor sizes: {list(a.shape)}"
            )


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` expanded to `shape` by NumPy's rule."""
    if x.shape == shape:
        return x
    offset = len(shape) - x.ndim
    return lax.broadcast_in_dim(x, shape, tuple(range(offset, len(shape)))) if _only_new_dims(x.shape, shape) else _expand(x, shape)


def _only_new_dims(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    return old == new[len(new) - len(old) :]


def _expand(x: Any, shape: tuple[int, ...]) -> Any:
    offset = len(shape) - x.ndim
    kept = [i for i, n in enumerate(x.shape) if n == shape[offset + i]]
    squeezed = lax.reshape(x, tuple(x.shape[i] for i in kept))
    return lax.broadcast_in_dim(squeezed, shape, tuple(offset + i for i in kept))


def where(chosen: Any, a: Any, b: Any) -> Any:
    """`jnp.where`, which takes four times as long to be traced where there is nothing to convert."""
    dtype = getattr(b if type(a) in _NUMBERS else a, "dtype", None)
    if dtype is None or chosen.dtype != np.bool_ or not chosen.shape:
        return jnp.where(chosen, a, b)
    shape, operands = chosen.shape, []
    for x in (a, b):
        if type(x) in _NUMBERS and dtype.kind == "f":
            x = np.asarray(x, dtype)
        elif not hasattr(x, "dtype") or x.dtype != dtype or getattr(x, "weak_type", False) or x.shape not in (shape, ()):
            return jnp.where(chosen, a, b)
        operands.append(x)
    whole = [x if x.shape == shape else lax.broadcast_in_dim(x, shape, ()) for x in operands]
    return whole[0] if 0 in shape else lax.select(chosen, *whole)


_NUMBERS = (int, float)


def zeros_like(x: Any) -> Any:
    """`jnp.zeros_like` of an array that has a dtype of its own."""
    zero = np.zeros((), x.dtype)
    return lax.broadcast_in_dim(zero, x.shape, ()) if x.shape and not getattr(x, "weak_type", False) else jnp.zeros_like(x)


def zeros_like_grad(grad: Any) -> Any:
    """The gradient of an input that the result does not depend on: under `create_graph` no graph leads to it."""
    return zeros_like(grad)
