"""Numbers that nodes have saved are shown in the type that PyTorch keeps them in."""

import pytest

import torchgrad_jax as torch

pytestmark = pytest.mark.operators

F = torch.nn.functional


@pytest.mark.parametrize("alpha", [2, 1.0, 1 + 0j, 2.5])
@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
def test_alpha_is_shown_as_it_was_given(name, alpha):
    x = torch.ones(2, dtype=torch.complex64, requires_grad=True)
    shown = getattr(torch, name)(x, x, alpha=alpha).grad_fn._saved_alpha
    assert type(shown) is type(alpha) and shown == alpha


def test_an_exponent_of_float_power_is_of_the_results_kind():
    x, z = torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.complex64, requires_grad=True)
    assert [type(torch.float_power(t, 2).grad_fn._saved_exponent) for t in (x, z)] == [float, complex]


OF_A_NUMBER = {
    "elu": (F.elu, "alpha"), "celu": (F.celu, "alpha"), "leaky_relu": (F.leaky_relu, "negative_slope"), "softplus": (F.softplus, "beta"),
    "hardshrink": (F.hardshrink, "lambd"), "softshrink": (F.softshrink, "lambd"), "threshold": (lambda x, n: F.threshold(x, n, 0), "threshold"),
    "var": (lambda x, n: torch.var(x, correction=n), "correction"), "std": (lambda x, n: torch.std(x, correction=n), "correction"),
    "margin": (lambda x, n: F.multi_margin_loss(x, torch.tensor([0, 1]), margin=n), "margin"),
}  # fmt: skip


@pytest.mark.parametrize("number", [1, True, 1.0, 1 + 0j])
@pytest.mark.parametrize("name", OF_A_NUMBER)
def test_a_number_that_is_taken_for_a_real_one_is_shown_as_it_was_given(name, number):
    function, attribute = OF_A_NUMBER[name]
    x = torch.tensor([[0.3, 1.9], [0.7, -0.2]], requires_grad=True)
    y, plain = function(x, number), function(x, 1.0)
    shown = getattr(y.grad_fn, f"_saved_{attribute}")
    assert type(shown) is type(number) and shown == number
    assert torch.equal(y, plain)
    given = torch.ones_like(y)
    assert torch.equal(*[torch.autograd.grad(t, x, given)[0] for t in (y, plain)])


@pytest.mark.parametrize("order", [2, 2.0, True])
def test_the_order_of_a_norm_is_shown_as_it_was_given(order):
    x = torch.ones(2, 3, requires_grad=True)
    for made, name in ((torch.norm(x, order), "ord"), (torch.dist(x, 2 * x, order), "p"), (torch.renorm(x, order, 0, 1), "p")):
        shown = getattr(made.grad_fn, f"_saved_{name}")
        assert type(shown) is type(order) and shown == order


@pytest.mark.parametrize("name", OF_A_NUMBER)
def test_an_imaginary_part_is_refused(name):
    x = torch.tensor([[0.3, 1.9], [0.7, -0.2]], requires_grad=True)
    with pytest.raises(RuntimeError, match="value cannot be converted to type (float|double) without overflow"):
        OF_A_NUMBER[name][0](x, 1 + 2j)


def test_constants_that_pytorch_fills_in_are_its_own():
    x = torch.ones(2, 3, requires_grad=True)
    assert F.elu(x).grad_fn._saved_scale == 1 and type(F.elu(x).grad_fn._saved_scale) is int
    assert [type(n) for n in (F.relu6(x).grad_fn._saved_max_val, F.hardtanh(x).grad_fn._saved_max_val)] == [int, float]
    assert [t.grad_fn._saved_correction for t in (x.var(), x.var(0), x.var(0, False), x.std(True))] == [None, 1, 0, 1]


def test_as_strided_shows_no_offset_where_none_was_given():
    x = torch.ones(4, requires_grad=True)
    shown = [torch.as_strided(x, (2,), (1,), *offset).grad_fn._saved_storage_offset for offset in ((), (0,), (1,))]
    assert shown == [None, 0, 1]
