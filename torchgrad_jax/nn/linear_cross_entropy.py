"""`torch.nn.functional.linear_cross_entropy`: a linear map and the cross entropy of what it gives, also without having all of that at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.views import reshape
from torchgrad_jax.nn.linear import linear
from torchgrad_jax.nn.loss import REDUCTIONS, cross_entropy
from torchgrad_jax.operators import loss as _operators  # noqa: F401 - declares the operator
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["linear_cross_entropy"]

_POLICIES = ("accurate", "balanced", "compact", "auto")
_ACCUMULATORS = (None, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
_RATIO = "aspect_ratio:"


@dataclass(frozen=True, slots=True)
class LinearCrossEntropyOptions:
    """That `linear_cross_entropy` goes through the samples in chunks, so that the logits of all of them are never there at once.

    batch_chunk_size: samples in a chunk. chunking_method: without that, "aspect_ratio:R" for chunks whose logits are about R times as large as the
    whole input, "auto" for R = 2, None for one chunk. acc_policy, acc_dtype: how exactly PyTorch adds up gradients of half precision; here they are
    added up in float32 always. allow_retain_graph: whether backward may be called twice; here it always may.

    ValueError for other values.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: Literal["accurate", "balanced", "compact", "auto"] = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        size, method = self.batch_chunk_size, self.chunking_method
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size}")
        if method not in (None, "auto") and not (isinstance(method, str) and method.startswith(_RATIO) and method[len(_RATIO) :].isdecimal()):
            raise ValueError(f"invalid chunking_method: {method!r}")
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if not any(self.acc_dtype is dtype for dtype in _ACCUMULATORS):
            shown = ", ".join(map(str, _ACCUMULATORS))
            raise ValueError(f"acc_dtype must be one of {{{shown}}}, got {self.acc_dtype!r}. Pass acc_dtype=None to let the op pick automatically.")

    def chunk(self, samples: int, features: int, classes: int) -> int:
        """The samples of one chunk."""
        if self.batch_chunk_size is not None:
            return min(self.batch_chunk_size, samples)
        if self.chunking_method is None:
            return samples
        ratio = 2 if self.chunking_method == "auto" else int(self.chunking_method[len(_RATIO) :])
        return max(1, min(samples, ratio * samples * features // max(classes, 1)))


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None, weight: Tensor | None = None,
    reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0, options: LinearCrossEntropyOptions | None = None,
) -> Tensor:  # fmt: skip
    """`cross_entropy` of ``linear(input, linear_weight, linear_bias)``.

    input: (N, in_features), or (in_features,). linear_weight: (C, in_features), or (C, d1, ..., in_features) for targets (N, d1, ...); linear_bias:
    its shape without the last. ignore_index: a class that does not count, -100 if there is none given. options: to go through the samples in chunks,
    see LinearCrossEntropyOptions; a warning where that is not possible. The other arguments are those of `cross_entropy`.

    RuntimeError, ValueError where shapes or options do not fit.
    """
    x, w = input._aval, linear_weight._aval
    if x.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {x.ndim}")
    if w.ndim < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {w.ndim}")
    if x.shape[-1] != w.shape[-1]:
        raise RuntimeError(f"expected equal input and linear_weight last dimensions (in_features), got {x.shape[-1]} and {w.shape[-1]}, respectively")
    sizes = w.shape[1:-1]
    if sizes and x.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {w.shape} requires batched input, (N, {x.shape[-1]}), got unbatched input with shape "
            f"{_shown(x.shape)}"
        )
    if linear_bias is not None and linear_bias._aval.shape != w.shape[:-1]:
        raise RuntimeError(f"expected linear_bias shape {_shown(w.shape[:-1])}, got {_shown(linear_bias._aval.shape)}")
    check_classes(w.shape[0], weight, label_smoothing)
    if ignore_index is not None and target.is_floating_point():
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    ignored = -100 if ignore_index is None else ignore_index
    if options is not None and _in_chunks(target, reduction, label_smoothing, sizes, linear_bias):
        _check_accumulator(options.acc_dtype, x.dtype)
        return _chunked(input, linear_weight, target, linear_bias, weight, reduction, ignored, options)
    rows = linear_weight if not sizes else reshape(linear_weight, (-1, w.shape[-1]))
    logits = linear(input, rows, linear_bias if linear_bias is None or not sizes else reshape(linear_bias, (-1,)))
    if sizes:
        logits = reshape(logits, (x.shape[0], *w.shape[:-1]))
    return cross_entropy(logits, target, weight=weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing)


def check_classes(classes: int, weight: Tensor | None, label_smoothing: float) -> None:
    """RuntimeError where the weights are not one for each class, or the smoothing is no share."""
    if weight is not None and weight.shape != (classes,):
        raise RuntimeError(f"expected weight shape to be ({classes},), got {_shown(weight.shape)}")
    if label_smoothing < 0 or label_smoothing > 1:
        raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")


def _shown(shape: tuple[int, ...]) -> str:
    return str(tuple(shape))


def _in_chunks(target: Tensor, reduction: str, label_smoothing: float, sizes: tuple[int, ...], bias: Tensor | None) -> bool:
    """Whether the samples can be gone through in chunks. A warning where they cannot."""
    if reduction not in REDUCTIONS:
        return False
    if not label_smoothing and target._aval.dtype == np.int64 and not sizes:
        return True
    shape = None if bias is None else _shown(bias._aval.shape)
    warn_user(
        "linear_cross_entropy: ``options`` ignored; chunked path needs reduction in {'mean','sum','none'}, label_smoothing == 0, target.dtype == "
        f"int64, out_features == (). Got reduction={reduction!r}, label_smoothing={label_smoothing}, target.dtype={target.dtype}, "
        f"out_features={_shown(sizes)}, tracing=False, linear_bias.shape={shape}."
    )
    return False


def _check_accumulator(acc_dtype: Any, dtype: Any) -> None:
    given = dtypes.of(dtype)
    if acc_dtype is None or acc_dtype is given or (acc_dtype is dtypes.float32 and given.itemsize == 2):
        return
    raise RuntimeError(
        f"linear_cross_entropy supports float32 acc_dtype with float16/bfloat16 inputs, but got {acc_dtype} acc_dtype and {given} inputs."
    )  # fmt: skip


def _chunked(
    input: Tensor, linear_weight: Tensor, target: Tensor, bias: Tensor | None, weight: Tensor | None, reduction: str, ignored: int,
    options: LinearCrossEntropyOptions,
) -> Tensor:  # fmt: skip
    rows, classes = reshape(input, (-1, input._aval.shape[-1])), reshape(target, (-1,))
    samples, features = rows._aval.shape
    if classes._aval.shape != (samples,):
        raise ValueError(f"Expected input batch_size ({samples}) to match target batch_size ({classes._aval.shape[0]}).")
    chunk = options.chunk(samples, features, linear_weight._aval.shape[0])
    made = call("_linear_cross_entropy", rows, linear_weight, classes, bias, weight, int(ignored), reduction, chunk)
    return reshape(made, ()) if reduction == "none" and input._aval.ndim == 1 else made
