"""`Tensor._view_func`: the view that a tensor is of its base, of another base."""

from __future__ import annotations

import pytest
from side_by_side import like_pytorch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

VIEWS = {
    "select": lambda b: b[0], "slice": lambda b: b[0, 1:], "columns": lambda b: b[:, 0:2:1], "view": lambda b: b.view(6), "t": lambda b: b.t(),
    "diagonal": lambda b: b.diagonal(), "unbind": lambda b: b.unbind()[1], "split": lambda b: b.split(1)[1], "unsqueeze": lambda b: b.unsqueeze(0),
    "of a view": lambda b: b[:, ::2].t(), "expand": lambda b: b.expand(2, 2, 3), "no view": lambda b: b, "detached": lambda b: b.detach(),
}  # fmt: skip


def base(m, first=0.0):
    return m.arange(first, first + 6.0).reshape(2, 3).clone()


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_done_again_shares_the_new_base(name):
    @like_pytorch
    def check(m):
        other = base(m, 10.0)
        made = VIEWS[name](base(m).requires_grad_() * 1)._view_func(other)
        return made if made is None else [made, made._base is other, list(made.stride()), made.storage_offset(), made.data_ptr() >= other.data_ptr()]

    check()


@like_pytorch
def test_a_write_to_it_reaches_the_new_base_and_not_the_old_one(m):
    old, new = base(m), base(m, 10.0)
    old[0]._view_func(new).mul_(2)
    return old, new


@like_pytorch
def test_it_is_part_of_the_new_bases_graph(m):
    new = base(m).requires_grad_()
    made = base(m)[1]._view_func_unsafe(new * 1)
    made.sum().backward()
    return made.grad_fn.name(), new.grad


@pytest.mark.parametrize("shape", [(3, 2), (6,), (2, 3)], ids=str)
def test_a_base_that_is_laid_out_otherwise_is_refused_by_the_safe_form_only(shape):
    @like_pytorch
    def check(m):
        v, new = base(m)[0], m.arange(6.0).reshape(shape)
        return v._view_func(new), v._view_func_unsafe(new), v._view_func(m.arange(6.0).reshape(3, 2).t())

    check()


@like_pytorch
def test_pairs_of_a_complex_base(m):
    v = m.view_as_real(m.ones(2, dtype=m.complex64))
    return v._view_func(m.zeros(2, dtype=m.complex64)), v[0]._view_func(m.zeros(2, dtype=m.complex64))


@pytest.mark.parametrize("name", ["select", "columns", "view", "t", "diagonal", "expand"])
def test_a_visitor_sees_the_indices_and_sizes_of_tracked_views(name):
    @like_pytorch
    def check(m):
        seen = []
        with m.autograd._force_original_view_tracking(True):
            v = VIEWS[name](base(m))
        return v._view_func_unsafe(base(m, 10.0), lambda n: seen.append(n) or n), seen

    check()


@like_pytorch
def test_what_a_visitor_returns_is_used(m):
    with m.autograd._force_original_view_tracking(True):
        v = base(m)[0]
    return v._view_func(base(m, 10.0), lambda n: n + 1), base(m)[0]._view_func(base(m, 10.0), lambda n: n + 1)


ASKED = {
    "from the end": lambda b: b[-1], "to the end": lambda b: b[1:], "every other": lambda b: b[::2], "of the last": lambda b: b[-3:-1],
    "inferred": lambda b: b.view(-1), "reshaped": lambda b: b.reshape(3, -1), "chunk": lambda b: b.chunk(2)[1], "split": lambda b: b.split(3)[0],
    "pieces": lambda b: b.split([1, 3])[1], "unbind": lambda b: b.unbind(1)[1], "by strides": lambda b: b.as_strided((2, 2), (1, 2)),
    "by strides from": lambda b: b.as_strided((2, 2), (1, 2), 1), "of a view": lambda b: b[1:].t()[-1], "expand": lambda b: b.expand(2, -1, -1),
    "index and slice": lambda b: b[1:, -2], "narrow": lambda b: b.narrow(0, 1, 2),
}  # fmt: skip


@pytest.mark.parametrize("change", [0, 1])
@pytest.mark.parametrize("rows", [4, 8])
@pytest.mark.parametrize("name", ASKED)
def test_a_tracked_view_is_asked_for_as_it_was(name, rows, change):
    """A base of other sizes has other last elements."""

    @like_pytorch
    def check(m):
        seen = []
        with m.autograd._force_original_view_tracking(True):
            v = ASKED[name](m.arange(12.0).reshape(4, 3).clone())
        new = m.arange(rows * 3.0).reshape(rows, 3).clone()
        try:
            return v._view_func_unsafe(new, lambda n: seen.append(n) or n + change), seen
        except (RuntimeError, ValueError) as error:
            return type(error).__name__, seen

    check()


def test_a_tracked_view_of_a_longer_base():
    with tj.autograd._force_original_view_tracking(True):
        v = tj.zeros(4)[1:]
    assert v._view_func_unsafe(tj.arange(6.0)).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


@like_pytorch
def test_what_is_not_tracked_is_told_by_strides_from_the_beginning_of_memory(m):
    old, new = m.arange(8.0)[2:].detach(), m.arange(10.0, 20.0)[4:].detach()
    return [v._view_func_unsafe(new) for v in (old[1:3], old.view(2, 3)[1], old[::2])]


@like_pytorch
def test_a_slice_that_was_undone_is_undone_as_another_tensor_lies(m):
    whole, new = m.arange(24.0).reshape(2, 3, 4), m.ones(2, 3, 4)[:, 1:2].detach()
    with m.autograd._force_original_view_tracking(True):
        v = m.ops.aten.slice_inverse(whole[:, 1:2].detach(), whole, 1, 1, 2, 1)
    seen, tensors = [], []
    other = v._view_func(new, lambda n: seen.append(n) or n, lambda t: tensors.append(t is whole) or m.zeros(1, 2, 3))
    return seen, tensors, other, list(other.stride()), v._view_func(whole[:, 1:2].detach())


WRONG = {
    "no tensor": lambda v, m: v._view_func(3),
    "no reverse": lambda v, m: v._rev_view_func_unsafe(base(m)),
    "reverse of no tensor": lambda v, m: v._rev_view_func_unsafe(3),
    "reverse of no view": lambda v, m: m.ones(1)._rev_view_func_unsafe(base(m)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name):
    like_pytorch(lambda m: WRONG[name](base(m)[0], m))()
