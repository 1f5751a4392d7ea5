"""`torch.nn.grad`: gradients of convolutions by themselves, held against those of the convolution."""

from __future__ import annotations

import pytest

import torchgrad_jax as torch
from torchgrad_jax.nn import functional, grad

pytestmark = pytest.mark.operators

OPTIONS = [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "groups": 2}, {"stride": 3, "padding": 2, "dilation": 1, "groups": 2}]


def operands(dims, options):
    torch.manual_seed(0)
    x = torch.randn(2, 4, *[7] * dims, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, 4 // options.get("groups", 1), *[3] * dims, dtype=torch.float64, requires_grad=True)
    return x, weight, getattr(functional, f"conv{dims}d")(x, weight, **options)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("options", OPTIONS)
def test_they_are_the_gradients_of_the_convolution(dims, options):
    x, weight, made = operands(dims, options)
    given = torch.randn_like(made)
    for_input, for_weight = torch.autograd.grad(made, (x, weight), given)
    torch.testing.assert_close(getattr(grad, f"conv{dims}d_input")(x.shape, weight, given, **options).detach(), for_input)
    torch.testing.assert_close(getattr(grad, f"conv{dims}d_weight")(x, weight.shape, given, **options).detach(), for_weight)


@pytest.mark.parametrize("options", OPTIONS)
def test_they_have_gradients_themselves(options):
    x, weight, made = operands(2, options)
    given = torch.randn_like(made).requires_grad_()
    assert torch.autograd.gradcheck(lambda w, g: grad.conv2d_input(x.shape, w, g, **options), (weight, given))
    assert torch.autograd.gradcheck(lambda i, g: grad.conv2d_weight(i, weight.shape, g, **options), (x, given))


def test_where_no_graph_is_recorded_they_have_none():
    x, weight, made = operands(2, {})
    with torch.no_grad():
        assert not grad.conv2d_input(x.shape, weight, torch.ones_like(made)).requires_grad
        assert not grad.conv2d_weight(x, weight.shape, torch.ones_like(made)).requires_grad
        whole = torch.ops.aten.convolution_backward(torch.ones_like(made), x, weight, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1, [True] * 3)
    assert not any(t.requires_grad for t in whole)


@pytest.mark.parametrize("call", [
    lambda x, w, g: grad.conv2d_input((2, 4, 9, 9), w, g), lambda x, w, g: grad.conv2d_weight(x, (6, 4, 2, 2), g),
    lambda x, w, g: grad.conv2d_weight(x, w.shape, g, padding="same"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(call):
    x, weight, made = operands(2, {})
    with pytest.raises(RuntimeError):
        call(x, weight, torch.ones_like(made))


def test_a_function_with_a_backward_by_hand():
    class Convolution(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return functional.conv2d(x, weight, padding=1)

        @staticmethod
        def backward(ctx, given):
            x, weight = ctx.saved_tensors
            return grad.conv2d_input(x.shape, weight, given, padding=1), grad.conv2d_weight(x, weight.shape, given, padding=1)

    x, weight, _ = operands(2, {})
    assert torch.autograd.gradcheck(Convolution.apply, (x, weight))
    assert torch.autograd.gradgradcheck(Convolution.apply, (x[:1, :, :4, :4].detach().requires_grad_(), weight))
