"""Calls whose arguments are in order: what that takes is asked once for the types of their arguments."""

from __future__ import annotations

import pytest

import torchgrad_jax as tj
import torchgrad_jax.nn.functional as F
from torchgrad_jax.calling import overrides
from torchgrad_jax.runtime import counters
from torchgrad_jax.runtime.recorder import recorder


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


def test_looks_do_not_ask_what_their_arguments_mean(monkeypatch):
    x = tj.arange(3.0)
    with monkeypatch.context() as patch:
        patch.setattr(overrides.ways, "at_first", None)
        patch.setattr(overrides.ways, "answer", None)
        found = x[1].item(), bool(x[1] > 0), float(x[2]), int(x[2]), x.tolist(), x.numpy().tolist()
    assert found == (1.0, True, 2.0, 2, [0.0, 1.0, 2.0], [0.0, 1.0, 2.0])
    with pytest.raises(TypeError, match="item"):
        x.item(1)
    with pytest.raises(TypeError):
        tj.Tensor.item()


class Told(tj.Tensor):
    """Notes the names of what it is asked to answer."""

    names: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.names.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("look", [tj.Tensor.item, tj.Tensor.tolist, tj.Tensor.__bool__, tj.Tensor.__float__, tj.Tensor.__int__])
def test_a_subclass_answers_looks_itself(look):
    Told.names.clear()
    assert look(tj.tensor(1.0).as_subclass(Told)) == 1
    assert Told.names == [look.__name__]


def test_the_layout_of_results_is_that_of_these_operands():
    """It is worked out once for the operands' shapes and strides, and kept for them alone."""
    rows = tj.arange(6.0).reshape(2, 3)
    columns = tj.arange(6.0).reshape(3, 2).t()
    for _ in range(2):
        assert [(a + b).stride() for a in (rows, columns) for b in (rows, columns)] == [(3, 1), (3, 1), (1, 2), (1, 2)]
        assert (columns + 1).stride() == (1, 2) and (rows + 1).stride() == (3, 1) and (columns.double() + 1.5).stride() == (1, 2)


def test_a_product_of_batches_is_one_operation_where_nobody_sees_its_graph(interpreted):
    x, y = tj.rand(2, 3, 4), tj.rand(2, 4, 3)

    def operations(x, y):
        recorder().flush("mode")
        before = counters.recorded
        product = x @ y
        product.tolist()
        return product, counters.recorded - before

    (alone, one), (followed, several) = operations(x, y), operations(x.requires_grad_(), y)
    assert one == 1 < several and tj.equal(alone, followed)
    assert type(followed.grad_fn).__name__ == "UnsafeViewBackward0"


def test_other_shapes_and_sizes_are_refused_after_those_that_were_in_order():
    x = tj.rand(2, 3)
    for _ in range(2):
        assert x.expand(4, 2, 3).shape == (4, 2, 3) and x.reshape(3, -1).shape == (3, 2) and x.permute(1, 0).shape == (3, 2)
        assert F.max_pool2d(tj.rand(1, 1, 4, 4), 2).shape == (1, 1, 2, 2) and tj.cat([x, tj.ones(0)]).shape == (2, 3)
        for wrong in (
            lambda: x.expand(4, 2, 5), lambda: x.reshape(4, -1), lambda: F.max_pool2d(tj.rand(1, 1, 4, 4), 2, padding=3),
            lambda: tj.cat([x, tj.tensor(1.0)]), lambda: x.expand(3),
        ):  # fmt: skip
            with pytest.raises(RuntimeError):
                wrong()
        with pytest.raises(RuntimeError, match="duplicate dims"):
            x.permute(0, 0)
