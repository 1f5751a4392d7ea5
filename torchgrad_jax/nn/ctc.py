"""`torch.nn.functional.ctc_loss` (Graves et al. 2006)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from torchgrad_jax.calling.convention import convention
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.overloads import where
from torchgrad_jax.functions.views import squeeze, unsqueeze
from torchgrad_jax.nn.loss import REDUCTIONS, reduction_of
from torchgrad_jax.operators import loss as _operators  # noqa: F401 - declares the operator

__all__ = ["ctc_loss"]

_KINDS = {(Tensor, Tensor), *((a, b) for a in (list, tuple) for b in (list, tuple))}
_CHECKING = " (while checking arguments for ctc_loss_allocate_outputs)"


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Minus the logarithm of the probability of label sequences, over all alignments in which labels may be repeated and `blank` lie between them.

    log_probs: (T, N, C), of each time, or (T, C) of one sample; logarithms of probabilities, as log_softmax gives them: the gradient is that of what
    log_softmax was given. targets: (N, S), or all one after the other, (sum of target_lengths,). Lengths: (N,), tensors or ints both; they are
    looked at where the targets are one after the other. "mean" divides each loss by the length of its target, then takes the mean.
    zero_infinity: targets that do not fit into their input count as 0, and have no gradient, where they are else infinite.

    RuntimeError where shapes, lengths or `blank` do not fit, ValueError for an unknown reduction, IndexError for a label that is no class. There is
    no second derivative.
    """
    reduction = reduction_of(reduction)
    given = tuple(map(type, (input_lengths, target_lengths)))
    plain = given in _KINDS and type(blank) is int and type(zero_infinity) is bool
    if not (isinstance(log_probs, Tensor) and isinstance(targets, Tensor) and plain):  # perhaps subclasses, perhaps what fits none
        signatures: Any = convention("torch.ctc_loss")
        signatures.meant((log_probs, targets, input_lengths, target_lengths, blank, REDUCTIONS.index(reduction), zero_infinity), {})
    return _ctc(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)


@public("torch.ctc_loss")
def _numbered(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: int = 1, zero_infinity: bool = False
) -> Tensor:
    """`F.ctc_loss` with `reduction` as 0, 1 or 2 for none, mean and sum."""
    return _ctc(log_probs, targets, input_lengths, target_lengths, blank, REDUCTIONS[reduction] if reduction in (1, 2) else "none", zero_infinity)


def _ctc(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int, reduction: str, zero_infinity: bool
) -> Tensor:  # fmt: skip
    batched = log_probs._aval.ndim == 3
    rows: Any = log_probs if batched else unsqueeze(log_probs, 1)
    lengths = [_lengths(x, name, rows) for x, name in ((input_lengths, "input_lengths"), (target_lengths, "target_lengths"))]
    values = [_read(x, targets._aval.ndim == 1) for x in lengths]
    _check_counts(lengths, rows)
    longest = _check(rows, targets, values, blank)
    labels = cast(targets, dtypes.int64)
    loss: Any = call("_ctc_loss", rows, labels, *lengths, longest, int(blank), bool(zero_infinity))[0]
    if zero_infinity:
        loss = where(loss == math.inf, 0.0, loss)
    if reduction == "mean":
        return (loss / cast(lengths[1].clamp(min=1), loss.dtype)).mean()
    if reduction == "sum":
        return loss.sum()
    return loss if batched else squeeze(loss, 0)


def _lengths(given: Any, name: str, like: Tensor) -> Any:
    """Lengths as a vector of int64."""
    if not isinstance(given, Tensor):
        return created(from_data(np.array(given, np.int64).reshape(-1), None, like.device))
    if given._aval.dtype.kind not in "iu":
        raise RuntimeError(f"{name} must be integral")
    return cast(given if given._aval.ndim == 1 else given.reshape(-1), dtypes.int64)  # what is reshaped is not at hand


def _read(lengths: Tensor, needed: bool) -> np.ndarray | None:
    """The lengths where they are at hand, or (needed) can be computed. Those that are not read are checked where the loss is computed."""
    found = lengths._read().at_hand()
    return np.asarray(lengths._concrete()) if found is None and needed and lengths._content().readable else found


def _check_counts(lengths: list[Any], log_probs: Tensor) -> None:
    for given, name in zip(lengths, ("input_lengths", "target_lengths"), strict=True):
        if log_probs._aval.ndim == 3 and log_probs._aval.size and given._aval.shape != log_probs._aval.shape[1:2]:
            raise RuntimeError(f"{name} must be of size batch_size")


def _check(log_probs: Tensor, targets: Tensor, lengths: list[np.ndarray | None], blank: int) -> int:
    """The most labels that a target may have. RuntimeError for what does not fit."""
    x, y = log_probs._aval, targets._aval
    if not x.size:
        raise RuntimeError("log_probs tensor must not be empty")
    if x.ndim != 3:
        raise RuntimeError(f"Expected 3-dimensional tensor, but got {x.ndim}-dimensional tensor for argument #1 'log_probs'{_CHECKING}")
    if y.ndim not in (1, 2):
        raise RuntimeError(f"Expected 1 to 2 dimensions, but got {y.ndim}-dimensional tensor for argument #2 'targets'{_CHECKING}")
    if not 0 <= blank < x.shape[2]:
        raise RuntimeError("blank must be in label range")
    inputs, labels = lengths
    longest = y.shape[-1]
    if labels is not None:
        _check_range(labels, "target_lengths", None)
        longest = _check_labels(y.shape, labels, x.shape[1])
    if inputs is not None:
        _check_range(inputs, "input_lengths", x.shape[0])
    return longest


def _check_labels(shape: tuple[int, ...], lengths: np.ndarray, samples: int) -> int:
    total, longest = int(lengths.sum()), int(lengths.max())
    wanted = total if len(shape) == 1 else samples
    if shape[0] != wanted:
        raise RuntimeError(f"Expected tensor to have size {wanted} at dimension 0, but got size {shape[0]} for argument #2 'targets'{_CHECKING}")
    if len(shape) == 1:
        return longest
    if shape[1] < longest:
        raise RuntimeError(
            f"Expected tensor to have size at least {longest} at dimension 1, but got size {shape[1]} for argument #2 'targets'{_CHECKING}"
        )  # fmt: skip
    return shape[1]


def _check_range(lengths: np.ndarray, name: str, most: int | None) -> None:
    for n in lengths.tolist():
        if n < 0:
            raise RuntimeError(f"Expected {name} to have value at least 0, but got value {n}{_CHECKING}")
        if most is not None and n > most:
            raise RuntimeError(f"Expected {name} to have value at most {most}, but got value {n}{_CHECKING}")
