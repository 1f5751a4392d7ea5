"""`torch.nn.functional`: dropout. Masks are drawn on the host from the default generator, which gives PyTorch's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.calling.expecting import expect_tensor, not_a_tensor
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.made import created
from torchgrad_jax.core.order import keep_order
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import from_data, zeros_like
from torchgrad_jax.functions.gathering import RunTime, call
from torchgrad_jax.functions.random import default_generator, draw
from torchgrad_jax.functions.views import squeeze, unbind, unsqueeze
from torchgrad_jax.memory.formats import memory_order
from torchgrad_jax.nn.activation import softmax
from torchgrad_jax.operators.kernels.distributions import ordered
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout", "gumbel_softmax"]


# The value that selu tends to for -inf, negated (Klambauer et al. 2017).
ALPHA = 1.7580993408473766


def check_probability(p: float, error: type[Exception]) -> None:
    """Raise `error` unless 0 <= p <= 1."""
    if not 0 <= p <= 1:
        shown = f"{p:g}" if error is RuntimeError else p
        raise error(f"dropout probability has to be between 0 and 1, but got {shown}")


def _constant(array: np.ndarray, like: Tensor) -> Tensor:
    return created(from_data(array, None, like.device))


def _in_order_of(like: Tensor, sample: Callable[[tuple[int, ...]], np.ndarray]) -> Callable[[tuple[int, ...]], np.ndarray]:
    """What `sample` draws for a shape; for that of `like`, which is not kept, in the order of its elements in memory."""
    if like._view is None:
        return sample
    own, strides = like._aval.shape, like._strides()
    return lambda shape: ordered(shape, memory_order(shape, strides) if shape == own else None, sample)


def draw_mask(like: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    """0 with probability p, else 1 / (1 - p), in the dtype of `like`."""
    dtype = like._aval.dtype
    return draw(shape, _in_order_of(like, lambda s: default_generator.dropout_mask(s, p, dtype)), like.device)


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
    a = 1 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p))
    keep = _in_order_of(input, lambda s: default_generator.bernoulli(1 - p, s, np.bool_))

    def factor_and_shift(size: tuple[int, ...]) -> np.ndarray:
        kept = keep(size)
        return np.stack([np.where(kept, a, 0.0), np.where(kept, ALPHA * a * p, ALPHA * a * (p - 1))], -1).astype(dtype)

    factor, shift = [t.contiguous() for t in unbind(draw(shape, factor_and_shift, input.device), -1)]
    made: Any = _product(input, factor, inplace)
    return made.add_(shift) if inplace else made + shift


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


@public("torch")
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Dropout, and which elements were kept. RuntimeError for p outside [0, 1]."""
    expect_tensor("native_dropout", input)
    shape, dtype = input._aval.shape, input._aval.dtype
    if train is not False and not dtypes.is_float(dtype):
        raise RuntimeError(f"result type Float can't be cast to the desired output type {dtypes.of(dtype).title}")
    if train is False or not input._aval.size:
        mask, scale = _constant(np.ones(shape, np.bool_), input), 1.0
    else:
        mask = draw(shape, _in_order_of(input, lambda s: default_generator.bernoulli(1 - p, s, np.bool_)), input.device)
        scale = 0.0 if p == 1 else 1 / (1 - p)
    if input._storage is not None:
        keep_order(mask, (input,))
    return call("_native_dropout", input, mask, RunTime(scale)), mask


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Samples of the Gumbel-softmax distribution (Jang et al. 2017): softmax of the logits plus Gumbel noise, divided by tau. If `hard`, one-hot,
    with the gradient of the soft samples. `eps` has no effect."""
    if eps != 1e-10:
        warn_user("`eps` parameter is deprecated and has no effect.", UserWarning)
    if not isinstance(logits, Tensor):
        raise not_a_tensor("empty_like", logits)
    dtype = logits._aval.dtype
    noise = draw(logits._aval.shape, lambda size: default_generator.exponential(size, dtype), logits.device)
    soft: Any = softmax((logits + -noise.log()) / tau, dim)
    if not hard:
        return soft
    index = soft.detach().argmax(dim, keepdim=True)
    return zeros_like(logits).scatter_(dim, index, 1.0) - soft.detach() + soft


def _toplevel(name: str, channels: bool, alpha: bool, inplace: bool) -> Any:
    def call(input: Tensor, p: float, train: bool) -> Tensor:
        return _dropout(name, input, p, train, inplace, channels, alpha)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` of `input` if `train`. RuntimeError for p outside [0, 1]."
    return call


for _title, _channelwise, _alpha in (
    ("dropout", False, False), ("alpha_dropout", False, True), ("feature_dropout", True, False), ("feature_alpha_dropout", True, True),
):  # fmt: skip
    public("torch")(_toplevel(_title, _channelwise, _alpha, False))
    public("torch")(_toplevel(_title + "_", _channelwise, _alpha, True))
