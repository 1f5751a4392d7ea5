"""`backward` and `grad` against PyTorch: where gradients go, how often a graph may be used, derivatives of derivatives."""

from __future__ import annotations

import importlib
import warnings

import pytest

import torchgrad_jax as tj

pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch

# ---------------------------------------------------------------------- where gradients go


@like_pytorch
def test_backward_accumulates_into_grad_in_place(m):
    w = leaf(m, 1.0, 2.0)
    (w * 3).sum().backward()
    first = w.grad
    (w * w).sum().backward()
    return w.grad is first, first, first._version


@like_pytorch
def test_another_reference_to_grad_sees_the_accumulation(m):
    w = leaf(m, 1.0, 2.0)
    w.grad = given = m.ones(2, dtype=m.float64)
    part = given[:1]
    (w * 3).sum().backward()
    return w.grad is given, given, part


@like_pytorch
def test_create_graph_replaces_grad(m):
    w = leaf(m, 1.0, 2.0)
    (w * w).sum().backward()
    first = w.grad
    (w * w * w).sum().backward(create_graph=True)
    return w.grad is first, first, w.grad, w.grad.grad_fn is not None


def test_backward_with_create_graph_warns_once_of_the_reference_cycle():
    importlib.import_module("torchgrad_jax.autograd.backward")._warn_of_cycle.cache_clear()
    w = tj.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="create_graph=True will create a reference cycle") as caught:
        for _ in range(3):
            (w * w).sum().backward(create_graph=True)
    assert len(caught) == 1 and caught[0].filename == __file__


@like_pytorch
def test_two_leaves_that_share_a_gradient_have_grads_of_their_own(m):
    a, b = leaf(m, 1.0), leaf(m, 2.0)
    (a + b).sum().backward()
    a.grad.mul_(10)
    return a.grad, b.grad


@like_pytorch
def test_gradient_of_a_root_leaf_is_the_given_gradient(m):
    w = leaf(m, 1.0, 2.0)
    w.backward(m.tensor([3.0, 4.0], dtype=m.float64))
    return w.grad


@like_pytorch
def test_the_given_gradient_is_not_written_to(m):
    w, given = leaf(m, 1.0, 2.0), m.ones(2, dtype=m.float64)
    w.backward(given)
    w.backward(given)
    return w.grad, given


@like_pytorch
def test_backward_of_several_roots_adds_up(m):
    w = leaf(m, 1.0, 2.0)
    y, z = w * 2, w * w
    m.autograd.backward([y, z, z], [m.ones(2), m.ones(2, dtype=m.float64), 2 * m.ones(2, dtype=m.float64)])
    return w.grad


@like_pytorch
def test_backward_inputs_touches_only_those_leaves(m):
    a, b = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
    y = (a * b).sum()
    y.backward(inputs=[a], retain_graph=True)
    before = a.grad, b.grad
    y.backward(inputs=b)
    return before, a.grad, b.grad


@like_pytorch
def test_backward_inputs_fills_the_grad_of_a_non_leaf(m):
    a = leaf(m, 1.0, 2.0)
    h = a * a
    y = (h * 3).sum()
    y.backward(inputs=[h], retain_graph=True)
    y.backward(inputs=[h, a])
    return h.grad, a.grad


@like_pytorch
def test_backward_with_empty_inputs_is_refused(m):
    leaf(m, 1.0).sum().backward(inputs=[])


@like_pytorch
def test_grad_returns_gradients_and_touches_no_grad(m):
    a, b = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
    return m.autograd.grad((a * b).sum(), [b, a]), a.grad, b.grad


@like_pytorch
def test_grad_of_a_non_leaf_and_of_the_output_itself(m):
    a = leaf(m, 1.0, 2.0)
    h = a * a
    y = h.sum()
    return m.autograd.grad(y, [y, h, a])


@like_pytorch
def test_grad_lists_an_input_as_often_as_it_is_asked_for(m):
    a = leaf(m, 1.0, 2.0)
    first, second, third = m.autograd.grad((a * a).sum(), [a, a, a])
    first.mul_(5)
    return first, second, third


@like_pytorch
def test_grad_of_an_unused_input_is_an_error(m):
    a, b = leaf(m, 1.0), leaf(m, 2.0)
    m.autograd.grad(a.sum(), [a, b])


@like_pytorch
def test_grad_of_an_unused_input_is_none_or_zeros_on_demand(m):
    a, b = leaf(m, 1.0), leaf(m, 2.0)
    y = (a * a).sum()
    unused = m.autograd.grad(y, [a, b], allow_unused=True, retain_graph=True)
    return unused, m.autograd.grad(y, [b, a], materialize_grads=True)


@like_pytorch
def test_materialize_grads_contradicts_allow_unused_false(m):
    a = leaf(m, 1.0)
    m.autograd.grad(a.sum(), a, materialize_grads=True, allow_unused=False)


@like_pytorch
def test_grad_of_an_input_that_requires_none_is_an_error(m):
    m.autograd.grad(leaf(m, 1.0).sum(), m.ones(1))


@like_pytorch
def test_grad_of_an_output_without_a_graph_is_an_error(m):
    m.autograd.grad(m.ones(1), leaf(m, 1.0))


@like_pytorch
def test_grad_outputs_weigh_the_outputs(m):
    a = leaf(m, 1.0, 2.0)
    return m.autograd.grad([a * 2, a * a], a, [m.tensor([1.0, 10.0], dtype=m.float64), m.ones(2, dtype=m.float64)])


@like_pytorch
def test_only_nodes_that_lead_to_the_inputs_run(m):
    a, b = leaf(m, 1.0), leaf(m, 2.0)
    ran = []
    x, y = a.exp(), b.sin()
    for t in (x, y):
        t.grad_fn.register_hook(lambda gi, go, t=t: ran.append(t.grad_fn.name()))
    m.autograd.grad((x * y).sum(), a)
    return ran


@like_pytorch
def test_hooks_of_unwanted_leaves_do_not_run(m):
    a, b = leaf(m, 1.0), leaf(m, 2.0)
    ran = []
    a.register_hook(lambda g: ran.append("a"))
    b.register_hook(lambda g: ran.append("b"))
    y = (a * b).sum()
    m.autograd.grad(y, b, retain_graph=True)
    y.backward(inputs=[a])
    return ran


@like_pytorch
def test_gradients_have_the_dtype_of_their_tensor(m):
    a, b = leaf(m, 1.0, dtype="float32"), leaf(m, 2.0)
    (a * b).sum().backward()
    return a.grad, b.grad


# ---------------------------------------------------------------------- how long a graph lives


@like_pytorch
def test_second_backward_is_refused(m):
    y = leaf(m, 1.0).exp().sum()
    y.backward()
    y.backward()


@like_pytorch
def test_second_grad_is_refused(m):
    a = leaf(m, 1.0)
    y = a.exp().sum()
    m.autograd.grad(y, a)
    m.autograd.grad(y, a)


@like_pytorch
def test_retain_graph_lets_backward_run_again(m):
    a = leaf(m, 1.0, 2.0)
    y = (a * a).sum()
    y.backward(retain_graph=True)
    y.backward()
    return a.grad, error_of(y.backward)


@like_pytorch
def test_graph_that_saves_nothing_can_run_again(m):
    a = leaf(m, 1.0, 2.0)
    y = (a + 1).sum()
    y.backward()
    y.backward()
    return a.grad


@like_pytorch
def test_part_of_a_freed_graph_still_fails_in_another_graph(m):
    a = leaf(m, 1.0, 2.0)
    h = a * a
    h.sum().backward()
    y = (h * 2).sum()
    return error_of(y.backward), a.grad


@like_pytorch
def test_saved_tensors_cannot_be_read_after_backward(m):
    y = leaf(m, 1.0).exp()
    saved = y.grad_fn._saved_result
    y.sum().backward()
    return saved, error_of(lambda: y.grad_fn._saved_result)


# ---------------------------------------------------------------------- derivatives of derivatives


@like_pytorch
def test_triple_backward(m):
    x = leaf(m, 0.5, -1.5)
    y = (x.sin() * x * x * x).sum()
    first = m.autograd.grad(y, x, create_graph=True)[0]
    second = m.autograd.grad(first.sum(), x, create_graph=True)[0]
    third = m.autograd.grad(second.sum(), x)[0]
    return first, second, third, third.requires_grad


@like_pytorch
def test_gradient_penalty_mixes_both_orders(m):
    x, w = leaf(m, 0.5, -1.5), leaf(m, 2.0, 3.0)
    y = ((x * w).tanh() * w).sum()
    g = m.autograd.grad(y, x, create_graph=True)[0]
    (y + (g * g).sum()).backward()
    return x.grad, w.grad


@like_pytorch
def test_create_graph_retains_the_graph(m):
    x = leaf(m, 2.0)
    y = (x * x * x).sum()
    (g,) = m.autograd.grad(y, x, create_graph=True)
    g.sum().backward()
    y.backward()
    return g, x.grad


@like_pytorch
def test_second_derivative_of_a_linear_function_has_no_graph(m):
    x = leaf(m, 2.0)
    (g,) = m.autograd.grad((x * 3).sum(), x, create_graph=True)
    return g.requires_grad, error_of(g.sum().backward)


@like_pytorch
def test_gradient_flows_to_a_differentiable_cotangent(m):
    x, v = leaf(m, 1.0, 2.0), leaf(m, 1.0, 1.0)
    (g,) = m.autograd.grad((x * x), x, v, create_graph=True)
    return g, m.autograd.grad(g.sum(), [v, x])


# ---------------------------------------------------------------------- several outputs


@like_pytorch
def test_unused_outputs_of_a_node_count_as_zero(m):
    x = leaf(m, 1.0, 5.0, 3.0)
    values, _ = x.sort()
    a, b, c = x.unbind(0)
    (values[0] * 2 + b * 3).backward()
    return x.grad


@like_pytorch
def test_outputs_used_in_separate_passes(m):
    x = m.tensor([[2.0, 1.0], [0.0, 3.0]], requires_grad=True)
    first, second = x.unbind(0)
    first.sum().backward()
    (second * 2).sum().backward()
    return x.grad


@like_pytorch
def test_gradient_of_one_output_of_several(m):
    x = leaf(m, 1.0, 5.0, 3.0)
    a, b, c = x.unbind(0)
    y = a * b + b * c
    return m.autograd.grad(y, [b, c])


@like_pytorch
def test_integer_results_require_no_gradient(m):
    values, indices = leaf(m, 1.0, 5.0, 3.0).max(0)
    return values.requires_grad, indices.requires_grad, indices.grad_fn is None


@like_pytorch
def test_a_second_derivative_depends_only_on_what_the_first_is_made_of(m):
    x, a = leaf(m, 0.5), leaf(m, 2.0)
    (first,) = m.autograd.grad((x * a).sum(), x, m.ones((), dtype=m.float64), create_graph=True)
    none = m.autograd.grad(first.sum(), x, create_graph=True, allow_unused=True)
    zeros = m.autograd.grad(first.sum(), x, create_graph=True, materialize_grads=True)
    return none, zeros, m.autograd.grad(zeros[0].sum(), x, materialize_grads=True), m.autograd.grad(first.sum(), a)


@like_pytorch
def test_second_derivatives_of_a_product_have_a_node_for_each_factor(m):
    x, a = leaf(m, 0.5), leaf(m, 2.0)
    first = m.autograd.grad((x * a).sum(), (x, a), create_graph=True)
    return [[g.grad_fn.name(), g.grad_fn.next_functions[1][0].variable is t] for g, t in zip(first, (a, x), strict=True)]


@like_pytorch
def test_a_single_element_viewed_as_strided_passes_its_gradient_on(m):
    x = m.ones(2, 3, dtype=m.float64, requires_grad=True)
    parts = x.as_strided((3,), (0,)).unbind(0)
    y = parts[1].as_strided((2, 2), (1, 2), 0)
    return m.autograd.grad(y.square().sum(), [parts[0], parts[1]], allow_unused=True)


@like_pytorch
def test_a_gradient_that_is_none_is_none_all_the_way(m):
    """A norm that counts has no gradient at all: not even zeros reach what is before it."""
    seen, found = [], []
    distance = m.nn.functional.pairwise_distance
    norms = [lambda t: m.linalg.vector_norm(t, 0), lambda t: m.norm(t, 0, 1).sum(), lambda t: distance(t, t.detach(), 0).sum()]
    for norm in norms:
        for create_graph in (False, True):
            x = m.tensor([[1.0, 2.0, 0.0]], requires_grad=True)
            h = x * 2
            h.register_hook(lambda g: seen.append(g is None))
            found += m.autograd.grad(norm(h), [x, h], create_graph=create_graph, allow_unused=True)
            for _ in range(4):
                norm(x).backward(retain_graph=create_graph)
                found.append(x.grad)
            for _ in range(4):
                (norm(x) * x.sum() + norm(x * x)).backward()
                found.append(x.grad.clone())
    y = m.linalg.vector_norm(x, 0)
    return [found, seen, y.grad_fn.name(), y.grad_fn._saved_self, y.grad_fn._saved_ord, error_of(lambda: m.autograd.grad(y, x))]


@like_pytorch
def test_the_dtype_of_a_gradient_and_a_name_that_is_none(m):
    x = leaf(m, 1.0)
    x.grad_dtype = m.float64
    found = [str(x.grad_dtype).split(".")[-1], str(m.zeros(1, dtype=m.int64).grad_dtype).split(".")[-1], x.name]
    x.grad_dtype = x.grad_dtype
    return found, [error_of(lambda: (x * 2).grad_dtype), error_of(lambda: setattr(x, "grad_dtype", 3)), error_of(lambda: setattr(x, "name", "a"))]


def test_a_gradient_of_another_dtype_is_refused():
    with pytest.raises(NotImplementedError, match="a gradient has the dtype of its tensor"):
        tj.ones(1, requires_grad=True).grad_dtype = tj.float16


@pytest.mark.parametrize("given", ["a", None, 1, 0, 1.5, [], True], ids=str)
@pytest.mark.parametrize("flag", ["retain_graph", "create_graph", "allow_unused", "materialize_grads"])
def test_flags_are_booleans_or_integers(flag, given):
    @like_pytorch
    def program(m):
        x, w = leaf(m, 1.0, 2.0), leaf(m, 1.0)
        calls = [lambda y: m.autograd.grad(y, [x, w] if flag in ("allow_unused", "materialize_grads") else x, **{flag: given})]
        if flag in ("retain_graph", "create_graph"):
            calls.append(lambda y: m.autograd.backward(y, inputs=x, **{flag: given}))
            calls += [lambda y: y.backward(**{flag: given})] if given is not None else []
        ys = [(x * x).sum() for _ in calls]
        found = [error_of(lambda call=call, y=y: call(y)) for call, y in zip(calls, ys, strict=True)]
        return found, [error_of(y.backward) for y in ys], x.grad

    program()


@pytest.mark.parametrize("outputs, inputs", [(None, "x"), ("y", None), ("y", "edge"), ({}, "x"), ((), "x")], ids=str)
def test_what_is_not_there_has_no_gradient(outputs, inputs):
    @like_pytorch
    def program(m):
        x = leaf(m, 1.0, 2.0)
        named = {"x": x, "y": (x * x).sum(), "edge": m.autograd.graph.GradientEdge(3, 0)}
        outs, ins = (named.get(name, name) if isinstance(name, str) else name for name in (outputs, inputs))
        return [error_of(lambda: m.autograd.grad(outs, ins)), error_of(lambda: m.autograd.backward(outs))]

    program()


def _laid_out(m, how):
    """A tensor of shape (2, 3) in memory of that kind."""
    made = {
        "row-major": lambda: m.ones(2, 3), "transposed": lambda: m.ones(3, 2).t(), "with gaps": lambda: m.ones(2, 6)[:, ::2],
        "expanded": lambda: m.ones(1, 3).expand(2, 3), "further on": lambda: m.ones(7)[1:].view(2, 3),
    }  # fmt: skip
    return made[how]()


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("had", [None, "row-major", "transposed", "with gaps", "further on"])
@pytest.mark.parametrize("parameter", ["row-major", "transposed", "with gaps", "expanded", "further on"])
def test_a_gradient_laid_out_otherwise_than_its_parameter_is_told_of(parameter, had, create_graph):
    def told(m):
        found = []
        for given in ("row-major", "transposed", "expanded"):
            x = _laid_out(m, parameter).requires_grad_()
            x.grad = None if had is None else _laid_out(m, had)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                x.backward(_laid_out(m, given), create_graph=create_graph)
            found.append([x.grad.stride(), *(text for text in told_texts(caught) if "layout contract" in text)])
        return found

    def told_texts(caught):
        return [str(w.message).partition(" (Triggered internally")[0] for w in caught]

    def always(m):
        m.set_warn_always(True)
        try:
            return told(m)
        finally:
            m.set_warn_always(False)

    like_pytorch(always)()
