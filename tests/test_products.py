"""Matrix products within compiled programs are BLAS's, where it is found: the same numbers as JAX's, and nothing is transposed for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax import numpy as jnp
from jax.extend.core import jaxpr_as_fun

import torchgrad_jax as torch
from torchgrad_jax.runtime import baseline_tier, execution_mode
from torchgrad_jax.runtime._jax_compat import call_x64
from torchgrad_jax.runtime.baseline import jaxprs_in
from torchgrad_jax.runtime.compiling import foreign
from torchgrad_jax.runtime.compiling.exchanges import exchanged_calls
from torchgrad_jax.runtime.compiling.products import by_blas
from torchgrad_jax.runtime.native import blas
from torchgrad_jax.runtime.rolling import rolled

F = torch.nn.functional
needs_blas = pytest.mark.skipif(not foreign.knows_products(), reason="the core in pure Python, or a NumPy whose BLAS is not found")


def equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for inner in jaxprs_in(eqn):
            yield from equations(inner)


def checked(function, *arrays):
    """The names of the equations of `function`'s jaxpr by BLAS, whose results are those of JAX's products."""

    def call():
        closed = jax.make_jaxpr(function)(*arrays)
        rewritten = by_blas(closed)
        for found, wanted in zip(jax.jit(jaxpr_as_fun(rewritten))(*arrays), jax.jit(jaxpr_as_fun(closed))(*arrays), strict=True):
            assert found.shape == wanted.shape and found.dtype == wanted.dtype
            tolerance = 1e-5 if found.dtype == np.float32 else 1e-12
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * 10)
        return list(equations(rewritten.jaxpr))

    return call_x64(call)


def numbers(*shape, dtype=np.float32, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype(dtype)


SIDES = st.integers(4, 9)


@needs_blas
@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 3), max_size=2), SIDES, SIDES, SIDES, st.booleans(), st.booleans(), st.booleans(), st.sampled_from(["f", "d"]))
def test_matrices_and_batches_that_lie_either_way(batch, m, n, k, left, right, turned, dtype):
    x = numbers(*batch, *((k, m) if left else (m, k)), dtype=dtype)
    y = numbers(*batch, *((n, k) if right else (k, n)), dtype=dtype, seed=1)

    def product(x, y):
        out = jnp.matmul(x.mT if left else x, y.mT if right else y)
        return out.mT if turned else out

    names = checked(product, x, y)
    assert "ffi_call" in names and "dot_general" not in names and "transpose" not in names


@needs_blas
def test_what_contracts_any_dimension():
    x, y = numbers(3, 5, 8), numbers(6, 8, seed=1)
    for numbers_of in ((((2,), (1,)), ((), ())), (((0,), (0,)), ((), ()))):
        given = (x, y) if numbers_of[0] == ((2,), (1,)) else (x.transpose(2, 0, 1), y.T)
        names = checked(lambda x, y, d=numbers_of: lax.dot_general(x, y, d), *given)
        assert "ffi_call" in names
    # The first dimension of the result comes from between the others: it is read where it lies, or copied first.
    checked(lambda x, y: lax.dot_general(x.transpose(1, 2, 0), y, (((1,), (1,)), ((), ()))), x, y)
    checked(lambda x, y: lax.dot_general(x, y, (((1,), (1,)), ((0,), (0,)))), numbers(4, 5, 8), numbers(4, 5, 7, seed=1))


@needs_blas
def test_what_stays_xlas():
    for x, y in (
        (numbers(4, 3), numbers(3, 5)), (numbers(1, 64), numbers(64, 64)), (numbers(0, 8), numbers(8, 8)), (numbers(512, 512), numbers(512, 512)),
        (np.ones((8, 8), np.int32), np.ones((8, 8), np.int32)), (numbers(8, 8).astype(np.complex64), numbers(8, 8).astype(np.complex64)),
    ):  # fmt: skip
        assert "ffi_call" not in checked(jnp.matmul, x, y)


@needs_blas
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("sizes", [(1, 130, 67, 65), (1, 33, 200, 300), (3, 65, 129, 64), (40, 40, 33, 36), (1, 4, 900, 600), (1, 64, 64, 1030)])
def test_what_is_cut_into_blocks(sizes, dtype):
    batch, m, n, k = sizes
    x, y = numbers(batch, m, k, dtype=dtype), numbers(batch, k, n, dtype=dtype, seed=1)
    checked(lambda x, y: jnp.matmul(x, y), x, y)
    checked(lambda x, y: jnp.matmul(x.mT, y.mT), x.swapaxes(1, 2).copy(), y.swapaxes(1, 2).copy())
    checked(lambda x, y: (jnp.matmul(x, y.mT), jnp.matmul(x, y.mT).mT), x, y.swapaxes(1, 2).copy())
    checked(lambda x, y: jnp.matmul(x.mT, y).mT, x.swapaxes(1, 2).copy(), y)


@needs_blas
def test_whoever_helps_the_bits_are_the_same():
    x, y = numbers(150, 200), numbers(200, 170, seed=1)
    product = call_x64(lambda: jax.jit(jaxpr_as_fun(by_blas(jax.make_jaxpr(jnp.matmul)(x, y)))))
    found = {np.asarray(product(x, y)[0]).tobytes() for _ in range(50)}
    with ThreadPoolExecutor(4) as pool:  # the pool of XLA's threads is in use by others
        found |= set(pool.map(lambda _: np.asarray(product(x, y)[0]).tobytes(), range(50)))
    assert len(found) == 1


@needs_blas
def test_within_loops_and_branches():
    w = numbers(8, 8) / 8

    def loop(x, w):
        found, _ = lax.scan(lambda x, _: (jnp.tanh(x @ w.T), None), x, None, length=4)
        return lax.cond(found[0, 0] > 0, lambda a: a @ w, lambda a: a @ w.T, found)

    names = checked(loop, numbers(8, 8, seed=1), w)
    assert names.count("ffi_call") == 3 and "dot_general" not in names


@needs_blas
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=9), st.sets(st.integers(0, 9), max_size=3))
def test_products_and_transposes_in_any_order(steps, wanted):
    def program(x, y):
        made = [x, y]
        for multiplies, i, j in steps:
            one, other = made[i % len(made)], made[j % len(made)]
            made.append(one @ other if multiplies else one.mT)
        return (made[-1], *[made[i % len(made)] for i in sorted(wanted)])

    checked(program, numbers(4, 4) / 4, numbers(4, 4, seed=1) / 4)


@needs_blas
def test_a_product_of_a_transposed_product():
    x, y = numbers(2, 6, 8), numbers(2, 8, 6, seed=1)
    names = checked(lambda x, y: jnp.matmul(jnp.matmul(x, y).mT, x).mT @ jnp.matmul(x, y).mT, x, y)
    assert names.count("ffi_call") == 4 and "dot_general" not in names


@needs_blas
def test_a_product_that_is_read_as_it_is_too():
    names = checked(lambda x, y: ((x @ y).T, x @ y, (x @ y).T + 1), numbers(8, 8), numbers(8, 8, seed=1))
    assert "dot_general" not in names

    def shared(x, y):
        p = x @ y
        return p.T, p + 1, p.T @ x

    assert checked(shared, numbers(8, 8), numbers(8, 8, seed=1)).count("ffi_call") == 2


def programs_of(monkeypatch, function, turns=3):
    """What `exchanged_calls` finds in the programs that XLA compiles of some calls of `function`, whose results are the interpreter's."""
    found = []
    from torchgrad_jax.runtime.compiling import compiled

    def noted(calls, outputs):
        found.append(([c.signature.bop.name for c in calls], *exchanged_calls(calls, outputs)))
        return found[-1][1:]

    monkeypatch.setattr(compiled, "exchanged_calls", noted)
    wanted = [np.array(a) for a in function()]
    with baseline_tier(False), execution_mode("fused"):
        for _ in range(turns):
            for a, b in zip(function(), wanted, strict=True):
                np.testing.assert_allclose(np.asarray(a), b, rtol=2e-5, atol=2e-5)
    return found


LAYERS = (lambda x, w: x @ w.t(), lambda x, w: F.linear(x, w), lambda x, w: torch.matmul(x, w.mT), lambda x, w: (w @ x.t()).t())


@needs_blas
@pytest.mark.parametrize("which", range(4))
def test_a_layer_and_its_gradients_transpose_nothing(monkeypatch, which):
    x, w = (torch.tensor(numbers(6, 8 + which, seed=s), requires_grad=True) for s in (1, 2))

    def step():
        x.grad = w.grad = None
        out = torch.tanh(LAYERS[which](x, w))
        out.sum().backward()
        return out.detach().numpy(), x.grad.numpy(), w.grad.numpy()

    programs = programs_of(monkeypatch, step)
    assert programs
    for names, exchanged, same in programs:
        views = [name for name in names if name.rstrip("0").removesuffix("Backward").lower() in ("t", "transpose")]
        read = sum(len(e.exchanged.inputs) for e in exchanged.values())
        assert not views or read + len(same) >= len(views)


@needs_blas
def test_views_that_others_read_too(monkeypatch):
    x, y = (torch.tensor(numbers(8, 8, seed=s), requires_grad=True) for s in (1, 2))

    def step():
        x.grad = y.grad = None
        p = x @ y.t()
        q = p.t()
        out = (q @ x).sum() + (q * 2).sum() + (y.t() + 1).sum() + (p.t() @ p.t()).sum()
        out.backward()
        return p.detach().numpy(), q.detach().numpy(), x.grad.numpy(), y.grad.numpy(), (q @ q.t()).detach().numpy()

    assert programs_of(monkeypatch, step)


def test_without_blas_products_are_xlas(monkeypatch):
    monkeypatch.setattr("torchgrad_jax.runtime.compiling.products.knows_products", lambda: False)
    monkeypatch.setattr("torchgrad_jax.runtime.compiling.exchanges.knows_products", lambda: False)
    assert "ffi_call" not in checked(lambda x, y: x @ y.T, numbers(8, 8), numbers(8, 8, seed=1))
    x = torch.tensor(numbers(7, 11), requires_grad=True)
    with baseline_tier(False):
        (x @ x.t()).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.broadcast_to(2 * numbers(7, 11).sum(0), (7, 11)), rtol=1e-5, atol=1e-5)


def test_a_blas_that_gives_other_numbers_is_not_used(monkeypatch):
    monkeypatch.setattr(blas.numpy_blas, "found", lambda names: None)
    assert blas._routine("s") is None
    if foreign.knows_products():
        import ctypes

        wrong = ctypes.CFUNCTYPE(None)(lambda *given: None)
        monkeypatch.setattr(blas.numpy_blas, "found", lambda names: wrong)
        assert blas._routine("s") is None


@needs_blas
def test_in_loops_of_programs_too(monkeypatch):
    x, w, b = (torch.tensor(numbers(*shape, seed=5) / 4) for shape in ((6, 9), (9, 9), (9,)))
    w.requires_grad_()
    found = []
    monkeypatch.setattr(rolled, "exchanged_calls", lambda *given: found.append(exchanged_calls(*given)) or found[-1])

    def run(count):
        w.grad, h = None, x
        first = x @ w.t()  # before the loop, and read by it
        for _ in range(count):
            h = torch.tanh(F.linear(h, w, b) + first) @ w.mT
        (h.sum() + first.sum()).backward()
        return h.detach().numpy(), w.grad.numpy()

    lengths = [12, 17, 14, 21, 19, 16, 12]
    wanted = [run(count) for count in lengths]
    with baseline_tier(False), execution_mode("fused"):
        for count, expected in zip(lengths, wanted, strict=True):
            for a, e in zip(run(count), expected, strict=True):
                np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-4)
    assert any(exchanged for exchanged, _ in found), "no program had a loop, or its loop transposes"


@needs_blas
@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16], ids=str)
def test_of_half_precision_are_those_of_float32_rounded_once(dtype):
    x, y = numbers(3, 9, 40).astype(dtype), numbers(3, 40, 7, seed=1).astype(dtype)
    for a, b in ((x, y), (x[0], y[0]), (x[0].T.copy().T, y[0].T.copy().T)):
        for preferred in (dtype, np.float32):
            product = lambda a, b, preferred=preferred: jnp.matmul(a, b, preferred_element_type=preferred)  # noqa: E731
            rewritten = by_blas(jax.make_jaxpr(product)(a, b))
            (found,) = call_x64(lambda rewritten=rewritten, a=a, b=b: jax.jit(jaxpr_as_fun(rewritten))(a, b))
            wide = np.matmul(a.astype(np.float32), b.astype(np.float32))
            assert "dot_general" not in list(equations(rewritten.jaxpr)) and found.dtype == preferred
            np.testing.assert_allclose(
                np.asarray(found, np.float32), wide, rtol=1e-5 if preferred == np.float32 else 1e-3 if dtype == np.float16 else 8e-3, atol=1e-5
            )
