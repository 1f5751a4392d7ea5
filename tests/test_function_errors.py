"""autograd.Function against PyTorch: what is refused and in which words, and what an exception leaves behind."""

from __future__ import annotations

import warnings

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from functions import function, functions  # noqa: E402
from side_by_side import error_of, leaf, like_pytorch, plain  # noqa: E402 - needs torch


@like_pytorch
def test_marks_take_tensors_only(m):
    found = []
    for mark in ("mark_dirty", "mark_non_differentiable"):
        f = function(m, lambda ctx, x, mark=mark: getattr(ctx, mark)(3) or x * 1, lambda ctx, g: g)
        found.append(error_of(lambda f=f: f.apply(leaf(m, 1.0))))
    return found


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
def test_gradients_for_inputs_that_are_no_tensors_are_ignored_or_refused(m):
    x = leaf(m, 1.0)
    y = function(m, lambda ctx, x, k: x * k, lambda ctx, g: (g, g)).apply(x, 2)
    return error_of(y.sum().backward), x.grad


@like_pytorch
def test_save_for_backward_takes_tensors_only(m):
    function(m, lambda ctx, x: ctx.save_for_backward(3) or x * 1, lambda ctx, g: g).apply(leaf(m, 1.0))


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
def test_backward_and_vjp_exclude_each_other(m):
    f = function(m, lambda ctx, x: x * 1, lambda ctx, g: g, vjp=lambda ctx, g: g)
    f.apply(leaf(m, 1.0)).sum().backward()


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


@pytest.mark.parametrize("given", [(), (1,), (3.0, 4.0)], ids=str)
def test_gradients_of_a_scalar_input_of_any_shape_are_summed(given):
    def program(m):
        x = m.tensor(2.0, requires_grad=True)
        y = function(m, lambda ctx, x: x * 1, lambda ctx, g: m.ones(tuple(map(int, given)))).apply(x)
        return plain([error_of(y.backward), x.grad])

    assert program(tj) == program(torch)


@pytest.mark.parametrize("shape", [(1, 2), (3, 2), (2, 2, 2), (4,)], ids=str)
def test_gradients_that_were_expanded_are_summed(shape):
    def program(m):
        x = leaf(m, 1.0, 2.0)
        y = function(m, lambda ctx, x: x * 1, lambda ctx, g: m.ones(shape, dtype=m.float64)).apply(x)
        return plain([error_of(y.sum().backward), x.grad])

    assert program(tj) == program(torch)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "complex64"])
def test_gradients_of_another_dtype(dtype):
    @like_pytorch
    def program(m):
        kind = getattr(m, dtype)
        x, z = leaf(m, 1.0), m.tensor([1 + 1j], requires_grad=True)
        of_x = function(m, lambda ctx, x: x * 1, lambda ctx, g: m.ones(1, dtype=kind)).apply(x)
        of_z = function(m, lambda ctx, x: x * 1, lambda ctx, g: m.ones(1, dtype=kind)).apply(z)
        found = error_of(of_x.sum().backward), error_of(of_z.abs().sum().backward)
        return found, x.grad, None if z.grad is None else (z.grad.real, z.grad.imag)

    program()


@like_pytorch
def test_gradients_for_inputs_that_need_none_are_dropped_if_they_are_tensors(m):
    x, k, n = leaf(m, 1.0), m.ones(3), m.ones(3, dtype=m.int64)
    found = []
    for wrong in (m.ones(7), "text"):
        y = function(m, lambda ctx, x, k, n: x * 1, lambda ctx, g, wrong=wrong: (g, wrong, m.ones(5))).apply(x, k, n)
        found.append(error_of(y.sum().backward))
    return found, x.grad, k.grad


@like_pytorch
def test_lists_are_no_tuples_of_gradients(m):
    a, b = leaf(m, 1.0), leaf(m, 2.0)
    two = function(m, lambda ctx, a, b: a * b, lambda ctx, g: [g, g]).apply(a, b)
    one = function(m, lambda ctx, a: a * 1, lambda ctx, g: [g]).apply(a)
    return error_of(two.sum().backward), error_of(one.sum().backward)


@like_pytorch
def test_arguments_that_do_not_fit_forward(m):
    def combined(ctx, x, a=1, b=2):
        return x * a + b

    def separate(x, k=2):
        return x * k

    def by_name_only(x, *, k=2):
        return x * k

    x = leaf(m, 1.0)
    f = function(m, combined)
    g = function(m, separate, setup_context=lambda ctx, i, o: None)
    h = function(m, by_name_only, setup_context=lambda ctx, i, o: None)
    calls = [
        lambda: f.apply(), lambda: f.apply(x, 1, 2, 3), lambda: f.apply(x, b=1), lambda: f.apply(a=1), lambda: f.apply(x, x=x),
        lambda: f.apply(x, other=1), lambda: g.apply(), lambda: g.apply(x, 1, 2), lambda: g.apply(x, other=1), lambda: g.apply(k=1),
        lambda: h.apply(x), lambda: h.apply(x, k=3),
    ]  # fmt: skip
    return [error_of(call)[0] if "ctx" in str(error_of(call)) else error_of(call) for call in calls][1:]


@like_pytorch
def test_the_methods_that_function_itself_has(m):
    base = m.autograd.Function
    calls = [
        lambda: base.forward(1), lambda: base.backward(1), lambda: base.vjp(1), lambda: base.jvp(1), lambda: base.vmap(1, 2),
        lambda: base.setup_context(1, 2, 3), lambda: base.apply(1),
    ]  # fmt: skip
    return [error_of(call) for call in calls], base.generate_vmap_rule


@like_pytorch
def test_methods_that_are_not_static_work_on_the_class(m):
    class Old(m.autograd.Function):
        def forward(ctx, x):
            return x * 2

        def backward(ctx, g):
            return g * 2

    x = leaf(m, 1.0)
    Old.apply(x).sum().backward()
    return x.grad, error_of(lambda: Old.forward(None, x))


@like_pytorch
def test_nested_io_functions_cannot_be_applied(m):
    class Nested(m.autograd.function.NestedIOFunction):
        def forward_extended(self, x):
            return x

    return error_of(lambda: Nested.apply(leaf(m, 1.0)))


@like_pytorch
def test_settings_of_ctx_take_the_right_types(m):
    found = []
    for value in (1, None, "text"):
        f = function(m, lambda ctx, x, value=value: ctx.set_materialize_grads(value) or x * 1)
        found.append(error_of(lambda f=f: f.apply(leaf(m, 1.0))))
        for given in (leaf(m, 1.0), m.ones(1)):
            g = function(m, lambda ctx, x, value=value: ctx.save_for_backward(value) or x * 1)
            found.append(error_of(lambda g=g, given=given: g.apply(given)))
    found.append(error_of(lambda: function(m, lambda ctx, x: ctx.save_for_forward(3) or x * 1).apply(leaf(m, 1.0))))
    return found


@like_pytorch
def test_an_exception_is_the_users_own(m):
    class Mine(Exception):
        pass

    raised, found = Mine("text"), []

    def fail(*args):
        raise raised

    x = leaf(m, 1.0)
    in_forward = function(m, fail)
    in_setup = function(m, lambda x: x * 1, setup_context=fail)
    in_backward = function(m, lambda ctx, x: x * 1, fail)
    for call in (lambda: in_forward.apply(x), lambda: in_setup.apply(x), in_backward.apply(x * 1).sum().backward):
        try:
            call()
        except Mine as error:
            found.append((error is raised, m.is_grad_enabled()))
    (x * 2).sum().backward()
    return found, x.grad


@like_pytorch
def test_grad_mode_after_a_function_that_changes_it(m):
    def forward(ctx, x):
        m.set_grad_enabled(True)
        return x * 1

    with m.no_grad():
        function(m, forward).apply(leaf(m, 1.0))
        return m.is_grad_enabled()
