"""Connectionist temporal classification (Graves et al. 2006): the sum over all paths through blanks and labels that spell a target.

A target of S labels becomes 2 S + 1 states, blanks between and around them. alpha[t, n, s] is the logarithm of the probability of all beginnings of
paths of sample n that are in state s at time t, beta of all ends that begin there, both with that state's own probability.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from torchgrad_jax.declaration.converting import where, zeros_like
from torchgrad_jax.declaration.numpy_indexing import RIGHT, in_range
from torchgrad_jax.operators.kernels import loops
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.loops import cost_of_spelling, how_of_spelling
from torchgrad_jax.runtime.compiling import primitives
from torchgrad_jax.runtime.compiling.foreign import ALONG, knows
from torchgrad_jax.runtime.native import handlers
from torchgrad_jax.runtime.operation import stand_in


def padded(targets: Any, lengths: Any, longest: int) -> Any:
    """Targets one after the other as rows (N, longest); rows as they are. What is after a target's end is any label."""
    if targets.ndim == 2:
        return targets
    if not targets.size:
        return jnp.zeros((lengths.shape[0], longest), np.int64)
    starts = jnp.cumsum(lengths) - lengths
    return targets[jnp.clip(starts[:, None] + jnp.arange(longest), 0, targets.size - 1)]


def misfit(log_probs: Any, labels: Any, input_lengths: Any, target_lengths: Any) -> Any:
    """The check of what is not known before: the pair (1, number) for a label that is no class, or a length that is too long or negative; else
    zeros."""
    counts = jnp.arange(labels.shape[1]) < target_lengths[:, None]
    checked = [(where(counts, labels, 0), log_probs.shape[2] - 1), (input_lengths, len(log_probs)), (target_lengths, labels.shape[1])]
    numbers = jnp.concatenate([x.reshape(-1) for x, _ in checked]).astype(np.int64)
    bad = jnp.concatenate([((x < 0) | (x > most)).reshape(-1) for x, most in checked])
    first = jnp.argmax(bad)
    return where(bad[first], jnp.stack([jnp.int64(1), numbers[first]]), jnp.zeros(2, np.int64))


def _states(labels: Any, blank: int) -> tuple[Any, Any]:
    """The class of each state (N, 2 S + 1), and whether a path may come to it from the state before the last."""
    rows, size = labels.shape
    classes = jnp.full((rows, 2 * size + 1), blank, np.int64).at[:, 1::2].set(labels)
    return classes, jnp.pad(classes[:, 2:] != classes[:, :-2], ((0, 0), (min(2, classes.shape[1]), 0)))[:, : classes.shape[1]]


def _sum(logs: Any, axis: int = 0) -> Any:
    """The logarithm of the sum along `axis`, with -inf for none."""
    most = jnp.max(logs, axis, keepdims=True)
    shift = where(most == -jnp.inf, 0, most)
    return jnp.log(jnp.sum(jnp.exp(logs - shift), axis)) + jnp.squeeze(shift, axis)


def _later(x: Any, by: int) -> Any:
    """Each state has what the one `by` before it had; the first ones nothing."""
    return jnp.pad(x, ((0, 0), (by, 0)), constant_values=-jnp.inf)[:, : x.shape[1]]


def _of_states(log_probs: Any, classes: Any) -> Any:
    return jnp.take_along_axis(log_probs, classes[None], 2, mode="clip")


def _fits(log_probs: Any, labels: Any) -> bool:
    return log_probs.dtype.char in "fd" and 0 not in (log_probs.size, labels.size) and primitives.has(ALONG)


def _integers(*arrays: Any) -> list[Any]:
    return [a.astype(np.int64) for a in arrays]


def forward(log_probs: Any, labels: Any, input_lengths: Any, target_lengths: Any, blank: int) -> tuple[Any, Any]:
    """Minus the logarithm of the probability of each target (N,), and alpha (T, N, 2 S + 1)."""
    if _fits(log_probs, labels):
        loss, alpha = _LOOP.bind(log_probs, *_integers(labels, input_lengths, target_lengths), blank=blank)
        return loss, alpha
    return _said_forward(log_probs, labels, input_lengths, target_lengths, blank)


def _said_forward(log_probs: Any, labels: Any, input_lengths: Any, target_lengths: Any, blank: int) -> tuple[Any, Any]:
    """Minus the logarithm of the probability of each target (N,), and alpha (T, N, 2 S + 1)."""
    classes, may_skip = _states(labels, blank)
    own = _of_states(log_probs, classes)
    state = jnp.arange(classes.shape[1])

    def step(alpha: Any, now: Any) -> Any:
        skipped = where(may_skip, _later(alpha, 2), -jnp.inf)
        alpha = _sum(jnp.stack([alpha, _later(alpha, 1), skipped])) + now
        return alpha, alpha

    first = where((state == 0) | ((state == 1) & (target_lengths[:, None] > 0)), own[0], -jnp.inf)
    _, rest = loops.scan(step, first, own[1:])
    alpha = jnp.concatenate([first[None], rest])
    last = jnp.take_along_axis(alpha, jnp.clip(input_lengths - 1, 0, len(alpha) - 1)[None, :, None], 0)[0]
    ends = (state == 2 * target_lengths[:, None]) | (state == 2 * target_lengths[:, None] - 1)
    nothing = where(target_lengths == 0, 0, -jnp.inf).astype(last.dtype)
    total = where(input_lengths > 0, _sum(where(ends, last, -jnp.inf), 1), nothing)
    return -total, alpha


def gradient(
    grad: Any, log_probs: Any, labels: Any, input_lengths: Any, target_lengths: Any, loss: Any, alpha: Any, blank: int, zero_infinity: bool
) -> Any:  # fmt: skip
    """See `_said_gradient`."""
    if _fits(log_probs, labels) and grad.dtype == log_probs.dtype:
        integers = _integers(labels, input_lengths, target_lengths)
        return _LOOP_GRAD.bind(grad, log_probs, *integers, loss, alpha, blank=blank, zero_infinity=zero_infinity)[0]
    return _said_gradient(grad, log_probs, labels, input_lengths, target_lengths, loss, alpha, blank, zero_infinity)


def _said_gradient(
    grad: Any, log_probs: Any, labels: Any, input_lengths: Any, target_lengths: Any, loss: Any, alpha: Any, blank: int, zero_infinity: bool
) -> Any:  # fmt: skip
    """The gradient for inputs that log_softmax gave: the classes' probabilities minus how probable each is on the paths of the target. That is the
    gradient for what log_softmax was given, so it passes log_softmax's own backward unchanged."""
    classes, may_skip = _states(labels, blank)
    own = _of_states(log_probs, classes)
    state, times = jnp.arange(classes.shape[1]), jnp.arange(len(alpha))
    ends = (state == 2 * target_lengths[:, None]) | (state == 2 * target_lengths[:, None] - 1)
    may_leave = jnp.pad(may_skip, ((0, 0), (0, 2)))[:, 2:]  # from a state to the one after the next

    def earlier(x: Any, by: int) -> Any:
        return _later(x[:, ::-1], by)[:, ::-1]

    def step(beta: Any, now: Any) -> Any:
        probability, is_last = now
        onward = _sum(jnp.stack([beta, earlier(beta, 1), where(may_leave, earlier(beta, 2), -jnp.inf)]))
        beta = where(is_last[:, None], where(ends, 0, -jnp.inf), onward) + probability
        return beta, beta

    is_last = times[:, None] == input_lengths - 1
    _, beta = loops.scan(step, jnp.full_like(own[0], -jnp.inf), (own, is_last), reverse=True)
    share = jnp.exp(alpha + beta - own + loss[:, None])
    share = where((alpha == -jnp.inf) | (beta == -jnp.inf), 0, share)
    rows = jnp.arange(len(classes))[:, None]
    shares = zeros_like(log_probs).at[:, rows, classes].add(share, mode="drop")
    made = (jnp.exp(log_probs) - shares) * grad[:, None]
    impossible = jnp.isinf(loss)
    made = where(impossible[:, None], 0 if zero_infinity else jnp.nan, made)
    return where((times[:, None] < input_lengths)[..., None], made, 0).astype(log_probs.dtype)


_LOOP = primitives.primitive(
    "spell", lambda *arrays, **how: list(_said_forward(*arrays, **how)),
    primitives.Loop(
        ALONG, partial(how_of_spelling, "spell"),
        lambda given, labels, *_, **__: [given.shape[1:2], (*given.shape[:2], 2 * labels.shape[1] + 1)],
    ),
)  # fmt: skip
_LOOP_GRAD = primitives.primitive(
    "spell_grad", lambda *arrays, **how: [_said_gradient(*arrays, **how)],
    primitives.Loop(ALONG, partial(how_of_spelling, "spell_grad"), lambda grad, given, *_, **__: [given.shape]),
)  # fmt: skip


# ---------------------------------------------------------------------- on NumPy arrays, by the loops


def _rows(targets: np.ndarray, lengths: np.ndarray, longest: int) -> np.ndarray:
    """`padded`, as integers of 64 bits."""
    if targets.ndim == 1:
        starts = np.cumsum(lengths) - lengths
        targets = targets[np.clip(starts[:, None] + np.arange(longest), 0, targets.size - 1)]
    return contiguous(targets.astype(np.int64, copy=False))


def _first_misfit(log_probs: np.ndarray, labels: np.ndarray, input_lengths: np.ndarray, target_lengths: np.ndarray) -> np.ndarray:
    """`misfit`."""
    counted = np.where(np.arange(labels.shape[1]) < target_lengths[:, None], labels, 0)
    limits = (counted, log_probs.shape[2] - 1), (input_lengths, len(log_probs)), (target_lengths, labels.shape[1])
    for numbers, most in limits:
        if not in_range(numbers, most + 1):
            return np.array([1, numbers[(numbers < 0) | (numbers > most)][0]], np.int64)
    return RIGHT


def _by_loop(name: str, given: list[np.ndarray], shapes: list[tuple[int, ...]], **how: Any) -> list[np.ndarray]:
    made = [np.empty(shape, given[0].dtype) for shape in shapes]
    handlers.loop(list(map(contiguous, given)), made, how_of_spelling(name, *given, **how))
    return made


def _lengths(*lengths: np.ndarray) -> list[np.ndarray]:
    return [n.astype(np.int64, copy=False) for n in lengths]


def _spelled(
    log_probs: np.ndarray, targets: np.ndarray, input_lengths: np.ndarray, target_lengths: np.ndarray, longest: int, blank: int, zero_infinity: bool
) -> tuple[np.ndarray, ...]:
    labels, lengths, (times, samples, _) = _rows(targets, target_lengths, longest), _lengths(input_lengths, target_lengths), log_probs.shape
    shapes = [(samples,), (times, samples, 2 * labels.shape[1] + 1)]
    return *_by_loop("spell", [log_probs, labels, *lengths], shapes, blank=blank), _first_misfit(log_probs, labels, input_lengths, target_lengths)


def _is_for_loop(log_probs: np.ndarray, targets: np.ndarray, *lengths: np.ndarray, longest: int) -> bool:
    integers = all([x.dtype.kind == "i" for x in (targets, *lengths)]) and all([n.shape == log_probs.shape[1:2] for n in lengths])
    there = log_probs.ndim == 3 and log_probs.dtype.char in "fd" and 0 not in (log_probs.size, targets.size, longest)
    return there and integers and (targets.ndim == 1 or targets.shape == (log_probs.shape[1], longest)) and knows(ALONG)


def _spelled_shapes(log_probs: np.ndarray, *integers: np.ndarray, longest: int, blank: int, zero_infinity: bool) -> tuple[np.ndarray, ...] | None:
    if not _is_for_loop(log_probs, *integers, longest=longest):
        return None
    times, samples, _ = log_probs.shape
    shape = (times, samples, 2 * longest + 1)
    return stand_in((samples,), log_probs.dtype), stand_in(shape, log_probs.dtype), stand_in((2,), np.dtype(np.int64))


def _spelled_back(
    grad: np.ndarray, avals: Any, log_probs: np.ndarray, targets: np.ndarray, input_lengths: np.ndarray, target_lengths: np.ndarray, loss: np.ndarray,
    alpha: np.ndarray, longest: int, blank: int, zero_infinity: bool,
) -> np.ndarray:  # fmt: skip
    labels, lengths = _rows(targets, target_lengths, longest), _lengths(input_lengths, target_lengths)
    given = [grad, log_probs, labels, *lengths, loss, alpha]
    return _by_loop("spell_grad", given, [log_probs.shape], blank=blank, zero_infinity=zero_infinity)[0]


def _spelled_back_shape(
    grad: np.ndarray, avals: Any, log_probs: np.ndarray, *saved: np.ndarray, longest: int, blank: int, zero_infinity: bool
) -> np.ndarray | None:  # fmt: skip
    fits = grad.dtype == log_probs.dtype and _is_for_loop(log_probs, *saved[:3], longest=longest)
    return stand_in(log_probs.shape, log_probs.dtype) if fits else None


FORM = Forms(_spelled, _spelled_shapes, True, takes=lambda given, labels, *_: cost_of_spelling(given.shape, labels.shape[-1]), planned=True)
_FORM_BACK = Forms(
    _spelled_back, _spelled_back_shape, True, takes=lambda grad, given, labels, *_: cost_of_spelling(given.shape, labels.shape[-1]), planned=True
)


def form_of_gradient(wanted: tuple[str, ...]) -> Forms:
    """The form of the gradient of `log_probs`, the only operand that has one."""
    return _FORM_BACK
