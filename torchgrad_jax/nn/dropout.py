"""`torch.nn.functional`: dropout. Masks are drawn on the host from the default generator, which gives PyTorch's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from torchgrad_jax.nn.activation import expect_tensor
from torchgrad_jax.ops import dtypes
from torchgrad_jax.runtime.checks import warn_user
from torchgrad_jax.tensor.creation import from_data
from torchgrad_jax.tensor.tensor import Tensor, created
from torchgrad_jax.tensor.views import squeeze, unsqueeze

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]

# The value that selu tends to for -inf, negated (Klambauer et al. 2017).
ALPHA = 1.7580993408473766


def _generator() -> Any:
    from torchgrad_jax.tensor.random import default_generator

    return default_generator


def check_probability(p: float, error: type[Exception]) -> None:
    """Raise `error` unless 0 <= p <= 1."""
    if not 0 <= p <= 1:
        shown = f"{p:g}" if error is RuntimeError else p
        raise error(f"dropout probability has to be between 0 and 1, but got {shown}")


def _constant(array: np.ndarray, like: Tensor) -> Tensor:
    return created(from_data(array, None, like.device))


def draw_mask(like: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    """0 with probability p, else 1 / (1 - p), in the dtype of `like`."""
    return _constant(_generator().dropout_mask(shape, p, like._aval.dtype), like)


def _per_channel(input: Tensor) -> tuple[int, ...]:
    shape = input._aval.shape
    if len(shape) < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return (*shape[:2], *(1,) * (len(shape) - 2))


def _product(input: Any, factor: Tensor, inplace: bool) -> Tensor:
    return input.mul_(factor) if inplace else input * factor


def _dropout(name: str, input: Tensor, p: float, train: bool, inplace: bool, channels: bool, alpha: bool) -> Tensor:
    """All forms of dropout: of elements or of whole channels, to zero or to selu's lower limit. RuntimeError for p outside [0, 1]."""
    expect_tensor(name, input)
    check_probability(p, RuntimeError)
    if p == 0 or not train or not input._aval.size:
        return input
    dtype = input._aval.dtype
    if p == 1:
        return _product(input, _constant(np.zeros((), dtype), input), inplace)
    shape = _per_channel(input) if channels else input._aval.shape
    if not dtypes.is_float(dtype):
        raise RuntimeError(f"result type Float can't be cast to the desired output type {dtypes.of(dtype).title}")
    if not alpha:
        return _product(input, draw_mask(input, shape, p), inplace)
    kept = _generator().bernoulli(1 - p, shape, np.bool_)
    a = 1 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p))
    shift = np.where(kept, ALPHA * a * p, ALPHA * a * (p - 1)).astype(dtype)
    made: Any = _product(input, _constant(np.where(kept, a, 0.0).astype(dtype), input), inplace)
    return made.add_(_constant(shift, input)) if inplace else made + _constant(shift, input)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, each element becomes 0 with probability p, and the others grow by 1 / (1 - p). ValueError for p outside [0, 1]."""
    check_probability(p, ValueError)
    return _dropout("dropout", input, p, training, inplace, False, False)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout to selu's lower limit that keeps mean and variance (Klambauer et al. 2017). ValueError for p outside [0, 1]."""
    check_probability(p, ValueError)
    return _dropout("alpha_dropout", input, p, training, inplace, False, True)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels. ValueError for p outside [0, 1]; RuntimeError for fewer than 2 dimensions."""
    check_probability(p, ValueError)
    return _dropout("feature_alpha_dropout", input, p, training, inplace, True, True)


def _channels(input: Tensor, p: float, training: bool, inplace: bool, batched: bool) -> Tensor:
    name = "feature_dropout"
    if batched:
        return _dropout(name, input, p, training, inplace, True, False)
    made = _dropout(name, unsqueeze(input, 0), p, training, inplace, True, False)
    return input if inplace else squeeze(made, 0)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of (samples, channels, length) or (channels, length). ValueError, RuntimeError for other inputs."""
    check_probability(p, ValueError)
    ndim = input.dim()
    if ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {ndim}D input. Note that dropout1d exists to provide channel-wise dropout "
            "on inputs with 1 spatial dimension, a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs)."
        )
    return _channels(input, p, training, inplace, ndim == 3)


def _warn_of_dimensions(name: str, ndim: int, space: int) -> None:
    warn_user(
        f"{name}: Received a {ndim}-D input to {name}, which is deprecated and will result in an error in a future release. To retain the "
        f"behavior and silence this warning, please use dropout instead. Note that {name} exists to provide channel-wise dropout on inputs "
        f"with {space} spatial dimensions, a channel dimension, and an optional batch dimension (i.e. {space + 1}D or {space + 2}D inputs).",
    )


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of (samples, channels, height, width). ValueError for p outside [0, 1]."""
    check_probability(p, ValueError)
    ndim = input.dim()
    if ndim not in (3, 4):
        _warn_of_dimensions("dropout2d", ndim, 2)
    if ndim == 3:
        warn_user(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - input is interpreted "
            "as shape (N, C, L), where C is the channel dim. This behavior will change in a future release to interpret the input as one "
            "without a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise dropout behavior, please switch to using "
            "dropout1d instead.",
        )
    return _channels(input, p, training, inplace, True)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of (samples, channels, depth, height, width), or of one sample. ValueError for p outside [0, 1]."""
    check_probability(p, ValueError)
    ndim = input.dim()
    if ndim not in (4, 5):
        _warn_of_dimensions("dropout3d", ndim, 3)
    return _channels(input, p, training, inplace, ndim == 5)


def _toplevel(name: str, channels: bool, alpha: bool, inplace: bool) -> Any:
    def call(input: Tensor, p: float, train: bool) -> Tensor:
        return _dropout(name, input, p, train, inplace, channels, alpha)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` of `input` if `train`. RuntimeError for p outside [0, 1]."
    return call


TOPLEVEL: dict[str, Any] = {
    name + ("_" if inplace else ""): _toplevel(name + ("_" if inplace else ""), channels, alpha, inplace)
    for name, channels, alpha in (
        ("dropout", False, False), ("alpha_dropout", False, True), ("feature_dropout", True, False), ("feature_alpha_dropout", True, True),
    )
    for inplace in (False, True)
}  # fmt: skip
METHODS: dict[str, Any] = {}
