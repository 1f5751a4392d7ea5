"""`grad(..., is_grads_batched=True)`: the first dimension of the given gradients is a batch."""

from __future__ import annotations

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch, plain  # noqa: E402 - needs torch


def batched(m, outputs, inputs, grads, **options):
    return m.autograd.grad(outputs, inputs, grads, is_grads_batched=True, **options)


def eye(m, n=3):
    return m.eye(n, dtype=m.float64)


@like_pytorch
def test_the_identity_gives_the_jacobian(m):
    x = leaf(m, 1.0, 2.0, 3.0)
    return batched(m, x.exp() * x.sum(), x, eye(m))


@like_pytorch
def test_several_outputs_and_inputs(m):
    x, w = leaf(m, 1.0, 2.0, 3.0), leaf(m, 0.5, -1.0, 2.0)
    return batched(m, (x * w, (x - w) ** 2), (w, x), (eye(m), 2 * eye(m)))


@like_pytorch
def test_an_input_that_broadcasts_gets_one_gradient_per_row(m):
    x = leaf(m, 2.0)
    return batched(m, x * m.ones(4, 3, dtype=m.float64), x, m.ones(5, 4, 3, dtype=m.float64))


@like_pytorch
def test_the_gradient_of_a_result_and_of_the_output_itself(m):
    x = leaf(m, 1.0, 2.0, 3.0)
    y = x * x
    z = y.sin()
    return batched(m, z, (y, z), eye(m))


@like_pytorch
def test_gradients_that_do_not_depend_on_the_batch_have_its_dimension_too(m):
    x = leaf(m, 1.0, 2.0, 3.0)
    y = x * 2
    y.register_hook(lambda g: m.ones(3, dtype=m.float64))
    return batched(m, y, x, eye(m))


@like_pytorch
def test_unused_inputs_are_none_or_zeros_without_a_batch(m):
    x, other = leaf(m, 1.0, 2.0, 3.0), leaf(m, 1.0, 1.0)
    return [
        batched(m, x * 2, (x, other), eye(m), allow_unused=True)[1] is None,
        batched(m, x * 2, (x, other), eye(m), materialize_grads=True),
        error_of(lambda: batched(m, x * 2, (x, other), eye(m))),
    ]


@like_pytorch
def test_a_hook_sees_one_gradient_without_the_batch(m):
    x = leaf(m, 1.0, 2.0, 3.0)
    y = x * x
    seen = []

    def hook(g):
        seen.append([list(g.shape), g.dim()])
        return g * 3

    y.register_hook(hook)
    return batched(m, y + y.sum(), x, eye(m)), seen


@like_pytorch
def test_a_function_runs_once_for_the_whole_batch(m):
    calls = []

    class Cube(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            calls.append(list(g.shape))
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    x = leaf(m, 1.0, 2.0, 3.0)
    return batched(m, Cube.apply(x), x, eye(m)), calls


@like_pytorch
def test_looking_at_a_batched_gradient_is_refused(m):
    x = leaf(m, 1.0, 2.0, 3.0)

    def looked(look):
        y = x * 2
        y.register_hook(lambda g: look(g) and None)
        return error_of(lambda: batched(m, y, x, eye(m)))

    return looked(lambda g: g.sum().item()), looked(lambda g: bool(g.sum() > 0))


@like_pytorch
def test_shapes_and_sizes_are_checked(m):
    x = leaf(m, 1.0, 2.0, 3.0)
    y = x * 2
    ones = lambda *size: m.ones(*size, dtype=m.float64)  # noqa: E731
    return [
        error_of(lambda: batched(m, y, x, ones(3))),
        error_of(lambda: batched(m, y, x, ones(2, 4))),
        error_of(lambda: batched(m, y, x, ones(()))),
        error_of(lambda: batched(m, y.sum(), x, ones(0))),
        error_of(lambda: batched(m, y.sum(), x, None)),
        error_of(lambda: batched(m, (y, x * 3), x, (ones(3, 3), ones(2, 3)))),
    ]


def test_create_graph_makes_the_result_differentiable():
    found = []
    for m in (torch, tj):
        x = leaf(m, 1.0, 2.0, 3.0)
        (jacobian,) = batched(m, x**3, x, eye(m), create_graph=True)
        found.append([plain(jacobian), plain(m.autograd.grad(jacobian.sum(), x))])
    assert found[0] == found[1]


@like_pytorch
def test_the_graph_is_freed_unless_it_is_retained(m):
    x = leaf(m, 1.0, 2.0, 3.0)
    y = x * x
    batched(m, y, x, eye(m), retain_graph=True)
    batched(m, y, x, eye(m))
    return error_of(lambda: batched(m, y, x, eye(m)))[0]


@like_pytorch
def test_the_same_graph_again_and_with_other_numbers(m):
    found = []
    for k in (2.0, 3.0, 2.0):
        x = leaf(m, k, 1.0, -k)
        found.append(batched(m, x * k * x, x, k * eye(m)))
    return found


@like_pytorch
def test_hooks_of_leaves_see_the_batch(m):
    found = []
    for hooked in (False, True, False, True):
        x, w = leaf(m, 1.0, 2.0, 3.0), leaf(m, 0.5, -1.0, 2.0)
        handle = x.register_hook(lambda g: g * 10) if hooked else None
        found += batched(m, x * w, (x, w), eye(m), retain_graph=True)
        found += batched(m, x, x, eye(m))
        if handle is not None:
            handle.remove()
    return found
