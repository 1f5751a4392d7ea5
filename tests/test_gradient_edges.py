"""GradientEdge: a place in the graph stands for a tensor in `backward` and `grad`."""

from __future__ import annotations

import gc
import weakref

import pytest

import torchgrad_jax as tj

pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch


def edge(m, t):
    return m.autograd.graph.get_gradient_edge(t)


@like_pytorch
def test_the_edge_of_a_result_is_its_node_and_output_number(m):
    x = leaf(m, 1.0, 2.0)
    parts = (x * 2).unbind()
    found = edge(m, parts[1])
    return found.node is parts[1].grad_fn, found.output_nr, found.ownership_token, found._fields


def test_the_edge_of_a_leaf_is_its_accumulator():
    x = leaf(tj, 1.0)
    found = edge(tj, x)
    assert found.node is x.view_as(x).grad_fn.next_functions[0][0]
    assert found.node.variable is x


@like_pytorch
def test_a_tensor_without_gradient_has_no_edge(m):
    return edge(m, m.ones(2))


@like_pytorch
def test_grad_from_an_edge_to_an_edge(m):
    x = leaf(m, 1.0, 2.0)
    y = x * x
    z = (y * 3).sum()
    return m.autograd.grad(edge(m, z), [edge(m, x), edge(m, y), x, y])


@like_pytorch
def test_gradients_for_an_edge_are_checked_as_for_its_tensor(m):
    y = leaf(m, 1.0, 2.0) * 2
    return [
        error_of(lambda: m.autograd.grad(edge(m, y), y)),
        error_of(lambda: m.autograd.grad(edge(m, y), y, m.ones(3, dtype=m.float64))),
        error_of(lambda: m.autograd.grad(edge(m, y), y, m.ones(2, dtype=m.complex128))),
        error_of(lambda: m.autograd.grad(y.sum(), [(y.grad_fn, 0)])),
    ]


@like_pytorch
def test_an_unused_edge_is_an_error_or_none_but_never_zeros(m):
    x = leaf(m, 1.0, 2.0)
    other = edge(m, x * 5)
    return [
        error_of(lambda: m.autograd.grad((x + 1).sum(), other)),
        m.autograd.grad((x + 1).sum(), other, allow_unused=True),
        error_of(lambda: m.autograd.grad((x + 1).sum(), other, materialize_grads=True)),
    ]


@like_pytorch
def test_backward_into_the_edge_of_a_leaf_fills_its_grad(m):
    x, w = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
    m.autograd.backward(edge(m, (x * w).sum()), inputs=edge(m, x))
    return x.grad, w.grad


@like_pytorch
def test_backward_into_the_edge_of_a_result_keeps_no_gradient_but_runs_its_node(m):
    x = leaf(m, 1.0, 2.0)
    y = x * x
    ran = []
    y.grad_fn.register_hook(lambda inputs, outputs: ran.append(len(inputs)))
    m.autograd.backward((y + 1).sum(), inputs=[edge(m, y)])
    return ran, x.grad, y.retains_grad


@like_pytorch
def test_backward_into_a_result_retains_its_grad_from_then_on(m):
    x = leaf(m, 1.0, 2.0)
    y = x + 1
    z = (y + 2).sum()
    z.backward(inputs=[y, y, x, x])
    z.backward(inputs=(y,))
    return x.grad, y.grad, y.retains_grad


@like_pytorch
def test_backward_into_a_result_frees_its_node(m):
    x = leaf(m, 1.0, 2.0)
    y = x * x
    (y + 1).sum().backward(inputs=[y])
    return error_of(lambda: (y + 1).sum().backward())[0]


@like_pytorch
def test_grad_of_a_result_leaves_what_is_below_it_usable(m):
    found = []
    for _ in range(4):  # also when the graph has been seen before
        x = leaf(m, 1.0, 2.0)
        y = x * x
        z = (y * y).sum()
        (g,) = m.autograd.grad(z, y)
        found.append([g, m.autograd.grad(y.sum(), x), error_of(lambda z=z, x=x: m.autograd.grad(z, x))[0]])
    return found


def test_an_edge_keeps_the_graph_without_the_tensor():
    gc.disable()
    try:
        x = leaf(tj, 1.0, 2.0)
        y = x * x
        kept, gone = edge(tj, y), weakref.ref(y)
        del y
        assert gone() is None
        (g,) = tj.autograd.grad(kept, x, tj.ones(2, dtype=tj.float64))
        assert g.tolist() == [2.0, 4.0]
    finally:
        gc.enable()
