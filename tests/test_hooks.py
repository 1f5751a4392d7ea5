"""Hooks of tensors and nodes against PyTorch: when they run, what they get, what their results change."""

from __future__ import annotations

import warnings

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch

# ---------------------------------------------------------------------- Tensor.register_hook


@like_pytorch
def test_hooks_run_in_order_of_registration(m):
    w, seen = leaf(m, 1.0, 2.0), []
    h = w * 2
    for t in (w, h):
        t.register_hook(lambda g: seen.append(("first", g.clone())))
        t.register_hook(lambda g: g * 10)
        t.register_hook(lambda g: seen.append(("third", g.clone())))
    (h * h).sum().backward()
    return seen, w.grad


@like_pytorch
def test_a_replaced_gradient_is_what_flows_on(m):
    w = leaf(m, 1.0, 2.0)
    h = w * 3
    h.register_hook(lambda g: m.zeros_like(g))
    (h.sum() + w.sum()).backward()
    return w.grad


@like_pytorch
def test_hooks_get_the_whole_gradient_of_a_shared_tensor_once(m):
    w, seen = leaf(m, 1.0, 2.0), []
    h = w * 3
    h.register_hook(lambda g: seen.append(g.clone()))
    (h.sum() + (h * h).sum()).backward()
    return seen


@like_pytorch
def test_hooks_stay_where_a_tensor_is_detached_in_place(m):
    w, seen = leaf(m, 1.0, 2.0), []
    h = w * 3
    h.register_hook(lambda g: seen.append(("before", g.clone())))
    y = (h * 2).sum()
    h.detach_().requires_grad_()
    (h * h).sum().backward()
    handle = h.register_hook(lambda g: seen.append(("after", g.clone())))
    (h * h).sum().backward()
    y.backward(retain_graph=True)
    handle.remove()
    y.backward()
    return seen, h.grad, w.grad, len(h._backward_hooks)


@like_pytorch
def test_removed_hooks_do_not_run(m):
    w, seen = leaf(m, 1.0), []
    handles = [w.register_hook(lambda g, i=i: seen.append(i)) for i in range(3)]
    handles[1].remove()
    handles[1].remove()
    (w * 2).sum().backward()
    with handles[0]:
        (w * 2).sum().backward()
    (w * 2).sum().backward()
    return seen


@like_pytorch
def test_a_hook_may_remove_itself(m):
    w, seen = leaf(m, 1.0), []

    def once(g):
        seen.append(g.clone())
        handle.remove()

    handle = w.register_hook(once)
    w.register_hook(lambda g: seen.append("stays"))
    for _ in range(2):
        (w * 2).sum().backward()
    return seen


@like_pytorch
def test_hooks_belong_to_the_tensor_as_it_was_before_a_write(m):
    w, seen = leaf(m, 1.0, 2.0), []
    h = w * 1
    h.register_hook(lambda g: seen.append(("before", g.clone())))
    h.mul_(10)
    h.register_hook(lambda g: seen.append(("after", g.clone())))
    (h * 3).sum().backward()
    return seen, w.grad


@like_pytorch
def test_hooks_on_one_of_several_outputs(m):
    x, seen = leaf(m, 1.0, 2.0, 3.0), []
    a, b, c = x.unbind(0)
    b.register_hook(lambda g: seen.append(g.clone()))
    (a * b).backward(retain_graph=True)
    b.register_hook(lambda g: g * 100)
    (b + c * 2).backward()
    return seen, x.grad


@like_pytorch
def test_a_hook_on_an_output_without_a_gradient_gets_none(m):
    x, seen = leaf(m, 1.0, 2.0, 3.0), []
    a, b, c = x.unbind(0)
    c.register_hook(lambda g: seen.append(g))
    (a * b).backward()
    return seen, x.grad


@like_pytorch
def test_hooks_run_in_autograd_grad_too(m):
    w, seen = leaf(m, 1.0, 2.0), []
    h = w * 3
    h.register_hook(lambda g: g * 2)
    w.register_hook(lambda g: g + 1)
    w.register_post_accumulate_grad_hook(lambda t: seen.append("post"))
    return m.autograd.grad((h * h).sum(), [w, h]), seen


@like_pytorch
def test_a_hook_on_the_root_sees_the_first_gradient(m):
    y, seen = leaf(m, 1.0, 2.0).sum(), []
    y.register_hook(lambda g: seen.append(g.clone()))
    y.backward()
    return seen


@like_pytorch
def test_a_hook_that_writes_into_its_gradient(m):
    w = leaf(m, 1.0, 2.0)
    h = w.exp()
    h.register_hook(lambda g: g.mul_(2) and None)
    error = error_of(lambda: h.sum().backward())
    return error is not None


@like_pytorch
def test_hooks_need_a_tensor_that_requires_grad(m):
    t = m.ones(2)
    return error_of(lambda: t.register_hook(print)), error_of(lambda: t.register_post_accumulate_grad_hook(print)), error_of(t.retain_grad)


@like_pytorch
def test_a_hook_may_return_another_dtype_or_shape_only_if_it_fits(m):
    found = []
    for replace in (lambda g: g.float(), lambda g: g.sum(), lambda g: m.ones(3, dtype=m.float64), lambda g: g.expand(2, 2)):
        w = leaf(m, 1.0, 2.0)
        w.register_hook(replace)
        found += [error_of(lambda w=w: (w * 2).sum().backward()), w.grad]
    return found


@pytest.mark.parametrize("wrong", [3, "text", [1], (1,)], ids=str)
def test_a_hook_must_return_a_tensor_or_none(wrong):
    def program(m):
        w = leaf(m, 1.0)
        h = w * 2
        h.register_hook(lambda g: wrong)
        return error_of(lambda: h.sum().backward()), w.grad

    assert program(tj) == program(torch)


@like_pytorch
def test_an_exception_in_a_hook_reaches_the_caller_and_the_graph_can_run_again(m):
    w, fail = leaf(m, 1.0, 2.0), [True]

    def hook(g):
        if fail[0]:
            raise KeyError("from the hook")

    h = w * w
    h.register_hook(hook)
    y = (h * 3).sum()
    first = error_of(lambda: y.backward(retain_graph=True))
    fail[0] = False
    y.backward()
    return first, w.grad, m.is_grad_enabled()


@like_pytorch
def test_hooks_under_create_graph_are_part_of_the_graph(m):
    w = leaf(m, 2.0)
    h = w * w
    h.register_hook(lambda g: g * w)
    (g,) = m.autograd.grad((h * h).sum(), w, create_graph=True)
    return g, m.autograd.grad(g.sum(), w)


# ---------------------------------------------------------------------- retain_grad


@like_pytorch
def test_retain_grad_keeps_the_gradient_of_a_non_leaf(m):
    w = leaf(m, 1.0, 2.0)
    h = w * w
    before = h.retains_grad
    h.retain_grad()
    h.retain_grad()
    (h * 3).sum().backward()
    return before, h.retains_grad, h.grad, w.grad


@like_pytorch
def test_retained_gradients_accumulate(m):
    w = leaf(m, 1.0, 2.0)
    h = w * w
    h.retain_grad()
    y = (h * 3).sum()
    y.backward(retain_graph=True)
    first = h.grad
    y.backward()
    return h.grad, first is h.grad


@like_pytorch
def test_retain_grad_runs_after_hooks_whenever_they_were_registered(m):
    w = leaf(m, 1.0, 2.0)
    h = w * w
    h.register_hook(lambda g: g * 2)
    h.retain_grad()
    h.register_hook(lambda g: g + 1)
    (h * 3).sum().backward()
    return h.grad, w.grad


@like_pytorch
def test_retain_grad_of_a_leaf_does_nothing(m):
    w = leaf(m, 1.0, 2.0)
    w.retain_grad()
    return w.retains_grad


@like_pytorch
def test_retain_grad_moves_with_a_write(m):
    w = leaf(m, 1.0, 2.0)
    h = w * w
    h.retain_grad()
    h.mul_(5)
    (h * 3).sum().backward()
    return h.grad


@like_pytorch
def test_retained_gradient_is_a_tensor_of_its_own(m):
    w = leaf(m, 1.0, 2.0)
    h = w * 1
    h.retain_grad()
    h.sum().backward()
    h.grad.mul_(10)
    return h.grad, w.grad


@like_pytorch
def test_retain_grad_under_create_graph_keeps_history(m):
    w = leaf(m, 2.0)
    h = w * w
    h.retain_grad()
    (h * h).sum().backward(create_graph=True)
    return h.grad, m.autograd.grad(h.grad.sum(), w)


@like_pytorch
def test_grad_of_a_non_leaf_that_retains_none_warns(m):
    h = leaf(m, 1.0) * 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = h.grad
    return found, [str(w.message).partition(" (Triggered")[0] for w in caught]


# ---------------------------------------------------------------------- after accumulation


@like_pytorch
def test_post_accumulate_hooks_see_grad_and_may_drop_it(m):
    w, seen = leaf(m, 1.0, 2.0), []

    def step(t):
        seen.append((t is w, t.grad.clone()))
        t.grad = None

    w.register_post_accumulate_grad_hook(step)
    (w * w + w).sum().backward()
    return seen, w.grad


@like_pytorch
def test_post_accumulate_hooks_can_step_the_leaf(m):
    w = leaf(m, 1.0, 2.0)

    def step(t):
        with m.no_grad():
            t -= 0.1 * t.grad

    w.register_post_accumulate_grad_hook(step)
    for _ in range(4):
        (w * w).sum().backward()
        w.grad = None
    return w


@like_pytorch
def test_post_accumulate_hooks_run_in_order_and_can_be_removed(m):
    w, seen = leaf(m, 1.0), []
    handles = [w.register_post_accumulate_grad_hook(lambda t, i=i: seen.append(i)) for i in range(3)]
    handles[0].remove()
    w.register_hook(lambda g: seen.append("tensor hook"))
    (w * 2).sum().backward()
    return seen


@like_pytorch
def test_post_accumulate_hooks_belong_to_leaves(m):
    h = leaf(m, 1.0) * 2
    h.register_post_accumulate_grad_hook(print)


@like_pytorch
def test_post_accumulate_hooks_must_return_none(m):
    w = leaf(m, 1.0)
    w.register_post_accumulate_grad_hook(lambda t: t)
    return error_of(lambda: (w * 2).sum().backward()), w.grad


# ---------------------------------------------------------------------- hooks of nodes


@like_pytorch
def test_node_hooks_get_input_and_output_gradients(m):
    a, b, seen = leaf(m, 1.0, 2.0), m.tensor([5.0, 6.0], dtype=m.float64), []
    y = a * b
    y.grad_fn.register_hook(lambda gi, go: seen.append((len(gi), gi, go)))
    (y * 3).sum().backward()
    return seen


@like_pytorch
def test_node_hooks_may_replace_input_gradients(m):
    a, b = leaf(m, 1.0, 2.0), leaf(m, 5.0, 6.0)
    y = a * b
    y.grad_fn.register_hook(lambda gi, go: (gi[0] * 10, None))
    y.sum().backward()
    return a.grad, b.grad


@like_pytorch
def test_node_prehooks_may_replace_output_gradients(m):
    a, seen = leaf(m, 1.0, 2.0), []
    y = a * a
    y.grad_fn.register_prehook(lambda go: (go[0] * 10,))
    y.grad_fn.register_prehook(lambda go: seen.append(go))
    y.grad_fn.register_hook(lambda gi, go: seen.append(go))
    y.sum().backward()
    return a.grad, seen


@like_pytorch
def test_kinds_of_hooks_run_in_pytorchs_order(m):
    w, seen = leaf(m, 1.0), []
    h = w * 2
    held = h.grad_fn.next_functions[0][0]
    held.register_hook(lambda gi, go: seen.append("accumulate post"))
    held.register_prehook(lambda go: seen.append("accumulate pre"))
    w.register_post_accumulate_grad_hook(lambda t: seen.append("post accumulate"))
    w.register_hook(lambda g: seen.append("leaf"))
    h.grad_fn.register_hook(lambda gi, go: seen.append("node post"))
    h.grad_fn.register_prehook(lambda go: seen.append("node pre"))
    h.register_hook(lambda g: seen.append("tensor"))
    h.sum().backward()
    return seen


@like_pytorch
def test_node_hooks_can_be_removed(m):
    w, seen = leaf(m, 1.0), []
    h = w * 2
    post, pre = h.grad_fn.register_hook(lambda gi, go: seen.append("post")), h.grad_fn.register_prehook(lambda go: seen.append("pre"))
    y = h.sum()
    y.backward(retain_graph=True)
    post.remove()
    y.backward(retain_graph=True)
    pre.remove()
    y.backward()
    return seen


@like_pytorch
def test_hooks_of_a_node_with_several_outputs_get_none_for_unused_ones(m):
    x, seen = leaf(m, 1.0, 2.0, 3.0), []
    a, b, c = x.unbind(0)
    a.grad_fn.register_prehook(lambda go: seen.append(go))
    a.grad_fn.register_hook(lambda gi, go: seen.append((gi, go)))
    (b * 2).backward()
    return seen, x.grad


@like_pytorch
def test_node_hooks_returning_the_wrong_number(m):
    found = []
    for post in (True, False):
        y = leaf(m, 1.0) * leaf(m, 2.0)
        if post:
            y.grad_fn.register_hook(lambda gi, go: (gi[0],))
        else:
            y.grad_fn.register_prehook(lambda go: (go[0], go[0]))
        found.append(error_of(lambda y=y: y.sum().backward()))
    return found


@like_pytorch
def test_node_hooks_returning_the_wrong_type(m):
    found = []
    for value in (3, (3, 4), "text"):
        for post in (True, False):
            y = leaf(m, 1.0) * leaf(m, 2.0)
            if post:
                y.grad_fn.register_hook(lambda gi, go, value=value: value)
            else:
                y.grad_fn.register_prehook(lambda go, value=value: value)
            found.append(error_of(lambda y=y: y.sum().backward()))
    return found


@like_pytorch
def test_names_and_edges_of_nodes(m):
    w = leaf(m, 1.0, 2.0)
    h = w * m.ones(2, dtype=m.float64)
    h[:1] = 3.0
    node = (h + w).grad_fn
    found = []
    while node is not None:
        found.append((node.name(), type(node).__name__, [(n is None, nr) for n, nr in node.next_functions]))
        node = node.next_functions[0][0] if node.next_functions else None
    return found


@like_pytorch
def test_metadata_stays_with_the_node(m):
    h = leaf(m, 1.0) * 2
    h.grad_fn.metadata["note"] = 1
    return h.grad_fn.metadata, h.grad_fn is h.grad_fn


@like_pytorch
def test_hooks_of_inner_nodes_in_autograd_grad(m):
    w, seen = leaf(m, 1.0, 2.0), []
    h = w * w
    h.grad_fn.register_hook(lambda gi, go: seen.append("post"))
    h.grad_fn.register_prehook(lambda go: seen.append("pre"))
    h.register_hook(lambda g: seen.append("tensor"))
    h.retain_grad()
    y = (h * 2).sum()
    m.autograd.grad(y, h, retain_graph=True)
    only_captured = list(seen)
    m.autograd.grad(y, w)
    return only_captured, seen, h.grad


@like_pytorch
def test_hooks_of_a_root_run_even_if_nothing_asked_for_comes_after_it(m):
    x, y, seen = leaf(m, 1.0), leaf(m, 2.0), []
    y.register_hook(lambda g: seen.append(("leaf", g.clone())))
    z = y * 2
    z.register_hook(lambda g: seen.append(("result", g.clone())))
    found = [m.autograd.grad(y, x, allow_unused=True), m.autograd.grad(z, x, allow_unused=True)]
    return found, seen


@like_pytorch
def test_inputs_that_are_no_leaves_retain_their_gradient_and_run_their_node(m):
    x, seen = leaf(m, 1.0, 2.0), []
    y = x * 3
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(tuple(None if g is None else g.clone() for g in (*inputs, *outputs))))
    z = y * y
    z.sum().backward(inputs=[y], retain_graph=True)
    z.sum().backward(inputs=[x, y, y])
    return y.retains_grad, y.grad, x.grad, seen


@like_pytorch
def test_gradients_of_inputs_show_nodes_of_numbers_as_none(m):
    x, seen = leaf(m, 1.0, 2.0), []
    (y := x * 2).grad_fn.register_hook(lambda inputs, outputs: seen.append([g is None for g in inputs]))
    (z := y[1]).grad_fn.register_hook(lambda inputs, outputs: seen.append([g is None for g in inputs]))
    z.backward()
    return seen


LAYOUT = "y.transpose_(0, 1)"
STEPS = [
    ("hook", LAYOUT, "hook"), ("hook", LAYOUT, "hook", "y.mul_(3)", "hook"), ("removed", LAYOUT, "hook"), (LAYOUT, "hook", LAYOUT, "hook"),
    ("hook", "y.mul_(3)", "hook", LAYOUT, "hook"), ("hook", LAYOUT, LAYOUT, "hook"), ("hook", LAYOUT, "y[0].mul_(3)", "hook"),
    ("hook", "y.unsqueeze_(0)", "hook", "y.mul_(2)", LAYOUT, "hook"),
]  # fmt: skip


@like_pytorch
def test_hooks_that_are_registered_after_a_new_layout_join_those_before(m):
    found = []
    for steps in STEPS:
        x = m.ones(2, 3, requires_grad=True)
        y, called = x * 2, []
        for i, step in enumerate(steps):
            if step == "hook":
                y.register_hook(lambda g, i=i, called=called: called.append((i, g.tolist())))
            elif step == "removed":
                y.register_hook(lambda g: None).remove()
            else:
                exec(step)
        (y * y).sum().backward()
        found.append(called)
    return found
