"""Convolutions are made by loops of C's, where they are compiled: the numbers of a convolution written out in NumPy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax import lax
from jax import numpy as jnp
from jax.extend.core import jaxpr_as_fun
from ways import WAYS

import torchgrad_jax as torch
from torchgrad_jax.runtime.baseline import jaxprs_in, plan_of, quietly
from torchgrad_jax.runtime.compiling import foreign
from torchgrad_jax.runtime.compiling.convolutions import by_loops

pytestmark = pytest.mark.operators

needs_loops = pytest.mark.skipif(not foreign.knows_convolutions(), reason="the core in pure Python")


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def written_out(x, kernel, strides, padding, apart, dilation):
    """A convolution in float64, tap by tap."""
    dims = range(x.ndim - 2)
    sizes = [(n - 1) * a + 1 + low + high for n, a, (low, high) in zip(x.shape[2:], apart, padding, strict=True)]
    whole = np.zeros((*x.shape[:2], *[max(n, 0) for n in sizes]))
    for at in np.ndindex(*x.shape[2:]):
        to = [at[i] * apart[i] + padding[i][0] for i in dims]
        if all([0 <= to[i] < sizes[i] for i in dims]):
            whole[(..., *to)] = x[(..., *at)]
    spans = [(n - 1) * d + 1 for n, d in zip(kernel.shape[2:], dilation, strict=True)]
    counts = [(n - span) // stride + 1 if n >= span else 0 for n, span, stride in zip(sizes, spans, strides, strict=True)]
    if min(counts) < 1:
        return None
    made = np.zeros((x.shape[0], kernel.shape[0], *counts))
    for tap in product(*map(range, kernel.shape[2:])):
        part = [slice(tap[i] * dilation[i], tap[i] * dilation[i] + (counts[i] - 1) * strides[i] + 1, strides[i]) for i in dims]
        made += np.einsum("bc...,oc->bo...", whole[(..., *part)], kernel[(..., *tap)])
    return made


def convolution(strides, padding, apart, dilation):
    order = tuple(range(len(strides) + 2))
    numbering = lax.ConvDimensionNumbers(order, order, order)
    return lambda x, kernel: lax.conv_general_dilated(x, kernel, strides, padding, apart, dilation, dimension_numbers=numbering)


def primitives(jaxpr):
    return [name for eqn in jaxpr.eqns for name in (eqn.primitive.name, *[n for inner in jaxprs_in(eqn) for n in primitives(inner)])]


def by_ours(function, *arrays):
    """Its result, which is the interpreter's to the bit, and the names of the primitives."""
    original = jax.make_jaxpr(function)(*arrays)
    closed = by_loops(original)
    found, names = np.asarray(jax.jit(jaxpr_as_fun(closed))(*arrays)[0]), primitives(closed.jaxpr)
    if "ffi_call" in names:
        plan = plan_of(original)
        assert plan is not None
        np.testing.assert_array_equal(quietly(False, plan, *arrays)[0], found)
    return found, names


PAIRS = st.tuples(st.integers(-2, 4), st.integers(-2, 4))


@st.composite
def cases(draw):
    dims = draw(st.integers(1, 2))

    def each(strategy):
        return tuple(draw(st.tuples(*[strategy] * dims)))

    batch, channels, to = draw(st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(1, 18)))
    options = each(st.integers(1, 3)), each(PAIRS), each(st.integers(1, 3)), each(st.integers(1, 2))
    return (batch, channels, *each(st.integers(1, 19))), (to, channels, *each(st.integers(1, 5))), options


@needs_loops
@settings(max_examples=40, deadline=None)
@given(cases())
def test_images_and_lines_are_convolved(case):
    """With strides, dilations of both, and zeros around or edges cut off."""
    shape, kernel_shape, options = case
    x, kernel = numbers(*shape), numbers(*kernel_shape, seed=1)
    expected = written_out(x, kernel, *options)
    assume(expected is not None)
    found, names = by_ours(convolution(*options), x, kernel)
    assume(max(kernel.shape[-1], expected.shape[-1]) >= 6)  # else it stays XLA's, which reads beyond images of which edges are cut off
    assert names.count("ffi_call") == 1 and "conv_general_dilated" not in names
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@needs_loops
@settings(max_examples=25, deadline=None)
@given(cases(), st.booleans(), st.booleans())
def test_the_gradient_of_a_kernel(case, turned_image, turned_gradient):
    """As JAX says it, whether it is seen that batch and channels were exchanged or not."""
    shape, kernel_shape, (strides, padding, apart, dilation) = case
    x, kernel = numbers(*shape), numbers(*kernel_shape, seed=1)
    made = written_out(x, kernel, strides, padding, apart, dilation)
    assume(made is not None)
    grad = numbers(*made.shape, seed=2)
    expected = written_out(x.swapaxes(0, 1), grad.swapaxes(0, 1), dilation, padding, apart, strides)
    given = [a if turned else a.swapaxes(0, 1) for a, turned in ((x, turned_image), (grad, turned_gradient))]

    def gradient(x, grad):
        x, grad = (jnp.swapaxes(a, 0, 1) if turned else a for a, turned in ((x, turned_image), (grad, turned_gradient)))
        return convolution(dilation, padding, apart, strides)(x, grad)

    found, names = by_ours(gradient, *given)
    assume(max(grad.shape[-1], expected.shape[-1]) >= 6)
    assert names.count("ffi_call") == 1 and "conv_general_dilated" not in names
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)


@needs_loops
@pytest.mark.parametrize(
    "shape, to, kernel, stride, padding",
    [
        ((1, 24, 30, 30), 40, (3, 3), (2, 2), (1, 1)),  # of one image, bands of rows, and of the kernel's channels
        ((1, 96, 7, 33), 72, (1, 2), (1, 2), (0, 0)),
        ((2, 40, 16, 16), 50, (1, 1), (1, 1), (0, 0)),  # as one line, where it lies
        ((3, 33, 7, 8), 20, (1, 1), (1, 1), (0, 0)),
        ((9, 32, 3, 4), 20, (1, 1), (1, 1), (0, 0)),  # packed
        ((2, 24, 5, 7), 36, (1, 1), (1, 1), (0, 0)),  # of vectors that are not whole
        ((5, 16, 12, 17), 40, (1, 1), (2, 2), (1, 1)),
    ],
    ids=str,
)
def test_few_images_of_many_channels(shape, to, kernel, stride, padding):
    x, weight = torch.tensor(numbers(*shape), requires_grad=True), torch.tensor(numbers(to, shape[1], *kernel, seed=1), requires_grad=True)
    options = stride, [(n, n) for n in padding], (1, 1), (1, 1)
    made = torch.nn.functional.conv2d(x, weight, stride=stride, padding=padding)
    grad = numbers(*made.shape, seed=2)
    made.backward(torch.tensor(grad))
    of_weight = written_out(x.numpy(force=True).swapaxes(0, 1), grad.swapaxes(0, 1), (1, 1), options[1], (1, 1), stride).swapaxes(0, 1)
    turned, around = (
        weight.numpy(force=True)[:, :, ::-1, ::-1].swapaxes(0, 1),
        [(k - 1 - p, n + k - 1 - p) for n, k, p in zip(shape[2:], kernel, padding, strict=True)],
    )
    of_x = written_out(grad, turned, (1, 1), around, stride, (1, 1))[:, :, : shape[2], : shape[3]]
    np.testing.assert_allclose(made.detach(), written_out(x.numpy(force=True), weight.numpy(force=True), *options), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weight.grad, of_weight[:, :, : kernel[0], : kernel[1]], rtol=1e-4, atol=5e-4)
    np.testing.assert_allclose(x.grad, of_x, rtol=1e-4, atol=5e-4)


@needs_loops
def test_what_is_no_number_reaches_only_what_reads_it():
    """Neither through the zeros around an image nor through what is computed besides."""
    x, kernel = numbers(2, 3, 9, 11), numbers(4, 3, 3, 3, seed=1)
    x[1, 2, 4, 10], x[0, 0, 0, 0] = np.nan, np.inf
    options = (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1)
    expected = written_out(x, kernel, *options)
    np.testing.assert_array_equal(np.isfinite(by_ours(convolution(*options), x, kernel)[0]), np.isfinite(expected))
    grad = numbers(2, 4, 9, 11, seed=2)

    def gradient(x, grad):
        return convolution((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1))(jnp.swapaxes(x, 0, 1), jnp.swapaxes(grad, 0, 1))

    wanted = written_out(x.swapaxes(0, 1), grad.swapaxes(0, 1), *options)
    np.testing.assert_array_equal(np.isnan(by_ours(gradient, x, grad)[0]), np.isnan(wanted))


@needs_loops
def test_whoever_helps_the_bits_are_the_same():
    x, kernel, grad = numbers(24, 8, 20, 20), numbers(16, 8, 3, 3, seed=1), numbers(24, 16, 20, 20, seed=2)
    plain = convolution((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1))

    def both(x, kernel, grad):
        return plain(x, kernel), plain(jnp.swapaxes(x, 0, 1), jnp.swapaxes(grad, 0, 1))

    run = jax.jit(jaxpr_as_fun(by_loops(jax.make_jaxpr(both)(x, kernel, grad))))

    def bits(_):
        return b"".join([np.asarray(out).tobytes() for out in run(x, kernel, grad)])

    found = {bits(0) for _ in range(20)}
    with ThreadPoolExecutor(4) as pool:
        found |= set(pool.map(bits, range(20)))
    assert len(found) == 1


def test_what_stays_xla_s():
    x, kernel = numbers(2, 4, 6, 6), numbers(4, 2, 3, 3, seed=1)
    grouped = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", feature_group_count=2)
    found, names = by_ours(lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", feature_group_count=2), x, kernel)
    assert "ffi_call" not in names
    np.testing.assert_allclose(found, grouped, rtol=1e-5, atol=1e-5)
    half = by_ours(lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME"), x.astype(np.float16), numbers(4, 4, 3, 3).astype(np.float16))
    assert "ffi_call" not in half[1]
    volume = by_ours(lambda x, k: lax.conv_general_dilated(x, k, (1, 1, 1), "SAME"), numbers(1, 2, 3, 3, 3), numbers(2, 2, 2, 2, 2))
    assert "ffi_call" not in volume[1]


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"padding": 2, "dilation": 2}, {"stride": (2, 3), "padding": (0, 2)}], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_programs_of_tensors(options, transposed):
    """Results and gradients of what is compiled, by these loops, and of float64, by XLA's convolutions."""
    function = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d

    def run(dtype):
        x, w = (torch.tensor(a, dtype=dtype, requires_grad=True) for a in (numbers(3, 5, 9, 8), numbers(5, 5, 3, 3, seed=7)))
        with WAYS["compiled"]():
            y = function(x, w, torch.ones(5, dtype=dtype), **options)
            (y * y).sum().backward()
            return [t.detach().numpy() for t in (y, x.grad, w.grad)]

    for a, b in zip(run(torch.float32), run(torch.float64), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-3)
