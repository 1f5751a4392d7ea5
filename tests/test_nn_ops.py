"""Convolution, pooling, padding, embedding, losses and resampling against PyTorch."""

import importlib
import re
import warnings

import numpy as np
import pytest

import torchgrad_jax as ours

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators

MODULES = ("convolution", "distance", "pooling", "loss", "margins", "sparse", "padding")
OURS = {name: function for module in MODULES for name, function in vars(importlib.import_module(f"torchgrad_jax.nn.{module}")).items()}


class _Functions:
    """What a table entry is given: `F.name` of one of the two packages, and its top level as `F.T`."""

    def __init__(self, package):
        self.T = package

    def __getattr__(self, name):
        return getattr(torch.nn.functional, name) if self.T is torch else OURS[name]


THEIRS, MINE = _Functions(torch), _Functions(ours)


def f8(*shape, seed=0, low=None):
    values = np.random.RandomState(seed + sum(shape)).randn(*shape)
    return values if low is None else low + (1 - 2 * low) / (1 + np.exp(-values))


def ints(high, *shape, seed=0):
    return np.random.RandomState(seed).randint(0, high, shape)


def signs(*shape):
    return np.sign(f8(*shape, seed=5))


ONLY_2D = {"dilation", "depthwise", "unbatched", "valid", "point", "empty batch", "one channel", "gaps", "more", "ceil", "ties", "all -inf",
           "indices dilation", "padding", "one", "constant negative", "replicate", "circular", "reflect negative"}  # fmt: skip

# name: (function of (F, *tensors), arrays). Arrays of float64 get gradients.
CASES = {}


def case(name, function, *arrays):
    assert name not in CASES, name
    # One sum of each loss is enough, and two dimensions for most options of what has one to three.
    variant = name.partition(" ")[2]
    if name.endswith(" sum") and " " in variant or re.match(r"\w+[13]d ", name) and variant in ONLY_2D:
        return
    CASES[name] = (function, arrays)


def _convolutions():
    for d in (1, 2, 3):
        spatial, kernel = (5, 6, 4)[:d], (3, 2, 3)[:d]
        x, w, b = f8(2, 4, *spatial), f8(6, 4, *kernel, seed=1), f8(6, seed=2)
        conv, transpose = f"conv{d}d", f"conv_transpose{d}d"
        case(conv, lambda F, x, w, b, n=conv: getattr(F, n)(x, w, b), x, w, b)
        case(f"{conv} options", lambda F, x, w, b, n=conv: getattr(F, n)(x, w, b, stride=2, padding=1, dilation=1), x, w, b)
        case(f"{conv} dilation", lambda F, x, w, n=conv: getattr(F, n)(x, w, stride=2, padding=2, dilation=2), x, w)
        case(f"{conv} groups", lambda F, x, w, b, n=conv: getattr(F, n)(x, w, b, padding=1, groups=2), x, f8(6, 2, *kernel), b)
        case(f"{conv} depthwise", lambda F, x, w, n=conv: getattr(F, n)(x, w, stride=2, padding=1, groups=4), x, f8(8, 1, *kernel))
        case(f"{conv} unbatched", lambda F, x, w, b, n=conv: getattr(F, n)(x, w, b), x[0], w, b)
        case(f"{conv} valid", lambda F, x, w, n=conv: getattr(F, n)(x, w, padding="valid"), x, w)
        case(f"{conv} same", lambda F, x, w, n=conv: getattr(F, n)(x, w, padding="same", dilation=2), x, f8(6, 4, *(3,) * d))
        case(f"{conv} one channel", lambda F, x, w, n=conv: getattr(F, n)(x, w, padding=1), f8(2, 1, *spatial), f8(3, 1, *(3,) * d))
        case(f"{conv} point", lambda F, x, w, n=conv: getattr(F, n)(x, w, stride=2), x, f8(6, 4, *(1,) * d))
        case(f"{conv} empty batch", lambda F, x, w, b, n=conv: getattr(F, n)(x, w, b), x[:0], w, b)
        wt, bt = f8(4, 3, *kernel, seed=1), f8(3, seed=2)
        case(transpose, lambda F, x, w, b, n=transpose: getattr(F, n)(x, w, b), x, wt, bt)
        case(f"{transpose} unbatched", lambda F, x, w, b, n=transpose: getattr(F, n)(x, w, b), x[0], wt, bt)
        case(f"{transpose} options", lambda F, x, w, n=transpose: getattr(F, n)(x, w, None, 2, 1, 1), x, wt)
        case(f"{transpose} groups", lambda F, x, w, n=transpose: getattr(F, n)(x, w, None, 2, 0, 0, 2, 2), x, wt)
        case(f"{transpose} output padding", lambda F, x, w, n=transpose: getattr(F, n)(x, w, None, 1, 0, 1, 1, 2), x, wt)
    case("conv_transpose2d large output padding", lambda F, x, w: F.conv_transpose2d(x, w, None, (3, 2), (1, 2), (2, 3), 2, 4), f8(1, 2, 3, 4),
         f8(2, 1, 3, 4))  # fmt: skip
    # XLA's own derivative of the correlation in this one's gradient aborts the process.
    case("conv_transpose3d strides", lambda F, x, w: F.conv_transpose3d(x, w, None, (1, 2, 1), (2, 1, 0), 0, 1, (2, 1, 2)), f8(2, 3, 5, 4, 1),
         f8(3, 2, 3, 2, 2))  # fmt: skip
    case("conv2d pair", lambda F, x, w: F.conv2d(x, w, stride=(2, 1), padding=(0, 1), dilation=(1, 2)), f8(1, 2, 7, 8), f8(3, 2, 3, 2))
    case("conv2d small cnn", lambda F, x, w: F.conv2d(x, w, padding=1), f8(2, 16, 14, 14), f8(32, 16, 3, 3))
    case("unfold", lambda F, x: F.unfold(x, (2, 3), dilation=(1, 2), padding=1, stride=(2, 1)), f8(2, 3, 6, 7))
    case("unfold unbatched", lambda F, x: F.unfold(x, 2), f8(3, 4, 4))
    case("fold", lambda F, x: F.fold(x, (5, 6), (2, 3), padding=1, stride=(2, 1)), f8(2, 12, 18))
    case("fold unbatched", lambda F, x: F.fold(x, (4, 4), 2), f8(12, 9))


def _pools():
    for d in (1, 2, 3):
        x = f8(2, 3, *(7, 8, 6)[:d])
        largest, mean, p = f"max_pool{d}d", f"avg_pool{d}d", f"lp_pool{d}d"
        for name in (largest, mean):
            case(name, lambda F, x, n=name: getattr(F, n)(x, 2), x)
            case(f"{name} unbatched", lambda F, x, n=name: getattr(F, n)(x, 2), x[0])
            case(f"{name} overlap", lambda F, x, n=name: getattr(F, n)(x, 3, 2, 1), x)
            case(f"{name} ceil", lambda F, x, n=name: getattr(F, n)(x, 2, ceil_mode=True), x)
            case(f"{name} ceil overlap", lambda F, x, n=name: getattr(F, n)(x, 3, 2, padding=1, ceil_mode=True), x)
            case(f"{name} gaps", lambda F, x, n=name: getattr(F, n)(x, 2, 3), x)
        case(f"{largest} dilation", lambda F, x, n=largest: getattr(F, n)(x, 2, 1, 0, 2), x)
        case(f"{largest} indices", lambda F, x, n=largest: getattr(F, n)(x, 3, 2, 1, return_indices=True), x)
        case(f"{largest} indices dilation", lambda F, x, n=largest: getattr(F, n)(x, 2, 1, 1, 2, True, True), x)
        case(f"{largest} ties", lambda F, x, n=largest: getattr(F, n)(x, 2), np.zeros(x.shape))
        case(f"{largest} all -inf", lambda F, x, n=largest: getattr(F, n)(x, 3, 2, 1), np.full(x.shape, -np.inf))
        case(f"{mean} padding", lambda F, x, n=mean: getattr(F, n)(x, 3, 2, 1, True, False), x)
        case(p, lambda F, x, n=p: getattr(F, n)(x, 3.0, 2), np.abs(x))
        for name in (f"adaptive_avg_pool{d}d", f"adaptive_max_pool{d}d"):
            case(name, lambda F, x, n=name: getattr(F, n)(x, 3), x)
            case(f"{name} unbatched", lambda F, x, n=name: getattr(F, n)(x, 2), x[0])
            case(f"{name} one", lambda F, x, n=name: getattr(F, n)(x, 1), x)
            case(f"{name} more", lambda F, x, n=name: getattr(F, n)(x, 9), x)
        case(f"adaptive_max_pool{d}d indices", lambda F, x, n=f"adaptive_max_pool{d}d": getattr(F, n)(x, 3, True), x)
    case("max_pool2d large", lambda F, x: F.max_pool2d(x, 7, 3, 2), f8(1, 2, 16, 15))
    case("max_pool2d large indices", lambda F, x: F.max_pool2d(x, 7, 3, 2, return_indices=True), f8(1, 2, 16, 15))
    case("avg_pool2d large", lambda F, x: F.avg_pool2d(x, 7, 3, 2), f8(1, 2, 16, 15))
    case("avg_pool2d divisor", lambda F, x: F.avg_pool2d(x, 2, divisor_override=3), f8(1, 2, 4, 4))
    case("adaptive_avg_pool2d none", lambda F, x: F.adaptive_avg_pool2d(x, (None, 2)), f8(1, 2, 3, 5))
    case("max_pool2d nan", lambda F, x: F.max_pool2d(x, 2), np.where(ints(4, 1, 1, 6, 6) == 0, np.nan, f8(1, 1, 6, 6)))
    case("max_pool2d int", lambda F, x: F.max_pool2d(x, 2), ints(9, 1, 1, 4, 4))
    case("max_pool2d float32", lambda F, x: F.max_pool2d(x, 2), f8(1, 2, 5, 4).astype(np.float32))


def _pads():
    for d in (1, 2, 3):
        x = f8(2, 3, *(5, 4, 6)[:d])
        for mode in ("constant", "reflect", "replicate", "circular"):
            case(f"pad{d}d {mode}", lambda F, x, m=mode, d=d: F.pad(x, (1, 2) * d, mode=m), x)
            case(f"pad{d}d {mode} negative", lambda F, x, m=mode, d=d: F.pad(x, (-1, 2) * d, mode=m), x)
    case("pad value", lambda F, x: F.pad(x, (1, 0, 0, 2), value=2.5), f8(3, 4))
    case("pad int", lambda F, x: F.pad(x, (1, 0), value=2.5), ints(5, 3))
    case("pad bool", lambda F, x: F.pad(x, (1, 0)), ints(2, 3) > 0)
    case("pad nothing", lambda F, x: F.pad(x, (0, 0)), f8(3))
    case("pad unbatched reflect", lambda F, x: F.pad(x, (1, 2), mode="reflect"), f8(3, 5))
    case("pixel_shuffle", lambda F, x: F.pixel_shuffle(x, 2), f8(2, 8, 3, 4))
    case("pixel_unshuffle", lambda F, x: F.pixel_unshuffle(x, 2), f8(2, 3, 4, 6))
    case("channel_shuffle", lambda F, x: F.channel_shuffle(x, 2), f8(2, 6, 3))
    for mode, shape in (("nearest", (2, 3, 5)), ("nearest", (1, 2, 5, 4)), ("nearest", (1, 2, 3, 4, 3)), ("nearest-exact", (1, 2, 5, 4)),
                        ("area", (1, 2, 5, 4))):  # fmt: skip
        case(f"interpolate {mode} {len(shape) - 2}d", lambda F, x, m=mode: F.interpolate(x, scale_factor=1.7, mode=m), f8(*shape))
        case(f"interpolate {mode} {len(shape) - 2}d size", lambda F, x, m=mode: F.interpolate(x, size=3, mode=m), f8(*shape))
    for mode, shape in (("linear", (2, 3, 5)), ("bilinear", (1, 2, 5, 4)), ("trilinear", (1, 2, 3, 4, 3)), ("bicubic", (1, 2, 5, 4))):
        for corners in (False, True):
            name = f"interpolate {mode} {corners}"
            case(name, lambda F, x, m=mode, c=corners: F.interpolate(x, scale_factor=2, mode=m, align_corners=c), f8(*shape))
            case(name + " size", lambda F, x, m=mode, c=corners: F.interpolate(x, size=3, mode=m, align_corners=c), f8(*shape))
        case(f"interpolate {mode} factor", lambda F, x, m=mode: F.interpolate(x, scale_factor=1.7, mode=m), f8(*shape))
        case(f"interpolate {mode} recomputed", lambda F, x, m=mode: F.interpolate(x, None, 1.7, m, None, True), f8(*shape))


def _embeddings():
    i, w = ints(5, 3, 4), f8(5, 3)
    case("embedding", lambda F, w, i: F.embedding(i, w), w, i)
    case("embedding int32", lambda F, w, i: F.embedding(i, w), w, i.astype(np.int32))
    case("embedding padding", lambda F, w, i: F.embedding(i, w, padding_idx=1), w, i)
    case("embedding negative padding", lambda F, w, i: F.embedding(i, w, padding_idx=-2), w, i)
    case("embedding frequency", lambda F, w, i: F.embedding(i, w, scale_grad_by_freq=True), w, i)
    case("embedding 0-dim", lambda F, w, i: F.embedding(i, w), w, np.array(2))
    case("embedding none", lambda F, w, i: F.embedding(i, w.detach()), w, i[:0])
    case("embedding computed", lambda F, w, i: F.embedding(i + 0, w), w, i)
    case("embedding norm", lambda F, w, i: F.embedding(i, w.detach(), max_norm=1.0), w, i)
    case("torch.embedding", lambda F, w, i: (F.T.embedding if F.T is torch else OURS["_embedding"])(w, i, 1), w, i)
    for mode in ("sum", "mean", "max"):
        case(f"embedding_bag {mode}", lambda F, w, i, m=mode: F.embedding_bag(i, w, mode=m), w, i)
        case(f"embedding_bag {mode} offsets", lambda F, w, i, o, m=mode: F.embedding_bag(i, w, o, mode=m), w, i[0], np.array([0, 1, 1]))
        case(f"embedding_bag {mode} padding", lambda F, w, i, m=mode: F.embedding_bag(i, w, mode=m, padding_idx=2), w, i)
    case("embedding_bag weights", lambda F, w, p, i: F.embedding_bag(i, w, per_sample_weights=p, mode="sum"), w, f8(3, 4), i)
    case("one_hot", lambda F, i: F.one_hot(i), i)
    case("one_hot classes", lambda F, i: F.one_hot(i, 7), i)
    case("one_hot 0-dim", lambda F, i: F.one_hot(i), np.array(2))
    case("one_hot none", lambda F, i: F.one_hot(i, 3), i[:0])


def _class_losses(r):
    x, t, w = f8(3, 4), ints(4, 3), np.abs(f8(4)).astype(np.float64)
    some = np.array([1, -100, 3])
    probabilities = np.exp(f8(3, 4, seed=3)) / np.exp(f8(3, 4, seed=3)).sum(1, keepdims=True)
    for name in ("nll_loss", "cross_entropy"):
        case(f"{name} {r}", lambda F, x, t, n=name: getattr(F, n)(x, t, reduction=r), x, t)
        case(f"{name} float32 {r}", lambda F, x, t, n=name: getattr(F, n)(x, t, reduction=r), x.astype(np.float32), t)
        case(f"{name} weight {r}", lambda F, x, t, w, n=name: getattr(F, n)(x, t, w.detach(), reduction=r), x, t, w)
        case(f"{name} ignored {r}", lambda F, x, t, w, n=name: getattr(F, n)(x, t, w.detach(), reduction=r), x, some, w)
        case(f"{name} ignore_index {r}", lambda F, x, t, n=name: getattr(F, n)(x, t, ignore_index=2, reduction=r), x, np.array([2, 1, 2]))
        case(f"{name} all ignored {r}", lambda F, x, t, n=name: getattr(F, n)(x, t, reduction=r), x, np.full(3, -100))
        case(f"{name} one {r}", lambda F, x, t, n=name: getattr(F, n)(x, t, reduction=r), x[0], t[0])
        case(f"{name} 2d {r}", lambda F, x, t, w, n=name: getattr(F, n)(x, t, w.detach(), reduction=r), f8(2, 4, 3, 2), ints(4, 2, 3, 2), w)
        case(f"{name} 1d {r}", lambda F, x, t, n=name: getattr(F, n)(x, t, reduction=r), f8(2, 4, 3), ints(4, 2, 3))
        case(f"{name} 3d {r}", lambda F, x, t, n=name: getattr(F, n)(x, t, reduction=r), f8(2, 4, 3, 2, 2), ints(4, 2, 3, 2, 2))
        case(f"{name} computed {r}", lambda F, x, t, n=name: getattr(F, n)(x, t + 0, reduction=r), x, t)
        case(f"{name} none {r}", lambda F, x, t, n=name: getattr(F, n)(x, t, reduction=r), x[:0], t[:0])
        case(f"{name} byte {r}", lambda F, x, t, n=name: getattr(F, n)(x, t, reduction=r), x, t.astype(np.uint8))
    for weighted in (False, True):

        def smooth(F, x, t, w, weighted=weighted):
            return F.cross_entropy(x, t, w.detach() if weighted else None, label_smoothing=0.1, reduction=r)

        case(f"cross_entropy smooth {weighted} {r}", smooth, x, some, w)
        case(f"cross_entropy smooth 2d {weighted} {r}", smooth, f8(2, 4, 3, 2), ints(4, 2, 3, 2), w)
        case(f"cross_entropy probabilities {weighted} {r}", lambda F, x, t, w, k=weighted: F.cross_entropy(
            x, t, w.detach() if k else None, reduction=r), x, probabilities, w)  # fmt: skip
        case(f"cross_entropy probabilities smooth {weighted} {r}", smooth, x, probabilities, w)
    case(f"cross_entropy probabilities one {r}", lambda F, x, t: F.cross_entropy(x, t, reduction=r), x[0], probabilities[0])
    case(f"multi_margin_loss {r}", lambda F, x, t: F.multi_margin_loss(x, t, reduction=r), x, t)
    case(f"multi_margin_loss 2 {r}", lambda F, x, t, w: F.multi_margin_loss(x, t, 2, 0.5, w.detach(), reduction=r), x, t, w)
    case(f"multilabel_margin_loss {r}", lambda F, x, t: F.multilabel_margin_loss(x, t, reduction=r), x,
         np.array([[1, 2, -1, 0], [-1, 0, 0, 0], [3, 0, 1, 2]]))  # fmt: skip


def _elementwise_losses(r):
    x, y, w = f8(3, 4), f8(3, 4, seed=1), np.abs(f8(3, 4, seed=2))
    p, q = f8(3, 4, low=0.01), f8(3, 4, seed=1, low=0.01)
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        case(f"{name} {r}", lambda F, x, y, n=name: getattr(F, n)(x, y, reduction=r), x, y)
        case(f"{name} equal {r}", lambda F, x, y, n=name: getattr(F, n)(x, y, reduction=r), x, x)
        if name != "smooth_l1_loss":
            case(f"{name} weight {r}", lambda F, x, y, w, n=name: getattr(F, n)(x, y, reduction=r, weight=w), x, y, w)
    case(f"mse_loss mixed {r}", lambda F, x, y: F.mse_loss(x, y, reduction=r), x.astype(np.float32), y)
    case(f"smooth_l1_loss beta {r}", lambda F, x, y: F.smooth_l1_loss(x, y, beta=0.3, reduction=r), x, y)
    case(f"smooth_l1_loss 0 {r}", lambda F, x, y: F.smooth_l1_loss(x, y, beta=0.0, reduction=r), x, y)
    case(f"huber_loss delta {r}", lambda F, x, y: F.huber_loss(x, y, delta=0.3, reduction=r), x, y)
    case(f"binary_cross_entropy {r}", lambda F, x, y: F.binary_cross_entropy(x, y, reduction=r), p, q)
    case(f"binary_cross_entropy weight {r}", lambda F, x, y, w: F.binary_cross_entropy(x, y, w.detach(), reduction=r), p, q, w[0])
    case(f"binary_cross_entropy ends {r}", lambda F, x, y: F.binary_cross_entropy(x, y, reduction=r),
         np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 0.0]))  # fmt: skip
    logits = "binary_cross_entropy_with_logits"
    case(f"{logits} {r}", lambda F, x, y: F.binary_cross_entropy_with_logits(x, y, reduction=r), x, q)
    case(f"{logits} large {r}", lambda F, x, y: F.binary_cross_entropy_with_logits(x, y, reduction=r), 300 * x, q)
    case(f"{logits} weight {r}", lambda F, x, y, w: F.binary_cross_entropy_with_logits(x, y, w.detach(), reduction=r), x, q, w)
    case(f"{logits} pos_weight {r}", lambda F, x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w.detach(), reduction=r), x, q, w[0])
    case(f"kl_div {r}", lambda F, x, y: F.kl_div(x, y, reduction=r), x, q)
    case(f"kl_div log {r}", lambda F, x, y: F.kl_div(x, y, reduction=r, log_target=True), x, y)
    case(f"poisson_nll_loss {r}", lambda F, x, y: F.poisson_nll_loss(x, y, reduction=r), x, w)
    case(f"poisson_nll_loss full {r}", lambda F, x, y: F.poisson_nll_loss(x, y.detach(), False, True, reduction=r), w, 3 * w)
    case(f"gaussian_nll_loss {r}", lambda F, x, y, v: F.gaussian_nll_loss(x, y, v, reduction=r), x, y, w)
    case(f"gaussian_nll_loss full {r}", lambda F, x, y, v: F.gaussian_nll_loss(x, y, v, full=True, eps=0.5, reduction=r), x, y, w)
    case(f"gaussian_nll_loss row {r}", lambda F, x, y, v: F.gaussian_nll_loss(x, y, v, reduction=r), x, y, w[:, 0])
    case(f"gaussian_nll_loss number {r}", lambda F, x, y: F.gaussian_nll_loss(x, y, 0.5, reduction=r), x, y)
    case(f"hinge_embedding_loss {r}", lambda F, x, y: F.hinge_embedding_loss(x, y.detach(), 0.5, reduction=r), x, signs(3, 4))
    case(f"margin_ranking_loss {r}", lambda F, x, y, t: F.margin_ranking_loss(x, y, t.detach(), 0.1, reduction=r), x, y, signs(3, 4))
    case(f"cosine_embedding_loss {r}", lambda F, x, y, t: F.cosine_embedding_loss(x, y, t.detach(), 0.1, reduction=r), x, y, signs(3))
    case(f"triplet_margin_loss {r}", lambda F, x, y, z: F.triplet_margin_loss(x, y, z, reduction=r), x, y, w)
    case(f"triplet_margin_loss swap {r}", lambda F, x, y, z: F.triplet_margin_loss(x, y, z, 2.0, 3, swap=True, reduction=r), x, y, w)
    case(f"triplet_margin_with_distance_loss {r}", lambda F, x, y, z: F.triplet_margin_with_distance_loss(x, y, z, reduction=r), x, y, w)
    case(f"soft_margin_loss {r}", lambda F, x, y: F.soft_margin_loss(x, y.detach(), reduction=r), x, signs(3, 4))
    case(f"multilabel_soft_margin_loss {r}", lambda F, x, y, w: F.multilabel_soft_margin_loss(x, y, w.detach(), reduction=r), x, q, w[0])


def _distances():
    x, y = f8(3, 4), f8(3, 4, seed=1)
    case("kl_div batchmean", lambda F, x, y: F.kl_div(x, y, reduction="batchmean"), x, f8(3, 4, low=0.01))
    case("kl_div zero", lambda F, x, y: F.kl_div(x, y.detach(), reduction="sum"), x, np.maximum(y, 0))
    for p in (0.0, 0.5, 1.0, 2.0, 3.0, np.inf):
        case(f"pairwise_distance {p}", lambda F, x, y, p=p: F.pairwise_distance(x, y, p), x, y)
    case("pairwise_distance equal", lambda F, x, y: F.pairwise_distance(x, y, keepdim=True), x, x)
    case("pairwise_distance eps 0", lambda F, x, y: F.pairwise_distance(x, y, eps=0.0), x, x)
    case("cosine_similarity", lambda F, x, y: F.cosine_similarity(x, y), x, y)
    case("cosine_similarity dim", lambda F, x, y: F.cosine_similarity(x, y, dim=0), x, y)
    case("cosine_similarity broadcast", lambda F, x, y: F.cosine_similarity(x, y, dim=-1), x, y[0])
    case("cosine_similarity small", lambda F, x, y: F.cosine_similarity(x, y, eps=3.0), x, y)


for _make in (_convolutions, _pools, _pads, _embeddings, _distances):
    _make()
for _reduction in ("mean", "sum", "none"):
    _elementwise_losses(_reduction)
    _class_losses(_reduction)


def host(x):
    if x is None:
        return None
    return x.detach().numpy(force=True) if isinstance(x, torch.Tensor) else x.detach().numpy()


def name_of(x):
    return str(x.dtype).split(".")[-1]


def like(package, x, seed):
    return package.tensor(np.asarray(f8(*x.shape, seed=seed), name_of(x)))


def run(functions, function, arrays, second):
    """The results, their graph names, and the first and second gradients of a case."""
    package = functions.T
    tensors = [package.tensor(np.array(a), requires_grad=np.asarray(a).dtype.kind == "f") for a in arrays]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outs = function(functions, *tensors)
    outs = outs if isinstance(outs, tuple) else (outs,)
    found = {"names": [o.grad_fn.name() if o.grad_fn is not None else None for o in outs], "dtypes": [name_of(o) for o in outs]}
    wanted = [t for t in tensors if t.requires_grad]
    grads, again = (), ()
    if outs[0].requires_grad and wanted:
        cotangent = like(package, outs[0], 7).requires_grad_(True)
        grads = package.autograd.grad(outs[0], wanted, cotangent, create_graph=second, allow_unused=True)
        some = [(g, like(package, g, 9)) for g in grads if g is not None and g.requires_grad]
        if second and some:
            again = package.autograd.grad(sum((g * c).sum() for g, c in some), [*wanted, cotangent], allow_unused=True)
    # Read last, so that a case is one program.
    return found | {"values": list(map(host, outs)), "grads": list(map(host, grads)), "second": list(map(host, again))}


# PyTorch has no second derivative of these, or none that it gives.
NO_SECOND = ("multilabel_margin_loss", "embedding_bag", "frequency", "one_hot", "nan", "-inf", "all ignored", "soft_margin_loss none",
             "ends", "binary_cross_entropy", "multi_margin_loss",
             "loss one", "cross_entropy one", "pairwise_distance 0.0", "pairwise_distance eps 0", "pad int", "pad bool", "pdist")  # fmt: skip


def same(mine, theirs, tolerance):
    if mine is None or theirs is None:
        # An undefined gradient and zeros are the same.
        assert not np.any(mine if theirs is None else theirs), (mine, theirs)
        return
    assert mine.shape == theirs.shape
    assert mine.dtype == theirs.dtype
    np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_agrees(name):
    function, arrays = CASES[name]
    second = not name.endswith(" mean") and not any(word in name for word in NO_SECOND)
    theirs, mine = run(THEIRS, function, arrays, second), run(MINE, function, arrays, second)
    tolerance = 2e-5 if any(np.asarray(a).dtype == np.float32 for a in arrays) else 1e-7
    assert mine["dtypes"] == theirs["dtypes"]
    if "circular" not in name:
        assert mine["names"] == theirs["names"]
    for kind in ("values", "grads", "second"):
        assert len(mine[kind]) == len(theirs[kind]), kind
        for a, b in zip(mine[kind], theirs[kind], strict=True):
            same(a, b, tolerance)


def t(package, *shape, dtype=None):
    made = package.tensor(f8(*shape).astype(np.float32))
    return made if dtype is None else made.to(getattr(package, dtype))


def i(package, values, dtype="int64"):
    return package.tensor(np.asarray(values), dtype=getattr(package, dtype))


ERRORS = {
    "conv channels": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 2, 3, 3)),
    "conv weight dims": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 3, 3)),
    "conv input dims": lambda F: F.conv2d(t(F.T, 3, 8), t(F.T, 4, 3, 3, 3)),
    "conv bias": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 3, 3, 3), t(F.T, 3)),
    "conv kernel": lambda F: F.conv2d(t(F.T, 2, 3, 2, 2), t(F.T, 4, 3, 3, 3)),
    "conv stride": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 3, 3, 3), stride=0),
    "conv strides": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 3, 3, 3), stride=(1, 2, 3)),
    "conv padding": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 3, 3, 3), padding=-1),
    "conv dilation": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 3, 3, 3), dilation=0),
    "conv dilation negative": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 2, 3, 3), dilation=-1),
    "conv weight matrix": lambda F: F.conv1d(t(F.T, 2, 3, 8), t(F.T, 4, 3)),
    "conv same dims": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 3, 3), padding="same"),
    "conv no kernel": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8, dtype="float64"), t(F.T, 4, 3, 0, 3, dtype="float64")),
    "conv_transpose dilation": lambda F: F.conv_transpose2d(t(F.T, 2, 3, 8, 8, dtype="float64"), t(F.T, 3, 4, 3, 3, dtype="float64"), dilation=0),
    "conv_transpose padding": lambda F: F.conv_transpose2d(t(F.T, 2, 3, 8, 8, dtype="float64"), t(F.T, 3, 4, 3, 3, dtype="float64"), padding=9),
    "conv_transpose negative": lambda F: F.conv_transpose2d(t(F.T, 2, 3, 8, 8), t(F.T, 3, 4, 3, 3), output_padding=-1),
    "conv dilation float64": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8, dtype="float64"), t(F.T, 4, 3, 3, 3, dtype="float64"), dilation=(1, 0)),
    "conv groups": lambda F: F.conv2d(t(F.T, 2, 4, 8, 8), t(F.T, 3, 2, 3, 3), groups=2),
    "conv no groups": lambda F: F.conv2d(t(F.T, 2, 4, 8, 8), t(F.T, 3, 2, 3, 3), groups=0),
    "conv dtype": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 3, 3, 3, dtype="float64")),
    "conv bias dtype": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 3, 3, 3), t(F.T, 4, dtype="float64")),
    "conv same stride": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 3, 3, 3), stride=2, padding="same"),
    "conv padding word": lambda F: F.conv2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 3, 3, 3), padding="foo"),
    "conv1d": lambda F: F.conv1d(t(F.T, 2, 3, 8), t(F.T, 4, 2, 3)),
    "conv_transpose channels": lambda F: F.conv_transpose2d(t(F.T, 2, 3, 8, 8), t(F.T, 4, 3, 3, 3)),
    "conv_transpose output": lambda F: F.conv_transpose2d(t(F.T, 2, 3, 8, 8), t(F.T, 3, 4, 3, 3), output_padding=1),
    "conv_transpose bias": lambda F: F.conv_transpose2d(t(F.T, 2, 3, 8, 8), t(F.T, 3, 4, 3, 3), t(F.T, 3)),
    "unfold dims": lambda F: F.unfold(t(F.T, 1, 1, 3, 4, 4), 2),
    "unfold kernel": lambda F: F.unfold(t(F.T, 1, 3, 4, 4), 5),
    "fold blocks": lambda F: F.fold(t(F.T, 2, 12, 24), (6, 6), 2),
    "fold channels": lambda F: F.fold(t(F.T, 2, 11, 25), (6, 6), 2),
    "fold dims": lambda F: F.fold(t(F.T, 25), (6, 6), 2),
    "max_pool dims": lambda F: F.max_pool2d(t(F.T, 3, 3), 2),
    "max_pool1d dims": lambda F: F.max_pool1d(t(F.T, 3), 2),
    "max_pool3d dims": lambda F: F.max_pool3d(t(F.T, 3, 3), 2),
    "max_pool padding": lambda F: F.max_pool2d(t(F.T, 1, 1, 8, 8), 2, padding=2),
    "max_pool1d padding": lambda F: F.max_pool1d(t(F.T, 1, 1, 8), 2, padding=2),
    "max_pool small": lambda F: F.max_pool2d(t(F.T, 1, 1, 2, 2), 3),
    "max_pool1d small": lambda F: F.max_pool1d(t(F.T, 1, 1, 2), 3),
    "max_pool kernel": lambda F: F.max_pool2d(t(F.T, 1, 1, 8, 8), (2, 2, 2)),
    "max_pool stride": lambda F: F.max_pool2d(t(F.T, 1, 1, 8, 8), 2, stride=0),
    "max_pool1d stride": lambda F: F.max_pool1d(t(F.T, 1, 1, 8), 2, stride=0),
    "max_pool dilation": lambda F: F.max_pool2d(t(F.T, 1, 1, 8, 8), 2, dilation=0),
    "max_pool kernel 0": lambda F: F.max_pool2d(t(F.T, 0, 1, 9), 0, padding=-1),
    "max_pool stride and padding": lambda F: F.max_pool2d(t(F.T, 0, 1, 9), 2, stride=-1, padding=4),
    "max_pool1d indices": lambda F: F.max_pool1d(t(F.T, 1, 1, 8), 2, padding=2, return_indices=True),
    "max_pool1d empty": lambda F: F.max_pool1d(t(F.T, 0, 10), 1),
    "adaptive_avg_pool as many": lambda F: F.adaptive_avg_pool2d(t(F.T, 3, 3), (2, 2)),
    "adaptive_avg_pool1d sizes": lambda F: F.adaptive_avg_pool1d(t(F.T, 1, 3, 3), ()),
    "adaptive_max_pool none": lambda F: F.adaptive_max_pool2d(t(F.T, 1, 3, 3), None),
    "embedding number": lambda F: F.embedding(i(F.T, [1]), t(F.T)),
    "max_pool bool": lambda F: F.max_pool2d(t(F.T, 1, 1, 4, 4) > 0, 2),
    "max_pool1d int": lambda F: F.max_pool1d(i(F.T, [[[1, 2, 3]]]), 2),
    "max_pool channels": lambda F: F.max_pool2d(t(F.T, 1, 0, 4, 4), 2),
    "max_pool input": lambda F: F.max_pool2d(1, 2),
    "avg_pool dims": lambda F: F.avg_pool2d(t(F.T, 3, 3), 2),
    "avg_pool padding": lambda F: F.avg_pool2d(t(F.T, 1, 1, 8, 8), 2, padding=2),
    "avg_pool divisor": lambda F: F.avg_pool2d(t(F.T, 1, 1, 8, 8), 2, divisor_override=0),
    "avg_pool int32": lambda F: F.avg_pool2d(i(F.T, [[[1, 2], [3, 4]]], "int32"), 2),
    "avg_pool small": lambda F: F.avg_pool2d(t(F.T, 1, 1, 2, 2), 3),
    "avg_pool1d dims": lambda F: F.avg_pool1d(t(F.T, 3), 2),
    "adaptive_avg_pool dims": lambda F: F.adaptive_avg_pool2d(t(F.T, 3, 3), 2),
    "adaptive_avg_pool size": lambda F: F.adaptive_avg_pool2d(t(F.T, 1, 1, 3, 3), -2),
    "adaptive_avg_pool sizes": lambda F: F.adaptive_avg_pool2d(t(F.T, 1, 1, 3, 3), (1, 2, 3)),
    "adaptive_avg_pool1d dims": lambda F: F.adaptive_avg_pool1d(t(F.T, 3), 2),
    "adaptive_max_pool dims": lambda F: F.adaptive_max_pool2d(t(F.T, 3, 3), 2),
    "pad odd": lambda F: F.pad(t(F.T, 3, 3), (1,)),
    "pad long": lambda F: F.pad(t(F.T, 3, 3), (1,) * 6),
    "pad negative": lambda F: F.pad(t(F.T, 3, 3), (-2, -2)),
    "pad mode": lambda F: F.pad(t(F.T, 3, 3), (1, 1), mode="foo"),
    "pad reflect": lambda F: F.pad(t(F.T, 1, 3, 3), (3, 1), mode="reflect"),
    "pad reflect 2": lambda F: F.pad(t(F.T, 1, 3, 3, 3), (1, 1, 3, 1), mode="reflect"),
    "pad reflect dims": lambda F: F.pad(t(F.T, 3), (1, 1), mode="reflect"),
    "pad reflect value": lambda F: F.pad(t(F.T, 1, 3, 3), (1, 1), mode="reflect", value=1.0),
    "pad circular": lambda F: F.pad(t(F.T, 1, 3, 3), (4, 1), mode="circular"),
    "pad replicate": lambda F: F.pad(t(F.T, 1, 3, 5), (-3, -3), mode="replicate"),
    "embedding": lambda F: F.embedding(i(F.T, [5]), t(F.T, 4, 3)),
    "embedding computed": lambda F: F.embedding(i(F.T, [5]) + 0, t(F.T, 4, 3)).sum().item(),
    "embedding negative": lambda F: F.embedding(i(F.T, [-1]), t(F.T, 4, 3)),
    "embedding float": lambda F: F.embedding(t(F.T, 1), t(F.T, 4, 3)),
    "embedding padding": lambda F: F.embedding(i(F.T, [1]), t(F.T, 4, 3), padding_idx=4),
    "embedding dims": lambda F: F.embedding(i(F.T, [1]), t(F.T, 4)),
    "embedding_bag offsets": lambda F: F.embedding_bag(i(F.T, [1, 2]), t(F.T, 4, 3)),
    "one_hot negative": lambda F: F.one_hot(i(F.T, [-1, 2])),
    "one_hot large": lambda F: F.one_hot(i(F.T, [4, 2]), 3),
    "one_hot float": lambda F: F.one_hot(t(F.T, 2)),
    "one_hot empty": lambda F: F.one_hot(i(F.T, [])),
    "nll_loss": lambda F: F.nll_loss(t(F.T, 3, 4), i(F.T, [1, 2, 4])),
    "nll_loss negative": lambda F: F.nll_loss(t(F.T, 3, 4), i(F.T, [1, 2, -1])),
    "nll_loss 2d": lambda F: F.nll_loss(t(F.T, 1, 4, 2, 2), i(F.T, [[[1, 7], [0, 1]]])),
    "nll_loss int32": lambda F: F.nll_loss(t(F.T, 3, 4), i(F.T, [1, 2, 3], "int32")),
    "nll_loss 0-dim": lambda F: F.nll_loss(t(F.T), i(F.T, 1)),
    "nll_loss dims": lambda F: F.nll_loss(t(F.T, 3, 4), i(F.T, [[1, 2, 3]])),
    "cross_entropy": lambda F: F.cross_entropy(t(F.T, 3, 4), i(F.T, [1, 2, 4])),
    "cross_entropy computed": lambda F: F.cross_entropy(t(F.T, 3, 4), i(F.T, [1, 2, 4]) + 0).item(),
    "cross_entropy smooth": lambda F: F.cross_entropy(t(F.T, 3, 4), i(F.T, [1, 2, 4]), label_smoothing=0.1),
    "cross_entropy one": lambda F: F.cross_entropy(t(F.T, 4), i(F.T, 5)),
    "cross_entropy batch": lambda F: F.cross_entropy(t(F.T, 3, 4), i(F.T, [1, 2])),
    "cross_entropy 2d": lambda F: F.cross_entropy(t(F.T, 2, 4, 3, 3), i(F.T, np.zeros((2, 3, 2)))),
    "cross_entropy 1d": lambda F: F.cross_entropy(t(F.T, 2, 4, 3), i(F.T, np.zeros((2, 2)))),
    "cross_entropy float": lambda F: F.cross_entropy(t(F.T, 3, 4), t(F.T, 3)),
    "cross_entropy integers": lambda F: F.cross_entropy(t(F.T, 3, 4), i(F.T, np.zeros((3, 4)))),
    "cross_entropy weight": lambda F: F.cross_entropy(t(F.T, 3, 4), i(F.T, [1, 2, 3]), t(F.T, 3)),
    "cross_entropy weight 2d": lambda F: F.cross_entropy(t(F.T, 1, 4, 1, 1), i(F.T, [[[1]]]), t(F.T, 3)),
    "cross_entropy weight dtype": lambda F: F.cross_entropy(t(F.T, 3, 4), i(F.T, [1, 2, 3]), t(F.T, 4, dtype="float64")),
    "cross_entropy reduction": lambda F: F.cross_entropy(t(F.T, 3, 4), i(F.T, [1, 2, 3]), reduction="foo"),
    "cross_entropy smoothing": lambda F: F.cross_entropy(t(F.T, 3, 4), i(F.T, [1, 2, 3]), label_smoothing=1.5),
    "cross_entropy shape": lambda F: F.cross_entropy(t(F.T, 3, 4), t(F.T, 3, 5)),
    "cross_entropy input": lambda F: F.cross_entropy(1, i(F.T, [2])),
    "mse_loss integers": lambda F: F.mse_loss(i(F.T, [1]), i(F.T, [1])),
    "mse_loss reduction": lambda F: F.mse_loss(t(F.T, 3), t(F.T, 3), reduction="x"),
    "smooth_l1_loss beta": lambda F: F.smooth_l1_loss(t(F.T, 3), t(F.T, 3), beta=-1.0),
    "huber_loss delta": lambda F: F.huber_loss(t(F.T, 3), t(F.T, 3), delta=0.0),
    "binary_cross_entropy size": lambda F: F.binary_cross_entropy(t(F.T, 3), t(F.T, 3, 1)),
    "binary_cross_entropy input": lambda F: F.binary_cross_entropy(t(F.T, 3) * 9, t(F.T, 3)).item(),
    "binary_cross_entropy target": lambda F: F.binary_cross_entropy(t(F.T, 3) * 0, t(F.T, 3) * 0 + 2).item(),
    "binary_cross_entropy dtype": lambda F: F.binary_cross_entropy(t(F.T, 3) * 0, i(F.T, [1, 1, 1])),
    "with_logits size": lambda F: F.binary_cross_entropy_with_logits(t(F.T, 3), t(F.T, 3, 1)),
    "with_logits dtype": lambda F: F.binary_cross_entropy_with_logits(t(F.T, 3), i(F.T, [1, 0, 1])),
    "gaussian_nll_loss negative": lambda F: F.gaussian_nll_loss(t(F.T, 3), t(F.T, 3), -t(F.T, 3).abs()),
    "gaussian_nll_loss size": lambda F: F.gaussian_nll_loss(t(F.T, 3, 4), t(F.T, 3, 4), t(F.T, 3, 5).abs()),
    "gaussian_nll_loss reduction": lambda F: F.gaussian_nll_loss(t(F.T, 3), t(F.T, 3), 1.0, reduction="x"),
    "margin_ranking_loss": lambda F: F.margin_ranking_loss(t(F.T, 3), t(F.T, 3, 1), t(F.T, 3)),
    "cosine_embedding_loss": lambda F: F.cosine_embedding_loss(t(F.T, 3), t(F.T, 3), t(F.T, 3)),
    "cosine_embedding_loss target": lambda F: F.cosine_embedding_loss(t(F.T, 3, 2), t(F.T, 3, 2), t(F.T, 3, 2)),
    "triplet_margin_loss dims": lambda F: F.triplet_margin_loss(t(F.T, 3, 2), t(F.T, 3), t(F.T, 3, 2)),
    "triplet_margin_loss margin": lambda F: F.triplet_margin_loss(t(F.T, 3, 2), t(F.T, 3, 2), t(F.T, 3, 2), margin=-1.0),
    "multi_margin_loss p": lambda F: F.multi_margin_loss(t(F.T, 3, 4), i(F.T, [1, 2, 3]), p=3),
    "multi_margin_loss target": lambda F: F.multi_margin_loss(t(F.T, 3, 4), i(F.T, [1, 2, 7])).item(),
    "multi_margin_loss size": lambda F: F.multi_margin_loss(t(F.T, 3, 4), i(F.T, [1, 2])),
    "multilabel_margin_loss target": lambda F: F.multilabel_margin_loss(t(F.T, 3, 4), i(F.T, np.full((3, 4), 9))).item(),
    "multilabel_margin_loss size": lambda F: F.multilabel_margin_loss(t(F.T, 3, 4), i(F.T, np.full((3, 3), 1))),
    "kl_div reduction": lambda F: F.kl_div(t(F.T, 3), t(F.T, 3), reduction="x"),
    "soft_margin_loss size": lambda F: F.soft_margin_loss(t(F.T, 3), t(F.T, 2)),
    "cosine_similarity integers": lambda F: F.cosine_similarity(i(F.T, [[1, 2]]), i(F.T, [[1, 2]])),
    "pixel_shuffle": lambda F: F.pixel_shuffle(t(F.T, 2, 7, 3, 3), 2),
    "pixel_shuffle dims": lambda F: F.pixel_shuffle(t(F.T, 3, 3), 2),
    "pixel_unshuffle height": lambda F: F.pixel_unshuffle(t(F.T, 2, 2, 3, 4), 2),
    "pixel_unshuffle width": lambda F: F.pixel_unshuffle(t(F.T, 2, 2, 4, 3), 2),
    "interpolate nothing": lambda F: F.interpolate(t(F.T, 1, 2, 3)),
    "interpolate both": lambda F: F.interpolate(t(F.T, 1, 2, 3), size=3, scale_factor=2),
    "interpolate mode": lambda F: F.interpolate(t(F.T, 1, 2, 3), size=3, mode="foo"),
    "interpolate corners": lambda F: F.interpolate(t(F.T, 1, 2, 3), size=3, align_corners=True),
    "interpolate dims": lambda F: F.interpolate(t(F.T, 1, 2, 3), size=3, mode="bilinear"),
    "interpolate 2-dim": lambda F: F.interpolate(t(F.T, 1, 2), size=3),
    "interpolate sizes": lambda F: F.interpolate(t(F.T, 1, 2, 3, 3), size=(3, 3, 3)),
    "interpolate factors": lambda F: F.interpolate(t(F.T, 1, 2, 3, 3), scale_factor=(3, 3, 3)),
    "interpolate zero": lambda F: F.interpolate(t(F.T, 1, 2, 3, 3), size=0),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    with pytest.raises(Exception) as theirs:  # noqa: B017 - the class is compared below
        ERRORS[name](THEIRS)
    with pytest.raises(Exception) as mine:  # noqa: B017 - as above
        ERRORS[name](MINE)
    assert type(mine.value).__name__ == type(theirs.value).__name__
    assert str(mine.value).strip() == str(theirs.value).strip()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_convolution_dtypes(dtype):
    x, w = f8(2, 4, 6, 6), f8(3, 4, 3, 3)
    found = []
    for package in (torch, ours):
        functions = THEIRS if package is torch else MINE
        tx, tw = (package.tensor(a.astype(np.float32)).to(getattr(package, dtype)) for a in (x, w))
        if dtype == "complex64":
            tx, tw = tx * (1 + 2j), tw * (0.5 - 1j)
        tx.requires_grad_(True)
        tw.requires_grad_(True)
        out = functions.conv2d(tx, tw, padding=1, stride=2)
        total = (out * out.conj()).real.sum() if dtype == "complex64" else (out * out).sum()
        total.backward()
        kind = getattr(package, "complex64" if dtype == "complex64" else "float32")
        found.append([a.detach().to(kind).numpy() for a in (out, tx.grad, tw.grad)])
    scale = {"float16": 4e-3, "bfloat16": 3e-2}.get(dtype, 1e-5)
    for theirs, mine in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=scale, atol=scale * np.abs(theirs).max())


def test_cross_entropy_composes_as_pytorch():
    x, target = f8(3, 4), ints(4, 3)
    names = []
    for functions in (THEIRS, MINE):
        loss = functions.cross_entropy(functions.T.tensor(x, requires_grad=True), functions.T.tensor(target))
        names.append([loss.grad_fn.name(), loss.grad_fn.next_functions[0][0].name()])
    assert names[0] == names[1] == ["NllLossBackward0", "LogSoftmaxBackward0"]


def test_different_sizes_warn():
    for functions in (THEIRS, MINE):
        with pytest.warns(UserWarning, match="different to the input size"):
            functions.mse_loss(t(functions.T, 3, 4), t(functions.T, 4))
        with pytest.warns(UserWarning, match="batchmean"):
            functions.kl_div(t(functions.T, 3, 4), t(functions.T, 3, 4).abs())
        with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
            functions.mse_loss(t(functions.T, 3), t(functions.T, 3), size_average=False)


def test_results_written_to_a_given_tensor():
    def check(F):
        image = t(F.T, 1, 2, 4, 4)
        calls = {
            "gelu": (image,), "softplus": (image,), "logsigmoid": (image,), "hardshrink": (image,), "softshrink": (image,),
            "linear": (image, t(F.T, 3, 4)), "avg_pool2d": (image, 2), "avg_pool3d": (image, 2),
        }  # fmt: skip
        functions = torch.nn.functional if F.T is torch else ours.nn.functional
        for name, arguments in calls.items():
            out = F.T.empty(0)
            assert getattr(functions, name)(*arguments, out=out) is out
            yield out
            with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
                getattr(functions, name)(arguments[0].clone().requires_grad_(), *arguments[1:], out=out)

    for a, b in zip(check(MINE), check(THEIRS), strict=True):
        np.testing.assert_allclose(host(a), host(b), rtol=1e-5, atol=1e-6)


def test_embedding_renormalizes_in_place():
    found = []
    for functions in (THEIRS, MINE):
        weight = functions.T.tensor(f8(4, 3))
        functions.embedding(i(functions.T, [1, 1, 3]), weight, max_norm=0.5)
        found.append(weight.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
