"""autograd.Function against PyTorch: contexts, kinds of inputs and outputs, marks, errors, what is freed."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch, plain  # noqa: E402 - needs torch


def functions(m):
    """The Functions that several tests use, made on the library `m`."""

    class Square(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    class Cube(m.autograd.Function):
        @staticmethod
        def forward(x):
            return x * x * x, x.detach().clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.set_materialize_grads(True)

        @staticmethod
        def backward(ctx, g, unused):
            (x,) = ctx.saved_tensors
            return g * 3 * x * x + unused

    return Square, Cube


def function(m, forward, backward, name="Mine", **more):
    """A Function of the given two functions."""
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward), **{k: staticmethod(v) for k, v in more.items()}}
    return type(name, (m.autograd.Function,), methods)


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
def test_names_of_the_node(m):
    square, _ = functions(m)
    y = square.apply(leaf(m, 1.0))
    node = y.grad_fn
    return node.name(), type(node).__name__, [(type(n).__name__, i) for n, i in node.next_functions], isinstance(node, m.autograd.graph.Node)


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
def test_needs_input_grad(m):
    seen = []

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        return g, None, g, None

    def forward(ctx, a, k, b, c):
        seen.append(ctx.needs_input_grad)
        return a + b + c

    a, b, c = leaf(m, 1.0), leaf(m, 2.0), m.ones(1, dtype=m.float64)
    function(m, forward, backward).apply(a, "text", b, c).sum().backward()
    return seen, a.grad, b.grad, c.grad


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
def test_mark_dirty_gives_the_input_the_node(m):
    def forward(ctx, x):
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    x = leaf(m, 1.0, 2.0)
    h = x * 1
    y = function(m, forward, lambda ctx, g: 3 * g).apply(h)
    version = h._version
    (y * y).sum().backward()
    return y is h, h.grad_fn.name(), version, x.grad


@like_pytorch
def test_mark_dirty_of_a_leaf_is_refused(m):
    def forward(ctx, x):
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    function(m, forward, lambda ctx, g: g).apply(leaf(m, 1.0))


@like_pytorch
def test_a_dirty_input_must_be_returned(m):
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x * 2

    function(m, forward, lambda ctx, g: g).apply(leaf(m, 1.0) * 1)


@like_pytorch
def test_mark_dirty_of_a_view(m):
    def forward(ctx, x):
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    mine = function(m, forward, lambda ctx, g: 3 * g)
    x = leaf(m, 1.0, 2.0)
    h = x * 1
    y = mine.apply(h[:1])
    (h * h).sum().backward()
    return y, h._version, type(h.grad_fn).__name__, x.grad, error_of(lambda: mine.apply(x.view(2)))


@like_pytorch
def test_marks_take_tensors_only(m):
    found = []
    for mark in ("mark_dirty", "mark_non_differentiable"):
        f = function(m, lambda ctx, x, mark=mark: getattr(ctx, mark)(3) or x * 1, lambda ctx, g: g)
        found.append(error_of(lambda f=f: f.apply(leaf(m, 1.0))))
    return found


@like_pytorch
def test_returning_an_input_gives_a_new_tensor_on_its_memory(m):
    x = leaf(m, 1.0, 2.0)
    y = function(m, lambda ctx, x: x, lambda ctx, g: g * 10).apply(x)
    y.sum().backward()
    return y is x, y.grad_fn.name(), y.data_ptr() == x.data_ptr(), x.grad, x.is_leaf


@like_pytorch
def test_returning_a_view_of_an_input(m):
    x = leaf(m, 1.0, 2.0)
    y = function(m, lambda ctx, x: x.view(2, 1), lambda ctx, g: g.view(2) * 10).apply(x)
    y.sum().backward()
    return y, y.grad_fn.name(), x.grad


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


@pytest.mark.parametrize("returned", [(1.0,), (1.0, 2.0, 3.0), (1.0, 2.0, None), (1.0, None), (1.0, 2.0, None, None), ()], ids=str)
def test_number_of_gradients(returned):
    def program(m):
        a, b = leaf(m, 1.0), leaf(m, 2.0)
        given = tuple(None if r is None else m.full((1,), r, dtype=m.float64) for r in returned)
        y = function(m, lambda ctx, a, b: a * b, lambda ctx, g: given).apply(a, b)
        return plain([error_of(y.backward), a.grad, b.grad])

    assert program(tj) == program(torch)


@pytest.mark.parametrize("shape", [(3,), (2, 2), (), (1,), (2, 1), (1, 2), (0,)], ids=str)
def test_shape_of_gradients(shape):
    def program(m):
        x = leaf(m, 1.0, 2.0)
        y = function(m, lambda ctx, x: x * 2, lambda ctx, g: m.ones(shape, dtype=m.float64)).apply(x)
        return plain([error_of(y.sum().backward), x.grad])

    assert program(tj) == program(torch)


@pytest.mark.parametrize("wrong", [3, "text", [1.0], 2.5], ids=str)
def test_type_of_gradients(wrong):
    def program(m):
        x = leaf(m, 1.0, 2.0)
        y = function(m, lambda ctx, x: x * 2, lambda ctx, g: wrong).apply(x)
        return plain([error_of(y.sum().backward), x.grad])

    assert program(tj) == program(torch)


@like_pytorch
def test_gradients_are_cast_to_the_dtype_of_the_input(m):
    x = leaf(m, 1.0, 2.0)
    function(m, lambda ctx, x: x * 2, lambda ctx, g: g.float() * 2).apply(x).sum().backward()
    return x.grad


@like_pytorch
def test_gradients_for_inputs_that_are_no_tensors_are_ignored_or_refused(m):
    x = leaf(m, 1.0)
    y = function(m, lambda ctx, x, k: x * k, lambda ctx, g: (g, g)).apply(x, 2)
    return error_of(y.sum().backward), x.grad


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
def test_save_for_backward_takes_tensors_only(m):
    function(m, lambda ctx, x: ctx.save_for_backward(3) or x * 1, lambda ctx, g: g).apply(leaf(m, 1.0))


@like_pytorch
def test_attributes_of_ctx_are_those_of_the_node(m):
    def forward(ctx, x):
        ctx.note = "kept"
        return x * 1

    y = function(m, forward, lambda ctx, g: g).apply(leaf(m, 1.0))
    return y.grad_fn.note, error_of(lambda: y.grad_fn.other)[0]


@pytest.mark.parametrize("m", [torch, tj], ids=["torch", "ours"])
def test_ctx_goes_with_the_graph(m):
    class Thing:
        pass

    def forward(ctx, x):
        ctx.thing = Thing()
        things.append(weakref.ref(ctx.thing))
        y = x * 1
        ctx.save_for_backward(x, y)
        return y

    things = []
    gc.collect()
    gc.disable()
    try:
        y = function(m, forward, lambda ctx, g: g).apply(leaf(m, 1.0))
        assert things[0]() is not None
        del y
        assert things[0]() is None
    finally:
        gc.enable()


@like_pytorch
def test_missing_methods(m):
    class Empty(m.autograd.Function):
        pass

    class NoBackward(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

    class NoSetup(m.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 1

    x = leaf(m, 1.0)
    return error_of(lambda: Empty.apply(x)), error_of(NoBackward.apply(x).sum().backward), (error_of(lambda: NoSetup.apply(x)) or [None])[0]


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
def test_backward_and_vjp_exclude_each_other(m):
    f = function(m, lambda ctx, x: x * 1, lambda ctx, g: g, vjp=lambda ctx, g: g)
    f.apply(leaf(m, 1.0)).sum().backward()


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


@like_pytorch
def test_old_style_functions_are_refused(m):
    class Old(m.autograd.Function):
        def forward(self, x):
            return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old = Old()
    return error_of(lambda: old(leaf(m, 1.0)))


@like_pytorch
def test_an_exception_in_forward_restores_grad_mode(m):
    def forward(ctx, x):
        raise KeyError("from forward")

    error = error_of(lambda: function(m, forward, lambda ctx, g: g).apply(leaf(m, 1.0)))
    return error, m.is_grad_enabled()


@like_pytorch
def test_an_exception_in_backward_leaves_the_graph_usable(m):
    fail = [True]

    def backward(ctx, g):
        if fail[0]:
            raise KeyError("from backward")
        return g * 2

    x = leaf(m, 1.0)
    y = function(m, lambda ctx, x: x * 2, backward).apply(x).sum()
    first = error_of(lambda: y.backward(retain_graph=True))
    fail[0] = False
    y.backward()
    return first, x.grad, m.is_grad_enabled()


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
def test_hooks_on_a_function_node(m):
    square, _ = functions(m)
    x, seen = leaf(m, 1.0, 2.0), []
    y = square.apply(x)
    y.register_hook(lambda g: g * 10)
    y.grad_fn.register_hook(lambda gi, go: seen.append((gi, go)))
    y.retain_grad()
    y.sum().backward()
    return seen, x.grad, y.grad


@like_pytorch
def test_lists_of_outputs_are_outputs_only_as_tuples(m):
    found = []
    for make in (list, tuple):
        f = function(m, lambda ctx, x, make=make: make([x * 1, x * 2]), lambda ctx, *g: g[0])
        found.append(error_of(lambda f=f: f.apply(leaf(m, 1.0))))
    return found


@like_pytorch
def test_instances_are_deprecated(m):
    square, _ = functions(m)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error = error_of(square)
    return error, [w.category.__name__ for w in caught]


@like_pytorch
def test_a_function_in_a_loop_gives_the_same_at_every_turn(m):
    square, _ = functions(m)
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(5):
        (square.apply(w * (i + 1.0)) * 2).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen
