"""The baseline tier's branches, loops and linear algebra against XLA."""

import itertools
from functools import partial

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from test_baseline_agreement import agree, assert_close, both, values

from torchgrad_jax.runtime.baseline import blocks, lanes, plan_of
from torchgrad_jax.runtime.native import handlers

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]


# ---------------------------------------------------------------------- control


@pytest.mark.parametrize("which", [-3, 0, 1, 2, 7])
def test_branches(which):
    branches = [lambda x: x + 1, lambda x: x * 2, lambda x: jnp.broadcast_to(x[0], x.shape)]
    agree(lambda i, x: lax.switch(i, branches, x), np.int32(which), values(np.float32, 3))
    agree(lambda i, x: lax.cond(i > 0, lambda x: (x, x[0]), lambda x: (-x, x[1]), x), np.int32(which), values(np.float32, 3))


def test_the_branch_of_a_platform_is_chosen_beforehand():
    function = lambda x: lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: jnp.sin(x) * 2)  # noqa: E731
    plan = plan_of(jax.make_jaxpr(function)(np.float32(1)))
    assert plan is not None and plan.size == 1 and plan.shape_free
    agree(function, values(np.float32, 4))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 5])
def test_scans(length, reverse):
    def body(carry, x):
        return (carry[0] * 0.5 + x, carry[1] + 1), (carry[0], jnp.broadcast_to(carry[1], (2,)))

    agree(lambda c, n, x: lax.scan(body, (c, n), x, reverse=reverse), values(np.float32, 3), np.int32(4), values(np.float32, (length, 3)), units=4)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 5])
@pytest.mark.parametrize("function", [lax.add, lax.mul])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_scans_that_fold_rows(dtype, function, length, reverse):
    wide = np.float32 if dtype is np.float16 else dtype

    def folding(collect):
        def body(carry, x):
            carry = function(carry, x.astype(wide))
            return carry, collect(carry)

        return lambda c, x: lax.scan(body, c, x, reverse=reverse)

    start, rows = values(wide, 3), values(dtype, (length, 3))
    agree(folding(lambda carry: carry.astype(dtype)), start, rows)
    agree(folding(lambda carry: carry * 2), start, rows)


def test_scans_that_fold_rows_are_one_call():
    def folded(c, x):
        return lax.scan(lambda c, x: (c + x, c + x), c, x)

    def sums(c, x):
        def body(c, x):
            c = c + x
            return c, c

        return lax.scan(body, c, x)

    x, start = values(np.float32, (200, 3)), values(np.float32, 3)
    plans = [plan_of(jax.make_jaxpr(function)(start, x)) for function in (folded, sums)]
    assert plans[1].cost < plans[0].cost / 20


def test_loops():
    agree(lambda x: lax.while_loop(lambda s: s[1] < 10, lambda s: (s[0] * 1.5, s[1] + 3), (x, 0)), values(np.float32, 3))
    agree(lambda x: lax.while_loop(lambda s: s < 0, lambda s: s + 1, x), np.int32(4))
    agree(lambda n, x: lax.fori_loop(0, n, lambda i, x: x + i, x), np.int32(4), values(np.float32, 3))
    agree(lambda x: lax.fori_loop(0, 6, lambda i, x: x.at[i].add(i), x), values(np.float32, 3))


def test_each_loop_of_a_batch_ends_by_itself():
    def steps(n, start):
        return lax.while_loop(lambda state: state[0] > 0, lambda state: (state[0] - 1, state[1] * 2.0), (n, start))

    agree(jax.vmap(steps), np.array([3, 0, 5]), np.ones(3))
    agree(jax.vmap(jax.vmap(steps, (0, None)), (None, 0)), np.array([3, 0, 5]), np.ones((2, 4)))


def test_functions_with_derivatives_of_their_own():
    @jax.custom_jvp
    def cube(x):
        return x**3

    cube.defjvp(lambda p, t: (cube(*p), 3 * p[0] ** 2 * t[0]))

    @jax.custom_vjp
    def double(x):
        return 2 * x

    double.defvjp(lambda x: (2 * x, None), lambda _, g: (g * 2,))
    x = values(np.float32, 5)
    gradient = jax.grad(lambda x: jnp.sum(cube(x) * double(x)))
    agree(lambda x: [cube(x), double(x), gradient(x), jax.checkpoint(jnp.abs)(x), jax.jit(jnp.abs)(x)], x, units=8)


# ---------------------------------------------------------------------- linear algebra

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
TOLERANCE = {"units": 2000, "least": 10.0}


def definite(dtype, *batch, size=4):
    a = values(dtype, (*batch, size, size))
    return (a @ np.conj(np.swapaxes(a, -1, -2)) + np.eye(size)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (3,), (0,), (2, 1)])
def test_factorizations(dtype, batch):
    a = definite(dtype, *batch)
    agree(lambda a: [lax.linalg.cholesky(a), lax.linalg.cholesky(jnp.tril(a), symmetrize_input=False)], a, **TOLERANCE)
    agree(lambda a: [*lax.linalg.lu(a), *lax.linalg.lu(a[..., :2]), *lax.linalg.lu(a[..., :2, :])], a, **TOLERANCE)
    agree(lambda a: [lax.linalg.eigh(a)[1], lax.linalg.eigh(a, lower=False, symmetrize_input=False)[1]], a, **TOLERANCE)
    agree(lambda a: lax.linalg.svd(a, compute_uv=False), a, **TOLERANCE)
    agree(lambda a: [jnp.abs(r) for full in (False, True) for r in lax.linalg.qr(a[..., :3], full_matrices=full)], a, **TOLERANCE)
    agree(lambda a: [jnp.abs(r) for full in (False, True) for r in lax.linalg.svd(a[..., :3], full_matrices=full)][:3], a, **TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4)])
def test_a_factorization_multiplied_out_is_the_matrix(dtype, shape):
    a = values(dtype, shape)
    units = {"units": 500, "least": 10.0}

    def products(a):
        q, r = lax.linalg.qr(a, full_matrices=False)
        u, s, vh = lax.linalg.svd(a, full_matrices=False)
        return [q @ r, (u * s[..., None, :]) @ vh]

    found, _ = both(products, a)
    for one in found:
        assert_close(one, a, **units)
    if shape[-1] == shape[-2]:
        (restored, vectors), _ = both(lambda a: [lax.linalg.eigh(a)[0], lax.linalg.eig(a, compute_left_eigenvectors=False)[1]], a)
        assert restored.shape == vectors.shape == shape


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6, 6), (6, 3), (2, 3, 6), (40, 40), (150, 150), (2, 150, 70), (70, 150), (520, 515)])
def test_exchanged_rows(dtype, shape):
    """The largest of each column comes first, also where the whole column is 0."""
    a = np.random.RandomState(0).standard_normal(shape).astype(dtype)
    if np.dtype(dtype).kind == "c":
        a = a + 1j * a[..., ::-1]
    a[..., :, 1] = 0
    agree(lambda a: list(lax.linalg.lu(a)), a, **TOLERANCE)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_householder_reflections(dtype):
    a = values(dtype, (2, 5, 3))

    def product(a):
        packed, taus = lax.linalg.geqrf(a) if hasattr(lax.linalg, "geqrf") else jnp.linalg.qr(a, "raw")
        return [packed, taus, lax.linalg.householder_product(packed, taus)]

    if hasattr(lax.linalg, "geqrf"):
        agree(product, a, **TOLERANCE)
    agree(lambda a: lax.linalg.householder_product(a, a[:, 0]), a, **TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("size", [4, 40, 150, 520])  # step by step, by blocks, and by BLAS
def test_triangular_systems(dtype, left, size):
    a = (values(dtype, (2, size, size)) / size + 3 * np.eye(size)).astype(dtype)
    b = values(dtype, (2, size, 3) if left else (2, 3, size))

    def solutions(a, b):
        for lower in (True, False):
            for transposed, conjugated, unit in ((False, False, False), (True, False, True), (True, True, False), (False, True, False)):
                yield lax.linalg.triangular_solve(
                    a, b, left_side=left, lower=lower, transpose_a=transposed, conjugate_a=conjugated, unit_diagonal=unit
                )

    agree(lambda a, b: list(solutions(a, b)), a, b, **TOLERANCE)
    agree(lambda a, b: next(solutions(a, b)), a[:0], b[:0])
    agree(lambda a, b: next(solutions(a, b)), np.zeros((0, 0), dtype), np.zeros((0, 3) if left else (3, 0), dtype))


def test_a_singular_triangular_system_is_no_error():
    a, b = np.array([[1, 0, 0], [2, 0, 0], [1, 1, 1]], np.float32), np.array([[1.0], [3.0], [5.0]], np.float32)
    agree(lambda a, b: jnp.isfinite(lax.linalg.triangular_solve(a, b, left_side=True, lower=True)), a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loops_for_matrices_do_numpys_steps(dtype):
    """Factors to the bit where the processor is told to round each step (`triangular.h`); solutions of systems but for that."""
    same = np.testing.assert_array_equal if handlers.vector_bits() else partial(np.testing.assert_allclose, rtol=1e3 * np.finfo(dtype).eps)
    random = np.random.RandomState(1)
    for rows, columns in ((9, 9), (9, 4), (4, 9), (1, 1)):
        a = random.standard_normal((4, rows, columns)).astype(dtype)
        a[1, :, 0], a[2, -1, 0], a[3, 0, -1] = 0, np.nan, np.inf
        made = [(a.copy(), np.zeros((4, min(rows, columns)), np.int32), np.zeros((4, rows), np.int32)) for _ in range(2)]
        with np.errstate(all="ignore"):
            blocks.factorize(*made[0])
            for matrix, pivots, order in zip(*made[1], strict=True):
                lanes.factorize(ord(a.dtype.char), matrix.reshape(-1), pivots, order, rows, columns)
        for one, other in zip(*made, strict=True):
            same(one, other)
    a = random.standard_normal((4, 9, 9)).astype(dtype)
    a = a @ a.mT
    a[1, 4, 4], a[2, 3, 1], a[3, 8, 8] = -1, np.nan, np.inf
    factors, steps = a.copy(), a.copy()
    with np.errstate(all="ignore"):
        blocks.cholesky(factors)
        for matrix in steps:
            lanes.cholesky(ord(a.dtype.char), matrix.reshape(-1), 9)
    same(factors, steps)
    systems, right = random.standard_normal((2, 6, 6)).astype(dtype), random.standard_normal((2, 6, 3)).astype(dtype)
    systems[1, 2, 2] = 0
    for turned, lower, unit in itertools.product((False, True), repeat=3):
        found, steps = right.copy(), right.copy()
        with np.errstate(all="ignore"):
            blocks.substitute(systems, found, turned, lower, unit)
            for system, one in zip(systems, steps, strict=True):
                lanes.substitute(ord(one.dtype.char), system.reshape(-1), one.reshape(-1), 6, 3, turned, lower, unit)
        np.testing.assert_allclose(found, steps, rtol=1e3 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("failing", [3, 70, 149])
def test_large_factors_by_halves(failing, dtype):
    """In whichever block a factor fails, it is NaN, and the others of the batch are not."""
    x = np.random.RandomState(0).standard_normal((2, 150, 150)).astype(dtype)
    x = x @ x.mT + 150 * np.eye(150, dtype=dtype)
    x[1, failing, failing] = -1
    (found,) = plan_of(jax.make_jaxpr(lax.linalg.cholesky)(x)).of([x])
    np.testing.assert_allclose(found[0], np.linalg.cholesky(x[0]), rtol=1e-3 if dtype == np.float32 else 1e-10, atol=1e-4)
    assert np.isnan(found[1][np.tril_indices(150)]).all() and not np.triu(found[1], 1).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_solving(dtype):
    a, b = definite(dtype, 2), values(dtype, (2, 4, 3))
    agree(lambda a, b: [jnp.linalg.solve(a, b), jnp.linalg.inv(a), jnp.linalg.det(a), *jnp.linalg.slogdet(a)], a, b, **TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_fails_is_nan_and_the_rest_of_the_batch_is_not(dtype):
    a = definite(dtype, 3)
    a[1] = -np.eye(4)
    agree(lambda a: lax.linalg.cholesky(a), a, **TOLERANCE)
    agree(lambda a: lax.linalg.cholesky(a[1]), a)
    a[1, 2, 2] = np.nan
    agree(lambda a: [lax.linalg.cholesky(a), lax.linalg.eigh(a)[1], lax.linalg.svd(a, compute_uv=False)], a, **TOLERANCE)
    agree(lambda a: [*lax.linalg.svd(a[1]), *lax.linalg.eigh(a[1]), *lax.linalg.eig(a[1], compute_left_eigenvectors=False)], a)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("lengths", [(6,), (5,), (1,), (4, 3)])
def test_fourier_transforms(dtype, lengths):
    x = values(dtype, (2, 4, 6))[..., : lengths[-1]][:, -lengths[0] if len(lengths) > 1 else 0 :]
    agree(lambda x: [lax.fft(x, kind, lengths) for kind in (lax.FftType.FFT, lax.FftType.IFFT)], x, units=32, least=8.0)
    agree(lambda x: lax.fft(x.real, lax.FftType.RFFT, lengths), x, units=32, least=8.0)
    agree(lambda x: lax.fft(x[..., : lengths[-1] // 2 + 1], lax.FftType.IRFFT, lengths), x, units=32, least=8.0)
