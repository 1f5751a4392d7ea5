"""What belongs to a transform stays within: tensors of outside are written to as PyTorch does it, or not at all."""

import pytest
from side_by_side import error_of, like_pytorch

pytestmark = pytest.mark.operators


def x(m, *shape):
    n = 1
    for s in shape:
        n *= s
    return m.arange(1.0, n + 1, dtype=m.float64).view(*shape) / 7


def outcomes(*calls):
    """What each call raises, or returns."""
    found = []
    for call in calls:
        raised = error_of(lambda call=call: found.append(call()))
        if raised is not None:
            found.append([raised[0], raised[1][:400]])
    return found


@like_pytorch
def test_running_statistics_under_transforms(m):
    F, func = m.nn.functional, m.func

    def normalized(a, mean, var, weight=None):
        return F.batch_norm(a, mean, var, weight, training=True)

    def after(transform):
        mean, var = m.zeros(3, dtype=m.float64), m.ones(3, dtype=m.float64)
        return [transform(mean, var), mean, var, mean + var]

    a = x(m, 4, 3)
    return [
        after(lambda mean, var: func.grad(lambda b: (normalized(b, mean, var) * b * b).sum())(a)),
        after(lambda mean, var: func.jvp(lambda b: (normalized(b, mean, var) * b).sum(), (a,), (a,))),
        after(lambda mean, var: func.grad(lambda b: func.grad(lambda c: (normalized(c, mean, var) * c * c).sum())(b).sum())(a)),
        after(lambda mean, var: func.vmap(lambda w: normalized(a, mean, var, w))(m.ones(2, 3, dtype=m.float64))),
        after(lambda mean, var: func.vmap(lambda b: F.batch_norm(b, mean, var))(x(m, 2, 4, 3))),
        after(lambda mean, var: func.grad(lambda b: (F.instance_norm(b, mean, var) * b * b).sum())(x(m, 2, 3, 4))),
    ]


@like_pytorch
def test_running_statistics_that_are_batches(m):
    module = m.nn.BatchNorm1d(3).double()
    buffers = {name: m.stack([b, b]) for name, b in module.named_buffers()}

    def f(b, a):
        return m.func.functional_call(module, b, (a,)), b

    _, found = m.func.vmap(f)(buffers, x(m, 2, 4, 3))
    return [[name, found[name], buffers[name]] for name in sorted(found)]


@like_pytorch
def test_running_statistics_of_outside_cannot_become_a_batch(m):
    module = m.nn.BatchNorm1d(3).double()
    mean = m.ones(3, dtype=m.float64)
    return outcomes(
        lambda: m.func.vmap(module)(x(m, 2, 4, 3)),
        lambda: m.func.vmap(lambda a, mean, var: m.nn.functional.batch_norm(a, mean, var, training=True), in_dims=(0, None, 0))(
            x(m, 2, 4, 3), mean, m.ones(2, 3, dtype=m.float64)
        ),
        lambda: m.func.grad(lambda a: module(a).sum())(x(m, 4, 3)),
        lambda: module.running_mean + 1,
    )


@like_pytorch
def test_out_data_and_set(m):
    func, outside = m.func, m.zeros(3, dtype=m.float64)
    a = x(m, 2, 3)

    def with_data(t, b):
        t.data = b
        return b.sum()

    return outcomes(
        lambda: func.vmap(lambda b: m.add(b, 1, out=outside))(a),
        lambda: func.vmap(lambda b: m.cumsum(b, 0, out=m.empty(3, dtype=m.float64)))(a),
        lambda: func.vmap(lambda b: m.add(outside, 1, out=m.empty(3, dtype=m.float64)) + b)(a),
        lambda: func.vmap(lambda b: m.mm(b, b, out=b.clone()))(m.ones(2, 3, 3)),
        lambda: func.vmap(lambda b: with_data(outside, b))(a),
        lambda: func.vmap(lambda b: with_data(b * 1, b))(a),
        lambda: func.grad(lambda b: with_data(b * 1, b))(a),
        lambda: func.jvp(lambda b: with_data(b * 1, b), (a,), (a,)),
        lambda: func.vmap(lambda b: outside.set_(b))(a),
        lambda: func.grad(lambda b: outside.set_(b).sum())(a[0]),
        lambda: outside + 1,
    )


@like_pytorch
def test_what_is_refused_within(m):
    func, a = m.func, x(m, 2, 3)
    return outcomes(
        lambda: func.grad(lambda b: (b.retain_grad(), b.sum())[1])(a),
        lambda: func.vmap(func.grad(lambda b: (b.retain_grad(), b.sum())[1]))(a),
        lambda: func.vmap(lambda b: (b * 2).retain_grad())(a),
        lambda: func.vmap(lambda b: b.new_empty_strided((3,), (1,)).copy_(b))(a),
    )


@like_pytorch
def test_what_is_no_batch_is_not_written_to_with_one(m):
    func, a, index = m.func, x(m, 2, 3), m.tensor([0, 1, 2])
    writes = [
        lambda b, t: t.mul_(b), lambda b, t: t.copy_(b), lambda b, t: t.div_(b.sum()), lambda b, t: t.fill_(b.sum()),
        lambda b, t: t.index_add_(0, index, b), lambda b, t: t.masked_fill_(b > 1, 0.0), lambda b, t: t.addcmul_(b, b), lambda b, t: t.lerp_(b, 0.5),
        lambda b, t: t.__setitem__(0, b[0]), lambda b, t: t.pow_(b), lambda b, t: t.clamp_(b),
        lambda b, t: t.masked_scatter_(m.tensor([True, False, True]), b),
    ]  # fmt: skip
    return outcomes(*[lambda w=w: func.vmap(w, in_dims=(0, None))(a, m.ones(3, dtype=m.float64)) for w in writes])


@like_pytorch
def test_shapes_that_depend_on_values(m):
    func, a = m.func, x(m, 2, 3)
    looks = [
        lambda b: b.nonzero(), lambda b: b.unique(), m.unique_consecutive, lambda b: m.unique(b, dim=0), lambda b: b.masked_select(b > 1),
        lambda b: b[b > 1], lambda b: b.nonzero(as_tuple=True), lambda b: m.equal(b, b), lambda b: m.allclose(b, b), lambda b: m.where(b > 1),
        lambda b: b.clone().__setitem__(b > 1, 0.0), lambda b: m.bincount(b.long()), lambda b: m.argwhere(b),
    ]  # fmt: skip
    return outcomes(*[lambda f=f: func.vmap(f)(a) for f in looks])


@like_pytorch
def test_data_of_a_batch_and_of_what_grad_follows_inside_of_it(m):
    func, a = m.func, x(m, 2, 3)
    return outcomes(
        lambda: func.vmap(lambda b: func.grad(lambda c: (c * c.data).sum())(b))(a),
        lambda: func.vmap(lambda b: func.grad(lambda c: (c * b.data).sum())(b))(a),
        lambda: func.vmap(lambda b: b * a.data.sum())(a),
    )


@like_pytorch
def test_several_views_of_a_tensor_from_outside(m):
    func = m.func
    a = x(m, 6)
    w = x(m, 3, 6).requires_grad_()
    found = []
    for views in (w.chunk, w.split, w.unbind, w.tensor_split):
        parts = lambda views=views: views(0) if views == w.unbind else views(3 if views != w.split else 1, 0)  # noqa: E731
        for transform in (func.grad, func.jacrev, lambda f: func.vmap(func.grad(lambda b: f(b * a)))):
            result = transform(lambda b, parts=parts: sum((b * p).sin().sum() for p in parts()))(a)
            (back,) = m.autograd.grad(result.sum(), w)
            found += [result, back]
    return found


@like_pytorch
def test_attention_with_parameters_that_require_gradients(m):
    m.manual_seed(0)
    attention = m.nn.MultiheadAttention(4, 2, batch_first=True, dtype=m.float64)
    a = x(m, 2, 3, 4)

    def of(b, c):
        return attention(b[None], c[None], c[None] * 2)[0].sum((0, 1))

    jacobian = m.func.vmap(m.func.jacrev(of))(a, a.flip(0))
    return [jacobian.detach(), *m.autograd.grad(jacobian.pow(2).sum(), list(attention.parameters()))]
