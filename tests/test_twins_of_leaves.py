"""What gradients save of a leaf and of its twins by `detach`, which are one memory and two tensors."""

import torchgrad_jax as torch


def second(f, x):
    (g,) = torch.autograd.grad(f, x, create_graph=True)
    return torch.autograd.grad(g.sum(), x)[0]


def test_a_twin_that_was_saved_is_not_taken_for_the_leaf():
    x = torch.tensor([1.764, 0.4]).requires_grad_()
    t = torch.tanh(x.detach())
    # (tanh(x) * c)'' with c constant
    expected = -2 * t * (1 - t * t) * x.detach()
    assert torch.allclose(second((torch.tanh(x) * x.detach()).sum(), x), expected)
    twin = x.detach()
    assert torch.allclose(second((torch.tanh(x) * twin).sum(), x), expected)
    view = torch.tensor([1.764, 0.4, 1.0])[:2].requires_grad_()
    assert torch.allclose(second((torch.tanh(view) * view.detach()).sum(), view), expected)


def test_a_leaf_that_was_saved_before_it_was_asked_is_found_whatever_twins_it_gets():
    z = torch.tensor([2.0, 3.0], requires_grad=True)
    x = torch.tensor([1.0, 2.0])
    y = z * x
    x.requires_grad_()
    x.detach()
    (g,) = torch.autograd.grad((y * y).sum(), z, create_graph=True)
    assert torch.autograd.grad(g.sum(), x)[0].tolist() == [4.0 * 2 / 2, 12.0]
