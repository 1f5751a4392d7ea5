"""Hooks on saved tensors: what a pack hook is given, when hooks are called, what they may not do, and the contexts made of them."""

import gc
import threading
import weakref

import pytest
from side_by_side import error_of, leaf, like_pytorch

import torchgrad_jax as tj


def keep(x):
    return x


def hooks(m, pack=keep, unpack=keep):
    return m.autograd.graph.saved_tensors_hooks(pack, unpack)


def shown(x):
    return [list(x.shape), x.requires_grad, x.is_leaf, x.grad_fn.name() if x.grad_fn else None, x._version]


def saver(m, seen):
    """A Function that saves its inputs, its output, None and an intermediate."""

    class Product(m.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            out, twice = x * y, x * 2
            ctx.save_for_backward(x, out, None, y, twice)
            return out

        @staticmethod
        def backward(ctx, g):
            x, out, none, y, twice = ctx.saved_tensors
            seen.append([shown(out), none is None, shown(twice)])
            return g * y, g * x

    return Product


@like_pytorch
def test_pack_is_given_the_input_itself(m):
    a = leaf(m, 1.0, 2.0)
    b, constant = a * 1, m.ones(2, dtype=m.float64)
    seen = []
    with hooks(m, lambda x: (seen.append([x is t for t in (a, b, constant)] + shown(x)), x)[1]):
        out = (a * b) * constant
    out.sum().backward()
    return seen, a.grad


@like_pytorch
def test_pack_is_given_the_output_itself(m):
    seen = []
    with hooks(m, lambda x: (seen.append(x), x.detach())[1]):
        out = (leaf(m, 1.0, 2.0) * 1).exp()
    return [x is out for x in seen], shown(seen[0]), seen[0].grad_fn is out.grad_fn


@like_pytorch
def test_operands_are_packed_by_name_and_then_results(m):
    log = []
    a, e = leaf(m, 1.0, 2.0), leaf(m, 3.0, 2.0)
    with hooks(m, lambda x: (log.append(("pack", x)), x.detach())[1], lambda x: (log.append(("unpack", x)), x)[1]):
        out = a**e
    log.append("backward")
    out.sum().backward()
    return log, a.grad, e.grad


@like_pytorch
def test_python_numbers_are_not_packed(m):
    log = []
    a = leaf(m, 1.0, 2.0)
    with hooks(m, lambda x: (log.append(x), x)[1]):
        out = (a * 2.0 / 3) * m.tensor(4.0, dtype=m.float64)
    out.sum().backward()
    return log, a.grad


@like_pytorch
def test_nothing_is_packed_where_no_graph_is_made(m):
    log = []
    a = leaf(m, 1.0, 2.0)
    with hooks(m, lambda x: (log.append(x), x)[1]):
        a.detach() * a.detach()
        with m.no_grad():
            a * a
    return log


@like_pytorch
def test_only_the_innermost_of_nested_hooks_is_called(m):
    log = []
    a = leaf(m, 1.0, 2.0)

    def named(n):
        return hooks(m, lambda x: (log.append(("pack", n)), x.detach())[1], lambda x: (log.append(("unpack", n)), x)[1])

    with named(1):
        with named(2):
            inner = a * a
        outer = a.sin()
    inner.sum().backward()
    outer.sum().backward()
    return log, a.grad


@like_pytorch
def test_unpack_is_called_at_every_use(m):
    log = []
    a = leaf(m, 1.0, 2.0)
    with hooks(m, keep, lambda x: (log.append(shown(x)), x)[1]):
        out = a.sin()
    out.sum().backward(retain_graph=True)
    log.append("look")
    look = out.grad_fn._saved_self
    out.sum().backward()
    return log, shown(look), look is a, a.grad


@like_pytorch
def test_grad_mode_in_hooks(m):
    modes = []
    with hooks(m, lambda x: (modes.append(m.is_grad_enabled()), x)[1], lambda x: (modes.append(m.is_grad_enabled()), x)[1]):
        out = (leaf(m, 1.0) * leaf(m, 2.0)).sum()
    out.backward()
    return modes


@like_pytorch
def test_what_is_unpacked_has_the_history_of_what_was_packed(m):
    a = leaf(m, 1.0, 2.0)
    b, c = a * 3, m.ones(2, dtype=m.float64)
    with hooks(m, lambda x: x.detach().clone()):
        square, product, out = b * b, a * c, b.exp()
    mine = square.grad_fn._saved_self
    looks = [mine, product.grad_fn._saved_other, out.grad_fn._saved_result]
    (g,) = m.autograd.grad((square.grad_fn._saved_self * 2).sum(), a)
    return [shown(x) for x in looks], mine.grad_fn is b.grad_fn, looks[2].grad_fn is out.grad_fn, g


@like_pytorch
def test_gradients_through_unpacked_tensors_reach_the_same_leaf(m):
    a = leaf(m, 1.0, 2.0)
    with hooks(m, lambda x: x.detach().clone()):
        out = (a * a * a).sum()
        (g,) = m.autograd.grad(out, a, create_graph=True)
        (gg,) = m.autograd.grad(g.sum(), a, create_graph=True)
    return g, gg, m.autograd.grad(gg.sum(), a)[0]


@like_pytorch
def test_a_constant_comes_back_as_the_very_object_that_unpack_returned(m):
    c = m.ones(2, dtype=m.float64)
    with hooks(m):
        out = leaf(m, 1.0, 2.0) * c
    return out.grad_fn._saved_other is c


@like_pytorch
def test_hooks_stand_in_for_the_tensor_even_if_it_was_written_to(m):
    a = leaf(m, 1.0, 2.0)
    b, c = a * 1, a * 1
    with hooks(m):
        same = b * b
    with hooks(m, lambda x: x.clone()):
        copied = c * c
    b.add_(1)
    c.add_(1)
    same.sum().backward()
    copied.sum().backward()
    return a.grad


@like_pytorch
def test_what_comes_back_in_another_shape_is_refused_where_it_does_not_broadcast(m):
    found = []
    for change in (lambda t: t.t_(), lambda t: t.unsqueeze_(2), lambda t: t.unsqueeze_(0)):
        for create_graph in (False, True):
            a, other = m.ones(2, 3, requires_grad=True), m.ones(2, 3)
            with hooks(m):
                products, roots = [a * other, a / other], [a.exp(), (a * 1).relu()]
            change(other)
            for t in roots:
                change(t)
            found += [error_of(lambda y=y: m.autograd.grad(y.sum(), a, create_graph=create_graph)) for y in products + roots]  # noqa: B023
    return found


@like_pytorch
def test_every_unpack_hook_is_called_before_the_backward_formula(m):
    a = leaf(m, 1.0, 2.0)
    b = a * 1
    with hooks(m, keep, lambda x: x.detach().add_(1)):
        out = b * b
    out.sum().backward()
    return a.grad, b._version


@like_pytorch
def test_inplace_operations_pack_a_copy_of_what_they_overwrite(m):
    a = leaf(m, 1.0, 2.0)
    seen = []
    b = a * 1
    with hooks(m, lambda x: (seen.append([x is a, x is b, *shown(x), x.detach().clone()]), x.detach())[1]):
        b.mul_(a)
        b.exp_()
    b.sum().backward()
    return seen, a.grad


@like_pytorch
def test_a_write_to_a_view_packs_the_view(m):
    a = leaf(m, 1.0, 2.0)
    seen = []
    b = a.clone()
    v = b[:1]
    with hooks(m, lambda x: (seen.append([x is v, *shown(x)]), x.detach())[1]):
        v.exp_()
        v.mul_(a[1:])
    b.sum().backward()
    return seen, a.grad


@like_pytorch
def test_functions_pack_what_they_save_in_their_order(m):
    log, seen = [], []
    x, y = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0) * 1
    with hooks(m, lambda t: (log.append([t is x, t is y, *shown(t)]), t.detach())[1], lambda t: (log.append("unpack"), t)[1]):
        out = saver(m, seen).apply(x, y)
    out.sum().backward()
    return log, seen, x.grad


@like_pytorch
def test_a_tensor_that_pack_returns_as_it_is_may_be_the_output(m):
    a = leaf(m, 1.0, 2.0)
    log = []
    with hooks(m, keep, lambda t: (log.append(shown(t)), t)[1]):
        out = a.exp()
        made = saver(m, log).apply(a, out)
    made.sum().backward()
    return log, a.grad


@like_pytorch
def test_pack_may_return_anything(m):
    a, store = leaf(m, 1.0, 2.0), {}
    with hooks(m, lambda x: store.setdefault(len(store), x.tolist()) and len(store) - 1, lambda n: m.tensor(store[n], dtype=m.float64)):
        out = (a.sin() * a).sum()
    out.backward()
    return a.grad, store


@like_pytorch
def test_pack_may_not_write_to_its_input(m):
    a = leaf(m, 1.0, 2.0)
    b = a * 1

    def bad(x):
        x.detach().add_(1)
        return x

    with hooks(m, bad):
        found = [error_of(lambda: b * b), error_of(lambda: b.exp()), error_of(lambda: saver(m, []).apply(b, b)), error_of(lambda: b.exp_())]
    return found, b


@like_pytorch
def test_unpack_must_return_a_tensor(m):
    found = []
    for wrong in ("text", None, 5):
        with hooks(m, keep, lambda x, wrong=wrong: wrong):
            out = leaf(m, 1.0) * leaf(m, 1.0)
        found += [error_of(lambda out=out: out.sum().backward()), error_of(lambda out=out: out.grad_fn._saved_self)]
    return found


@like_pytorch
def test_errors_in_hooks_are_the_users(m):
    def fail(x):
        raise KeyError("mine")

    a = leaf(m, 1.0)
    with hooks(m, fail):
        found = [error_of(lambda: a * a)]
    with hooks(m, keep, fail):
        out = (a * a).sum()
    return found + [error_of(out.backward), error_of(out.backward)], (a * a).grad_fn._saved_self is a


@like_pytorch
def test_hooks_must_be_callable(m):
    def enter(*given):
        with m.autograd.graph.saved_tensors_hooks(*given):
            pass

    return error_of(lambda: enter(1, 2)), error_of(lambda: m.autograd.graph.saved_tensors_hooks(1))


@like_pytorch
def test_hooks_hold_in_their_own_thread_only(m):
    log = []
    with hooks(m, lambda x: (log.append(x), x)[1]):
        thread = threading.Thread(target=lambda: leaf(m, 1.0) * leaf(m, 1.0))
        thread.start()
        thread.join()
    return log


@like_pytorch
def test_backward_leaves_the_hooks_that_it_found(m):
    log = []
    a = leaf(m, 1.0, 2.0)
    context = hooks(m, lambda x: (log.append(1), x)[1], lambda x: (context.__exit__(), x)[1])
    with context:
        out = a.sin()
        out.sum().backward()
        a.sin()
    a.sin()
    return log, a.grad


def test_leaving_hooks_that_were_not_entered_is_an_error():
    assert error_of(lambda: hooks(tj).__exit__())[0] == "RuntimeError"


def test_a_loop_under_hooks_gives_the_same_gradients_every_time():
    w = leaf(tj, 1.0, 2.0)
    counts = []
    for _ in range(5):
        seen = []
        with hooks(tj, lambda x, seen=seen: (seen.append(1), x)[1]):
            loss = (w.sin() * w).sum()
        w.grad = None
        loss.backward()
        counts.append((len(seen), w.grad.tolist()))
    assert counts == [counts[0]] * 5


def test_graphs_of_packed_tensors_are_freed_without_the_garbage_collector():
    def built(pack):
        with hooks(tj, pack):
            a = leaf(tj, 1.0, 2.0)
            view = (a * 1)[:1]
            written = a * 1
            written.exp_()
            written[:1].exp_()
            return [a.exp(), saver(tj, []).apply(a, a * 2), view.exp_(), written]

    gc.disable()
    try:
        for pack in (keep, tj.Tensor.detach):
            for retain in (None, True, False):
                outs = built(pack)
                nodes = [weakref.ref(out.grad_fn) for out in outs]
                tensors = [weakref.ref(out) for out in outs]
                if retain is not None:
                    sum(out.sum() for out in outs).backward(retain_graph=retain)
                del outs
                assert [r() for r in nodes + tensors] == [None] * 8
    finally:
        gc.enable()


# ---------------------------------------------------------------------- contexts made of hooks


@like_pytorch
def test_save_on_cpu_keeps_gradients(m):
    a = leaf(m, 1.0, 2.0)
    with m.autograd.graph.save_on_cpu():
        out = (a.exp() * a).sum()
    look = out.grad_fn.next_functions[0][0]._saved_other
    out.backward()
    return shown(look), look is a, a.grad


@like_pytorch
def test_pinned_memory_is_asked_for_only_where_there_is_an_accelerator(m):
    a = leaf(m, 1.0, 2.0)
    with m.autograd.graph.save_on_cpu(pin_memory=True):
        out = a * a
    with m.autograd.graph.save_on_cpu(pin_memory=True, device_type="cpu"):
        refused = error_of(lambda: a * a)
    return out, refused


@like_pytorch
def test_disabled_hooks_cannot_be_entered(m):
    graph, found = m.autograd.graph, []

    def enter(make):
        with make():
            pass

    with graph.disable_saved_tensors_hooks("outer"):
        found.append(error_of(lambda: enter(lambda: hooks(m))))
        with graph.disable_saved_tensors_hooks("inner"):
            found.append(error_of(lambda: enter(graph.save_on_cpu)))
        found.append(error_of(lambda: enter(graph.allow_mutation_on_saved_tensors)))
        out = leaf(m, 1.0) * leaf(m, 1.0)
        out.grad_fn._raw_saved_self.register_hooks(keep, keep)
    found.append(error_of(lambda: enter(lambda: hooks(m))))
    return found


@like_pytorch
def test_hooks_cannot_be_disabled_while_they_are_active(m):
    def disable(message):
        with m.autograd.graph.disable_saved_tensors_hooks(message):
            pass

    with hooks(m):
        active = error_of(lambda: disable("not now"))
    return active, error_of(lambda: disable(5)), error_of(lambda: disable("now"))


@like_pytorch
def test_disabling_is_also_a_decorator(m):
    @m.autograd.graph.disable_saved_tensors_hooks("decorated")
    def function():
        with hooks(m):
            return 1

    return error_of(function), error_of(function)


CHANGED = {
    "mul": lambda m, x, y: (x * y, y), "div": lambda m, x, y: (x / y, y), "exp": lambda m, x, y: [x.exp()] * 2,
    "tanh": lambda m, x, y: [x.tanh()] * 2, "where": lambda m, x, y: (m.where(y > 0, x, y).sin() * y, y),
    "atan2": lambda m, x, y: (m.atan2(x, y), y),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("change", ["t_", "unsqueeze_"])
def test_what_was_given_another_shape_may_not_fit_the_gradient(name, change):
    def program(m):
        x = m.tensor([[0.5, 1.0, 1.5], [2.0, 0.25, 0.75]], requires_grad=True)
        with hooks(m):
            z, kept = CHANGED[name](m, x * 1, x.detach() + 1)
        getattr(kept, change)(*[2] * (change == "unsqueeze_"))
        return z.sum().backward()

    like_pytorch(program)()


@like_pytorch
def test_what_an_unpack_hook_returns_is_as_much_a_part_of_the_graph_as_what_was_saved(m):
    x, w, k = leaf(m, 1.0, 2.0), m.ones(2), leaf(m, 3.0, 4.0)
    with hooks(m, unpack=lambda t: t * k):
        y = x * w
    with hooks(m):
        z = x * w
        w[:] = x
        v = x * w
    found = [m.autograd.grad(r.sum(), x, create_graph=True)[0].requires_grad for r in (y, z, v)]
    return found, y.grad_fn._saved_other.requires_grad, z.grad_fn._saved_other.requires_grad, k.grad


@like_pytorch
def test_a_result_that_is_gone_was_written_to_by_way_of_data(m):
    x = leaf(m, 1.0, 2.0)
    with hooks(m):
        y = x.exp()
    y.data.mul_(2)
    z = y + 1
    del y
    z.sum().backward()
    return x.grad
