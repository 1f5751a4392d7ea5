"""What has no derivative, or none of second order, and says so when a backward pass comes to it."""

from __future__ import annotations

import pytest
from side_by_side import leaf, like_pytorch


@pytest.mark.parametrize("name", ["asinh", "acosh", "atanh", "arcsinh", "arccosh", "arctanh"])
def test_inverse_hyperbolic_functions_in_place_have_no_derivative(name):
    @like_pytorch
    def check(m):
        x = leaf(m, 1.25, 1.5) if "cosh" in name else leaf(m, 0.25, 0.5)
        y = getattr(x * 1, name + "_")()
        assert getattr(x, name)().grad_fn is not None
        seen = [y.detach(), y.grad_fn.name(), [n for n in dir(y.grad_fn) if n.startswith("_saved")]]
        with pytest.raises(NotImplementedError) as raised:
            y.sum().backward()
        return seen, str(raised.value)

    check()


@like_pytorch
def test_the_refusal_reaches_through_a_view(m):
    y = leaf(m, 1.5, 2.0) * 1
    y[:1].acosh_()
    y.sum().backward()


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions_have_no_derivative_in_their_first_argument(name):
    @like_pytorch
    def check(m):
        x, y = leaf(m, 1.0, 2.0), leaf(m, 2.0, 3.0)
        getattr(m, name)(x.detach(), y).sum().backward()
        out = getattr(m, name)(x, y)
        seen = [out, y.grad, len(out.grad_fn.next_functions)]
        with pytest.raises(NotImplementedError) as raised:
            out.sum().backward()
        return seen, str(raised.value)

    check()


PRODUCTS = {
    "scatter_reduce": lambda m, x, s, i: x.scatter_reduce(0, i, s, "prod"),
    "index_reduce": lambda m, x, s, i: x.index_reduce(0, i, s, "prod"),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("content", [(1.0, 0.0), (0.0, 0.0), (1.0, 2.0)], ids=str)
def test_products_with_several_zeros_in_one_place_are_differentiated_once(name, content):
    def check(m):
        x, s = leaf(m, 1.0, 2.0), leaf(m, *content)
        grads = m.autograd.grad(PRODUCTS[name](m, x, s, m.tensor([0, 0])).sum(), (x, s), create_graph=True)
        found = [g.tolist() for g in grads]
        try:
            return found, [g.tolist() for g in m.autograd.grad(sum((g**2).sum() for g in grads), (x, s))]
        except RuntimeError as error:
            return found, str(error), grads[1].grad_fn.name(), grads[0].grad_fn.name() == "torch::autograd::Error"

    import torch

    import torchgrad_jax

    theirs = check(torch)
    assert check(torchgrad_jax) == theirs
    assert (len(theirs) == 4) == (content == (0.0, 0.0))


@like_pytorch
def test_delayed_errors_wait_for_backward(m):
    error = m._C._functions.DelayedError
    x = leaf(m, 1.0, 2.0)
    y, z = error("not now", 2)(x, m.ones(1))
    return error("never", 1)(m.ones(1)), y, z, y.grad_fn.name(), len(y.grad_fn.next_functions), z.grad_fn is y.grad_fn, y.sum().backward()


@like_pytorch
def test_xlogy_of_an_integer_is_differentiated(m):
    x = leaf(m, 1.0, 2.0)
    (m.xlogy(x, 2) + m.xlogy(x, m.tensor(3))).sum().backward()
    return x.grad
