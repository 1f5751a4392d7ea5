"""`nn.functional`: activations, convolutions, pooling, normalization, losses, padding, resizing; random functions."""

from __future__ import annotations

import math

import jax
from jax import lax, nn
from jax import numpy as jnp

import torchgrad_jax as tj
from compat_suite.records.record import REAL, Make, Record, Samples, each, given, pairs

F = tj.nn.functional
unary = each((3, 4), (5,))


def f(name: str, samples: Samples, jax_function=None, function=None, dtypes=REAL, **options) -> Record:
    """A function of nn.functional, by default of real numbers."""
    return Record(f"nn.functional.{name}", samples, jax_function, function, dtypes, **options)


# ---------------------------------------------------------------------- convolutions and windows


def convolved(space: int):
    """Inputs, weights and options of a convolution."""
    sizes = (5, 4, 3)[:space]

    def samples(make: Make):
        yield make(2, 2, *sizes), make(3, 2, *(2,) * space), make(3)
        yield make(1, 4, *sizes), make(2, 2, *(2,) * space), None, {"stride": 2, "padding": 1, "groups": 2}

    return samples


def convolution(x, w, b=None, stride=1, padding=0, groups=1):
    """A convolution by JAX."""
    space = w.ndim - 2
    y = lax.conv_general_dilated(x, w, (stride,) * space, [(padding, padding)] * space, feature_group_count=groups)
    return y if b is None else y + b.reshape(-1, *(1,) * space)


def transposed_samples(space: int):
    """Inputs, weights and options of a transposed convolution."""

    def samples(make: Make):
        yield make(2, 2, *(4, 3)[:space]), make(2, 3, *(2,) * space), make(3)
        yield make(1, 2, *(4, 3)[:space]), make(2, 3, *(3,) * space), None, {"stride": 2, "padding": 1}

    return samples


def transposed_convolution(x, w, b=None, stride=1, padding=0):
    """The transpose of a convolution by JAX."""
    space = w.ndim - 2
    kernel = jnp.swapaxes(jnp.flip(w, range(2, w.ndim)), 0, 1)
    around = [(k - 1 - padding,) * 2 for k in w.shape[2:]]
    y = lax.conv_general_dilated(x, kernel, (1,) * space, around, lhs_dilation=(stride,) * space)
    return y if b is None else y + b.reshape(-1, *(1,) * space)


def largest_of(x, size):
    """The greatest of each window."""
    window = (1, 1, *(size,) * (x.ndim - 2))
    return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")


def mean_of(x, size):
    """The mean of each window."""
    window = (1, 1, *(size,) * (x.ndim - 2))
    return lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") / size ** (x.ndim - 2)


def adaptive(x, counts):
    """The means of so many parts of each dimension of space."""
    for d, count in enumerate((counts,) if isinstance(counts, int) else counts, 2):
        n = x.shape[d]
        parts = [lax.slice_in_dim(x, i * n // count, -(-(i + 1) * n // count), axis=d).mean(d) for i in range(count)]
        x = jnp.stack(parts, d)
    return x


def patches(x, size):
    """The windows of images as columns."""
    return lax.conv_general_dilated_patches(x, (size, size), (1, 1), "VALID").reshape(x.shape[0], x.shape[1] * size * size, -1)


def padded(mode: str):
    """Padding of the last dimension of images."""
    return lambda x, pad, mode=mode: jnp.pad(
        x,
        [(0, 0)] * (x.ndim - len(pad) // 2) + [tuple(pad[i : i + 2]) for i in range(len(pad) - 2, -1, -2)],
        {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode],
    )


def padding(mode: str) -> Record:
    """A mode of padding."""
    return f(f"pad.{mode}", lambda make: [(make(2, 3, 5), (1, 2), mode), (make(1, 2, 4, 4), (1, 0, 2, 1), mode)], padded(mode), F.pad,
             ("float64", "complex128"))  # fmt: skip


def resized(mode: str, space: int) -> Record:
    """A mode of resizing."""

    def larger(x, size, mode):
        if mode == "nearest":
            for d, n in enumerate(size, 2):
                x = jnp.take(x, jnp.floor(jnp.arange(n) * x.shape[d] / n).astype(int), axis=d)
            return x
        return jax.image.resize(x, (*x.shape[:2], *size), "linear", antialias=False)

    return f(f"interpolate.{mode}", lambda make: [(make(1, 2, *(3, 4)[:space]), {"size": (5, 7)[:space], "mode": mode})], larger, F.interpolate)


# ---------------------------------------------------------------------- normalization, attention


def normalized(x, dims, eps=1e-5):
    """x less its mean over its deviation."""
    return (x - x.mean(dims, keepdims=True)) * lax.rsqrt(x.var(dims, keepdims=True) + eps)


def in_groups(x, groups, weight=None, bias=None):
    """Channels normalized in groups."""
    y = normalized(x.reshape(x.shape[0], groups, -1), 2).reshape(x.shape)
    shape = (-1, *(1,) * (x.ndim - 2))
    return y if weight is None else y * weight.reshape(shape) + bias.reshape(shape)


def attended(q, k, v, is_causal=False):
    """Scaled dot product attention."""
    scores = q @ jnp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return nn.softmax(scores, -1) @ v


def heads(make: Make):
    """Arguments of multi-head attention of 4 features in 2 heads."""
    x = make(3, 2, 4)
    yield x, x, x, 4, 2, make(12, 4), make(12), None, None, False, 0.0, make(4, 4), make(4)


def multi_head(q, k, v, size, count, w_in, b_in, *rest):
    """Multi-head attention."""
    w_out, b_out = rest[-2:]
    parts = [(x @ w.T + b).reshape(x.shape[0], -1, size // count).swapaxes(0, 1)
             for x, w, b in zip((q, k, v), jnp.split(w_in, 3), jnp.split(b_in, 3), strict=True)]  # fmt: skip
    found = attended(*parts).swapaxes(0, 1).reshape(q.shape)
    return found @ w_out.T + b_out


def sampled(x, grid):
    """Images at the places of a grid, by interpolation between four pixels."""

    def one(image, places):
        h, w = image.shape[-2:]
        where = ((places[..., 1] + 1) * h - 1) / 2, ((places[..., 0] + 1) * w - 1) / 2
        return jnp.stack([jax.scipy.ndimage.map_coordinates(channel, where, 1) for channel in image])

    return jnp.stack([one(a, b) for a, b in zip(x, grid, strict=True)])


# ---------------------------------------------------------------------- losses


def classes(make: Make):
    """Scores and labels, of which some weigh more or are left out."""
    yield make(4, 3), make.integers(4, high=3)
    yield make(2, 3, 4), make.integers(2, 4, high=3), {"reduction": "sum"}


def chosen(scores, labels):
    """The scores of the labels."""
    return jnp.take_along_axis(scores, labels[:, None], 1)[:, 0]


def loss_of(function):
    """A loss by its terms."""
    return lambda x, y, reduction="mean", **keywords: {"mean": jnp.mean, "sum": jnp.sum, "none": lambda t: t}[reduction](function(x, y, **keywords))


compared = lambda make: [(make(3, 4), make(3, 4)), (make(3, 4), make(3, 4), {"reduction": "sum"})]  # noqa: E731
probable = lambda make: [(make(3, 4, low=0.1, high=0.9), make(3, 4, low=0.1, high=0.9))]  # noqa: E731
three_vectors = lambda make: [(make(3, 4), make(3, 4), make(3, 4))]  # noqa: E731


def huber(x, y, delta=1.0):
    """Terms of the Huber loss."""
    d = abs(x - y)
    return jnp.where(d < delta, d * d / 2, delta * (d - delta / 2))


def distance(x, y, eps=1e-6):
    """Distances of rows, as they are computed for pairs."""
    return jnp.sqrt(((x - y + eps) ** 2).sum(-1))


def gaussian(x, y, v):
    """Terms of the Gaussian loss."""
    return (jnp.log(v) + (x - y) ** 2 / v) / 2


# ---------------------------------------------------------------------- random functions


def seeded(function):
    """The function after the same seed each time."""

    def call(*arguments, **keywords):
        tj.manual_seed(3)
        return function(*arguments, **keywords)

    return call


def random(name: str, samples: Samples, function, derivatives: int = 0) -> Record:
    """A random function: its derivatives for one seed."""
    return Record(name, samples, None, seeded(function), REAL, derivatives)


RECORDS = [
    f("adaptive_avg_pool1d", given(((2, 3, 7), 3)), adaptive),
    f("adaptive_avg_pool2d", given(((2, 3, 7, 5), (3, 2))), adaptive),
    f("avg_pool1d", given(((2, 3, 6), 2)), mean_of),
    f("avg_pool2d", given(((2, 3, 6, 5), 2)), mean_of),
    f("batch_norm", lambda make: [(make(4, 3, 2), None, None, make(3), make(3), True)],
      lambda x, m, v, w, b, training: normalized(x, (0, 2)) * w[:, None] + b[:, None]),
    f("binary_cross_entropy", probable, loss_of(lambda x, y: -y * jnp.log(x) - (1 - y) * jnp.log(1 - x))),
    f("binary_cross_entropy_with_logits", lambda make: [(make(3, 4), make(3, 4, low=0.1, high=0.9))],
      loss_of(lambda x, y: -y * nn.log_sigmoid(x) - (1 - y) * nn.log_sigmoid(-x))),
    f("conv1d", convolved(1), convolution, dtypes=("float64", "complex128")),
    f("conv2d", convolved(2), convolution, dtypes=("float64", "complex128")),
    f("conv3d", convolved(3), convolution),
    f("conv_transpose1d", transposed_samples(1), transposed_convolution, dtypes=("float64", "complex128")),
    f("conv_transpose2d", transposed_samples(2), transposed_convolution, dtypes=("float64", "complex128")),
    f("cosine_similarity", pairs(((3, 4), (3, 4))), lambda x, y: (x * y).sum(1) / jnp.linalg.norm(x, axis=1) / jnp.linalg.norm(y, axis=1)),
    f("cross_entropy", classes, loss_of(lambda x, y: -chosen(nn.log_softmax(x, 1), y))),
    f("elu", unary, nn.elu),
    f("embedding", lambda make: [(make.integers(2, 3), make(5, 4))], lambda i, w: w[i], dtypes=("float64", "complex128")),
    f("gaussian_nll_loss", lambda make: [(make(3, 4), make(3, 4), make(3, 4, low=0.5, high=2.0))], lambda x, y, v: gaussian(x, y, v).mean()),
    f("gelu", lambda make: [make(3, 4), (make(3, 4), {"approximate": "tanh"})], lambda x, approximate="none": nn.gelu(x, approximate == "tanh")),
    f("glu", given(((3, 4),), ((4, 3), 0)), lambda x, dim=-1: nn.glu(x, dim)),
    f("grid_sample", lambda make: [(make(2, 3, 4, 5), make(2, 3, 2, 2, low=-0.7, high=0.7), {"align_corners": False})],
      lambda x, grid, align_corners: sampled(x, grid), derivatives=1),
    f("group_norm", lambda make: [(make(2, 4, 3), 2), (make(2, 4, 3), 2, make(4), make(4))], in_groups),
    f("hardswish", unary, nn.hard_silu),
    f("hardtanh", unary, nn.hard_tanh),
    f("huber_loss", lambda make: [(make(3, 4), make(3, 4), {"delta": 0.7})], loss_of(huber)),
    f("instance_norm", each((2, 3, 5)), lambda x: normalized(x, 2)),
    f("kl_div", lambda make: [(make(3, 4), make(3, 4, low=0.1, high=0.9), {"reduction": "sum"})], loss_of(lambda x, y: y * (jnp.log(y) - x))),
    f("l1_loss", compared, loss_of(lambda x, y: abs(x - y)), dtypes=("float64", "complex128")),
    f("layer_norm", lambda make: [(make(3, 4), (4,)), (make(2, 3, 4), (3, 4), make(3, 4), make(3, 4))],
      lambda x, shape, w=1, b=0: normalized(x, tuple(range(x.ndim - len(shape), x.ndim))) * w + b),
    f("leaky_relu", given(((3, 4),), ((3, 4), 0.3)), nn.leaky_relu),
    f("linear", lambda make: [(make(3, 4), make(2, 4), make(2)), (make(2, 3, 4), make(5, 4))], lambda x, w, b=0: x @ w.T + b,
      dtypes=("float64", "complex128")),
    f("logsigmoid", unary, nn.log_sigmoid),
    f("max_pool1d", lambda make: [(make.apart(2, 3, 6), 2)], largest_of),
    f("max_pool2d", lambda make: [(make.apart(2, 3, 6, 4), 2)], largest_of),
    f("mish", unary, nn.mish),
    f("mse_loss", compared, loss_of(lambda x, y: (x - y) ** 2)),
    f("multi_head_attention_forward", heads, multi_head, lambda *args: F.multi_head_attention_forward(*args)[0]),
    f("nll_loss", classes, loss_of(lambda x, y: -chosen(x, y))),
    f("normalize", each((3, 4)), lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True), dtypes=("float64", "complex128")),
    f("one_hot", lambda make: [(make.integers(4), 6)], lambda i, n: nn.one_hot(i, n, dtype=int), derivatives=0),
    *map(padding, ("constant", "circular", "reflect", "replicate")),
    f("pairwise_distance", pairs(((3, 4), (3, 4))), distance),
    f("pixel_shuffle", given(((2, 8, 2, 3), 2)),
      lambda x, r: x.reshape(2, 2, r, r, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 2 * r, 3 * r), dtypes=("float64", "complex128")),
    f("prelu", lambda make: [(make(2, 3, 4), make(3))], lambda x, w: jnp.where(x > 0, x, w[:, None] * x)),
    f("relu", unary, nn.relu),
    f("relu6", unary, nn.relu6),
    resized("nearest", 2), resized("linear", 1), resized("bilinear", 2),
    f("rms_norm", lambda make: [(make(3, 4), (4,)), (make(3, 4), (4,), make(4))],
      lambda x, shape, w=1: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + jnp.finfo(x.dtype).eps) * w),
    f("scaled_dot_product_attention",
      lambda make: [(make(2, 3, 4), make(2, 5, 4), make(2, 5, 4)), (make(2, 3, 4), make(2, 3, 4), make(2, 3, 4), {"is_causal": True})], attended),
    f("selu", unary, nn.selu),
    f("silu", unary, nn.silu),
    f("smooth_l1_loss", compared, loss_of(huber)),
    f("softplus", unary, nn.softplus),
    f("softsign", unary, nn.soft_sign),
    f("triplet_margin_loss", three_vectors, lambda a, p, n: nn.relu(distance(a, p) - distance(a, n) + 1).mean()),
    f("unfold", given(((2, 3, 4, 4), 2)), patches, dtypes=("float64", "complex128")),
    Record("log_softmax", given(((3, 4), 1)), nn.log_softmax, dtypes=REAL),
    Record("log_softmax.with_dtype", lambda make: [(make(3, 4), 1, {"dtype": tj.float64})], lambda x, dim, **_: nn.log_softmax(x, dim), dtypes=REAL),
    Record("softmax", given(((3, 4), 1), ((2, 3, 4), 0)), nn.softmax, dtypes=REAL),
    Record("softmax.with_dtype", lambda make: [(make(3, 4), 1, {"dtype": tj.float64})], lambda x, dim, **_: nn.softmax(x, dim), dtypes=REAL),
    random("nn.functional.dropout", given(((3, 4), 0.4)), F.dropout, 2),
    random("nn.functional.dropout2d", given(((2, 3, 2, 2), 0.4)), F.dropout2d, 2),
    random("bernoulli", lambda make: [make(3, 4, low=0.0, high=1.0)], lambda p: tj.bernoulli(p.detach())),
    random("multinomial", lambda make: [(make(5, low=0.1, high=1.0), 3)], tj.multinomial),
    random("normal", lambda make: [(make(3, 4, gradient=False), 2.0)], tj.normal),
    random("normal.in_place", lambda make: [make(3, 4, gradient=False)], tj.Tensor.normal_),
    random("normal.number_mean", lambda make: [(1.0, make(3, low=0.5, high=1.0, gradient=False))], tj.normal),
    random("rand_like", lambda make: [make(3, 4)], tj.rand_like),
    random("randint", lambda make: [(5, (3, 4))], tj.randint),
    random("randn", lambda make: [(3, 4)], tj.randn),
    random("randn_like", lambda make: [make(3, 4)], tj.randn_like),
    random("uniform", lambda make: [make(3, 4, gradient=False)], tj.Tensor.uniform_),
]  # fmt: skip
