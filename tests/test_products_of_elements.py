"""Gradients of prod and cumprod: PyTorch's are made from the result divided by each factor, but where a factor is 0."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from side_by_side import like_pytorch  # noqa: E402 - needs torch

pytestmark = pytest.mark.operators

INF = float("inf")
FACTORS = {
    "ordinary": [[2.0, 3.0, -1.5], [5.0, 7.0, 0.5]], "one 0": [[2.0, 0.0, 3.0], [5.0, 7.0, 0.5]], "two 0": [[0.0, 0.0, 3.0], [5.0, 0.0, 0.5]],
    "infinite": [[2.0, INF, 3.0], [5.0, 7.0, 0.5]], "infinite and 0": [[2.0, INF, 3.0], [0.0, 7.0, 0.5]],
}  # fmt: skip
PRODUCTS = {
    "of all": lambda x: x.prod(), "of rows": lambda x: x.prod(1), "of columns": lambda x: x.prod(0, keepdim=True), "running": lambda x: x.cumprod(1),
    "running down": lambda x: x.cumprod(0),
}  # fmt: skip


def factors(m, kind="ordinary"):
    return m.tensor(FACTORS[kind], dtype=m.float64, requires_grad=True)


@like_pytorch
def test_of_all_kinds_of_factors(m):
    found = []
    for kind in FACTORS:
        for name, product in PRODUCTS.items():
            x = factors(m, kind)
            (product(x) * 0.5).sum().backward()
            found.append((name, kind, x.grad.tolist()))
    return found


@like_pytorch
def test_of_gradients(m):
    found = []
    for kind in ("ordinary", "one 0", "two 0"):
        for name, product in PRODUCTS.items():
            x = factors(m, kind)
            (g,) = m.autograd.grad(product(x).sin().sum(), x, create_graph=True)
            g.square().sum().backward()
            found.append((name, kind, [float(f"{v:.9g}") for v in x.grad.flatten().tolist()]))
    return found


@like_pytorch
def test_of_a_leaf_that_was_given_other_data(m):
    """The result that was saved is the former one."""
    found = []
    for name, product in PRODUCTS.items():
        x = factors(m)
        y = product(x)
        x.data = m.full((2, 3), 2.0, dtype=m.float64)
        y.sum().backward()
        found.append((name, x.grad.tolist()))
    return found


@like_pytorch
def test_of_numbers(m):
    x = m.tensor(3.0, requires_grad=True)
    return [m.autograd.grad(f(x), x)[0].item() for f in (lambda x: x.prod(), lambda x: x.prod(0), lambda x: x.cumprod(0))]


@like_pytorch
def test_the_gradient_of_a_single_factor_is_constant(m):
    found = []
    for product in (lambda x: x.prod(), lambda x: x.prod(0), lambda x: x.cumprod(0)):
        for values in (2.0, [2.0], [2.0, 3.0]):
            x = m.tensor(values, requires_grad=True)
            y = product(x)
            (grad,) = m.autograd.grad(y.sum(), x, create_graph=True)
            found.append((grad, grad.requires_grad, y.grad_fn._saved_self))
    return found
