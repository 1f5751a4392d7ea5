"""Nodes as Python objects: one object for one node, what it tells of itself, and calling it."""

from __future__ import annotations

import gc

import pytest
from side_by_side import leaf, like_pytorch

import torchgrad_jax as tj


@like_pytorch
def test_one_node_is_one_object(m):
    x = leaf(m, 1.0, 2.0)
    y = x * x
    z = y.exp()
    accumulate = y.grad_fn.next_functions[0][0]
    return [
        y.grad_fn is y.grad_fn, y.grad_fn == y.grad_fn, hash(y.grad_fn) == hash(y.grad_fn), z.grad_fn.next_functions[0][0] is y.grad_fn,
        y.grad_fn.next_functions[1][0] is accumulate, (x + 1).grad_fn.next_functions[0][0] is accumulate, accumulate.variable is x,
        y.grad_fn in {y.grad_fn: 1}, y.grad_fn != z.grad_fn, x.grad_fn,
    ]  # fmt: skip


@like_pytorch
def test_a_view_has_a_new_node_once_its_base_is_written_to(m):
    x = leaf(m, 1.0, 2.0)
    y = x * 1
    v = y[:1]
    before = v.grad_fn
    y.mul_(2)
    return [before is v.grad_fn, before.name(), v.grad_fn.name(), v.grad_fn is v.grad_fn, v.grad_fn.next_functions[0][0] is y.grad_fn]


@like_pytorch
def test_names_types_and_metadata(m):
    x = leaf(m, 1.0, 2.0)
    y = x * 2
    y.grad_fn.metadata["made by"] = "me"
    node, accumulate = y.grad_fn, y.grad_fn.next_functions[0][0]
    kinds = m.autograd.graph.Node
    return [
        node.name(), type(node).__name__, callable(node.name), repr(node).split(" ")[0], y.grad_fn.metadata, accumulate.metadata, node.requires_grad,
        isinstance(node, kinds), issubclass(type(node), kinds), isinstance(accumulate, kinds), isinstance(x, kinds), accumulate.next_functions,
        isinstance(accumulate, m._C._functions.AccumulateGrad), isinstance(node, m._C._functions.MulBackward0),
        isinstance(node, m._C._functions.AddBackward0),
    ]  # fmt: skip


@like_pytorch
def test_input_metadata_describes_the_outputs(m):
    x = leaf(m, 1.0, 2.0, 3.0)
    nodes = [(x * 2).grad_fn, x.sum().grad_fn, x.max(0)[0].grad_fn, x.unbind()[0].grad_fn, (x * 2).grad_fn.next_functions[0][0]]
    return [[[list(i.shape), str(i.dtype), str(i.device), i.is_nested_tensor] for i in n._input_metadata] for n in nodes]


@like_pytorch
def test_sequence_numbers_follow_creation(m):
    x = leaf(m, 1.0)
    a, b = x * 2, x + 1
    number = a.grad_fn._sequence_nr()
    b.grad_fn._set_sequence_nr(number + 5)
    return [b.grad_fn._sequence_nr() - number, a.grad_fn.next_functions[0][0]._sequence_nr() == 2**64 - 1]


@like_pytorch
def test_calling_a_node_gives_the_gradients_of_its_inputs(m):
    x, y = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
    ones = m.ones(2, dtype=m.float64)
    return [(x * y).grad_fn(ones), x.exp().grad_fn(ones), (x * 2).grad_fn(ones), x.unbind()[0].grad_fn(ones[0], None)]


@like_pytorch
def test_calling_an_accumulate_grad_accumulates(m):
    x = leaf(m, 1.0, 2.0)
    accumulate = (x * 2).grad_fn.next_functions[0][0]
    ones = m.ones(2, dtype=m.float64)
    return [accumulate(ones), x.grad, accumulate(ones), x.grad]


@pytest.mark.parametrize("count", [0, 2])
def test_calling_a_node_with_another_number_of_gradients_is_an_error(count):
    @like_pytorch
    def check(m):
        return leaf(m, 1.0).exp().grad_fn(*[m.ones(1, dtype=m.float64)] * count)

    check()


@like_pytorch
def test_calling_a_freed_node_is_an_error(m):
    y = leaf(m, 1.0).exp()
    node = y.grad_fn
    y.sum().backward()
    return node(m.ones(1, dtype=m.float64))


@like_pytorch
def test_what_may_not_need_a_gradient_is_refused(m):
    weight = m.ones(2, requires_grad=True)
    return m.nn.functional.cross_entropy(m.zeros(3, 2), m.tensor([0, 1, 0]), weight=weight)


def test_a_node_that_was_called_is_freed_with_its_graph():
    gc.disable()
    try:
        y = tj.ones(2, requires_grad=True).exp()
        node = y.grad_fn
        node(tj.ones(2))
        import weakref

        dead = weakref.ref(node)
        del y, node
        assert dead() is None
    finally:
        gc.enable()


@like_pytorch
def test_node_is_a_base_class_by_registration_only(m):
    class Double(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    kinds, found = m.autograd.graph.Node, []
    for node in (leaf(m, 1.0).exp().grad_fn, Double.apply(leaf(m, 1.0)).grad_fn, leaf(m, 1.0).exp().grad_fn.next_functions[0][0]):
        found.append([isinstance(node, kinds), issubclass(type(node), kinds), kinds in type(node).__mro__])
    return found, isinstance(3, kinds), issubclass(Double, kinds), issubclass(m._C._functions.AccumulateGrad, kinds)


@pytest.mark.parametrize("derived", [False, True])
def test_node_cannot_be_made(derived):
    Node = tj.autograd.graph.Node
    with pytest.raises(TypeError, match="abstract"):
        (type("Mine", (Node,), {}) if derived else Node)()


def test_every_listed_node_class_is_a_node():
    functions = tj._C._functions
    assert all(issubclass(getattr(functions, name), tj.autograd.graph.Node) for name in dir(functions))
