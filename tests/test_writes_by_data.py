"""Writes by way of `.data` between forward and backward, to memory of which a view was saved: as in PyTorch, where both are one memory."""

from __future__ import annotations

import pytest

import torchgrad_jax as torch

F = torch.nn.functional
FORWARDS = {
    "linear": (lambda x, p: F.linear(x, p), (1, 2)),
    "linear with a bias": (lambda x, p: F.linear(x, p, torch.ones(1, requires_grad=True)), (1, 2)),
    "linear of a batch": (lambda x, p: F.linear(x[None], p), (1, 2)),
    "product with a transpose": (lambda x, p: x @ p.t(), (1, 2)),
    "einsum": (lambda x, p: torch.einsum("bi,oi->bo", x, p), (1, 2)),
    "a row": (lambda x, p: x * p[1], (2, 2)),
    "a part of a part": (lambda x, p: x * p[1:].t()[:, 0], (2, 2)),
    "the tensor itself": (lambda x, p: x * p, (1, 2)),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_what_is_written_is_what_was_saved(name):
    forward, shape = FORWARDS[name]
    p, x = torch.nn.Parameter(torch.ones(shape)), torch.ones(1, 2, requires_grad=True)
    for factor in (5.0, 25.0):  # the second time `data` was asked for before
        x.grad = None
        made = forward(x, p).sum()
        p.data.mul_(5)
        made.backward()
        assert x.grad.tolist() == [[factor, factor]]
        assert p._version == 0


def test_several_writes_and_those_that_are_counted():
    p, x = torch.nn.Parameter(torch.ones(2, 2)), torch.ones(1, 2, requires_grad=True)
    made = F.linear(x, p).sum()
    p.data.mul_(2)
    p.data.add_(1)
    (g,) = torch.autograd.grad(made, x, create_graph=True)
    assert g.tolist() == [[6, 6]]
    (second,) = torch.autograd.grad(g.sum(), p)
    assert second.tolist() == [[1, 1], [1, 1]]
    made = F.linear(x, p).sum()
    p.data.mul_(2)
    with torch.no_grad():
        p.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.backward()
    made = F.linear(x, p).sum()
    made.backward()
    assert x.grad.tolist() == [[14, 14]]


def test_weights_that_are_clamped_after_forward():
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(3, 2), torch.randn(4, 3, requires_grad=True)
    loss = layer(x).square().sum()
    for p in layer.parameters():
        p.data.clamp_(-0.01, 0.01)
    loss.backward()
    assert x.grad.abs().max() < 0.1 and layer.weight.grad.abs().max() > 0.1


def test_a_view_that_needs_no_gradient_keeps_what_it_was():
    """docs/differences.md: no node leads to the memory."""
    buffer, x = torch.ones(2, 2), torch.ones(1, 2, requires_grad=True)
    made = (x @ buffer.t()).sum()
    buffer.data.mul_(4)
    made.backward()
    assert x.grad.tolist() == [[2, 2]]
    assert (x @ buffer.t()).tolist() == [[8, 8]]


def test_noise_drawn_into_a_buffer_again_and_again():
    """As Bayesian layers do: what each product saved is the buffer, under a twin of its own that is gone at once."""
    w, noise = torch.ones(2, requires_grad=True), torch.zeros(2)
    total = 0
    for drawn in (1.0, 2.0, 3.0):
        total = total + (w * noise.data.fill_(drawn)).sum()
    total.backward()
    assert w.grad.tolist() == [9, 9]


def test_a_saved_tensor_that_is_gone_before_its_twin_is_written_to():
    w, x = torch.ones(2, requires_grad=True), torch.arange(2.0)
    twin, made = x.data, w**2 * x
    del x
    twin.mul_(10)
    twin.add_(1)
    (g,) = torch.autograd.grad(made.sum(), w, create_graph=True)
    assert g.tolist() == [2, 22]
    twin.fill_(5)
    (second,) = torch.autograd.grad(g.sum(), w)
    assert second.tolist() == [2, 22]


def test_data_set_to_that_of_another_tensor_that_is_written_to_when_the_first_is_gone():
    w, x, other = torch.ones(2, requires_grad=True), torch.zeros(2), torch.ones(2)
    made = (w * x).sum()
    x.data = other
    del x
    other.fill_(5)
    made.backward()
    assert w.grad.tolist() == [5, 5]


def test_writes_under_the_own_counter_of_a_twin_that_is_gone_are_noticed():
    w, noise = torch.ones(2, requires_grad=True), torch.zeros(2)
    twin = noise.data
    made = (w * twin).sum()
    twin.add_(1)
    del twin
    noise.data.fill_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.backward()


def test_twins_that_are_gone_are_not_kept():
    p = torch.nn.Parameter(torch.ones(2))
    for _ in range(20):
        p.data.add_(1)
        p.data.sum()
    assert len(p._storage.siblings) <= 10


def test_a_part_whose_data_is_asked_for_again_and_again_is_known_once():
    part = torch.zeros(4, 3)[1:]
    for _ in range(50):
        part.data.add_(1)
    assert len(part._storage.parts) <= 16  # the part, and twins that are gone
    assert part.tolist() == [[50.0] * 3] * 3


def test_many_twins_that_live_are_all_written_to():
    t = torch.zeros(3)
    twins = [t.data for _ in range(70)]
    twins[40] += 1
    assert all(twin.tolist() == [1.0] * 3 for twin in [t, *twins])
    assert [twin._version for twin in (t, twins[0], twins[40])] == [0, 0, 1]


def test_data_set_again_and_again_counts_with_what_it_was():
    p = torch.nn.Parameter(torch.zeros(3))
    others = [torch.full((3,), float(i)) for i in range(40)]
    views = []
    for other in others:
        views.append(p[:1])
        p.data = other
    with torch.no_grad():
        p.add_(1)
    assert p.tolist() == [40.0] * 3 and p._version == 1
    assert [view._version for view in views] == [1] * 40
    assert [view.tolist() for view in views[:3]] == [[0.0], [0.0], [1.0]]
    assert others[39].tolist() == [40.0] * 3 and others[38].tolist() == [38.0] * 3


@pytest.mark.parametrize("count", [1, 3])
def test_a_vectors_parts_are_the_parameters(count):
    vector = torch.arange(6.0 * count)
    parameters = [torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(count)]
    torch.nn.utils.vector_to_parameters(vector, parameters)
    vector[0] = 9
    with torch.no_grad():
        parameters[-1].view(-1)[5] = -1
    want = [float(i) for i in range(6 * count)]
    want[0], want[-1] = 9.0, -1.0
    assert vector.tolist() == [x for p in parameters for x in p.detach().view(-1).tolist()] == want
    assert all(p.is_leaf and p.requires_grad and p.grad_fn is None for p in parameters)


@pytest.mark.parametrize("kept", [True, False])
def test_a_write_that_was_counted_is_told_after_one_that_was_not(kept):
    """Also where the memory is gone because `data` was set."""
    x = torch.arange(3.0, requires_grad=True)
    y = x.tanh()
    y.mul_(0.5)
    y.data.add_(1)
    if not kept:
        y.data = torch.ones(3)
    with pytest.raises(RuntimeError, match="which is output 0 of Tanh, is at version 1; expected version 0 instead"):
        y.sin().sum().backward()


def test_memory_that_is_gone_is_what_was_saved():
    x = torch.arange(3.0, requires_grad=True)
    y = x.exp()
    y.data.mul_(2)
    y.data.mul_(2)
    z = y.sum()
    y.data = torch.zeros(3)
    z.backward()
    assert torch.allclose(x.grad, 4 * x.detach().exp())
