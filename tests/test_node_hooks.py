"""Hooks on nodes: what they see and may replace, which gradients are there, what they may return."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch

from compat_suite.fuzz.programs import same  # noqa: E402


def shown(grads):
    return [None if g is None else g.tolist() for g in grads]


@like_pytorch
def test_a_hook_sees_only_the_gradients_that_the_pass_needs(m):
    x, w = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
    y, seen = x * w, []
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(shown(inputs)))
    m.autograd.grad(y.sum(), x, retain_graph=True)
    m.autograd.grad(y.sum(), w, create_graph=True)
    y.sum().backward(inputs=[w], retain_graph=True)
    y.sum().backward()
    return seen, x.grad, w.grad


@like_pytorch
def test_a_node_of_a_list_of_tensors_computes_them_all(m):
    x, w = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
    y, seen = m.cat([x, w]), []
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(shown(inputs)))
    m.autograd.grad(y.sum(), x, retain_graph=True)
    m.autograd.grad(y.sum(), x, create_graph=True)
    return seen


@like_pytorch
def test_a_node_of_a_list_of_tensors_computes_the_gradients_of_those_that_need_none(m):
    x, seen = leaf(m, 1.0, 2.0), []
    for others in ([m.tensor([1, 2])], [m.tensor([1.0, 2.0]), m.tensor([True, False])], [m.tensor([1j, 2.0])]):
        for y in (m.cat([*others, x]), m.stack([x, *others])):
            y.grad_fn.register_hook(lambda inputs, outputs: seen.append((shown(inputs), inputs)))
            y.real.sum().backward(retain_graph=True)
            y.real.sum().backward(create_graph=True)
            seen.append(y.grad_fn(m.ones_like(y)))
    x.grad = None
    y = m.cat([m.tensor([1.0]), x])
    y.grad_fn.register_hook(lambda inputs, outputs: tuple(g * 2 for g in inputs))
    y.sum().backward()
    return seen, x.grad


@like_pytorch
def test_a_node_of_a_list_of_tensors_none_of_which_leads_anywhere_computes_nothing(m):
    seen = []
    with m.no_grad():
        v, w = leaf(m, 1.0, 2.0).split(1)
    x = leaf(m, 3.0)
    index = (m.tensor([0]),)
    for y in (m.cat([v, w]), m.stack([v, w]), m.cat([v, x]), v[index], v.index_put(index, w), v.index_put(index, x), x.index_put(index, v)):
        y.grad_fn.register_hook(lambda inputs, outputs: seen.append(shown(inputs)))
        y.sum().backward(retain_graph=True)
        y.sum().backward(create_graph=True)
    return seen


@like_pytorch
def test_a_function_computes_all_its_gradients_whatever_the_pass_needs(m):
    class Product(m.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * b

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.needs_input_grad)
            return g * 2, g * 3

    x, w, seen = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0), []
    y = Product.apply(x, w)
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(shown(inputs)))
    m.autograd.grad(y.sum(), x)
    return seen


@like_pytorch
def test_a_write_to_a_view_computes_what_the_pass_needs(m):
    x, w, seen = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0), []
    y = x * 1
    y[:1].mul_(w[:1])
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(shown(inputs)))
    m.autograd.grad(y.sum(), x, retain_graph=True)
    m.autograd.grad(y.sum(), w, retain_graph=True)
    y.sum().backward()
    return seen, x.grad, w.grad


@like_pytorch
def test_a_prehook_replaces_what_comes_in_and_a_hook_what_goes_out(m):
    x = leaf(m, 1.0, 2.0)
    y = x.exp()
    y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 5,))
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] + outputs[0],))
    y.sum().backward()
    return x.grad


@like_pytorch
def test_prehooks_see_none_for_outputs_without_gradient(m):
    x, seen = leaf(m, 1.0, 2.0, 3.0), []
    parts = x.unbind()
    parts[0].grad_fn.register_prehook(lambda outputs: seen.append(shown(outputs)))
    parts[0].grad_fn.register_hook(lambda inputs, outputs: seen.append([shown(inputs), shown(outputs)]))
    parts[1].register_hook(lambda g: seen.append(["tensor", g if g is None else g.tolist()]))
    parts[2].backward()
    return seen


@like_pytorch
def test_what_hooks_may_not_return(m):
    found = []
    for bad in ("a", 5, (1, 2), m.ones(3), m.ones(2), m.ones(2, dtype=m.complex128)):
        x = leaf(m, 1.0, 2.0)
        y = x.exp()
        for register, hook in (
            (y.register_hook, lambda g, bad=bad: bad),
            (y.grad_fn.register_hook, lambda inputs, outputs, bad=bad: bad),
            (y.grad_fn.register_prehook, lambda outputs, bad=bad: bad),
            (x.register_hook, lambda g, bad=bad: bad),
        ):
            handle = register(hook)
            found.append(error_of(lambda y=y: y.sum().backward(retain_graph=True)))
            handle.remove()
    return found


@like_pytorch
def test_hooks_of_an_accumulator_that_is_kept_by_hand(m):
    x, seen = leaf(m, 1.0, 2.0), []
    accumulator = x.view_as(x).grad_fn.next_functions[0][0]
    accumulator.register_prehook(lambda outputs: seen.append(["before", shown(outputs), x.grad is None]))
    accumulator.register_hook(lambda inputs, outputs: seen.append(["after", shown(inputs), shown(outputs), x.grad.tolist()]))
    x.register_post_accumulate_grad_hook(lambda t: seen.append("accumulated"))
    x.register_hook(lambda g: seen.append("tensor"))
    for _ in range(3):
        (x * 3).sum().backward()
    return seen


@like_pytorch
def test_hooks_may_remove_and_add_hooks_while_they_run(m):
    x, seen, handles = leaf(m, 1.0, 2.0), [], []
    y = x * 2

    def first(g):
        seen.append("first")
        handles[0].remove()
        handles[2].remove()

    def second(g):
        seen.append("second")
        y.register_hook(lambda g: seen.append("added"))

    handles += [y.register_hook(first), y.register_hook(second), y.register_hook(lambda g: seen.append("third"))]
    loss = y.sum()
    for _ in range(2):
        loss.backward(retain_graph=True)
        seen.append("|")
    return seen


@like_pytorch
def test_the_hooks_of_a_tensor_can_be_listed(m):
    x = leaf(m, 1.0)
    y, before = x * 2, x._backward_hooks
    handle = y.register_hook(print)
    return before, len(y._backward_hooks), handle.id in y._backward_hooks, handle.remove(), len(y._backward_hooks), m.ones(1)._backward_hooks


@like_pytorch
def test_a_hook_sees_no_gradient_where_the_edge_leads_nowhere(m):
    x, seen = leaf(m, 1.0, 2.0), []
    with m.no_grad():
        v = x[:]
    y = v[1]
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append([shown(inputs), shown(outputs)]))
    y.backward()
    return seen


@pytest.mark.parametrize("operation", ["v.as_strided((4,), (1,), 0)", "v.exp()", "v * x", "v + x", "v[0]", "v.neg() + v"])
def test_a_hook_sees_no_gradient_that_goes_nowhere(operation):
    same(f"""
        x = leaf(2, 2)
        with torch.no_grad(): v = x.view(2, 2)
        y = {operation}
        h = y.grad_fn.register_hook(hook_of_node(1))
        y.sum().backward()
    """)


@pytest.mark.parametrize("made", ["cat([x, w])", "stack([x, w])", "cat([a, b], 0)", "x[torch.tensor([1, 0])]", "exp(x)"])
def test_a_node_of_a_list_of_tensors_computes_none_where_none_is_needed(made):
    same(f"""
        x, w = leaf(2, seed=1), leaf(2)
        with torch.no_grad(): a, b = x.split(1)
        y = {made if made.startswith("x[") else "torch." + made}
        h = y.grad_fn.register_hook(hook_of_node(1))
        y.square().sum().backward(inputs=[y], retain_graph=True)
        y.square().sum().backward()
    """)


def _product(m):
    class Product(m.autograd.Function):
        @staticmethod
        def forward(ctx, x, number, w):
            ctx.save_for_backward(w)
            return x * w

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0], None, g * 5

    return Product


@pytest.mark.parametrize("twice", [False, True])
def test_hooks_of_a_function_see_what_backward_gives_inputs_that_need_no_gradient(twice):
    @like_pytorch
    def program(m):
        seen, x = [], leaf(m, 1.0, 2.0)
        y = _product(m).apply(x, 3, m.tensor([3.0, 4.0]))
        y.grad_fn.register_hook(lambda gi, go: seen.append([gi, go]))
        y.sum().backward(create_graph=twice)
        return seen, x.grad

    program()


@like_pytorch
def test_a_gradient_that_no_input_needs_is_not_replaced_by_one_of_another_size(m):
    y = _product(m).apply(leaf(m, 1.0, 2.0), 3, m.ones(2))
    y.grad_fn.register_hook(lambda gi, go: (gi[0], m.ones(3)))
    y.sum().backward()
