"""autograd.Function against PyTorch: what backward computes, its derivatives, passes inside passes, other classes of Functions."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch")

from functions import function, functions, name_of, next_names  # noqa: E402
from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch


@like_pytorch
def test_double_backward_goes_through_backward(m):
    square, cube = functions(m)
    x = leaf(m, 0.5, -2.0)
    y = square.apply(cube.apply(x)[0]).sum()
    (g,) = m.autograd.grad(y, x, create_graph=True)
    (h,) = m.autograd.grad(g.sum(), x, create_graph=True)
    return g, h, m.autograd.grad(h.sum(), x)


@like_pytorch
def test_double_backward_through_a_saved_output(m):
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    x = leaf(m, 0.5, -2.0)
    y = function(m, forward, lambda ctx, g: g * ctx.saved_tensors[0]).apply(x)
    (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
    return g, m.autograd.grad(g.sum(), x)


@like_pytorch
def test_functions_that_call_functions(m):
    square, _ = functions(m)

    class Fourth(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return square.apply(square.apply(x))

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 4 * square.apply(x) * x * g

    x = leaf(m, 2.0)
    y = Fourth.apply(x)
    (g,) = m.autograd.grad(y, x, m.ones(1, dtype=m.float64), create_graph=True)
    return y, y.grad_fn.name(), g, m.autograd.grad(g.sum(), x)


@like_pytorch
def test_an_inner_graph_built_in_forward(m):
    def forward(ctx, x):
        with m.enable_grad():
            inner = x.detach().requires_grad_()
            y = (inner * inner).sum()
        (ctx.g,) = m.autograd.grad(y, inner)
        return y.detach()

    x = leaf(m, 1.0, 2.0)
    function(m, forward, lambda ctx, g: g * ctx.g).apply(x).backward()
    return x.grad


@like_pytorch
def test_gradients_are_cast_to_the_dtype_of_the_input(m):
    x = leaf(m, 1.0, 2.0)
    function(m, lambda ctx, x: x * 2, lambda ctx, g: g.float() * 2).apply(x).sum().backward()
    return x.grad


@like_pytorch
def test_a_function_runs_even_if_no_gradient_reaches_it(m):
    seen = []

    def backward(ctx, g):
        seen.append(g)
        return g

    x = leaf(m, 1.0)
    h = function(m, lambda ctx, x: x * 1, backward, "Inner").apply(x)
    function(m, lambda ctx, x: x * 1, lambda ctx, g: None, "Outer").apply(h).sum().backward()
    return seen, x.grad


@like_pytorch
def test_the_same_tensor_twice(m):
    x = leaf(m, 1.0, 2.0)
    function(m, lambda ctx, a, b: a * b, lambda ctx, g: (g * 2, g * 30)).apply(x, x).sum().backward()
    return x.grad


@like_pytorch
def test_a_function_in_a_loop_gives_the_same_at_every_turn(m):
    square, _ = functions(m)
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(5):
        (square.apply(w * (i + 1.0)) * 2).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_gradients_with_respect_to_outputs_and_inputs(m):
    x = leaf(m, 1.0)
    a, b = function(m, lambda ctx, x: (x * 2, x * 3), lambda ctx, g, h: g * 2 + h * 3).apply(x)
    return m.autograd.grad((a * b).sum(), (b, a, x))


@like_pytorch
def test_a_function_that_is_no_way_to_an_input_does_not_run(m):
    seen, x = [], leaf(m, 1.0)
    y = function(m, lambda ctx, x: x * 1, lambda ctx, g: g * len([seen.append("ran")])).apply(x)
    return m.autograd.grad(y.sum(), y), seen


@like_pytorch
def test_names_of_the_graph_of_a_double_backward(m):
    square, _ = functions(m)
    x = leaf(m, 3.0)
    ones = m.ones(1, dtype=m.float64)
    (g,) = m.autograd.grad(square.apply(x), x, ones, create_graph=True)

    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    y = function(m, forward, lambda ctx, g: ctx.saved_tensors[0] * g).apply(x)
    (h,) = m.autograd.grad(y, x, ones, create_graph=True)
    return name_of(g.grad_fn), next_names(g.grad_fn), next_names(h.grad_fn), h.grad_fn.next_functions[0][0] is y.grad_fn


@like_pytorch
def test_backward_may_call_its_own_function(m):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    mine = function(m, forward, lambda ctx, g: mine.apply(ctx.saved_tensors[0]) * g)
    x = leaf(m, 0.5)
    (g,) = m.autograd.grad(mine.apply(x).sum(), x, create_graph=True)
    (h,) = m.autograd.grad(g.sum(), x, create_graph=True)
    return g, h, m.autograd.grad(h.sum(), x)


@like_pytorch
def test_a_forward_that_recurs(m):
    class Power(m.autograd.Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.n = n
            return x * 1 if n == 0 else Power.apply(x, n - 1) * 2

        @staticmethod
        def backward(ctx, g):
            return g * (ctx.n + 1), None

    x = leaf(m, 1.0)
    y = Power.apply(x, 3)
    y.sum().backward()
    return y, x.grad


@like_pytorch
def test_a_backward_pass_inside_backward(m):
    modes = []

    def backward(ctx, g):
        modes.append(m.is_grad_enabled())
        inner = leaf(m, 3.0)
        with m.enable_grad():
            y = (inner * inner).sum()
        y.backward()
        modes.append(m.is_grad_enabled())
        return g * inner.grad

    x = leaf(m, 1.0)
    mine = function(m, lambda ctx, x: x * 1, backward)
    mine.apply(x * 1).sum().backward()
    (g,) = m.autograd.grad(mine.apply(x * 1).sum(), x, create_graph=True)
    return modes, x.grad, g, m.is_grad_enabled()


@like_pytorch
def test_a_backward_pass_inside_forward(m):
    def forward(ctx, x):
        inner = leaf(m, 3.0)
        with m.enable_grad():
            y = (inner * inner).sum()
        y.backward()
        ctx.g = inner.grad
        return x * ctx.g

    x = leaf(m, 1.0)
    function(m, forward, lambda ctx, g: g * ctx.g).apply(x).sum().backward()
    return x.grad


@like_pytorch
def test_grad_mode_and_gradients_in_backward(m):
    seen, x = [], leaf(m, 1.0)

    def backward(ctx, g):
        seen.append((m.is_grad_enabled(), g.requires_grad))
        return g

    mine = function(m, lambda ctx, x: x * 1, backward)
    mine.apply(x).sum().backward()
    m.autograd.grad(mine.apply(x).sum(), x, create_graph=True)
    m.autograd.grad((mine.apply(x) ** 2).sum(), x, create_graph=True)
    return seen


@like_pytorch
def test_threads_apply_one_function(m):
    square, _ = functions(m)
    shared, found = leaf(m, 5.0), [None] * 4

    def work(i):
        x = leaf(m, float(i))
        (square.apply(x) * square.apply(shared)).sum().backward(inputs=[x])
        found[i] = x.grad.tolist()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return found


@like_pytorch
def test_a_graph_without_saved_tensors_can_be_walked_again(m):
    x = leaf(m, 1.0)
    y = function(m, lambda ctx, x: x * 2, lambda ctx, g: g * 2).apply(x)
    y.sum().backward()
    y.sum().backward()
    return x.grad


@like_pytorch
def test_a_function_inherits_its_methods(m):
    square, _ = functions(m)

    class Other(square):
        scale = 7

        @classmethod
        def backward(cls, ctx, g):
            return g * cls.scale * ctx._forward_cls.scale

    x = leaf(m, 1.0)
    y = Other.apply(x)
    y.sum().backward()
    return name_of(y.grad_fn), x.grad


@like_pytorch
def test_an_inplace_function(m):
    class Double(m.autograd.function.InplaceFunction):
        @staticmethod
        def forward(ctx, x, inplace):
            if inplace:
                ctx.mark_dirty(x)
                return x.mul_(2)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    x = leaf(m, 1.0)
    h = x * 1
    y = Double.apply(h, True)
    y.sum().backward()
    return y is h, x.grad, Double.apply(x, False), Double(inplace=True).inplace, Double().inplace


@like_pytorch
def test_what_a_function_defines_for_other_transforms_does_not_disturb(m):
    mine = function(m, lambda x: x * 2, lambda ctx, g: g * 2, setup_context=lambda ctx, i, o: None, vmap=lambda *a: None, jvp=lambda *a: None)
    mine.generate_vmap_rule = True
    x = leaf(m, 1.0)
    mine.apply(x).sum().backward()
    return x.grad, error_of(lambda: function(m, lambda ctx, x: x).vmap(None, None)), error_of(lambda: function(m, lambda ctx, x: x).jvp(None))
