"""The baseline tier's matrix products and convolutions against XLA."""

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from test_baseline_agreement import COMPLEX, FLOATS, INTEGERS, agree, values

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]

EINSUMS = [
    ("ij,jk->ik", (3, 4), (4, 5)), ("ji,jk->ik", (4, 3), (4, 5)), ("ij,kj->ik", (3, 4), (5, 4)), ("ji,kj->ik", (4, 3), (5, 4)), ("i,i->", (6,), (6,)),
    ("ij,j->i", (3, 4), (4,)), ("i,ij->j", (3,), (3, 4)), ("i,j->ij", (3,), (4,)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("ijk,kjl->il", (2, 3, 4), (4, 3, 5)), ("ib,jb->bij", (3, 2), (4, 2)), ("ij,ij->", (3, 4), (3, 4)), ("bi,bi->b", (3, 4), (3, 4)),
    ("ij,klj->ikl", (3, 4), (2, 5, 4)),
    ("ij,jk->ik", (0, 4), (4, 5)), ("ij,jk->ik", (3, 0), (0, 5)), ("bij,bjk->bik", (0, 3, 4), (0, 4, 5)),
    ("i,i->", (0,), (0,)), (",ij->ij", (), (3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "left", "right"), EINSUMS)
def test_products_of_any_dimensions(spec, left, right):
    a, b = values(np.float32, left), values(np.float32, right, seed=1)
    agree(lambda a, b: jnp.einsum(spec, a, b), a, b, units=16, least=4.0)
    agree(lambda a, b: jnp.einsum(spec, a, b), np.asarray(a, order="F"), np.asarray(b, order="F"), units=16, least=4.0)


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX], ids=str)
def test_products_of_each_dtype(dtype):
    a, b, many = values(dtype, (4, 30)), values(dtype, (30, 3), seed=1), values(dtype, (5, 30, 30), seed=2)
    agree(lambda a, b, m: [a @ b, b.T @ a.T, a[0] @ b, m @ m, a @ m, jnp.dot(a[0], b[:, 0])], a, b, many, units=32, least=30.0)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_products_of_integers_wrap(dtype):
    a, b = values(dtype, (4, 30)) * np.array(7, dtype), values(dtype, (30, 3), seed=1) * np.array(7, dtype)
    agree(lambda a, b: [a @ b, jnp.matmul(a, b, preferred_element_type=np.int64), a[0] @ b[:, 0]], a, b)


def test_products_into_another_dtype():
    a, b = values(np.float16, (4, 30)), values(np.float16, (30, 3), seed=1)
    agree(lambda a, b: jnp.matmul(a, b, preferred_element_type=np.float32), a, b, units=16, least=4.0)
    agree(lambda a, b: jnp.matmul(a, b, preferred_element_type=np.float64), a, b, units=16, least=4.0)


def test_products_of_views_and_of_special_numbers():
    a, b = values(np.float32, (40, 40)), values(np.float32, (40, 40), seed=1)
    agree(lambda a, b: [a[::2, ::3] @ b[:14, ::2], a[::-1] @ b, jnp.broadcast_to(a[0], (40, 40)) @ b], a, b, units=32, least=8.0)
    a[3, 4], a[5, 5], b[7, 7] = np.nan, np.inf, -np.inf
    agree(lambda a, b: a @ b, a, b, units=32, least=8.0)


# ---------------------------------------------------------------------- convolution

SHAPES = [
    ((2, 4, 9), (6, 4, 3), ("NCW", "OIW", "NCW")),
    ((2, 4, 7, 8), (6, 4, 3, 2), ("NCHW", "OIHW", "NCHW")),
    ((2, 7, 8, 4), (3, 2, 4, 6), ("NHWC", "HWIO", "NHWC")),
]
OPTIONS = [
    {}, {"window_strides": 2}, {"padding": (1, 2)}, {"padding": (-1, 1)}, {"padding": (-2, -1)}, {"lhs_dilation": 2}, {"rhs_dilation": 2},
    {"feature_group_count": 2},
    {"batch_group_count": 2}, {"window_strides": 2, "padding": (2, 1), "lhs_dilation": 3, "rhs_dilation": 2}, {"padding": (-2, 1), "lhs_dilation": 2},
]  # fmt: skip


def convolution(dims, **options):
    count = len(dims[0]) - 2
    full = {"window_strides": (options.pop("window_strides", 1),) * count, "padding": [options.pop("padding", (0, 0))] * count}
    full |= {name: (options.pop(name),) * count for name in ("lhs_dilation", "rhs_dilation") if name in options}
    return lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=dims, **full, **options)


@pytest.mark.parametrize(("image", "kernel", "dims"), SHAPES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_convolutions(image, kernel, dims, options):
    kernel = list(kernel)
    if "feature_group_count" in options:
        kernel[dims[1].index("I")] //= 2
    # In float32 XLA's own result is wrong where padding cuts off two dimensions on one side (JAX 0.10).
    dtype = np.float64 if min(options.get("padding", (0,))) < 0 else np.float32
    agree(convolution(dims, **options), values(dtype, image), values(dtype, kernel, seed=1), units=16, least=8.0)


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX, np.dtype(np.int32)], ids=str)
def test_convolutions_of_each_dtype(dtype):
    agree(convolution(SHAPES[0][2], padding=(1, 1)), values(dtype, SHAPES[0][0]), values(dtype, SHAPES[0][1], seed=1), units=32, least=8.0)


def test_convolutions_of_nothing():
    agree(convolution(("NCW", "OIW", "NCW")), values(np.float32, (0, 4, 9)), values(np.float32, (6, 4, 3)))
    agree(convolution(("NCW", "OIW", "NCW")), values(np.float32, (2, 0, 9)), values(np.float32, (6, 0, 3)))
    agree(convolution(("NCW", "OIW", "NCW"), padding=(2, 2)), values(np.float32, (2, 3, 0)), values(np.float32, (6, 3, 2)))


def test_gradients_of_convolutions():
    x, w = values(np.float32, (2, 4, 7, 8)), values(np.float32, (6, 2, 3, 3), seed=1)
    run = convolution(SHAPES[1][2], window_strides=2, padding=(1, 1), feature_group_count=2)
    agree(lambda x, w: jax.vjp(run, x, w)[1](jnp.cos(run(x, w))), x, w, units=64, least=16.0)
