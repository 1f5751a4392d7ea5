"""`segment_reduce` against PyTorch's: values, first gradients, what it refuses."""

from __future__ import annotations

import pytest
from side_by_side import error_of, like_pytorch, programs, torch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()

HOW = ["sum", "mean", "max", "min", "prod"]


@pytest.mark.parametrize("reduce", HOW)
def test_segments_and_their_gradients(reduce):
    @like_pytorch
    def check(m):
        found = []
        x = m.tensor([[1.0, -2.0], [3.0, 0.0], [3.0, 4.0], [0.0, 5.0], [2.0, 0.5], [0.0, 0.0]], requires_grad=True)
        for bounds in ({"lengths": m.tensor([3, 0, 3])}, {"offsets": m.tensor([0, 2, 2, 6])}, {"offsets": m.tensor([1, 2, 4])}):
            for initial in (None, 3.0):
                made = m.segment_reduce(x, reduce, **bounds, initial=initial)
                weights = m.arange(1.0, made.numel() + 1).reshape(made.shape)
                (grad,) = m.autograd.grad(m.where(m.isfinite(made), made, 0.0).mul(weights).sum(), x)
                found += [made, made.grad_fn.name(), m.nan_to_num(grad)]
        nan = m.tensor([1.0, float("nan"), 2.0], requires_grad=True)
        made = m.segment_reduce(nan, reduce, lengths=m.tensor([2, 1]))
        return [*found, m.nan_to_num(made, 7.0), m.nan_to_num(m.autograd.grad(made.sum(), nan)[0], 7.0)]

    check()


@program
def segments_of_rows(m):
    x = m.arange(24.0, dtype=m.float64).reshape(2, 6, 2)
    lengths = m.tensor([[2, 4], [3, 3]], dtype=m.int32)
    return [m.segment_reduce(x, "sum", lengths=lengths, axis=axis) for axis in (1, -2)] + [
        m.segment_reduce(x, "mean", lengths=m.tensor([1, 0]), axis=0, unsafe=True, initial=1),
        m.segment_reduce(x[0], "max", lengths=m.tensor([2, 3]), unsafe=True),
        m.segment_reduce(x[0], "sum", offsets=m.tensor([0])),
    ]


def test_what_segments_refuse():
    def errors(m):
        x, t = m.ones(4, 2), m.tensor

        def looked_at(*args, **kwargs):
            return error_of(lambda: repr(m.segment_reduce(*args, **kwargs)))

        return [
            looked_at(x, "sum"), looked_at(x, "sum", indices=t([1])), looked_at(x, "median", lengths=t([4])), looked_at(x, "sum", lengths=t([4.0])),
            looked_at(x.long(), "sum", lengths=t([4])), looked_at(x, "sum", lengths=t([4]), axis=1), looked_at(x, "sum", lengths=t([4]), axis=2),
            looked_at(x, "sum", lengths=t([1, 2])), looked_at(x, "sum", lengths=t([5, -1])), looked_at(x, "sum", offsets=t([0, 3, 2])),
            looked_at(t(1.0), "sum", lengths=t([1])), looked_at(x, "sum", lengths=m.zeros(0, dtype=m.int64)),
        ]  # fmt: skip

    assert errors(tj) == errors(torch)


def test_a_segments_gradient_has_no_derivative():
    def check(m):
        x = m.ones(3, requires_grad=True)
        (grad,) = m.autograd.grad(m.segment_reduce(x, "prod", lengths=m.tensor([3])).sum(), x, create_graph=True)
        return [grad.tolist(), grad.requires_grad, error_of(lambda: grad.sum().backward())[1]]

    assert check(tj) == check(torch)
