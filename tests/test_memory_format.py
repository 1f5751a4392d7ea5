"""Memory formats and the layout of gradients: strides are virtual, but they are PyTorch's."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from side_by_side import error_of, like_pytorch  # noqa: E402 - needs torch


def images(m):
    return m.arange(120.0).reshape(2, 3, 4, 5)


@like_pytorch
def test_channels_last_permutes_the_strides_and_not_the_content(m):
    x = images(m)
    y = x.to(memory_format=m.channels_last)
    return y, y.stride(), y.is_contiguous(), y.is_contiguous(memory_format=m.channels_last), y._base is None, y._version


@like_pytorch
def test_each_way_to_ask_for_a_format(m):
    x = images(m)
    kinds = [x.clone(memory_format=m.channels_last), x.contiguous(memory_format=m.channels_last), x.double(memory_format=m.channels_last),
             x.to(m.float64, memory_format=m.channels_last), m.zeros_like(x, memory_format=m.channels_last)]  # fmt: skip
    return [k.stride() for k in kinds], kinds[0].contiguous().stride()


@like_pytorch
def test_a_tensor_that_is_in_the_format_is_returned_itself(m):
    x = images(m)
    y = x.to(memory_format=m.channels_last)
    return (
        x.to(memory_format=m.contiguous_format) is x,
        x.contiguous(memory_format=m.preserve_format) is x,
        y.contiguous(memory_format=m.channels_last) is y,
        y.contiguous() is y,
    )


@like_pytorch
def test_formats_need_their_number_of_dimensions(m):
    x = images(m)
    return (
        error_of(lambda: x.to(memory_format=m.channels_last_3d)),
        error_of(lambda: x[0].contiguous(memory_format=m.channels_last)),
        x.is_contiguous(memory_format=m.channels_last_3d),
    )


@like_pytorch
def test_the_conversion_is_part_of_the_graph(m):
    x = images(m).requires_grad_()
    y, z = x.to(memory_format=m.channels_last), x.contiguous(memory_format=m.channels_last)
    (y * z).sum().backward()
    return y.grad_fn.name(), z.grad_fn.name(), x.grad, x.grad.stride()


@like_pytorch
def test_writing_to_a_permuted_tensor(m):
    x = images(m).to(memory_format=m.channels_last)
    part = x[:, 1]
    x.add_(1)
    part.mul_(2)
    return x, part, x.stride(), part.stride(), x._version


@like_pytorch
def test_a_first_gradient_lies_in_memory_as_its_leaf_does(m):
    leaves = [images(m).to(memory_format=m.channels_last), m.ones(3, 2).t(), m.ones(4, 2, 3).permute(1, 2, 0)]
    found = []
    for x in leaves:
        x.requires_grad_()
        for _ in range(3):  # accumulated in place, also when the graph was seen before
            (x * x).sum().backward()
            found.append([x.grad, x.grad.stride(), x.grad._base is None])
    return found


@like_pytorch
def test_a_leaf_that_overlaps_or_leaves_gaps_has_a_row_major_gradient(m):
    leaves = [m.empty_strided((2, 2), (4, 2)).fill_(1.0), m.ones(1, 3).expand(2, 3), m.ones(4, 4)[::2, ::2].detach()]
    found = []
    for x in leaves:
        x.requires_grad_()
        (x * 2).sum().backward()
        found.append([x.stride(), x.grad.stride()])
    return found


@like_pytorch
def test_under_create_graph_a_first_gradient_is_a_copy_in_the_leafs_order(m):
    x = m.ones(3, 2).t().requires_grad_()
    (x**3).sum().backward(create_graph=True)
    return x.grad.stride(), x.grad.grad_fn.name(), m.autograd.grad(x.grad.sum(), x)
