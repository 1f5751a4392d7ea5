"""Which dtypes the functions of torch.nn.functional take, what they make of them, and the class and first line of the error for the others."""

from __future__ import annotations

import math

import pytest
from side_by_side import error_of, like_pytorch

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
# `F` is nn.functional, `x` ones of the dtype, `y` of float32, `z` int64 zeros.
STATEMENTS = [
    # pooling
    *(f"F.avg_pool{d}d(x(2, *{(4,) * d}), 2)" for d in (1, 2, 3)),
    *(f"F.max_pool{d}d(x(2, *{(4,) * d}), 2, return_indices={i})" for d in (1, 2, 3) for i in (False, True)),
    *(f"F.adaptive_{kind}_pool{d}d(x(2, *{(4,) * d}), {size})" for kind in ("avg", "max") for d in (1, 2, 3) for size in (1, 3)),
    "F.adaptive_avg_pool2d(x(0, 2, 4, 4), 3)",
    "F.adaptive_avg_pool2d(x(2, 4, 4), 0)",
    "F.adaptive_avg_pool3d(x(0, 2, 4, 4, 4), 3)",
    "F.max_pool2d(x(1, 2, 2), 5)",
    "F.lp_pool3d(x(2, 4, 4, 4), 2, 2)",
    # resampling and padding
    *(f"F.interpolate(x(1, 2, *{(4,) * d}), 3, mode='{mode}')" for d in (1, 2, 3) for mode in ("nearest", "nearest-exact", "area")),
    *(f"F.interpolate(x(1, 2, *{(4,) * d}), 3, mode='{mode}')" for d, mode in ((1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear"))),
    *(f"F.pad(x(2, *{(4,) * d}), {(1, -1) * d}, '{mode}')" for d in (1, 2, 3) for mode in ("reflect", "replicate", "circular")),
    "F.unfold(x(2, 4, 4), 2)",
    "F.fold(x(4, 9), (4, 4), 2)",
    # convolution
    *(f"F.conv{d}d(x(2, *{(5,) * d}), x(2, 2, *{(2,) * d}), dilation={n})" for d in (1, 2, 3) for n in (1, 2)),
    *(f"F.conv_transpose{d}d(x(2, *{(5,) * d}), x(2, 2, *{(2,) * d}), dilation={n})" for d in (1, 2, 3) for n in (1, 2)),
    "F.conv3d(x(1, 2, 3, 3, 3), x(2, 2, 1, 1, 1))",
    "F.conv3d(x(1, 2, 3, 3, 3), x(2, 1, 1, 1, 1), groups=2)",
    "F.conv2d(x(0, 2, 5, 5), x(3, 2, 3, 3))",
    "F.conv2d(x(1, 2, 5, 5), x(3, 1, 3, 3))",
    # losses
    *(
        f"F.{name}(x(2, 3), {target}, reduction='{reduction}')"
        for name in ("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy_with_logits", "kl_div")
        for target, reduction in (("x(2, 3)", "mean"), ("y(2, 3)", "sum"), ("z(2, 3)", "none"))
    ),
    *(f"F.{name}(x(2, 3), x(4, 3))" for name in ("huber_loss", "soft_margin_loss", "binary_cross_entropy_with_logits")),
    *(f"F.{name}(x(2, 3), x(2, 3), weight={w}(2, 3))" for name in ("mse_loss", "huber_loss", "binary_cross_entropy") for w in "xyz"),
    *(f"F.binary_cross_entropy_with_logits(x(2, 3), x(2, 3), {w}={a}(3))" for w in ("weight", "pos_weight") for a in "xy"),
    "F.binary_cross_entropy_with_logits(y(2, 3), x(2, 3))",
    "F.binary_cross_entropy_with_logits(y(2, 3), x(2, 3), pos_weight=y(4))",
    "F.binary_cross_entropy(y(2, 3), y(2, 3), weight=x(2, 3))",
    "F.binary_cross_entropy(x(2, 3), y(2, 3))",
    "F.cross_entropy(x(2, 3), x(2, 3))",
    "F.cross_entropy(y(2, 3), x(2, 3))",
    "F.multi_margin_loss(x(2, 3), z(2))",
    "F.multi_margin_loss(x(2, 3), z(2), weight=y(3))",
    "F.multi_margin_loss(y(2, 3), x(2))",
    "F.multilabel_margin_loss(x(2, 3), z(2, 3))",
    "F.multilabel_margin_loss(y(2, 3), x(2, 3))",
    # distances, products and embeddings
    "F.cosine_similarity(x(2, 3), x(2, 3))",
    *(f"F.pdist(x{shape}, {p})" for shape, p in (((2, 3), 2), ((2, 3), 0), ((1, 3), 2), ((2, 0), 2), ((2, 2, 2), 2))),
    *(f"F.linear(x{shape}, x(4, 3), x(4))" for shape in ((2, 3), (2, 2, 3), (3,), (0, 3))),
    "F.bilinear(x(2, 3), x(2, 3), x(4, 3, 3), x(4))",
    "F.bilinear(x(0, 3), x(0, 3), x(4, 3, 3))",
    "F.bilinear(x(2, 3), x(2, 3), x(4, 3, 3), y(4))",
    "F.bilinear(x(2, 3), y(2, 2, 3), x(4, 3, 3))",
    *(f"F.embedding_bag(z(4), x(4, 3), z(2), mode='{mode}')" for mode in ("sum", "mean", "max")),
    "F.embedding_bag(z(4), x(4, 3), z(2), mode='sum', per_sample_weights=y(4))",
    "F.embedding_bag(x(4), y(4, 3), z(2))",
    "F.embedding_bag(z(4), y(4, 3), m.zeros_like(x(2)))",
    "F.embedding_bag(x(2, 2), y(4, 3))",
    # attention
    *(f"F.scaled_dot_product_attention(*[x{shape}] * 3)" for shape in ((3, 4), (2, 3, 4), (1, 2, 3, 4))),
    *(f"F.scaled_dot_product_attention(*[x{shape}] * 3, attn_mask=m.ones(3, 3, dtype=m.bool))" for shape in ((3, 4), (1, 2, 3, 4))),
    *(
        f"F.multi_head_attention_forward(*[x(3, 1, 4)] * 3, 4, 2, x(12, 4), x(12), None, None, False, 0.0, x(4, 4), x(4), need_weights={weights})"
        for weights in (False, True)
    ),
    # activations and normalization
    "F.prelu(x(2, 3), x(3))",
    "F.rrelu(x(2, 3))",
    "F.rrelu(x(2, 3), training=True)",
    *(
        f"F.threshold(x(2, 3), {pair})"
        for pair in ("1, 0", "-1.5, 0", "0, -2.0", "-1, 300", "2.5, 1e6", "1e6, 1.5", "1e39, 0", "0, math.inf", "math.nan, 0")
    ),
    *(f"x(2).fill_({number})" for number in (-1, -1.0, -0.5, -0.0, 254.5)),
    *(f"F.batch_norm(x(2, 3), x(3), x(3), training={training})" for training in (False, True)),
    "F.batch_norm(x(0, 3), x(3), x(3))",
    "F.batch_norm(x(0, 3, 2), x(3), x(3), y(3), y(3), training=True)",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("statement", STATEMENTS)
def test_dtypes(statement):
    code = compile(statement, statement, "eval")

    @like_pytorch
    def check(m):
        def outcome(dtype):
            def result():
                names = {
                    "m": m, "F": m.nn.functional, "x": lambda *size: m.ones(*size, dtype=getattr(m, dtype)), "y": m.ones, "math": math,
                    "z": lambda *size: m.zeros(*size, dtype=m.int64),
                }  # fmt: skip
                made = eval(code, names)
                made = made[0] if isinstance(made, tuple) else made
                found.append([str(made.dtype), list(made.shape) if "float16" in dtype else made.tolist()])

            found = []
            error = error_of(result)
            return found if error is None else [error[0], error[1].partition("\n")[0]]

        return [[dtype, outcome(dtype)] for dtype in DTYPES]

    check()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_images_of_8_bits_are_interpolated_in_whole_numbers(mode, align_corners):
    @like_pytorch
    def check(m):
        image = (m.arange(2 * 3 * 8 * 11).reshape(2, 3, 8, 11) ** 2 * 7 % 256).to(m.uint8)
        sizes = (7, 9), (16, 16), (31, 2), (6, 11)
        return [m.nn.functional.interpolate(image, size=size, mode=mode, align_corners=align_corners) for size in sizes]

    check()


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_ranks_of_any_shapes_and_dtypes(dtype):
    def program(m):
        x = m.tensor([[1, 2], [3, 4]]).to(getattr(m, dtype))
        y, t = x.flip(0), m.ones(2, 2)
        return m.margin_ranking_loss(x, y, m.tensor(1)), m.nn.functional.margin_ranking_loss(x, y, t), m.margin_ranking_loss(x, y, t, 0.5, 1)

    like_pytorch(program)()
