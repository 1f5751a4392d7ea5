"""Steps of an optimizer after those of another, some of whose parameters have the same shapes: what is remembered of one is not the other's."""

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.runtime import execution_mode

pytestmark = pytest.mark.operators  # tries both modes

OPTIMIZERS = {
    "Adam": {}, "AdamW": {}, "SGD": {"momentum": 0.9}, "RMSprop": {"momentum": 0.9}, "Adagrad": {"lr_decay": 0.1}, "Adadelta": {}, "Adamax": {},
    "NAdam": {}, "RAdam": {}, "ASGD": {}, "Rprop": {},
}  # fmt: skip


def trained(name, shapes, steps):
    torch.manual_seed(0)
    parameters = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    optimizer = getattr(torch.optim, name)(parameters, lr=0.01, **OPTIMIZERS[name])
    for step in range(steps):
        optimizer.zero_grad()
        sum(((p - step) ** 2).sum() for p in parameters).backward()
        optimizer.step()
    return [p.detach().numpy() for p in parameters]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_second_is_not_taken_for_the_first(name):
    trained(name, [(6, 16), (16,), (16,), (5,)], 3)
    found = trained(name, [(4, 4), (16,), (3, 16), (5,), (7,)], 6)
    with execution_mode("eager"):
        wanted = trained(name, [(4, 4), (16,), (3, 16), (5,), (7,)], 6)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


DECAY = {"weight_decay": 0.1}
VARIANTS = {
    **OPTIMIZERS, "Adafactor": DECAY, "Muon": DECAY, "SGD, all of it": {"momentum": 0.9, "dampening": 0.1, **DECAY},
    "SGD, nesterov": {"momentum": 0.9, "nesterov": True}, "Adam, amsgrad": {"amsgrad": True, **DECAY}, "AdamW, amsgrad": {"amsgrad": True},
    "RMSprop, centered": {"centered": True, "momentum": 0.9, **DECAY}, "NAdam, decoupled": {"decoupled_weight_decay": True, **DECAY},
    "RAdam, decoupled": {"decoupled_weight_decay": True, **DECAY}, "Adagrad, weights": {"initial_accumulator_value": 0.1, **DECAY},
    "Adadelta, weights": DECAY, "Adamax, weights": DECAY, "ASGD, weights": {"t0": 3.0, **DECAY},
}  # fmt: skip


def with_other_numbers(name, steps):
    """After each step every number of the group is another one."""
    torch.manual_seed(0)
    parameters = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in ((4, 3), (5, 2), (4, 3))]
    optimizer = getattr(torch.optim, name.partition(",")[0])(parameters, lr=0.01, **VARIANTS[name])
    for step in range(steps):
        optimizer.zero_grad()
        sum(((p - step) ** 2).sum() for p in parameters).backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group.update({k: v * (1 + 0.03 * step) for k, v in group.items() if type(v) is float})
    return [p.detach().numpy() for p in parameters]


@pytest.mark.parametrize("name", VARIANTS)
def test_no_number_is_that_of_an_earlier_step(name):
    """Also none that a formula derives from those of the step."""
    found = with_other_numbers(name, 7)
    with execution_mode("eager"):
        wanted = with_other_numbers(name, 7)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
