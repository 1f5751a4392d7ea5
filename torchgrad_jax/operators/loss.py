"""Losses that PyTorch has as single operators."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_losses, promotion
from torchgrad_jax.declaration.converting import broadcast_shapes, where, wide
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.declaration.refusals import refusing, unsupported
from torchgrad_jax.operators.activation import log_sigmoid_of, sigmoid_of
from torchgrad_jax.operators.embedding import first_outside
from torchgrad_jax.operators.kernels import along, ctc, loops
from torchgrad_jax.runtime.value import Aval


def reduce(x: Any, reduction: str) -> Any:
    """The mean or the sum of all elements, or the elements themselves."""
    if reduction == "none":
        return x
    total = lax.reduce_sum(x, tuple(range(x.ndim)))
    return total / jnp.asarray(x.size, x.dtype) if reduction == "mean" else total


def spread(grad: Any, like: Any, reduction: str) -> Any:
    """The gradient of `reduce` for elements of the shape of `like`."""
    return grad / jnp.asarray(like.size, grad.dtype) if reduction == "mean" else grad


def _floats_only(name: str) -> Any:
    def check(x: Aval, *_: Any, **__: Any) -> None:
        if not dtypes.is_float(x.dtype):
            raise NotImplementedError(f"\"{name}\" not implemented for '{dtypes.of(x.dtype).title}'")

    return check


# ---------------------------------------------------------------------- regression


def _common_floats(kernel: str) -> Any:
    """A `validate` that refuses what input and target are promoted to where it is not floating point."""

    def validate(x: Aval, y: Aval, **_: Any) -> None:
        common = promotion.result_type([x, y])
        if dtypes.category(common) != dtypes.FLOAT:
            raise unsupported(kernel, common)

    return validate


def _fits_input(x: Aval, result: np.dtype) -> None:
    if not promotion.can_cast(result, x.dtype):
        wanted, given = dtypes.of(result).title, dtypes.of(x.dtype).title
        raise RuntimeError(f"result type {wanted} can't be cast to the desired output type {given}")


@op(
    "mse_loss(Tensor self, Tensor target, str reduction)", promote="common", validate=_common_floats("mse_cpu"), method=False, toplevel=False,
    again=("self", "target"), numpy_of=numpy_losses.form,
    grads={"self": lambda grad, self, target, reduction: spread(grad, self, reduction) * (2 * (self - target)),
           "target": lambda grad, self, target, reduction: spread(grad, self, reduction) * (2 * (target - self))},
)  # fmt: skip
def mse_loss(x: Any, y: Any, reduction: str) -> Any:
    """(self - target) ** 2."""
    d = x - y
    return reduce(d * d, reduction)


def _smooth_l1_slope(d: Any, beta: float) -> Any:
    return where(jnp.abs(d) < beta, d / beta, lax.sign(d))


@op(
    "smooth_l1_loss(Tensor self, Tensor target, str reduction, float beta)", promote="common", method=False, toplevel=False,
    node="SmoothL1LossBackward0", validate=_common_floats("smooth_l1_cpu"), numpy_of=numpy_losses.form,
    grads={"self": lambda grad, self, target, reduction, beta: spread(grad, self, reduction) * _smooth_l1_slope(self - target, beta),
           "target": lambda grad, self, target, reduction, beta: -spread(grad, self, reduction) * _smooth_l1_slope(self - target, beta)},
)  # fmt: skip
def smooth_l1_loss(x: Any, y: Any, reduction: str, beta: float) -> Any:
    """d ** 2 / (2 * beta) for |d| < beta, else |d| - beta / 2."""
    d = jnp.abs(x - y)
    return reduce(where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta), reduction)


def _huber_types(x: Aval, y: Aval, **_: Any) -> None:
    _fits_input(x, promotion.result_type([x, y]))
    _common_floats("huber_cpu")(x, y)


def _huber_slope(d: Any, delta: float) -> Any:
    return where(jnp.abs(d) < delta, d, delta * lax.sign(d))


@op(
    "huber_loss(Tensor self, Tensor target, str reduction, float delta)", promote="common", validate=_huber_types, method=False, toplevel=False,
    numpy_of=numpy_losses.form,
    grads={"self": lambda grad, self, target, reduction, delta: spread(grad, self, reduction) * _huber_slope(self - target, delta),
           "target": lambda grad, self, target, reduction, delta: -spread(grad, self, reduction) * _huber_slope(self - target, delta)},
)  # fmt: skip
def huber_loss(x: Any, y: Any, reduction: str, delta: float) -> Any:
    """d ** 2 / 2 for |d| < delta, else delta * (|d| - delta / 2)."""
    d = jnp.abs(x - y)
    return reduce(where(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta)), reduction)


# ---------------------------------------------------------------------- two classes


def _bce_grad(grad: Any, self: Any, target: Any, weight: Any, reduction: str) -> Any:
    # Finite where the input is 0 or 1.
    found = spread(grad, self, reduction) * (self - target) / jnp.maximum((1 - self) * self, np.asarray(1e-12, self.dtype))
    return found if weight is None else found * weight


def _bce_target_grad(grad: Any, self: Any, target: Any, weight: Any, reduction: str) -> Any:
    found = spread(grad, self, reduction) * (jnp.log1p(-self) - jnp.log(self))
    return found if weight is None else found * weight


def _log(x: Any) -> Any:
    return jnp.maximum(jnp.log(x), np.asarray(-100, x.dtype))


def _bce(x: Any, y: Any, weight: Any, reduction: str) -> Any:
    loss = (y - 1) * jnp.maximum(jnp.log1p(-x), np.asarray(-100, x.dtype)) - y * _log(x)
    return reduce(loss if weight is None else (loss * weight).astype(x.dtype), reduction)


def _bce_types(x: Aval, y: Aval, weight: Aval | None, **_: Any) -> None:
    if y.dtype != x.dtype:
        raise RuntimeError(f"Found dtype {dtypes.of(y.dtype).title} but expected {dtypes.of(x.dtype).title}")
    refusing("binary_cross_entropy", "biuc")(x)
    if weight is not None:
        _fits_input(x, promotion.result_type([x, weight]))


def _outside_unit(x: Any) -> Any:
    return lax.reduce_or(~((x >= 0) & (x <= 1)), tuple(range(x.ndim)))


_BCE = "(Tensor self, Tensor target, Tensor? weight, str reduction)"
_OUTSIDE = {1: "all elements of input should be between 0 and 1", 2: "all elements of target should be between 0 and 1"}


def _outcome(x: np.ndarray, y: np.ndarray, *_: np.ndarray) -> np.ndarray:
    """What the check tells of NumPy arrays."""
    which = next((which for which, a in ((1, x), (2, y)) if a.size and not (a.min() >= 0 and a.max() <= 1)), 0)  # NaN is neither
    return np.array([which > 0, which], np.int64)


op("_binary_cross_entropy" + _BCE, elementwise=True, method=False, toplevel=False, node="BinaryCrossEntropyBackward0",
   constants={"weight": "binary_cross_entropy"}, grads={"self": _bce_grad, "target": _bce_target_grad})(_bce)  # fmt: skip


@op(
    "binary_cross_entropy" + _BCE, keeps_order=True, constants={"weight": "binary_cross_entropy"},
    method=False, toplevel=False, validate=_bce_types, check=lambda which: RuntimeError(_OUTSIDE[which]),
    numpy_of=numpy_losses.Loss("_binary_cross_entropy", _outcome), grads={"self": _bce_grad, "target": _bce_target_grad},
)  # fmt: skip
def binary_cross_entropy(x: Any, y: Any, weight: Any, reduction: str) -> Any:
    """-(target * log(self) + (1 - target) * log(1 - self)), the logarithms at least -100."""
    which = where(_outside_unit(x), 1, where(_outside_unit(y), 2, 0)).astype(np.int64)
    return _bce(x, y, weight, reduction), jnp.stack([(which > 0).astype(np.int64), which])


def _with_logits(x: Any, y: Any, weight: Any, pos_weight: Any, reduction: str) -> Any:
    minus = -log_sigmoid_of(x)
    loss = (1 - y) * x + (minus if pos_weight is None else (1 + (pos_weight - 1) * y) * minus)
    return reduce(loss if weight is None else loss * weight, reduction)


def _with_logits_grad(grad: Any, self: Any, target: Any, weight: Any, pos_weight: Any, reduction: str) -> Any:
    if pos_weight is None:
        slope = sigmoid_of(self) - target
    else:
        t = pos_weight * target
        slope = (t + 1 - target) * sigmoid_of(self) - t
    found = spread(grad, self, reduction) * slope
    return found if weight is None else found * weight


def _with_logits_target_grad(grad: Any, self: Any, target: Any, weight: Any, pos_weight: Any, reduction: str) -> Any:
    slope = -self
    if pos_weight is not None:
        slope = log_sigmoid_of(-self) - pos_weight * log_sigmoid_of(self)
    found = spread(grad, self, reduction) * slope
    return found if weight is None else found * weight


def _with_logits_types(x: Aval, y: Aval, weight: Aval | None, pos_weight: Aval | None, **_: Any) -> None:
    refusing("log_sigmoid_cpu", "biuc")(x)
    if pos_weight is not None:
        broadcast_shapes(pos_weight.shape, y.shape)
    if y.dtype == np.bool_:
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.")
    if not dtypes.is_float(y.dtype):
        _fits_input(y, x.dtype)


@op(
    "binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight, Tensor? pos_weight, str reduction)", promote="common",
    validate=_with_logits_types,
    constants={n: "binary_cross_entropy_with_logits" for n in ("weight", "pos_weight")},
    method=False, toplevel=False, numpy_of=numpy_losses.form, grads={"self": _with_logits_grad, "target": _with_logits_target_grad},
)  # fmt: skip
def binary_cross_entropy_with_logits(x: Any, y: Any, weight: Any, pos_weight: Any, reduction: str) -> Any:
    """Binary cross entropy of sigmoid(self), without overflow."""
    return _with_logits(x, y, weight, pos_weight, reduction)


def _soft_margin_types(x: Aval, y: Aval, **_: Any) -> None:
    if x.dtype == np.bool_:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` "
            "operator instead."
        )
    broadcast_shapes(x.shape, y.shape)
    result = promotion.result_type([x, y])
    _fits_input(x, result if dtypes.is_float(result) else dtypes.default_float())


@op("soft_margin_loss(Tensor self, Tensor target, str reduction)", promote="common", method=False, toplevel=False, validate=_soft_margin_types,
    numpy_of=numpy_losses.form, constants={"target": "soft_margin_loss"}, real="soft_margin_loss",
    grads={"self": lambda grad, self, target, reduction: -spread(grad, self, reduction) * target * sigmoid_of(-target * self)})  # fmt: skip
def soft_margin_loss(x: Any, y: Any, reduction: str) -> Any:
    """log(1 + exp(-target * self))."""
    return reduce(jnp.log1p(jnp.exp(-y * x)), reduction)


# ---------------------------------------------------------------------- several classes


def _class_weights(x: Any, target: Any, weight: Any, ignored: Any) -> tuple[Any, Any, Any]:
    """For each target whether it counts, its class, made harmless where not, and its weight; without weights these are 1 and 0."""
    kept = target != ignored
    classes = where(kept, target, 0).astype(np.int32)
    weights = kept.astype(x.dtype) if weight is None else where(kept, weight.at[classes].get(mode="clip"), jnp.zeros((), x.dtype))
    return kept, classes, weights


def _of_classes(x: Any, classes: Any, known: bool) -> Any:
    """The element of each row of `x` that is of its class: one index to an element takes the interpreter the fewest steps. known: whether classes are
    in range."""
    axis = 0 if x.ndim == 1 else 1
    if x.ndim != 2 or not 0 < x.size < 2**31:
        return jnp.take_along_axis(x, jnp.expand_dims(classes, axis), axis, mode="clip").squeeze(axis)
    rows, count = x.shape
    at = (classes if known else jnp.clip(classes, 0, count - 1)) + lax.iota(np.int32, rows) * np.int32(count)
    return x.reshape(-1).at[at].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _nll(x: Any, target: Any, weight: Any, ignore_index: Any, reduction: str, known: bool = True) -> Any:
    kept, classes, weights = _class_weights(x, target, weight, ignore_index)
    found = _of_classes(x, classes, known)
    # An infinite log-probability of an ignored target does not count.
    losses = where(kept, -found if weight is None else -found * weights, jnp.zeros((), x.dtype))
    if reduction == "none":
        return losses
    total = losses.sum(dtype=x.dtype)
    return total / weights.sum(dtype=x.dtype) if reduction == "mean" else total


def _nll_grad(grad: Any, self: Any, target: Any, weight: Any, ignore_index: Any, reduction: str) -> Any:
    axis = 0 if self.ndim == 1 else 1
    kept, classes, weights = _class_weights(self, target, weight, ignore_index)
    if reduction == "mean":
        grad = grad / weights.sum(dtype=grad.dtype)
    each = where(kept, -grad if weight is None else -grad * weights, 0).astype(grad.dtype)
    return along.put(jnp.expand_dims(each, axis), jnp.expand_dims(classes.astype(np.int64), axis), axis, along.LAST, length=self.shape[axis])


def _nll_types(x: Aval, target: Aval, weight: Aval | None, ignore_index: Any, **_: Any) -> None:
    if target.dtype not in (np.int64, np.uint8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {dtypes.of(target.dtype).title}")
    if not dtypes.is_float(x.dtype) or x.dtype.kind == "c":
        raise NotImplementedError(f"\"nll_loss_out_frame\" not implemented for '{dtypes.of(x.dtype).title}'")
    if weight is not None and weight.dtype != x.dtype:
        raise RuntimeError(f"expected scalar type {dtypes.of(x.dtype).title} but found {dtypes.of(weight.dtype).title}")


def _checked_nll(x: Any, target: Any, weight: Any, ignore_index: Any, reduction: str) -> Any:
    bad = first_outside(target, 0, x.shape[0 if x.ndim == 1 else 1], ignore_index)
    return _nll(x, target, weight, ignore_index, reduction, False), bad


def _declare_nll() -> None:
    """The negative log likelihood, for (N, C) and for (N, C, H, W), where the targets are known to be classes and where they are not."""
    schema = "(Tensor self, Tensor target, Tensor? weight, Index ignore_index, str reduction)"
    for name, node in (("nll_loss", "NllLossBackward0"), ("nll_loss2d", "NllLoss2DBackward0")):
        common: dict[str, Any] = dict(
            node=node, constants={"weight": f"{name}_forward"}, method=False, toplevel=False, validate=_nll_types, grads={"self": _nll_grad}
        )  # fmt: skip
        common["numpy_vjp"] = numpy_losses.nll_loss_vjp
        op(f"_{name}{schema}", numpy=numpy_losses.nll_loss, **common)(_nll)
        op(f"_{name}_checked{schema}", check=lambda t: IndexError(f"Target {t} is out of bounds."), numpy=numpy_losses.nll_loss_checked,
           **common)(_checked_nll)  # fmt: skip


_declare_nll()


def _margin_terms(x: Any, target: Any, weight: Any, p: float, margin: float) -> Any:
    x = jnp.atleast_1d(x)
    classes = x.shape[-1]
    target = target.reshape(x.shape[:-1])
    at = target[..., None]
    d = margin - jnp.take_along_axis(x, at, -1, mode="clip") + x
    d = where(d > 0, d, 0)  # before it is squared: the derivative where it is no number is 0
    terms = d if p == 1 else d * d
    if weight is not None:
        terms = terms * weight[at]
    return where(lax.broadcasted_iota(at.dtype, x.shape, x.ndim - 1) == at, 0, terms).sum(-1) / jnp.asarray(classes, x.dtype)


def _same_type(found: Aval | None, wanted: Any) -> None:
    if found is not None and found.dtype != wanted:
        raise RuntimeError(f"expected scalar type {dtypes.of(np.dtype(wanted)).title} but found {dtypes.of(found.dtype).title}")


def _margin_types(x: Aval, target: Aval, weight: Aval | None, **_: Any) -> None:
    if x.size:  # PyTorch returns before it asks
        refusing("multi_margin_loss_cpu_kernel", "biuch")(x)
        _same_type(target, np.int64)
        _same_type(weight, x.dtype)


@op("multi_margin_loss(Tensor self, Tensor target, Tensor? weight, number p, number margin, str reduction)", method=False, toplevel=False,
    validate=_margin_types,
    edges=("self",), constants={"weight": "multi_margin_loss"}, check=lambda _: RuntimeError("target out of range"),
    attributes="p margin weight reduction", numpy=numpy_losses.multi_margin_loss, numpy_vjp=numpy_losses.multi_margin_vjp)  # fmt: skip
def multi_margin_loss(x: Any, target: Any, weight: Any, p: float, margin: float, reduction: str) -> Any:
    """The mean over classes of max(0, margin - x[target] + x[i]) ** p."""
    return reduce(_margin_terms(x, target, weight, p, margin), reduction), first_outside(target, 0, x.shape[-1] if x.ndim else 1)


def _multilabel_types(x: Aval, target: Aval, **_: Any) -> None:
    if x.size:
        refusing("min_all", "c")(target)
        refusing("multilabel_margin_loss_forward_out_frame", "biuch")(x)
        _same_type(target, np.int64)


@op("multilabel_margin_loss(Tensor self, Tensor target, str reduction)", method=False, toplevel=False, validate=_multilabel_types,
    check=lambda _: RuntimeError("argument #2 'target' is out of range"), attributes="reduction",
    numpy=numpy_losses.multilabel_margin_loss, numpy_vjp=numpy_losses.multilabel_margin_vjp)  # fmt: skip
def multilabel_margin_loss(x: Any, target: Any, reduction: str) -> Any:
    """The mean over classes of max(0, 1 - x[target] + x[i]) for all targets before the first -1 and all i that are none."""
    x, target = jnp.atleast_1d(x), jnp.atleast_1d(target)
    classes = x.shape[-1]
    counts = jnp.cumprod(target >= 0, -1).astype(bool)
    at = where(counts, target, 0)
    chosen = (lax.broadcasted_iota(at.dtype, (*x.shape, classes), x.ndim) == at[..., None]) & counts[..., None]
    is_target = chosen.any(-2)
    d = 1 - jnp.take_along_axis(x, at, -1, mode="clip")[..., None] + x[..., None, :]
    terms = where(counts[..., None] & ~is_target[..., None, :] & (d > 0), d, 0)
    return reduce(terms.sum((-1, -2)) / jnp.asarray(classes, x.dtype), reduction), first_outside(target, -1, classes)


# ---------------------------------------------------------------------- classes of a linear map, chunk by chunk


@op("_linear_cross_entropy(Tensor input, Tensor linear_weight, Tensor target, Tensor? linear_bias, Tensor? weight, int ignore_index, str reduction, "
    "int chunk)", method=False, toplevel=False, node="LinearCrossEntropyBackward0",
    validate=lambda x, *_, **__: refusing("addmm_impl_cpu_", "biu")(x),
    check=lambda t: IndexError(f"Target {t} is out of bounds."))  # fmt: skip
def _linear_cross_entropy(
    x: Any, linear_weight: Any, target: Any, linear_bias: Any, weight: Any, ignore_index: int, reduction: str, chunk: int
) -> tuple[Any, Any]:
    """The cross entropy of x @ linear_weight.T + linear_bias. Both ways hold the logits of `chunk` samples at a time."""
    samples = len(target)
    count = -(-samples // chunk)

    def chunks(rows: Any, fill: int) -> Any:
        added = [(0, count * chunk - samples), *[(0, 0)] * (rows.ndim - 1)]
        return jnp.pad(rows, added, constant_values=fill).reshape(count, chunk, *rows.shape[1:])

    @jax.checkpoint
    def losses(now: Any) -> tuple[Any, Any]:
        rows, classes = now
        logits = jnp.dot(rows, linear_weight.T, preferred_element_type=wide(rows).dtype)
        logs = jax.nn.log_softmax(logits if linear_bias is None else logits + linear_bias, -1)
        _, classes, weights = _class_weights(logs, classes, None if weight is None else wide(weight), ignore_index)
        return -jnp.take_along_axis(logs, classes[:, None], 1, mode="clip")[:, 0] * weights, weights

    each, weights = (v.reshape(-1)[:samples] for v in loops.map(losses, (chunks(x, 0), chunks(target, ignore_index))))
    total = each if reduction == "none" else each.sum() / (weights.sum() if reduction == "mean" else 1)
    return total.astype(x.dtype), first_outside(target, 0, len(linear_weight), ignore_index)


# ---------------------------------------------------------------------- sequences without positions


def _ctc_grad(
    grad0: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, result0: Any, result1: Any, longest: int, blank: int,
    zero_infinity: bool,
) -> Any:  # fmt: skip
    labels = ctc.padded(targets, target_lengths, longest)
    return ctc.gradient(grad0, log_probs, labels, input_lengths, target_lengths, result0, result1, blank, zero_infinity)


@op("_ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int longest, int blank, bool zero_infinity)",
    method=False, toplevel=False, node="CtcLossBackward0", results=("result0", "result1"), copies=("input_lengths", "target_lengths"),
    validate=lambda x, *_, **__: refusing("ctc_loss_cpu", "biuhc")(x), grads={"log_probs": _ctc_grad},
    once=("log_probs", lambda blank: True, "derivative for aten::_ctc_loss_backward is not implemented"),
    numpy=ctc.FORM, numpy_grads=ctc.form_of_gradient,
    check=lambda n: IndexError(f"ctc_loss: {n} is no class of log_probs, or no length of its inputs or of its targets"))  # fmt: skip
def _ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, longest: int, blank: int, zero_infinity: bool
) -> tuple[Any, ...]:  # fmt: skip
    """The loss of each sample, and what backward needs. log_probs: (time, samples, classes); targets: (samples, longest), or one after the other."""
    labels = ctc.padded(targets, target_lengths, longest)
    loss, alpha = ctc.forward(log_probs, labels, input_lengths, target_lengths, blank)
    return loss, alpha, ctc.misfit(log_probs, labels, input_lengths, target_lengths)
