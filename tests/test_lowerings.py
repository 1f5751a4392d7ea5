"""Where an operator is carried out in one way on CPU and in another elsewhere, both ways give the same numbers and derivatives."""

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from test_baseline_agreement import OPTIONS

import torchgrad_jax
from torchgrad_jax.operators import convolution, cumulative, pointwise
from torchgrad_jax.operators.kernels import box_muller, circular, normals
from torchgrad_jax.runtime import baseline_tier
from torchgrad_jax.runtime.compiling import compiled, transposed

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]


def normal(*shape, dtype=np.float32, seed=0):
    random = np.random.RandomState(seed)
    found = random.standard_normal(shape)
    return jnp.asarray((found + 1j * random.standard_normal(shape) if np.dtype(dtype).kind == "c" else found).astype(dtype))


def agree(one, other, *operands):
    """Whether two functions have the same results, tangents, gradients and tangents of gradients."""
    tolerance = 1e-4 if operands[0].dtype in (np.float32, np.complex64) else 1e-10
    tangents = tuple(normal(*x.shape, dtype=x.dtype, seed=9) for x in operands)

    def everything(function):
        def pulled(*xs):
            out, pull = jax.vjp(function, *xs)
            return pull(jnp.cos(jnp.arange(out.size)).reshape(out.shape).astype(out.dtype))

        return [*jax.jvp(function, operands, tangents), *jax.tree.leaves(jax.jvp(pulled, operands, tangents))]

    results = [jax.jit(lambda f=f: everything(f), compiler_options=OPTIONS)() for f in (one, other)]
    for a, b in zip(*results, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * float(jnp.abs(b).max()))


# ---------------------------------------------------------------------- sine and cosine


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr(circular, "_MANY", 0)


EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 3.4e38, -2.5e37, 1e10, 16777216.0]


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize(("ours", "exact"), [(circular.sin, np.sin), (circular.cos, np.cos)])
def test_sine_and_cosine_are_right_to_two_units_for_every_float(ours, exact):
    random = np.random.RandomState(0)
    multiples = np.arange(1, 20000) * (np.pi / 2)  # where the result is nearly zero
    bits = random.randint(0, 0x7F800000, 100_000).astype(np.uint32).view(np.float32)
    x = np.concatenate([random.uniform(-10, 10, 100_000), random.uniform(-1e5, 1e5, 100_000), multiples, bits]).astype(np.float32)
    expected = exact(x.astype(np.float64))
    units = np.abs(np.asarray(jax.jit(ours)(x), np.float64) - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert units.max() <= 2
    edges = np.array(EDGES, np.float32)
    with np.errstate(invalid="ignore"):
        expected = exact(edges.astype(np.float64)).astype(np.float32)
    found = np.asarray(jax.jit(ours)(edges))
    np.testing.assert_allclose(found, expected, rtol=3e-7)
    assert (np.signbit(found) == np.signbit(expected))[expected == 0].all()


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_sine_and_cosine_have_the_derivatives_of_xlas(dtype):
    x = normal(50, dtype=dtype) * 3
    agree(lambda a: circular.sin(a) * circular.cos(2 * a), lambda a: lax.sin(a) * lax.cos(2 * a), x)
    mapped = jax.vmap(circular.sin)(x.reshape(5, 10))
    np.testing.assert_allclose(mapped, lax.sin(x).reshape(5, 10), rtol=1e-5, atol=1e-6)


def test_rsqrt_of_special_numbers():
    x = jnp.asarray(np.array([0.0, -0.0, np.inf, -1.0, np.nan, 4.0], np.float32))
    np.testing.assert_array_equal(jax.jit(pointwise.rsqrt.function)(x), np.array([np.inf, -np.inf, 0.0, np.nan, np.nan, 0.5], np.float32))
    np.testing.assert_allclose(jax.jit(pointwise.rsqrt.function)(np.float32(3e38)), 3e38**-0.5, rtol=1e-6)  # not exact by IEEE 754


# ---------------------------------------------------------------------- convolutions

CONVOLUTIONS = [  # images, channels, kernels, size, kernel, stride, padding, dilation
    (3, 2, 4, (7, 6), (3, 2), (1, 1), (1, 0), (1, 1)),
    (2, 3, 2, (9, 8), (3, 3), (2, 3), (1, 2), (1, 1)),
    (2, 3, 5, (6, 5), (1, 1), (1, 1), (0, 0), (1, 1)),
    (2, 3, 5, (6, 7), (1, 1), (2, 3), (1, 0), (1, 1)),
    (2, 1, 2, (11,), (4,), (3,), (2,), (1,)),
    (2, 2, 2, (9, 9), (2, 3), (1, 2), (1, 1), (2, 3)),
    (2, 2, 3, (5, 6, 4), (2, 3, 1), (2, 1, 2), (1, 0, 0), (1, 2, 1)),
]  # fmt: skip


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_gradients_of_a_convolution(case, dtype):
    images, channels, kernels, size, kernel, *window = case
    stride, padding, dilation = window
    x, w = normal(images, channels, *size, dtype=dtype), normal(kernels, channels, *kernel, dtype=dtype, seed=1)
    grad = normal(images, kernels, *convolution.output_sizes(size, kernel, *window), dtype=dtype, seed=2)

    def by_products(g, a):
        return convolution._weight_grad_by_products(g, a, w.shape, *window, 1)

    if set(kernel) == {1}:
        agree(lambda g, a: convolution._weight_grad_by_image(g, a, w.shape, stride, padding), by_products, grad, x)
    if set(dilation) == {1} and len(size) < 3:
        agree(lambda g, a: convolution._weight_grad_by_correlation(g, a, w.shape, stride, padding), by_products, grad, x)
        agree(
            lambda g, v: convolution._by_turned_kernel(g, v, x.shape, stride, padding),
            lambda g, v: convolution._spread(g, v, x.shape, stride, padding, dilation, 1),
            grad, w,
        )  # fmt: skip


# ---------------------------------------------------------------------- products


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_gradient_of_a_product(dtype):
    for shape, dim in (((3, 5), 1), ((70, 4), 0), ((3, 4), None), ((), None)):
        x = normal(*shape, dtype=dtype) * 0.1 + 1
        if dim is not None:  # no zero, one, two
            x = jnp.moveaxis(jnp.moveaxis(x, dim, -1).at[1, 2].set(0).at[2, 1:3].set(0), -1, dim)
        grad = normal(*(s for d, s in enumerate(shape) if dim is not None and d != dim), dtype=dtype, seed=1)
        dims = tuple(range(len(shape))) if dim is None else (dim,)

        def by_jax(g, a, dims=dims):
            return jax.vjp(lambda b: lax.reduce_prod(b, dims), a)[1](g.conj())[0].conj()

        agree(lambda g, a, dim=dim, dims=dims: cumulative._prod_gradient(g, a, lax.reduce_prod(a, dims), dim), by_jax, grad, x)


# ---------------------------------------------------------------------- samples


def test_samples_are_the_same_by_numpy_by_xla_and_in_c(monkeypatch):
    draws = np.random.RandomState(0).randint(0, 1 << 32, 16 * (normals._MANY + 3), np.uint64)
    draws[:32] = [0] * 16 + [2**24 - 1] * 16
    uniform, expected = np.empty((2, len(draws)), np.float32)
    box_muller.units(draws, uniform)
    box_muller.normals(uniform, expected)
    np.testing.assert_array_equal(normals.in_blocks(uniform), expected)
    monkeypatch.setattr(normals, "_in_c", False)
    np.testing.assert_array_equal(normals.in_blocks(uniform), expected)


# ---------------------------------------------------------------------- transposed arrays


def test_transposed_arrays_that_are_read_from_memory(monkeypatch):
    counted = []
    monkeypatch.setattr(compiled, "in_memory", lambda array: counted.append(array.shape) or transposed.in_memory(array))
    x, y = (torchgrad_jax.tensor(np.asarray(normal(*shape)), requires_grad=True) for shape in ((2, 512, 256), (512, 256)))
    with baseline_tier(False):
        for _ in range(3):  # the third time as one program
            out = x.transpose(1, 2) * y.t() + x.permute(2, 0, 1)[:, :1].sum(0)[:, :1] + torchgrad_jax.sin(y.T)
            seen = out.tolist()
    assert set(counted) == {(2, 256, 512), (256, 512)}
    a, b = np.asarray(x.tolist(), np.float32), np.asarray(y.tolist(), np.float32)
    expected = a.swapaxes(1, 2) * b.T + a.transpose(2, 0, 1)[:, :1].sum(0)[:, :1] + np.sin(b.T)
    np.testing.assert_allclose(seen, expected, rtol=1e-5, atol=1e-4)
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy()[1], b)


def test_a_transposed_array_that_a_product_reads_is_not_copied(monkeypatch):
    monkeypatch.setattr(compiled, "in_memory", lambda array: pytest.fail("copied"))
    x = torchgrad_jax.tensor(np.asarray(normal(512, 512)))
    with baseline_tier(False):
        for _ in range(3):
            (x @ x.T + 1).tolist()
