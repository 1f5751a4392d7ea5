"""Writes to dual tensors, to views of them and to their bases, in both execution modes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from dual_tensors import both, both_modes, dual, errors, inside, tangent, values  # noqa: E402, F401 - needs torch; a fixture
from side_by_side import like_pytorch  # noqa: E402

pytestmark = pytest.mark.operators

WRITES = {
    "a number": lambda m, x, y, t: x.mul_(2).add_(1),
    "a dual one": lambda m, x, y, t: x.mul_(y),
    "one without a tangent": lambda m, x, y, t: x.mul_(t),
    "a dual one to one without": lambda m, x, y, t: t.mul_(x),
    "to a view": lambda m, x, y, t: x[0].mul_(y[1]),
    "to a view of one without": lambda m, x, y, t: t[0].mul_(y[1]),
    "to a transposed view of one without": lambda m, x, y, t: t.t().mul_(y.t()),
    "to one of the same layout": lambda m, x, y, t: t.view_as(t).copy_(x),
    "copy_": lambda m, x, y, t: x.copy_(y),
    "copy_ of one without": lambda m, x, y, t: x.copy_(t),
    "copy_ to one without": lambda m, x, y, t: t.copy_(x),
    "copy_ of another dtype": lambda m, x, y, t: x.copy_(y.float()),
    "copy_ broadcast": lambda m, x, y, t: x.copy_(y[0]),
    "copy_ to integers": lambda m, x, y, t: m.zeros(2, 3, dtype=m.int64).copy_(x),
    "fill_": lambda m, x, y, t: x.fill_(2),
    "fill_ with a tensor": lambda m, x, y, t: x.fill_(y[0, 0]),
    "fill_ of one without": lambda m, x, y, t: t.fill_(y[0, 0]),
    "zero_": lambda m, x, y, t: x.zero_(),
    "zero_ a view": lambda m, x, y, t: x[0].zero_(),
    "masked_fill_": lambda m, x, y, t: x.masked_fill_(t > 0, 2.0),
    "masked_fill_ with a tensor": lambda m, x, y, t: x.masked_fill_(t > 0, y[0, 0]),
    "masked_fill_ of one without": lambda m, x, y, t: t.masked_fill_(y > 0, y[0, 0]),
    "index_put_": lambda m, x, y, t: x.index_put_((m.tensor([1]),), y[0]),
    "index_put_ accumulates": lambda m, x, y, t: t.index_put_((m.tensor([1, 1]),), y, accumulate=True),
    "setitem": lambda m, x, y, t: x.__setitem__((0, slice(1, None)), y[1, 1:]),
    "setitem of a number": lambda m, x, y, t: x.__setitem__(0, 3.0),
    "setitem of one without": lambda m, x, y, t: t.__setitem__((slice(None), 0), y[:, 0]),
    "setitem with a mask": lambda m, x, y, t: t.__setitem__(t > 0, x[t > 0]),
    "scatter_": lambda m, x, y, t: x.scatter_(1, m.tensor([[0], [2]]), y),
    "index_add_": lambda m, x, y, t: t.index_add_(0, m.tensor([1, 0]), y),
    "addcmul_": lambda m, x, y, t: t.addcmul_(x, y, value=2),
    "addmm_": lambda m, x, y, t: t[:, :2].addmm_(x, y.t()),
    "sigmoid_ relu_ clamp_": lambda m, x, y, t: x.sigmoid_().sub_(0.5).relu_().clamp_(max=0.25),
    "out=": lambda m, x, y, t: m.mul(t, t, out=m.empty(2, 3, dtype=m.float64)),
    "out= of dual ones": lambda m, x, y, t: m.mul(x, y, out=t),
    "out= into a dual one": lambda m, x, y, t: m.mul(t, t, out=x),
    "transpose_": lambda m, x, y, t: x.transpose_(0, 1),
    "t_ and on": lambda m, x, y, t: x.t_().mul_(y.t()),
    "unsqueeze_ squeeze_": lambda m, x, y, t: x.unsqueeze_(0).squeeze_(0).unsqueeze_(1),
    "squeeze_ of a result": lambda m, x, y, t: (x * 2)[:1].squeeze_(0),
    "detach_": lambda m, x, y, t: x.detach_(),
    "detach_ of a result": lambda m, x, y, t: (x * 2).detach_(),
    "detach and write": lambda m, x, y, t: x.detach().mul_(3),
    "detach and write a dual one": lambda m, x, y, t: x.detach().mul_(y),
    "data and write": lambda m, x, y, t: x.data.mul_(y),
    "uniform_": lambda m, x, y, t: x.uniform_(1, 1),
    "resize_": lambda m, x, y, t: (x * 2).resize_(3),
    "set data": lambda m, x, y, t: setattr(x, "data", t),
    "requires_grad_": lambda m, x, y, t: x.requires_grad_().mul(2),
    "swapaxes_": lambda m, x, y, t: (x * 1).swapaxes_(0, 1).mul_(2),
    "no_grad": lambda m, x, y, t: m.no_grad()(lambda: x.mul_(y))(),
    "iadd": lambda m, x, y, t: x.__iadd__(y).__imul__(t),
    "cumsum_": lambda m, x, y, t: x.cumsum_(0),
    "multi view": lambda m, x, y, t: x.unbind(0)[0].mul_(2),
    "multi view of one without": lambda m, x, y, t: t.split(1)[0].mul_(y[:1]),
    "diagonal": lambda m, x, y, t: t.diagonal().copy_(y.diagonal()),
    "expanded source": lambda m, x, y, t: t.add_(y[:1].expand(2, 3)),
    "integers by floats": lambda m, x, y, t: m.ones(2, 3, dtype=m.int64).mul_(x),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_writes(name):
    """To dual tensors, to views of them, to their bases, and to tensors that become dual by it."""

    @like_pytorch
    def program(m):
        fw, found = m.autograd.forward_ad, []
        for result in (False, True):
            with fw.dual_level():
                x, y, t = dual(m, 2, 3, seed=2), dual(m, 2, 3, seed=4), values(m, 2, 3, seed=6)
                x = x * 2 if result else x
                parts = [x[0], x.t(), t[:, 1:], t.t()]
                raised = errors(m, [lambda x=x, y=y, t=t: WRITES[name](m, x, y, t)])
                found += [raised, both(m, [x, y, t]), both(m, parts), both(m, [x * 2, t * y.detach(), [p * 2 for p in parts]])]
        return found

    program()


@inside
def test_a_base_and_its_views_share_the_tangent(m):
    base = values(m, 2, 2)
    view, part = base.view(4), base[0]
    found = both(m, [base, view, part])
    part.mul_(dual(m, 2))
    found += both(m, [base, view, part, base._base is None])
    view.mul_(dual(m, 4, seed=3))
    found += both(m, [base, view, part])
    base.mul_(3)
    found += both(m, [base, view, part, view[1:3], base.t()[0]])
    return [*found, tangent(m, view)._base is tangent(m, base), tangent(m, part)._is_view()]


@inside
def test_make_dual_and_writes_to_its_memory(m):
    fw = m.autograd.forward_ad
    x = values(m, 2)
    v = x.view(2, 1)
    y = fw.make_dual(x, values(m, 2, seed=1))
    found = both(m, [x, v, y])
    y.mul_(2)
    found += both(m, [x, v, y])
    x.mul_(y)
    found += both(m, [x, v, y])
    u = x.detach()
    u.mul_(y)
    return [*found, *both(m, [x, v, y, u, x.data])]


@inside
def test_integers_that_a_dual_tensor_is_written_to_have_no_tangent(m):
    whole, part = m.ones(2, dtype=m.int64), m.ones(4, dtype=m.int64)
    whole.copy_(dual(m, 2))
    part[:2].copy_(dual(m, 2))
    part.add_(1)
    return [m.autograd.forward_ad.unpack_dual(t).tangent for t in (whole, part, part.float())]
