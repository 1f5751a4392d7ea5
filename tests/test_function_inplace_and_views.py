"""autograd.Function against PyTorch: inputs that forward returns, views that it makes, inputs that it writes to; and writing to all these later."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch")

from functions import function, history, name_of, next_names, tripled_in_place  # noqa: E402
from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch

# ---------------------------------------------------------------------- inputs and views returned


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
def test_an_input_returned_as_it_is_is_a_view_with_a_history_of_its_own(m):
    x = leaf(m, 1.0, 2.0)
    h = x * 1
    mine = function(m, lambda ctx, x: x, lambda ctx, g: g * 10)
    found = []
    for source in (x, h, h.view(2, 1)):
        y = mine.apply(source)
        found.append((y is source, history(y), y._base is h or y._base is x, y.data_ptr() == source.data_ptr(), name_of(source.grad_fn)))
    y = mine.apply(h)
    (y * h).sum().backward()
    return found, x.grad


@like_pytorch
def test_an_input_returned_where_no_input_needs_a_gradient_is_a_view(m):
    x, n = m.ones(3), m.ones(3, dtype=m.int64)
    y = function(m, lambda ctx, x: x).apply(x)
    whole = function(m, lambda ctx, x, n: n).apply(leaf(m, 1.0), n)
    y.mul_(7)
    return y is x, history(y), y._base is x, x, whole is n, history(whole), whole._base is n


@like_pytorch
def test_an_input_returned_without_a_gradient_is_detached(m):
    def marked(ctx, x):
        ctx.mark_non_differentiable(x)
        return x

    x = leaf(m, 1.0, 2.0)
    y = function(m, marked).apply(x)
    with m.no_grad():
        z = function(m, lambda ctx, x: x).apply(x)
    w = function(m, lambda ctx, x: x.detach()).apply(x)
    return y is x, history(y), z is x, history(z), history(w), history(x)


@like_pytorch
def test_an_input_returned_twice_is_two_views(m):
    x = leaf(m, 1.0, 2.0)
    a, b = function(m, lambda ctx, x: (x, x), lambda ctx, g, h: g + 10 * h).apply(x * 1)
    refused = error_of(lambda: a.add_(1))
    (a.sum() + b.sum()).backward()
    return a is b, history(a), history(b), refused, x.grad


@like_pytorch
def test_what_a_view_made_in_forward_is(m):
    x = leaf(m, 1.0, 2.0)
    h, k = x * 1, m.zeros(2, dtype=m.float64)
    base = x * 1

    def within(ctx, x):
        with m.enable_grad():
            return x.view(2, 1)

    found = []
    for forward, source in (
        (lambda ctx, x: x.view(2, 1), h), (lambda ctx, x: x[:1].view(1, 1), h), (lambda ctx, x: x.view(2), base.view(2, 1)),
        (lambda ctx, x: k[:], h), (lambda ctx, x: (x * 2)[:1], h), (within, h),
    ):  # fmt: skip
        y = function(m, forward).apply(source)
        found.append((history(y), y._base is h, y._base is base, y._base is k, error_of(lambda y=y: y.add_(1)), name_of(source.grad_fn)))
    return found


@pytest.mark.parametrize("made", ["input", "view", "second input"])
def test_writing_to_a_returned_view_is_refused(made):
    @like_pytorch
    def program(m):
        x, k = leaf(m, 1.0, 2.0), m.ones(2, dtype=m.float64)
        found = []
        for source in (x, x * 1):
            forward = {"input": lambda ctx, x, k: x, "view": lambda ctx, x, k: x.view(2, 1), "second input": lambda ctx, x, k: k}[made]
            y = function(m, forward, lambda ctx, g: (g.view(2), None)).apply(source, k)
            z = y.view(2)
            found.append((error_of(lambda y=y: y.add_(1)), error_of(lambda z=z: z.add_(1)), history(y), y))
        return found

    program()


@like_pytorch
def test_writing_to_one_of_several_returned_views_is_refused(m):
    found = []

    def marked(ctx, x):
        constant = x * 2
        ctx.mark_non_differentiable(constant)
        return x[:1], constant

    def of_a_temporary(ctx, x):
        t = x * 2
        return t[:1], t[1:]

    for forward in (
        lambda ctx, x: (x[:1], x[1:]), lambda ctx, x: (x[:1], x), lambda ctx, x: (x[:1], x * 2), lambda ctx, x: (x[:1], 5),
        lambda ctx, x: (x[:1], x.long()), lambda ctx, x: (x[:1],), marked, of_a_temporary,
    ):  # fmt: skip
        first, *rest = function(m, forward, lambda ctx, g, *h: g).apply(leaf(m, 1.0, 2.0) * 1)
        second = rest[0] if rest and not isinstance(rest[0], int) else first
        found.append((error_of(lambda first=first: first.add_(1)), error_of(lambda second=second: second.add_(1)), history(first)))
    return found


@like_pytorch
def test_a_returned_view_is_refused_after_a_write_to_its_base(m):
    found = []
    for forward in (lambda ctx, x: x, lambda ctx, x: x[:1], lambda ctx, x: (x[:1], x[1:])):
        for mode in (m.enable_grad, m.no_grad):
            x = leaf(m, 1.0, 2.0) * 1
            y = function(m, forward, lambda ctx, g, *h: g).apply(x)
            y = y[0] if isinstance(y, tuple) else y
            with mode():
                x.mul_(3)
            found.append((history(x), error_of(lambda y=y: y.grad_fn), error_of(lambda y=y: y + 1), y.tolist()))
    return found


@like_pytorch
def test_a_detached_twin_of_a_returned_view_may_be_written_to(m):
    x = leaf(m, 1.0, 2.0) * 1
    y = function(m, lambda ctx, x: x[:1]).apply(x)
    y.detach().add_(5)
    return x, error_of(lambda: y.grad_fn)


@like_pytorch
def test_a_view_returned_where_nothing_is_differentiated_takes_values_but_no_history(m):
    x = m.ones(2, dtype=m.float64)
    y = function(m, lambda ctx, x: x[:1]).apply(x)
    y.add_(1)
    found = [history(y), x, error_of(lambda: y.mul_(leaf(m, 3.0)))]
    x.requires_grad_()
    found.append(error_of(lambda: y.add_(1)))
    h = leaf(m, 1.0, 2.0) * 1
    with m.no_grad():
        z = function(m, lambda ctx, x: x[:1]).apply(h)
    return found, error_of(lambda: z.add_(1)), z._base is h


@like_pytorch
def test_new_outputs_and_their_views_may_be_written_to(m):
    x = leaf(m, 1.0, 2.0, 3.0)
    y = function(m, lambda ctx, x: x * 2, lambda ctx, g: g * 2).apply(x)
    v = y[:1]
    y.mul_(2)
    v.mul_(5)
    y.sum().backward()
    return x.grad, name_of(y.grad_fn), history(v)


@like_pytorch
def test_an_output_and_a_view_of_it(m):
    def forward(ctx, x):
        t = x * 2
        return t, t[1:]

    y, z = function(m, forward, lambda ctx, g, h: g).apply(leaf(m, 1.0, 2.0))
    return history(y), history(z), z._base is y, error_of(lambda: z.add_(1)), error_of(lambda: y.add_(1)), error_of(lambda: z.grad_fn)


@like_pytorch
def test_a_view_of_an_input_is_differentiated_by_backward(m):
    x = leaf(m, 1.0, 2.0, 3.0)
    y = function(m, lambda ctx, x: x[:2], lambda ctx, g: m.cat([g * 10, m.zeros(1, dtype=m.float64)])).apply(x * 1)
    (y * y).sum().backward()
    return x.grad


# ---------------------------------------------------------------------- inputs written to


@like_pytorch
def test_every_mark_counts_as_a_write(m):
    def not_returned(ctx, x):
        tripled_in_place(ctx, x)
        return x * 2

    found = []
    for forward in (tripled_in_place, not_returned, lambda ctx, x: (tripled_in_place(ctx, x),) * 2):
        for source in (leaf(m, 1.0, 2.0), leaf(m, 1.0, 2.0) * 1, m.ones(2), leaf(m, 1.0, 2.0)[:1]):
            error = error_of(lambda forward=forward, source=source: function(m, forward, lambda ctx, g, h=0: g + 10 * h).apply(source))
            found.append((error, source._version, source.detach()))
    return found


@like_pytorch
def test_writing_without_a_mark_is_not_seen(m):
    def forward(ctx, x):
        x.mul_(3)
        return x

    x = leaf(m, 1.0, 2.0)
    h = x * 1
    y = function(m, forward, lambda ctx, g: g * 3).apply(h)
    y.sum().backward()
    return y is h, history(y), history(h), x.grad


@like_pytorch
def test_a_dirty_input_without_gradient_gets_the_history_of_another_input(m):
    def forward(ctx, x, w):
        x.mul_(w)
        ctx.mark_dirty(x)
        return x

    w = leaf(m, 3.0)
    mine = function(m, forward, lambda ctx, g: (None, g * 5))
    h, base = m.ones(1, dtype=m.float64), m.ones(2, dtype=m.float64)
    y, z = mine.apply(h, w), mine.apply(base[:1], w)
    found = [y is h, history(y), history(z), history(base), next_names(base.grad_fn)]
    (y.sum() + base.sum()).backward()
    return found, w.grad


@like_pytorch
def test_a_dirty_input_that_is_not_differentiable(m):
    def marked(ctx, x):
        tripled_in_place(ctx, x)
        ctx.mark_non_differentiable(x)
        return x

    def integer(ctx, n, x):
        ctx.mark_dirty(n)
        return n.add_(1)

    h, n, x = leaf(m, 1.0) * 1, m.ones(2, dtype=m.int64), leaf(m, 1.0)
    y = function(m, marked).apply(h)
    with m.no_grad():
        z = function(m, tripled_in_place).apply(x)
    k = function(m, integer).apply(n, x)
    plain = m.ones(2)
    return y is h, history(y), history(h), z is x, history(x), x, k is n, history(n), function(m, tripled_in_place).apply(plain) is plain


@like_pytorch
def test_a_dirty_tensor_that_is_no_input_is_warned_of(m):
    k = m.ones(2, dtype=m.float64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = function(m, lambda ctx, x: tripled_in_place(ctx, k)).apply(leaf(m, 1.0, 2.0))
    return y is k, history(y), [(w.category.__name__, str(w.message).partition(" (Triggered")[0]) for w in caught]


@like_pytorch
def test_one_of_several_outputs_may_be_dirty_unless_it_is_a_view(m):
    def forward(ctx, x):
        k = x * 2
        return k, tripled_in_place(ctx, x)

    mine = function(m, forward, lambda ctx, g, h: g * 2 + h * 3)
    x = leaf(m, 1.0, 2.0)
    h = x * 1
    k, y = mine.apply(h)
    (k.sum() + 10 * y.sum()).backward()
    with_number = function(m, lambda ctx, x: (tripled_in_place(ctx, x), 5))
    return (
        y is h, history(y), history(k), x.grad, error_of(lambda: mine.apply((x * 1)[:1])), error_of(lambda: mine.apply(x[:1])),
        error_of(lambda: with_number.apply((x * 1)[:1])),
    )  # fmt: skip


@like_pytorch
def test_a_dirty_view_gives_its_base_a_copy_slices_over_the_function(m):
    x = leaf(m, 1.0, 2.0)
    h = x * 1
    h.retain_grad()
    v = h[:1]
    y = function(m, tripled_in_place, lambda ctx, g: g * 3).apply(v)
    found = [y is v, history(y), history(h), next_names(h.grad_fn), next_names(y.grad_fn)]
    (h * h).sum().backward()
    return found, h.grad, x.grad


@like_pytorch
def test_a_dirty_view_whose_backward_passes_nothing_on(m):
    x, w = leaf(m, 1.0, 2.0), leaf(m, 1.0)
    h = x * 1
    mine = function(m, lambda ctx, x, w: tripled_in_place(ctx, x), lambda ctx, g: (None, g * 3))
    mine.apply(h[:1], w)
    h.sum().backward()
    return x.grad, w.grad


@like_pytorch
def test_a_dirty_view_is_differentiated_twice(m):
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        ctx.mark_dirty(x)
        return x.mul_(x)

    x = leaf(m, 1.0, 2.0)
    h = x * 1
    function(m, forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0]).apply(h[:1])
    (g,) = m.autograd.grad((h * h).sum(), x, create_graph=True)
    return g, m.autograd.grad(g.sum(), x)


@like_pytorch
def test_views_that_may_not_be_marked_dirty(m):
    h, x = leaf(m, 1.0, 2.0) * 1, leaf(m, 1.0, 2.0)
    with m.no_grad():
        silent, of_leaf = h[:1], x[:1]
    mine = function(m, tripled_in_place)
    views = [function(m, lambda ctx, x: x[:1]).apply(h), h.unbind()[0], silent, of_leaf, x[:1], x[:1].view(1)]
    return [error_of(lambda v=v: mine.apply(v)) for v in views]


@like_pytorch
def test_dirty_inputs_keep_hooks_and_retained_gradients(m):
    seen, x = [], leaf(m, 1.0, 2.0)
    h = x * 1
    h.register_hook(lambda g: seen.append(g.clone()))
    h.retain_grad()
    v = h[:1]
    function(m, tripled_in_place, lambda ctx, g: g * 3).apply(h)
    (h * 2).sum().backward()
    return seen, h.grad, x.grad, history(v)


@like_pytorch
def test_dirty_inputs_in_a_loop(m):
    mine, x, found = function(m, tripled_in_place, lambda ctx, g: g * 3), leaf(m, 1.0, 2.0), []
    for _ in range(4):
        h = x * 1
        mine.apply(h)
        mine.apply(h[0])
        mine.apply(mine.apply(h))
        h.sum().backward()
        found.append((h.detach(), x.grad, h._version))
        x.grad = None
    return found


@like_pytorch
def test_a_dirty_input_may_be_saved(m):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return tripled_in_place(ctx, x)

    x = leaf(m, 1.0, 2.0)
    function(m, forward, lambda ctx, g: g * ctx.saved_tensors[0]).apply(x * 1).sum().backward()
    return x.grad


@like_pytorch
def test_hooks_on_the_copy_slices_over_a_function(m):
    seen, w = [], leaf(m, 2.0)

    def forward(ctx, x, w):
        ctx.mark_dirty(x)
        return x.mul_(w)

    mine = function(m, forward, lambda ctx, g: (None, g * 3))
    for base in (m.ones(2, dtype=m.float64), leaf(m, 1.0, 2.0) * 1):
        function(m, tripled_in_place, lambda ctx, g: g * 3).apply(base[:1])
        mine.apply(base[:1], w)
        base.grad_fn.register_hook(lambda grad_inputs, grad_outputs: seen.append((grad_inputs, grad_outputs)))
        base.sum().backward()
    return seen, w.grad


@like_pytorch
def test_a_dirty_view_among_several_and_one_of_two_results(m):
    def forward(ctx, x):
        x.mul_(3)
        ctx.mark_dirty(x)
        return x, x * 2

    function(m, forward, lambda ctx, g, h: g).apply((leaf(m, 1.0, 2.0) * 1).unbind()[0])


@pytest.mark.parametrize("differentiable", [True, False])
def test_a_result_marked_dirty_that_is_no_input_is_told_of_where_a_graph_is_made(differentiable):
    @like_pytorch
    def program(m):
        def forward(ctx, x):
            y = x * 3
            ctx.mark_dirty(y)
            return y

        mine, x = function(m, forward, lambda ctx, g: g * 3), leaf(m, 1.0, 2.0)
        with m.set_grad_enabled(differentiable):
            return mine.apply(x), mine.apply(x.detach())

    program()


@like_pytorch
def test_a_view_made_without_a_graph_leads_nowhere(m):
    x = leaf(m, 1.0, 2.0)
    with m.no_grad():
        view = x.view(2)
    once = m.autograd.function.once_differentiable(lambda ctx, g: g)
    y = function(m, lambda ctx, x, w: x * w, lambda ctx, g: (g, g)).apply(view, x * 2)
    z = function(m, lambda ctx, x: x * 2, once).apply(view)
    (g,) = m.autograd.grad(z, view, view, create_graph=True, allow_unused=True)
    return next_names(y.grad_fn), next_names(z.grad_fn), g
