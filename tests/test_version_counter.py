"""`_version`: every in-place method counts as often as PyTorch's, whatever it is called with."""

from __future__ import annotations

import warnings

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch

pytestmark = pytest.mark.operators

METHODS = [
    name
    for name in dir(torch.Tensor)
    if name.endswith("_") and not name.startswith("_") and not name.endswith("__") and hasattr(tj.Tensor, name) and name != "requires_grad_"
]
KINDS = {"float": [[0.5, 0.25], [0.75, 0.125]], "int": [[1, 2], [3, 4]], "bool": [[True, False], [False, True]]}


def arguments(m):
    f, i, b = m.tensor([[0.5, 0.25], [0.75, 0.125]]), m.tensor([[1, 0], [0, 1]]), m.tensor([[True, False], [True, True]])
    row, ones = m.tensor([1, 0]), m.tensor([1.0, 2.0])
    return [
        (), (2.0,), (1,), (f,), (i,), (b,), (0, 1), (f, f), (0,), (0.2, 0.8), (b, 1.0), (0, i, f), (0, i, 1.0), (0, row, f), (f, 1.0), ((row,), ones),
        ((2, 2),), (2, 2), (0, 1.0, 2), (i, i), (0, row, 1.0), (1.5, 0, 2.0),
    ]  # fmt: skip


def versions(m, name, kind):
    """The version after each call; None where it raises."""
    found = []
    for given in arguments(m):
        m.manual_seed(0)
        t = m.tensor(KINDS[kind])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raised = error_of(lambda t=t, given=given: getattr(t, name)(*given))
        found.append(None if raised else t._version)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", METHODS)
def test_a_method_counts_as_in_pytorch(name, kind):
    ours, theirs = versions(tj, name, kind), versions(torch, name, kind)
    both = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
    assert [a for a, _ in both] == [b for _, b in both]


@like_pytorch
def test_views_detached_twins_and_bases_count_together(m):
    x = m.zeros(4)
    view, twin, own = x[:2], x.detach(), x.data
    view.add_(1)
    twin.mul_(2)
    own.add_(1)
    return x._version, view._version, twin._version, own._version, x.clone()._version


@like_pytorch
def test_writes_under_no_grad_and_through_grad_count(m):
    x = leaf(m, 1.0, 2.0)
    with m.no_grad():
        x.add_(1)
        x[0] = 5
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    return x._version, x.grad._version


@like_pytorch
def test_reading_copying_and_out_of_place_operations_do_not_count(m):
    x = m.ones(3)
    y = x + 1
    x.sum().item(), x.clone(), x.view(3, 1), x.detach(), x.to(m.float32), x.contiguous()
    return x._version, y._version


@like_pytorch
def test_a_refused_write_does_not_count(m):
    x = leaf(m, 1.0, 2.0)
    refused = error_of(lambda: x.add_(1)), error_of(lambda: x[:1].mul_(2)), error_of(lambda: x.detach().add_(m.ones(3)))
    return refused, x._version
