"""autograd.Function against PyTorch: both styles of forward, kinds of inputs and outputs, what is saved."""

from __future__ import annotations

from collections import namedtuple

import pytest

pytest.importorskip("torch")

from functions import function, functions, history  # noqa: E402
from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch


@like_pytorch
def test_forward_with_ctx(m):
    square, _ = functions(m)
    x = leaf(m, 1.0, 2.0)
    y = square.apply(x)
    y.sum().backward()
    return y, x.grad, y.is_leaf


@like_pytorch
def test_forward_with_setup_context(m):
    _, cube = functions(m)
    x = leaf(m, 1.0, 2.0)
    y, copy = cube.apply(x)
    (y.sum() + 10 * copy.sum()).backward()
    return y, copy, x.grad


@like_pytorch
def test_forward_is_not_recorded(m):
    seen = []

    def forward(ctx, x):
        y = x * 2
        seen.append((m.is_grad_enabled(), y.requires_grad, x.requires_grad))
        return y

    function(m, forward, lambda ctx, g: g).apply(leaf(m, 1.0))
    return seen, m.is_grad_enabled()


@like_pytorch
def test_without_a_gradient_to_compute_the_result_has_no_node(m):
    square, _ = functions(m)
    x = leaf(m, 1.0)
    y = square.apply(m.ones(2))
    with m.no_grad():
        z = square.apply(x)
    return y.requires_grad, y.grad_fn, z.requires_grad, z.grad_fn


@like_pytorch
def test_inputs_that_are_no_tensors_pass_through(m):
    def forward(ctx, x, k, options, nothing):
        ctx.k = k
        return x * k + len(options["names"])

    x = leaf(m, 1.0, 2.0)
    y = function(m, forward, lambda ctx, g: (g * ctx.k, None, None, None)).apply(x, 3, {"names": ["a"]}, None)
    y.sum().backward()
    return y, x.grad


@like_pytorch
def test_none_gradients_leave_the_leaf_alone(m):
    a, b = leaf(m, 1.0), leaf(m, 2.0)
    function(m, lambda ctx, a, b: a * b, lambda ctx, g: (None, g)).apply(a, b).sum().backward()
    return a.grad, b.grad


@like_pytorch
def test_outputs_that_are_no_tensors(m):
    def forward(ctx, x):
        return x * 2, "text", None, 7

    x, seen = leaf(m, 1.0), []

    def backward(ctx, *grads):
        seen.append([None if g is None else g.clone() for g in grads])
        return grads[0] * 2

    y, *rest = function(m, forward, backward).apply(x)
    y.sum().backward()
    return rest, seen, x.grad


@like_pytorch
def test_unused_outputs_get_zeros(m):
    seen = []

    def backward(ctx, g, h):
        seen.append((g, h))
        return g + h

    x = leaf(m, 1.0, 2.0)
    y, z = function(m, lambda ctx, x: (x * 1, x.sum()), backward).apply(x)
    y.sum().backward()
    return seen, x.grad


@like_pytorch
def test_unused_outputs_get_none_where_grads_are_not_materialized(m):
    seen = []

    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 1, x * 2

    def backward(ctx, g, h):
        seen.append((g, h))
        return g

    x = leaf(m, 1.0, 2.0)
    y, z = function(m, forward, backward).apply(x)
    y.sum().backward()
    return seen, x.grad


@like_pytorch
def test_mark_non_differentiable(m):
    seen = []

    def forward(ctx, x):
        order = x * 0
        ctx.mark_non_differentiable(order)
        return x * 2, order

    def backward(ctx, g, h):
        seen.append(h)
        return 2 * g

    x = leaf(m, 1.0, 2.0)
    y, order = function(m, forward, backward).apply(x)
    y.sum().backward()
    return order.requires_grad, order.grad_fn, seen, x.grad


@like_pytorch
def test_integer_outputs_require_no_gradient(m):
    x = leaf(m, 1.0, 2.0)
    y, n = function(m, lambda ctx, x: (x * 2, (x > 1).long()), lambda ctx, g, h: 2 * g).apply(x)
    y.sum().backward()
    return n, x.grad


@like_pytorch
def test_saved_tensors_are_gone_after_backward(m):
    square, _ = functions(m)
    y = square.apply(leaf(m, 1.0))
    y.sum().backward()
    return error_of(lambda: y.grad_fn.saved_tensors), error_of(y.sum().backward)


@like_pytorch
def test_writing_to_a_saved_tensor_is_an_error(m):
    square, _ = functions(m)
    k = m.ones(2, dtype=m.float64)

    def forward(ctx, x, k):
        ctx.save_for_backward(k)
        return x * k

    y = function(m, forward, lambda ctx, g: (g * ctx.saved_tensors[0], None)).apply(leaf(m, 1.0, 2.0), k)
    k.add_(1)
    y.sum().backward()


@like_pytorch
def test_writing_to_a_saved_non_leaf_names_the_writer(m):
    square, _ = functions(m)
    h = leaf(m, 1.0, 2.0) * 1
    y = square.apply(h)
    h.add_(1)
    y.sum().backward()


@like_pytorch
def test_writing_to_a_saved_output_is_an_error(m):
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    y = function(m, forward, lambda ctx, g: g * ctx.saved_tensors[0]).apply(leaf(m, 1.0, 2.0))
    with m.no_grad():
        y.add_(1)
    y.sum().backward()


@like_pytorch
def test_saved_tensors_are_the_inputs_themselves(m):
    seen = []
    x = leaf(m, 1.0, 2.0)

    def forward(ctx, x):
        ctx.save_for_backward(x, None)
        return x * 1

    def backward(ctx, g):
        seen.append((ctx.saved_tensors[0] is x, ctx.saved_tensors[1]))
        return g

    function(m, forward, backward).apply(x).sum().backward()
    return seen


@like_pytorch
def test_vjp_is_another_name_of_backward(m):
    class Twice(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    x = leaf(m, 1.0)
    Twice.apply(x).sum().backward()
    return x.grad


@like_pytorch
def test_setup_context_sees_the_defaults_of_forward(m):
    seen = []

    def forward(x, k=2):
        return x * k

    def setup_context(ctx, inputs, output):
        seen.append((inputs, output))
        ctx.k = inputs[1]

    x = leaf(m, 1.0)
    function(m, forward, lambda ctx, g: (g * ctx.k, None), setup_context=setup_context).apply(x).sum().backward()
    return seen, x.grad


# ---------------------------------------------------------------------- arguments


@like_pytorch
def test_arguments_by_name_take_their_places(m):
    def forward(ctx, x, y, k=2):
        return x * k + y

    x = leaf(m, 1.0)
    y = function(m, forward, lambda ctx, g: (g * 3, None, None)).apply(x, k=3, y=1)
    y.sum().backward()
    return y, x.grad


@like_pytorch
def test_tensors_given_by_name_are_differentiated(m):
    x, w, seen = leaf(m, 1.0), leaf(m, 2.0), []
    mine = function(m, lambda x, k=2: x * k, lambda ctx, g: (g * 10, g), setup_context=lambda ctx, i, o: seen.append((i, ctx.needs_input_grad)))
    mine.apply(k=w, x=x).sum().backward()
    return seen, x.grad, w.grad


@like_pytorch
def test_default_arguments_of_a_combined_forward_have_no_gradient(m):
    x = leaf(m, 1.0)
    y = function(m, lambda ctx, x, k=2: x * k, lambda ctx, g: g * 2).apply(x)
    y.sum().backward()
    return y, x.grad


@like_pytorch
def test_tensors_inside_lists_are_no_inputs(m):
    a, b = leaf(m, 1.0), leaf(m, 2.0)
    y = function(m, lambda ctx, a, rest: a * rest[0], lambda ctx, g: (g, None)).apply(a, [b])
    y.sum().backward()
    alone = function(m, lambda ctx, rest: rest[0] * 2).apply([b])
    return a.grad, b.grad, alone.requires_grad


@like_pytorch
def test_functions_need_no_tensors(m):
    def forward(ctx, k):
        return k + 1

    return function(m, forward).apply(3), function(m, lambda ctx: None).apply(), function(m, lambda ctx: m.ones(2)).apply()


@like_pytorch
def test_forward_is_given_the_tensors_themselves(m):
    x, seen = leaf(m, 1.0), []
    function(m, lambda ctx, a: a * len([seen.append((a is x, a.requires_grad))])).apply(x)
    return seen


# ---------------------------------------------------------------------- outputs


@like_pytorch
def test_only_tensors_in_a_tuple_are_outputs(m):
    x = leaf(m, 1.0)
    listed = function(m, lambda ctx, x: [x * 1, x * 2]).apply(x)
    nested = function(m, lambda ctx, x: (x * 1, (x * 2, [x * 3]))).apply(x)
    named = function(m, lambda ctx, x: namedtuple("Pair", "a b")(x * 1, x * 2), lambda ctx, g, h: g).apply(x)
    return (
        [history(t) for t in listed], history(nested[0]), history(nested[1][0]), history(nested[1][1][0]),
        type(listed).__name__, type(named).__name__, [history(t) for t in named],
    )  # fmt: skip


@like_pytorch
def test_one_tensor_returned_twice_is_the_last_output(m):
    def forward(ctx, x):
        y = x * 2
        return y, y

    x = leaf(m, 1.0, 2.0)
    a, b = function(m, forward, lambda ctx, g, h: g + 10 * h).apply(x)
    (a.sum() + b.sum()).backward()
    return a is b, history(a), x.grad


@like_pytorch
def test_a_graph_built_in_forward_is_replaced_by_the_function(m):
    def forward(ctx, x):
        with m.enable_grad():
            return x * 5

    x = leaf(m, 1.0)
    y = function(m, forward).apply(x)
    y.sum().backward()
    return history(y), x.grad


@like_pytorch
def test_a_tensor_from_elsewhere_gets_the_history_of_the_function(m):
    found = []
    for make in (lambda w: w, lambda w: w * 2, lambda w: w.detach()):
        w, x = leaf(m, 1.0, 2.0), leaf(m, 1.0, 2.0)
        h = make(w)
        y = function(m, lambda ctx, x, h=h: h).apply(x)
        y.sum().backward()
        found.append((y is h, history(h), x.grad))
    return found


@like_pytorch
def test_a_tensor_with_a_graph_loses_it_where_nothing_is_differentiated(m):
    w = leaf(m, 1.0)
    h, k = w * 2, w * 3
    with m.no_grad():
        y = function(m, lambda ctx, x: h).apply(w)
    z = function(m, lambda ctx, x: k).apply(m.ones(1))
    return y is h, history(y), z is k, history(z)


@like_pytorch
def test_gradients_of_outputs_without_one_are_zeros_none_or_absent(m):
    found = []
    for attribute in (None, "materialize_grads", "_materialize_non_diff_grads"):

        def forward(ctx, x, attribute=attribute):
            if attribute == "materialize_grads":
                ctx.set_materialize_grads(False)
            elif attribute:
                setattr(ctx, attribute, False)
            constant = x * 2
            ctx.mark_non_differentiable(constant)
            return x * 1, x * 3, constant, x.long(), None, "text"

        def backward(ctx, *grads):
            found.append(grads)
            return grads[0]

        function(m, forward, backward).apply(leaf(m, 1.0))[0].sum().backward()
    return found


@like_pytorch
def test_the_last_mark_counts(m):
    def forward(ctx, x):
        a, b = x * 1, x * 2
        ctx.mark_non_differentiable(a)
        ctx.mark_non_differentiable(b)
        ctx.save_for_backward(a)
        ctx.save_for_backward(b, None)
        return a, b

    x, seen = leaf(m, 1.0), []
    a, b = function(m, forward, lambda ctx, g, h: g * len([seen.append(ctx.saved_tensors)])).apply(x)
    a.sum().backward()
    return history(a), history(b), seen
