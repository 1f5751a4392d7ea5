"""`torch.autograd.functional` held against JAX's own transforms of the same functions, and how its passes are recorded."""

from __future__ import annotations

import gc

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import torchgrad_jax as torch
from torchgrad_jax.autograd import basis, passes

pytestmark = pytest.mark.operators

functional = torch.autograd.functional
X, V = np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.25, -2.0])


def tensor(array):
    return torch.tensor(np.asarray(array))


def wave(m):
    """A function of a vector, for either namespace."""
    return lambda x: m.sin(x) * x[0] + m.exp(x[1] * x * 0.5)


def energy(m):
    return lambda x: (wave(m)(x) ** 2).sum()


@pytest.fixture(autouse=True)
def in_64_bits():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("repeats", (1, 4))
def test_all_six_agree_with_jax(repeats):
    for _ in range(repeats):
        x, v = tensor(X), tensor(V)
        found = [
            functional.jacobian(wave(torch), x), functional.jacobian(wave(torch), x, vectorize=True),
            functional.jacobian(wave(torch), x, vectorize=True, strategy="forward-mode"), functional.jacobian(wave(torch), x, create_graph=True),
            functional.hessian(energy(torch), x), functional.hessian(energy(torch), x, vectorize=True),
            functional.hessian(energy(torch), x, vectorize=True, outer_jacobian_strategy="forward-mode"),
            functional.hessian(energy(torch), x, create_graph=True), functional.vjp(wave(torch), x, v)[1], functional.jvp(wave(torch), x, v)[1],
            functional.vhp(energy(torch), x, v)[1], functional.hvp(energy(torch), x, v)[1],
        ]  # fmt: skip
    jacobian, hessian = jax.jacobian(wave(jnp))(X), jax.hessian(energy(jnp))(X)
    expected = [jacobian] * 4 + [hessian] * 4 + [V @ jacobian, jacobian @ V, V @ hessian, hessian @ V]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ("hessian", "vhp", "hvp", "jvp"))
def test_a_graph_that_comes_back_needs_no_python_but_its_own(name, interpreted):
    called = []

    def func(x):
        called.append(x)  # else the whole call is remembered
        return energy(torch)(x)

    def call():
        given = (tensor(X),) if name == "hessian" else (tensor(X), tensor(V))
        found = getattr(functional, name)(func, *given)
        return found if name == "hessian" else found[1]

    passes._kept.clear()
    first = call()
    assert list(passes._kept.values()) == [passes._SEEN_ONCE]
    second = call()
    (made,) = passes._kept.values()
    assert isinstance(made, passes.Passes)
    third = call()
    assert list(passes._kept.values()) == [made]
    np.testing.assert_allclose(first.numpy(), second.numpy(), rtol=1e-9)
    np.testing.assert_array_equal(second.numpy(), third.numpy())
    assert len(called) == 3


def test_passes_do_not_keep_values_alive():
    passes._kept.clear()
    called = []
    for _ in range(3):
        found = functional.hessian(lambda x: called.append(1) or energy(torch)(x), tensor(X))
    (made,) = passes._kept.values()
    expansion = made.whole._expansion
    assert not [o for o in gc.get_referents(expansion.operands, expansion.results, made.numbers) if not isinstance(o, (int, float))]
    assert found.shape == (3, 3)


def test_graphs_that_are_alike_but_for_the_input_that_they_come_from():
    x, v = tensor(X), (tensor(V), tensor(V))
    for i in (0, 0, 0, 1, 1, 1, 0):
        found = functional.vhp(lambda *given, i=i: (given[i] ** 3).sum(), (x, x), v)[1]
        np.testing.assert_allclose(found[i].numpy(), 6 * X * V)
        assert not found[1 - i].numpy().any()


def test_numbers_that_change_make_another_graph():
    for n in (2.0, 3.0, 2.0, 3.0, 2.0, 3.0, 4.0):
        found = functional.hessian(lambda x, n=n: (x**3 * n).sum(), tensor(X))
        np.testing.assert_allclose(found.numpy(), np.diag(6 * X * n))


def test_zero_and_minus_zero_are_two_numbers():
    for n in (0.0, -0.0) * 3:
        found = functional.hessian(lambda x, n=n: (1 / (x * x * n - 1)).sum(), tensor(X))
        np.testing.assert_allclose(found.numpy(), np.diag([-2 * n] * 3), atol=1e-12)


def test_a_hook_that_is_added_later_runs():
    seen = []
    for hooked in (False, False, False, True):

        def func(x, hooked=hooked):
            y = x * x
            if hooked:
                y.register_hook(lambda g: seen.append(tuple(g.shape)))
            return y.sum() * y[0]

        found = functional.hessian(func, tensor(X))
        expected = jax.hessian(lambda x: (x * x).sum() * (x * x)[0])(X)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)
    assert len(seen) == 4  # once for the gradient, then once for each of its elements


def test_a_hook_on_the_input_runs_for_every_element():
    seen = []

    def func(x):
        x.register_hook(lambda g: seen.append(tuple(g.shape)))
        return x * 2

    functional.jacobian(func, tensor(X))
    assert seen == [(3,)] * 3


def test_what_does_not_fit_in_memory_side_by_side_is_done_in_turns(monkeypatch):
    """As many elements at a time as fit."""
    expected = jax.jacobian(lambda x: jnp.tanh(x.reshape(5, 1) * jnp.arange(4.0)))(jnp.arange(5.0))
    x = torch.arange(5, dtype=torch.float64)
    monkeypatch.setattr(basis, "MOST_BYTES", 2000)
    monkeypatch.setattr(basis, "_kept", {})
    found = functional.jacobian(lambda x: torch.tanh(x.reshape(5, 1) * torch.arange(4, dtype=torch.float64)), x)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_an_error_leaves_nothing_behind():
    recorder = torch.runtime.recorder.per_thread.recorder

    def broken(x):
        y = x * 1
        z = (y * y).sum()
        y.add_(1)
        return z

    for _ in range(3):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            functional.hessian(broken, tensor(X))
        assert torch.runtime.recorder.per_thread.recorder is recorder
    np.testing.assert_allclose(functional.jacobian(wave(torch), tensor(X)).numpy(), jax.jacobian(wave(jnp))(X), rtol=1e-9)


def test_third_derivatives_depend_on_what_they_are_made_of_alone():
    x = tensor(X).requires_grad_()
    (first,) = torch.autograd.grad((x * x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    assert first.requires_grad and not second.requires_grad
    y = tensor(X).requires_grad_()
    (product,) = torch.autograd.grad((x * x * y).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(product.sum(), x, create_graph=True)
    assert torch.autograd.grad(second.sum(), x, allow_unused=True, retain_graph=True) == (None,)
    np.testing.assert_allclose(torch.autograd.grad(second.sum(), y)[0].numpy(), [2.0] * 3)


def test_a_vector_that_is_the_input_is_told_apart_from_one_that_is_not():
    x, v = tensor(X), tensor([2.0, 1.0, 3.0])
    for vector in (x, x, x, v, v, v):
        np.testing.assert_allclose(functional.hvp(lambda x: (x**3).sum(), x, vector)[1].numpy(), 6 * X * vector.numpy())
