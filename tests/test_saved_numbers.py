"""Numbers that nodes have saved are shown in the type that PyTorch keeps them in."""

import pytest

import torchgrad_jax as torch


@pytest.mark.parametrize("alpha", [2, 1.0, 1 + 0j, 2.5])
@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
def test_alpha_is_shown_as_it_was_given(name, alpha):
    x = torch.ones(2, dtype=torch.complex64, requires_grad=True)
    shown = getattr(torch, name)(x, x, alpha=alpha).grad_fn._saved_alpha
    assert type(shown) is type(alpha) and shown == alpha


def test_an_exponent_of_float_power_is_of_the_results_kind():
    x, z = torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.complex64, requires_grad=True)
    assert [type(torch.float_power(t, 2).grad_fn._saved_exponent) for t in (x, z)] == [float, complex]
