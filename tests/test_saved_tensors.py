"""What nodes keep for backward: how the user sees it, when it is out of date, and when it is gone."""

import gc
import warnings
import weakref

import pytest
from side_by_side import error_of, leaf, like_pytorch

import torchgrad_jax as tj
from compat_suite.fuzz.programs import same


def keep(x):
    return x


def shown(x):
    return [list(x.shape), x.requires_grad, x.is_leaf, x.grad_fn.name() if x.grad_fn else None, x._version]


def shown_error(error):
    """An error without the addresses in it."""
    return error and (error[0], error[1].split("Invoked with")[0])


def saving(m, choose):
    """A Function of two inputs that saves what `choose` picks of them and its output."""

    class Product(m.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            out = x * y
            ctx.save_for_backward(*choose(x, y, out))
            return out

        @staticmethod
        def backward(ctx, g):
            ctx.saved_tensors  # noqa: B018 - reading them checks them
            return g, g

    return Product


# ---------------------------------------------------------------------- _saved_* and _raw_saved_*


@like_pytorch
def test_a_saved_leaf_is_the_leaf(m):
    a = leaf(m, 1.0, 2.0)
    node = (a * a).grad_fn
    return node._saved_self is a, node._saved_other is a


@like_pytorch
def test_a_saved_output_is_a_new_tensor_with_the_same_grad_fn(m):
    out = leaf(m, 1.0, 2.0).exp()
    look = out.grad_fn._saved_result
    return look is out, look.grad_fn is out.grad_fn, look, shown(look)


@like_pytorch
def test_what_was_not_needed_is_none(m):
    a = leaf(m, 1.0, 2.0)
    node = (a * m.ones(2, dtype=m.float64)).grad_fn
    return node._saved_self, node._saved_other


@like_pytorch
def test_saved_numbers(m):
    a = leaf(m, 1.0, 2.0)
    return (a * 2.0).grad_fn._saved_other, (a / 3).grad_fn._saved_other, (a**2).grad_fn._saved_exponent, (a.max(0)[0]).grad_fn._saved_dim


@like_pytorch
def test_saved_sizes_and_lists(m):
    a = leaf(m, 1.0, 2.0)
    return a.max(0)[0].grad_fn._saved_self_sym_sizes, a[m.tensor([0, 1])].grad_fn._saved_indices


@like_pytorch
def test_unknown_names_are_attribute_errors(m):
    node = (leaf(m, 1.0) * 2).grad_fn
    power = (leaf(m, 1.0) ** 2).grad_fn
    return [error_of(lambda: node._saved_foo), error_of(lambda: node._raw_saved_foo), error_of(lambda: power._raw_saved_exponent)]


@like_pytorch
def test_dir_lists_the_saved_attributes(m):
    return [[n for n in dir(node) if n.startswith(("_saved_", "_raw_saved_"))] for node in ((leaf(m, 1.0) * 2).grad_fn, leaf(m, 1.0).exp().grad_fn)]


@like_pytorch
def test_saved_tensors_cannot_be_made_by_the_user(m):
    return error_of(m.autograd.SavedTensor), type((leaf(m, 1.0) * 2).grad_fn._raw_saved_self) is m.autograd.SavedTensor


@like_pytorch
def test_registered_hooks_replace_one_saved_tensor(m):
    log = []
    a = leaf(m, 1.0, 2.0)
    out = a * a
    raw = out.grad_fn._raw_saved_self
    same = raw is out.grad_fn._raw_saved_self
    raw.register_hooks(lambda x: (log.append(("pack", m.is_grad_enabled(), *shown(x))), x * 2)[1], lambda x: (log.append("unpack"), x)[1])
    look = out.grad_fn._saved_self
    out.sum().backward()
    return log, same, shown(look), look, out.grad_fn is not None, a.grad


@like_pytorch
def test_registered_hooks_on_inner_tensors_outputs_and_numbers(m):
    a = leaf(m, 1.0, 2.0)
    b = a * 3.0
    outs = b * b, b.exp(), b * 2.0
    raws = outs[0].grad_fn._raw_saved_other, outs[1].grad_fn._raw_saved_result, outs[2].grad_fn._raw_saved_other
    for raw in raws:
        raw.register_hooks(lambda x: x.detach().clone(), lambda x: x + 1)
    looks = [shown(outs[0].grad_fn._saved_other), shown(outs[1].grad_fn._saved_result)]
    sum(out.sum() for out in outs).backward()
    return looks, a.grad


@like_pytorch
def test_refusals_of_register_hooks(m):
    a = leaf(m, 1.0, 2.0)
    node = (a * m.ones(2, dtype=m.float64)).grad_fn
    product = a * a
    raw = product.grad_fn._raw_saved_self
    found = [error_of(lambda: node._raw_saved_self.register_hooks(keep, keep))]
    for given in ((), (1,), (keep, 2), (keep, keep, keep)):
        found.append(error_of(lambda given=given: raw.register_hooks(*given)))
    raw.register_hooks(keep, keep)
    found.append(error_of(lambda: raw.register_hooks(keep, keep)))
    with m.autograd.graph.saved_tensors_hooks(keep, keep):
        product = a * a
    packed = product.grad_fn._raw_saved_self
    found.append(error_of(lambda: packed.register_hooks(keep, keep)))
    out = a * a
    raw = out.grad_fn._raw_saved_self
    out.sum().backward()
    found += [error_of(lambda: raw.register_hooks(keep, keep)), error_of(lambda: out.grad_fn._raw_saved_other.register_hooks(keep, keep))]
    return [shown_error(e) for e in found]


@like_pytorch
def test_a_registered_pack_hook_may_not_write_to_its_input(m):
    a = leaf(m, 1.0, 2.0)
    product = a * a
    raw = product.grad_fn._raw_saved_self
    return error_of(lambda: raw.register_hooks(lambda x: x.add_(1), keep)), error_of(lambda: raw.register_hooks(keep, keep)), a


@like_pytorch
def test_the_kept_object_and_the_tensor_of_a_raw_saved_tensor(m):
    a = leaf(m, 1.0, 2.0)
    product, out = a * a, a.exp()
    raw, own = product.grad_fn._raw_saved_self, out.grad_fn._raw_saved_result
    found = [raw.data is a, raw.unpack() is a, raw.unpack_hook, own.data, error_of(own.unpack)]
    raw.register_hooks(lambda x: (7, x), lambda packed: packed[1])
    return found, raw.data[0], raw.unpack(), raw.unpack_hook is None


@like_pytorch
def test_functions_show_their_raw_saved_tensors(m):
    x, y = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0) * 2
    out = saving(m, lambda x, y, out: (x, None, y, out)).apply(x, y)
    raws = out.grad_fn._raw_saved_tensors
    seen = []
    for i in (0, 2, 3):
        raws[i].register_hooks(lambda t: (seen.append(shown(t)), t)[1], keep)
    refused = error_of(lambda: raws[1].register_hooks(keep, keep))
    looks = [t if t is None else shown(t) for t in out.grad_fn.saved_tensors]
    out.sum().backward()
    return seen, refused, looks, error_of(lambda: out.grad_fn._raw_saved_tensors)


@like_pytorch
def test_functions_give_back_the_very_tensors_that_they_saved(m):
    x, y, c = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0) * 2, m.ones(2, dtype=m.float64)
    out = saving(m, lambda x, y, out: (x, y, c, out)).apply(x, y)
    return [a is b for a, b in zip(out.grad_fn.saved_tensors, (x, y, c, out), strict=True)], shown(out.grad_fn.saved_tensors[3])


@like_pytorch
def test_within_forward_nothing_is_saved_yet(m):
    seen = []

    class Early(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            seen.append((ctx.saved_tensors, ctx._raw_saved_tensors))
            return x * 1

    Early.apply(leaf(m, 1.0))
    return seen


def test_saved_variables_is_deprecated():
    out = saving(tj, lambda x, y, out: (x,)).apply(leaf(tj, 1.0), leaf(tj, 1.0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(out.grad_fn.saved_variables) == 1
    assert [(w.category, str(w.message)) for w in caught] == [(DeprecationWarning, "'saved_variables' is deprecated; use 'saved_tensors'")]


# ---------------------------------------------------------------------- out of date, detached, freed


@like_pytorch
def test_reading_or_using_an_outdated_saved_tensor_is_an_error(m):
    a = leaf(m, 1.0, 2.0)
    b = a * 1.0
    out = b * b
    b.add_(1)
    function = saving(m, lambda x, y, out: (x, y, out))
    found = [error_of(lambda: out.grad_fn._saved_self), error_of(out.sum().backward)]
    for at in range(3):
        tensors = [leaf(m, 1.0) * 1.0, leaf(m, 2.0) * 1.0]
        made = function.apply(*tensors)
        (*tensors, made)[at].mul_(2)
        found.append(error_of(made.sum().backward))
    return found


@like_pytorch
def test_registered_hooks_see_the_write_too(m):
    a = leaf(m, 1.0, 2.0)
    b = a * 1.0
    out = b * b
    for raw in (out.grad_fn._raw_saved_self, out.grad_fn._raw_saved_other):
        raw.register_hooks(lambda x: x.clone(), keep)
    b.add_(1)
    out.sum().backward()
    c = a * 1.0
    out = c * c
    raw = out.grad_fn._raw_saved_self
    c.add_(1)
    return a.grad, error_of(out.sum().backward)


@like_pytorch
def test_an_input_detached_in_place_cannot_be_used(m):
    a = leaf(m, 1.0, 2.0)
    b = a * 1.0
    out = b * b
    b.detach_()
    return error_of(out.sum().backward), shown(out.grad_fn._saved_self), out.grad_fn._saved_self, b


@like_pytorch
def test_an_input_detached_in_place_cannot_be_used_in_a_differentiated_pass(m):
    a, c = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
    b = a * 1.0
    out, plain = b * c, a.detach() * c
    b.detach_()
    found = [error_of(lambda: m.autograd.grad(out.sum(), c, create_graph=True))]
    y = (a * 1.0).exp()
    after = y + 2
    y.detach_()
    return found, m.autograd.grad(plain.sum(), c, create_graph=True), m.autograd.grad(after.sum(), a, create_graph=True)


@like_pytorch
def test_an_output_detached_in_place_can_be_used(m):
    a = leaf(m, 1.0, 2.0)
    out = (a * 1.0).exp()
    after = out + 2
    out.detach_()
    after.sum().backward()
    out.mul_(3)
    return a.grad, out


@like_pytorch
def test_writes_after_detaching_in_place_are_seen(m):
    a = leaf(m, 1.0, 2.0)
    out = (a * 1.0).exp()
    out.mul_(1)
    after = out + 2
    out.detach_()
    out.mul_(3)
    v = out[:1]
    v.add_(1)
    after.sum().backward()
    return a.grad, out, v, out._version


@like_pytorch
def test_functions_may_use_what_was_detached_in_place(m):
    x, y = leaf(m, 1.0), leaf(m, 2.0) * 1.0
    out = saving(m, lambda x, y, out: (x, y, out)).apply(x, y)
    y.detach_()
    out.sum().backward()
    return x.grad


@like_pytorch
def test_saved_tensors_are_gone_after_backward(m):
    found = []
    for make in (lambda a: a * 2, lambda a: a / 2, lambda a: a + 2, lambda a: a**2, lambda a: -a, lambda a: a.sum(), lambda a: a.max(0)[0],
                 lambda a: a.exp(), lambda a: saving(m, lambda x, y, out: ()).apply(a, a)):  # fmt: skip
        out = make(leaf(m, 1.0, 2.0)).sum()
        out.backward(retain_graph=True)
        out.backward()
        found.append(error_of(out.backward))
    return found


@like_pytorch
def test_attributes_of_freed_nodes(m):
    out = leaf(m, 1.0, 2.0) * leaf(m, 3.0, 4.0)
    made = saving(m, lambda x, y, out: ()).apply(out.detach().requires_grad_(), out.detach())
    out.sum().backward()
    made.sum().backward()
    return error_of(lambda: out.grad_fn._saved_self), error_of(lambda: made.grad_fn.saved_tensors)


def test_looking_at_saved_tensors_makes_no_reference_cycles():
    gc.disable()
    try:
        a = leaf(tj, 1.0, 2.0)
        outs = [a.exp(), (a * 1.0) * a, saving(tj, lambda x, y, out: (x, y, out, out.detach()[:1])).apply(a, a * 2)]
        looks = [
            outs[0].grad_fn._saved_result,
            outs[0].grad_fn._raw_saved_result,
            outs[1].grad_fn._raw_saved_self,
            outs[2].grad_fn._raw_saved_tensors,
        ]
        looks[1].register_hooks(keep, keep)
        nodes = [weakref.ref(out.grad_fn) for out in outs]
        del outs, looks
        assert [node() for node in nodes] == [None] * 3
    finally:
        gc.enable()


def test_a_saved_input_that_comes_to_depend_on_the_node_makes_no_reference_cycle():
    gc.disable()
    try:
        w, state = leaf(tj, 1.0, 2.0), tj.ones(2, dtype=tj.float64)
        out = saving(tj, lambda x, y, out: (x, y)).apply(state, w)
        state.mul_(out)
        node = weakref.ref(out.grad_fn)
        del out, state
        assert node() is None
    finally:
        gc.enable()


@like_pytorch
def test_a_saved_tensor_outlives_its_name(m):
    x = leaf(m, 1.0, 2.0)
    out = saving(m, lambda x, y, out: (x, y)).apply(x * 3, m.ones(2, dtype=m.float64))
    return [shown(t) for t in out.grad_fn.saved_tensors], out.grad_fn.saved_tensors


# ---------------------------------------------------------------------- allow_mutation_on_saved_tensors


def allowed(m):
    return m.autograd.graph.allow_mutation_on_saved_tensors()


@like_pytorch
def test_backward_uses_what_was_saved_before_the_write(m):
    with allowed(m):
        a = leaf(m, 1.0, 2.0)
        b = a.clone()
        v = b[:1]
        out = (b**2).sum() + (v * b).sum() + b.exp().mul_(2).sum()
        b.sin_()
        v.add_(1)
        with m.no_grad():
            a.add_(1)
        out.backward()
        return a.grad, a


@like_pytorch
def test_the_context_tells_what_was_written_to(m):
    counts = []
    with allowed(m) as context:
        a = leaf(m, 1.0, 2.0)
        b = a.clone()
        out = (b * b).sum() + b.sin().sum()
        counts.append((len(context.original), len(context.cloned)))
        b.mul_(3)
        counts.append((len(context.original), len(context.cloned)))
        out.backward()
        counts.append((len(context.original), len(context.cloned)))
    return counts, a.grad


@like_pytorch
def test_backward_is_refused_outside_of_the_context(m):
    def built():
        a = leaf(m, 1.0, 2.0)
        b = a.clone()
        out = (b**2).sum()
        b.add_(1)
        return out

    with allowed(m) as context:
        cleared = built()
        context.clear()
        found = [error_of(cleared.backward)]
        outside = built()
    found.append(error_of(outside.backward))
    with allowed(m):
        found.append(error_of(outside.backward))
    return found


@like_pytorch
def test_the_contexts_cannot_be_nested(m):
    def inner():
        with allowed(m):
            pass

    def outer():
        with allowed(m):
            inner()

    with allowed(m):
        nested = error_of(inner)
    return nested, error_of(outer), error_of(inner)


@like_pytorch
def test_what_was_saved_before_the_context_is_checked_as_ever(m):
    b = leaf(m, 1.0, 2.0).clone()
    out = (b**2).sum()
    with allowed(m):
        b.add_(1)
        return error_of(out.backward)


@like_pytorch
def test_second_derivatives_within_the_context(m):
    with allowed(m):
        a = leaf(m, 1.0, 2.0)
        b = a.clone()
        out = (b**3).sum()
        b.add_(1)
        (g,) = m.autograd.grad(out, a, create_graph=True)
        b.mul_(2)
        return g, m.autograd.grad(g.sum(), a)[0]


@like_pytorch
def test_what_was_saved_of_a_constant_is_the_data_set_since(m):
    x, c = leaf(m, 1.0, 2.0), m.tensor([3.0, 4.0])
    y = x * c
    c.data = m.tensor([5.0, 6.0])
    y.sum().backward()
    return x.grad


@like_pytorch
def test_the_gradient_of_what_was_overwritten_as_a_whole_has_no_graph(m):
    x, found = leaf(m, 1.0, 2.0), []
    for write in (lambda t: t.fill_(2.0), lambda t: t.zero_(), lambda t: t.copy_(m.ones(2)), lambda t: t.__setitem__(0, 1.0)):
        y = x * 1
        write(y)
        (grad,) = m.autograd.grad(y.sin().sum(), x, create_graph=True)
        found.append((grad.requires_grad, grad.tolist()))
    return found


@pytest.mark.parametrize("name", ["x5.gather(0, i)", "x5.take(i)", "x5.prod()", "x5.prod(0)", "x5.cumprod(0)", "x5[x5 > 0]", "x5.logcumsumexp(0)"])
def test_what_pytorch_saves_though_no_gradient_needs_it_may_not_be_written_to(name):
    same(f"""
        x1 = leaf(4)
        x5 = x1 * 1
        i = torch.tensor([1, 0])
        y = {name}
        x5.mul_(2)
        y.sum().backward()
    """)


@pytest.mark.parametrize("name", ["scatter_add", "scatter"])
def test_a_source_of_which_backward_needs_the_shape_alone_may_be_written_to(name):
    same(f"""
        x1 = leaf(4)
        x2 = leaf(2)
        x3 = x2 * 1
        y = x1.{name}(0, torch.tensor([1, 0]), x3)
        x3.mul_(2)
        y.square().sum().backward()
    """)


@pytest.mark.parametrize("name", ["clamp(0, 1)", "take(i)", "amax()", "max()", "cummax(0)[0]", "nan_to_num()", "nansum()", "prod()"])
def test_gradients_of_gradients_lead_where_pytorchs_do(name):
    same(f"""
        x = leaf(4)
        i = torch.tensor([1, 0])
        y = x.{name}
        g = second(*grad(y.sum(), x, create_graph=True))
    """)


def test_a_tensor_with_a_new_layout_can_be_detached():
    same("""
        x2 = leaf(2)
        x3 = x2.exp()
        x3.unsqueeze_(1)
        x5 = x3.movedim(0, -1)
        x3.mul_(2)
        x3.detach_()
    """)


def test_a_nan_gradient_of_an_extreme_goes_everywhere():
    same("""
        x = special(2, 3, seed=6)
        y = (x * x).amax(-1)
        y.sin().sum().backward()
    """)


def test_looking_at_what_is_saved_does_not_hide_a_write():
    same("""
        x = leaf(2)
        y = x.tanh()
        calls.append(contents(y.grad_fn._saved_result))
        y.mul_(2)
        y.square().sum().backward()
        v, i = x.cummax(0)
        calls.append(contents(v.grad_fn._saved_indices))
        i.mul_(0)
        v.sum().backward()
    """)


def test_zero_gradients_have_no_graph():
    same("""
        x = leaf(2)
        y = x.flip(-1)
        y.gt_(0.5)
        a = second(*grad(y.square().sum(), x, create_graph=True))
        b = second(*grad(x.flip(-1).sign().square().sum(), x, create_graph=True))
        c = second(*grad(x.flip(-1).round().square().sum(), x, create_graph=True))
    """)


@like_pytorch
def test_what_no_gradient_reads_may_be_detached_in_place(m):
    x = leaf(m, 1.0, 2.0)
    y = x.exp()
    (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
    y.detach_()
    g.sin().sum().backward()
    z = x.exp()
    (h,) = m.autograd.grad(z.square().sum(), x, create_graph=True)
    z.detach_()
    v = x * 2
    w = m.atan2(v, x)
    v.detach_()
    return x.grad, error_of(lambda: h.sum().backward()), error_of(lambda: w.sum().backward(create_graph=True))


DETACHED = [
    "y = x.sin(); x.mul_(2); x.detach_()", "y = x * w; x.detach_(); x.mul_(2)", "y = x * w; x.detach_(); x.mul_(w)",
    "y = x * w; x.mul_(2); x.detach_(); x.mul_(w); x.detach_()", "y = x.sin(); t = x.detach(); t.mul_(w); x.detach_()",
    "v = x.view(2); y = v.sin(); x.mul_(2); x.detach_()", "x = x.detach(); y = x * w; x.mul_(w); x.detach_()",
    "y = x.sin(); x.unsqueeze_(0); x.detach_()", "x.unsqueeze_(0); y = x.sin(); x.mul_(2); x.detach_()",
    "y = x.sin(); x.data.mul_(2); x.detach_()", "y = x.sin(); x.data = leaf(2, requires_grad=False); x.detach_()",
    "t = x.detach().requires_grad_(); y = t.sin(); x.detach_()",
]  # fmt: skip


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("steps", DETACHED)
def test_a_tensor_detached_in_place_is_known_through_writes(steps, create_graph):
    same(f"""
        a, w = leaf(2), leaf(seed=1)
        x = a * 1
        {steps}
        g = second(*grad(y.sum(), [a, w], create_graph={create_graph}, allow_unused=True))
    """)
