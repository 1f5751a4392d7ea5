"""Calls whose arguments are in order: what that takes is asked once for the types of their arguments."""

from __future__ import annotations

import pytest

import torchgrad_jax as tj
import torchgrad_jax.nn.functional as F
from torchgrad_jax.calling import overrides


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: F.softmax(x, dim=-1), lambda x, y: F.log_softmax(x, -1), lambda x, y: F.mse_loss(x, y), lambda x, y: F.l1_loss(x, y),
        lambda x, y: F.binary_cross_entropy(x, y, reduction="sum"), lambda x, y: tj.max(x, y), lambda x, y: tj.where(x > y, x, 0.0),
        lambda x, y: x.sum(dim=1, keepdim=True), lambda x, y: F.layer_norm(x, (3,)),
    ],
)  # fmt: skip
def test_whether_arguments_are_in_order_is_asked_once_for_their_types(call, monkeypatch):
    """It takes several times what recording the operation does."""
    x, y = tj.rand(2, 3), tj.rand(2, 3)
    expected = call(x, y)

    def never(*args):
        raise AssertionError("asked again")

    with monkeypatch.context() as patch:
        patch.setattr(overrides, "held", never)
        found = call(x, y)
    assert tj.equal(found, expected)
