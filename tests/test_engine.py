"""The engine against PyTorch's: what runs, in which order, where gradients go, what is freed, what a graph seen before changes."""

from __future__ import annotations

import gc
import importlib
import threading
import weakref

import jax
import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.runtime import execution_mode, recorder

torch = pytest.importorskip("torch")

from side_by_side import agree, error_of, leaf, like_pytorch, plain  # noqa: E402 - needs torch

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


# ---------------------------------------------------------------------- order


def watch(node, i, note, before):
    name, inner = node.name(), node.next_functions[0][0]
    node.register_hook(lambda gi, go: note((i, name)))
    if before:
        inner.register_prehook(lambda go: note(("pre", i, inner.name())))


def random_graph(m, seed, note=None):
    """A loss over a random graph of many shared results; `note(name)` is called when a node runs."""
    rng = np.random.default_rng(seed)
    leaves = [m.tensor(rng.standard_normal(3), requires_grad=True) for _ in range(3)]
    made = list(leaves)
    steps = [
        lambda a, b: a * b, lambda a, b: a + b, lambda a, b: a.sin(), lambda a, b: (a - b).tanh(), lambda a, b: a.mul(2.0),
        lambda a, b: m.stack([a, b]).sum(0), lambda a, b: a.exp().log1p() * b, lambda a, b: a[1:].sum() * b,
    ]  # fmt: skip
    for i in range(12):
        a, b = (made[k] for k in rng.integers(len(made), size=2))
        made.append(steps[rng.integers(len(steps))](a, b) * 0.5)
        if note is not None:
            watch(made[-1].grad_fn, i, note, rng.random() < 0.3)
    if note is not None:
        for i, t in enumerate(leaves):
            t.register_hook(lambda g, i=i: note(("leaf", i)))
    chosen = [made[k] for k in rng.choice(len(made), 4, replace=False)]
    return sum((t * t).sum() for t in chosen), leaves


@pytest.mark.parametrize("seed", range(6))
def test_nodes_run_in_pytorchs_order(seed):
    order = {}
    for m in (torch, tj):
        ran = order[m] = []
        random_graph(m, seed, ran.append)[0].backward()
    assert order[tj] == order[torch]


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_have_pytorchs_gradients_at_every_sighting(seed):
    def gradients(m):
        loss, leaves = random_graph(m, seed)
        loss.backward()
        return plain([t.grad for t in leaves])

    expected = gradients(torch)
    for _ in range(4):
        assert agree(gradients(tj), expected)


@like_pytorch
def test_leaves_accumulate_as_soon_as_their_last_gradient_is_in(m):
    a, b = leaf(m, 1.0), leaf(m, 2.0)
    order = []
    for name, t in (("a", a), ("b", b)):
        t.register_hook(lambda g, name=name: order.append(name))
    x = a.exp()
    x.grad_fn.register_hook(lambda gi, go: order.append("exp"))
    y = x * b
    y.grad_fn.register_hook(lambda gi, go: order.append("mul"))
    y.sum().backward()
    return order


# ---------------------------------------------------------------------- long graphs and memory


@pytest.fixture
def short_programs(monkeypatch):
    """Programs of 200 operations: one of 2000 takes ten seconds to compile, and the subject here is the graph."""
    monkeypatch.setattr(recorder, "SOFT_LIMIT", 200)
    with execution_mode("fused"):
        yield


def chain(length):
    x = tj.tensor(1.0, dtype=tj.float64, requires_grad=True)
    y = x
    for _ in range(length):
        y = -y
    y.backward()
    assert x.grad.item() == 1.0
    return weakref.ref(y.grad_fn)


def test_a_chain_of_200000_nodes_runs_and_is_dropped_without_recursion(short_programs):
    assert chain(200_000)() is None


@pytest.mark.slow
def test_a_chain_of_1000000_nodes_runs_and_is_dropped_without_recursion(short_programs):
    assert chain(1_000_000)() is None


def test_a_long_chain_that_is_never_run_is_dropped_without_recursion(short_programs):
    y = tj.tensor(1.0, requires_grad=True)
    for _ in range(100_000):
        y = -y
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_graph_and_arrays_go_with_their_last_reference(without_collector):
    x = tj.ones(3, requires_grad=True)
    h = x.exp()
    loss = (h * h).sum()
    loss.item()
    gone = [weakref.ref(o) for o in (h, h.grad_fn, loss, loss.grad_fn, h._read().concrete())]
    del h, loss
    assert [r() for r in gone] == [None] * 5


def test_backward_frees_what_it_saved(without_collector):
    x = tj.ones(3, requires_grad=True)
    h = x.exp()
    h.sum().item()
    array = weakref.ref(h._read().concrete())
    loss = (h * h).sum()
    del h
    loss.backward()
    loss.item()
    assert array() is None


def test_double_backward_leaves_nothing_behind(without_collector):
    x = tj.ones(3, requires_grad=True)
    y = (x * x * x).sum()
    (g,) = tj.autograd.grad(y, x, create_graph=True)
    (second,) = tj.autograd.grad(g.sum(), x)
    second.tolist()
    gone = [weakref.ref(o) for o in (y, y.grad_fn, g, g.grad_fn, second)]
    del y, g, second
    assert [r() for r in gone] == [None] * 5


def count_of_ours():
    # JAX's and the cache's own objects come and go; what a step makes are tensors, nodes and values.
    modules = ("torchgrad_jax.tensor", "torchgrad_jax.runtime", "torch.autograd.graph")
    return sum(str(type(o).__module__).startswith(modules) for o in gc.get_objects())


@pytest.mark.parametrize("with_hooks", [False, True])
def test_training_steps_leave_no_objects_and_no_arrays(without_collector, with_hooks):
    w, x = tj.randn(4, 3, requires_grad=True), tj.randn(5, 4)

    def step():
        h = (x @ w).tanh()
        if with_hooks:
            h.register_hook(lambda g: g * 2)
            h.retain_grad()
        loss = (h * h).mean()
        loss.backward()
        with tj.no_grad():
            w.sub_(0.01 * w.grad)
        w.grad = None
        return loss.item()

    for _ in range(5):
        step()
    ours, arrays = count_of_ours(), len(jax.live_arrays())
    for _ in range(200):
        step()
    assert count_of_ours() <= ours + 5
    assert len(jax.live_arrays()) <= arrays + 5


# ---------------------------------------------------------------------- threads


def in_threads(calls):
    failures = []

    def run(call):
        try:
            call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(c,)) for c in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]


def test_threads_build_and_differentiate_graphs_of_their_own():
    shared, grads = tj.arange(3.0), {}

    def work(k):
        for _ in range(5):
            w = tj.ones(3, requires_grad=True)
            ((w * k).exp() * shared).sum().backward()
            grads[k] = w.grad.tolist()

    in_threads([lambda k=k: work(k) for k in range(4)])
    for k in range(4):
        np.testing.assert_allclose(grads[k], k * np.exp(k) * np.arange(3.0), rtol=1e-6)


def test_backward_of_a_graph_that_another_thread_built():
    w = tj.ones(3, requires_grad=True)
    loss = (w * w * 3).sum()
    in_threads([loss.backward])
    assert w.grad.tolist() == [6.0] * 3


# ---------------------------------------------------------------------- backward inside backward


@like_pytorch
def test_backward_inside_a_hook(m):
    w, v = leaf(m, 1.0, 2.0), leaf(m, 3.0)

    def hook(g):
        with m.enable_grad():
            (v * v * g.sum()).sum().backward()

    y = w * w
    y.register_hook(hook)
    (y * 2).sum().backward()
    return w.grad, v.grad


@like_pytorch
def test_backward_inside_a_function(m):
    class Reentrant(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with m.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = ctx.x * ctx.x
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, g):
            with m.enable_grad():
                ctx.y.backward(g, retain_graph=True)
            return ctx.x.grad

    w = leaf(m, 1.0, 2.0)
    (Reentrant.apply(w * 3) + w).sum().backward()
    return w.grad, m.is_grad_enabled()


@like_pytorch
def test_deeply_nested_backward(m):
    w = leaf(m, 1.0)

    class Nested(m.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            if ctx.depth:
                with m.enable_grad():
                    x = leaf(m, 1.0)
                    Nested.apply(x, ctx.depth - 1).sum().backward()
                g = g + x.grad
            return g, None

    Nested.apply(w, 20).sum().backward()
    return w.grad


@like_pytorch
def test_grad_mode_inside_hooks_follows_create_graph(m):
    w, seen = leaf(m, 2.0), []
    y = w * w
    y.register_hook(lambda g: seen.append((m.is_grad_enabled(), g.requires_grad)))
    y.sum().backward(retain_graph=True)
    y.sum().backward(create_graph=True)
    return seen, m.is_grad_enabled()


# ---------------------------------------------------------------------- graphs seen before


@like_pytorch
def test_hooks_added_between_iterations_run(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(6):
        h = w * w
        if i in (3, 4):
            h.register_hook(lambda g: g * 10)
            h.grad_fn.register_hook(lambda gi, go: seen.append(gi[0]))
        (h * 3).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_leaf_hooks_added_between_iterations_run(m):
    w, seen = leaf(m, 1.0, 2.0), []
    handles = []
    for i in range(8):
        if i == 3:
            handles.append(w.register_hook(lambda g: g * 10))
        if i == 4:
            handles.append(w.register_post_accumulate_grad_hook(lambda t: seen.append(("post", t.grad.clone()))))
        if i == 6:
            for h in handles:
                h.remove()
        (w * w).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_accumulator_hooks_added_between_iterations_run(m):
    w, seen = leaf(m, 1.0, 2.0), []
    held = (w * 1).grad_fn.next_functions[0][0]
    for i in range(6):
        if i == 3:
            held.register_prehook(lambda go: (go[0] * 10,))
            held.register_hook(lambda gi, go: seen.append((len(gi), go)))
        (w * w).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_sharing_among_saved_tensors_may_differ_between_iterations(m):
    a, b = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
    seen = []
    for i in range(8):
        left, right = (a, a) if i % 2 else (a, b)
        x = left.exp()
        y = x if i % 3 else right.exp()
        (x * y).sum().backward()
        seen += [a.grad, b.grad]
        a.grad = b.grad = None
    return seen


@like_pytorch
def test_numbers_may_change_between_iterations(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(6):
        ((w * float(i)) ** 2 / (i + 1)).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_equal_numbers_in_different_places_do_not_mix(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(6):
        k = 2.0 if i % 2 else 3.0
        (w.mul(2.0).exp() * k).mul(2.0).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_writing_to_a_saved_tensor_is_found_on_every_iteration(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(6):
        x = w.exp()
        y = x * x
        if i in (3, 5):
            x.add_(1)
        seen.append(error_of(y.sum().backward))
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_freed_graphs_are_refused_on_every_iteration(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for _ in range(4):
        y = w.exp().sum()
        y.backward()
        seen.append(error_of(y.backward))
    return seen, w.grad


@like_pytorch
def test_inputs_may_differ_between_iterations(m):
    a, b, seen = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0), []
    for i in range(8):
        h = a * b
        y = (h * h).sum()
        seen.append(m.autograd.grad(y, [[a], [b], [h], [b, a, b]][i % 4]))
    return seen, a.grad, b.grad


@like_pytorch
def test_retaining_grad_starts_and_stops_between_iterations(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(6):
        h = w * w
        if i in (2, 3):
            h.retain_grad()
        h.sum().backward()
        if i in (2, 3):
            seen.append(h.grad)
    return seen, w.grad


@like_pytorch
def test_views_written_between_iterations(m):
    w, seen = leaf(m, 1.0, 2.0, 3.0), []
    for i in range(6):
        h = w * 1
        h[i % 3 :].mul_(10.0)
        (h * h).sum().backward()
        seen.append(w.grad)
        w.grad = None
    return seen


@like_pytorch
def test_create_graph_after_the_graph_was_seen(m):
    w, seen = leaf(m, 1.0, 2.0), []
    for i in range(6):
        y = (w * w * w).sum()
        (g,) = m.autograd.grad(y, w, create_graph=i >= 3)
        seen.append(g)
        if i >= 3:
            seen += m.autograd.grad(g.sum(), w)
    return seen


@like_pytorch
def test_accumulating_over_many_iterations(m):
    w = leaf(m, 1.0, 2.0)
    for _ in range(5):
        (w * w).sum().backward()
    return w.grad
