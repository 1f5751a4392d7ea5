"""Which dtypes the functions of torch.nn.functional take, and the class and first line of the error for the others: all that PyTorch does."""

from __future__ import annotations

import pytest
from side_by_side import error_of, like_pytorch

torch = pytest.importorskip("torch")

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
                    "m": m, "F": m.nn.functional, "x": lambda *size: m.ones(*size, dtype=getattr(m, dtype)), "y": m.ones,
                    "z": lambda *size: m.zeros(*size, dtype=m.int64),
                }  # fmt: skip
                made = eval(code, names)
                made = made[0] if isinstance(made, tuple) else made
                found.append([str(made.dtype), list(made.shape)])

            found = []
            error = error_of(result)
            return found if error is None else [error[0], error[1].partition("\n")[0]]

        return [[dtype, outcome(dtype)] for dtype in DTYPES]

    check()
