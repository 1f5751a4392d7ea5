"""Derivatives of derivatives that need no rules of JAX's: of matrix products and of functions of one number, against JAX's, whoever is asked for."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchgrad_jax as torch
from torchgrad_jax.declaration import factors, pulling
from torchgrad_jax.declaration.factors import SLOPES, OfMatrices, OfNumbers

pytestmark = [pytest.mark.operators, pytest.mark.usefixtures("jax_in_64_bits")]
UNARY = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "exp": jnp.exp, "sin": jnp.sin, "cos": jnp.cos}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def with_torch(function, order, given_arrays, kept=None):
    arrays = [torch.tensor(a, requires_grad=i in (kept or range(len(given_arrays)))) for i, a in enumerate(given_arrays)]
    asked = [a for a in arrays if a.requires_grad]
    value = (function(*arrays) ** 3).sum()
    for left in range(order, 0, -1):
        found = torch.autograd.grad(value, asked, create_graph=left > 1)
        value = sum([(g * g).sum() for g in found]) if left > 1 else None
    return [f.detach().numpy() for f in found]


def with_jax(function, order, given_arrays, kept=None):
    places = list(kept or range(len(given_arrays)))

    def of_asked(asked):
        arrays = list(given_arrays)
        for i, a in zip(places, asked, strict=True):
            arrays[i] = a
        return (function(*arrays) ** 3).sum()

    scalar = of_asked
    for _ in range(order - 1):
        scalar = (lambda f: lambda asked: sum([(g * g).sum() for g in jax.grad(f)(asked)]))(scalar)
    return jax.grad(scalar)([jnp.asarray(given_arrays[i]) for i in places])


def assert_alike(ours, jaxs, order, arrays, kept=None):
    for a, b in zip(with_torch(ours, order, arrays, kept), with_jax(jaxs, order, arrays, kept), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * max(1.0, float(np.abs(b).max())))


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("kept", [None, (0,), (1,)])
def test_products_of_matrices_to_the_third_derivative(order, kept):
    a, b, c = 0.4 * numbers(3, 4), 0.4 * numbers(4, 5, seed=1), 0.4 * numbers(5, seed=2)
    assert_alike(lambda a, b: a @ b, jnp.matmul, order, [a, b], kept)
    assert_alike(lambda a, b: torch.nn.functional.linear(a, b.T, torch.tensor(c)), lambda a, b: a @ b + c, order, [a, b], kept)
    a, b = 0.4 * numbers(2, 3, 4), 0.4 * numbers(2, 4, 2, seed=1)
    assert_alike(torch.bmm, jnp.matmul, order, [a, b], kept)
    assert_alike(lambda a, b: torch.bmm(b.mT, a.mT), lambda a, b: jnp.matmul(b.mT, a.mT), order, [a, b], kept)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_functions_of_one_number_to_the_fourth_derivative(name, order):
    """The fourth of some are beyond what is declared, and JAX's again."""
    assert set(UNARY) == set(SLOPES)
    assert_alike(getattr(torch, name), UNARY[name], order, [0.5 * numbers(3, 4)])


def test_a_matrix_times_itself():
    assert_alike(lambda a: a @ a, lambda a: a @ a, 3, [0.4 * numbers(4, 4)])


@pytest.mark.parametrize("operation", ["tanh", "mm", "bmm", "linear"])
def test_the_rules_of_jax_are_not_asked(operation, interpreted, monkeypatch):
    monkeypatch.setattr(pulling, "pull", lambda *given: pytest.fail("a derivative was traced by JAX's rules"))
    x, w = torch.tensor(numbers(2, 6, 7, seed=3)), torch.tensor(numbers(2, 7, 11, seed=4))
    x, w = (x, w) if operation == "bmm" else (x[0], w[0])
    x, w = (t.float().clone().requires_grad_() for t in (x, w))
    given_operands = {"tanh": (x,), "linear": (x, w.mT)}.get(operation, (x, w))
    value = getattr(torch.nn.functional if operation == "linear" else torch, operation)(*given_operands)
    for variable in (x, x if operation == "tanh" else w):  # a product's gradient depends on the other factor
        (value,) = torch.autograd.grad(value, variable, torch.full_like(value, 0.5), create_graph=True)
    assert value.sum().isfinite() and value.abs().sum() > 0


@settings(max_examples=40, deadline=None)
@given(st.booleans(), st.booleans(), st.integers(2, 3), st.sampled_from([0, 1]))
def test_the_gradient_of_a_product_is_the_product_that_it_says(left, right, ndim, operand):
    shapes = [(2,) * (ndim - 2) + ((4, 3) if left else (3, 4)), (2,) * (ndim - 2) + ((5, 4) if right else (4, 5))]
    operands = [jnp.asarray(numbers(*shape, seed=i)) for i, shape in enumerate(shapes)]
    one = OfMatrices(0, 1, left, right)
    made, pull = jax.vjp(one, *operands)
    grad = jnp.asarray(numbers(*made.shape, seed=2))
    ((other,), (found,)) = factors.gradients(one, [operand])
    np.testing.assert_allclose(found(grad, operands[other]), pull(grad)[operand], rtol=1e-12, atol=1e-12)
    form = factors.forms([found])([])
    np.testing.assert_allclose(form.function(np.asarray(grad), np.asarray(operands[other])), pull(grad)[operand], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_gradient_of_numbers_is_of_the_form_that_it_says(at):
    given_operands = [jnp.asarray(numbers(5, seed=i)) for i in range(3)]
    one = OfNumbers(tuple({0, 1, 2} - {at}), at, (lambda r: 1 - r * r, lambda r: -2 * r, -2.0))
    for operand, more in product(range(3), range(3)):
        made, pull = jax.vjp(one, *given_operands)
        saves, (found,) = factors.gradients(one, [operand])
        operands = [made * 0.3, *[given_operands[i] for i in saves]]
        np.testing.assert_allclose(found(*operands), pull(made * 0.3)[operand], rtol=1e-12)
        if more < len(operands) and (again := factors.gradients(found, [more])) is not None:
            made_again, pull_again = jax.vjp(found, *operands)
            saves, (second,) = again
            np.testing.assert_allclose(second(made_again, *[operands[i] for i in saves]), pull_again(made_again)[more], rtol=1e-12)
    assert factors.gradients(one._replace(slopes=(lambda r: r,)), [at]) is None
