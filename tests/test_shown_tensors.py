"""``grad_fn._saved_*`` is the tensor itself that was saved, or one on its memory."""

import gc
import weakref

import pytest

import torchgrad_jax as torch

pytestmark = pytest.mark.operators


def leaf():
    return torch.tensor([0.1, 0.2], requires_grad=True)


OPERANDS = {
    "of an operation": lambda a: a * 2,
    "without a gradient": lambda a: torch.ones(2),
    "detached": lambda a: (a * 2).detach(),
    "a view": lambda a: (a.repeat(2) * 1)[:2],
    "reshaped": lambda a: (a * 2).view(2, 1).squeeze(1),
    "written in place": lambda a: (a * 2).add_(1),
    "integers' float twin": lambda a: torch.arange(2).float(),
}


@pytest.mark.parametrize("kind", OPERANDS)
def test_an_operand_is_shown_itself(kind):
    a = leaf()
    b = OPERANDS[kind](a)
    node = (a * b).grad_fn
    assert node._saved_other is b
    assert node._raw_saved_other.data is b
    assert (node._saved_self is a) is b.requires_grad


def test_several_nodes_show_the_same_one():
    b = leaf() * 2
    nodes = [b.sin().grad_fn, b.cos().grad_fn, (b * b).grad_fn]
    later = (b * 3).sin().grad_fn
    assert all(node._saved_self is b for node in nodes)
    assert later._saved_self is not b


def test_a_hook_on_what_is_shown_is_one_on_the_tensor():
    a = leaf()
    b = a * 2
    y = b.sin()
    y.grad_fn._saved_self.retain_grad()
    y.sum().backward()
    assert torch.equal(b.grad, b.cos())


def test_a_result_is_shown_as_another_tensor_on_the_same_memory():
    b = leaf().exp()
    shown = b.grad_fn._saved_result
    assert shown is not b and shown.grad_fn is b.grad_fn and shown.data_ptr() == b.data_ptr() and shown._base is None
    with torch.no_grad():
        b += 1
    assert torch.equal(shown, b) and shown._version == b._version == 1


def test_indices_among_the_results_are_shown_themselves():
    values, indices = leaf().sort()
    assert values.grad_fn._saved_indices is indices


@pytest.mark.parametrize("which", ["operand", "result"])
def test_a_write_to_what_is_shown_is_one_to_the_tensor(which):
    b = leaf() * 2 if which == "operand" else leaf().exp()
    y = b.sin() if which == "operand" else b * 1
    node = y.grad_fn if which == "operand" else b.grad_fn
    shown = node._saved_self if which == "operand" else node._saved_result
    before = b.tolist()
    with torch.no_grad():
        shown += 1
    assert b.tolist() != before and b._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_write_to_what_is_shown_of_a_tensor_that_is_gone_is_noticed():
    a = leaf()
    y = a * torch.ones(2)
    shown = y.grad_fn._saved_other
    assert y.grad_fn._saved_other is shown
    shown += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_twins_that_cannot_be_told_apart_share_memory():
    k = torch.ones(2)
    twin = k.detach()
    shown = (leaf() * twin).grad_fn._saved_other
    k += 1
    assert shown.tolist() == twin.tolist() == [2.0, 2.0]


def test_nothing_is_kept_alive_by_being_shown():
    b = leaf() * 2
    y = b.sin()
    assert y.grad_fn._saved_self is b
    there = weakref.ref(b)
    enabled = gc.isenabled()
    gc.disable()
    try:
        del b
        assert there() is None
    finally:
        if enabled:
            gc.enable()
    y.sum().backward()


def test_a_subclass_is_shown_itself():
    class Mine(torch.Tensor):
        pass

    m = torch.ones(2).as_subclass(Mine)
    (node, _), *_ = (leaf() * m).grad_fn.next_functions
    assert node._saved_other is m


def test_what_was_written_to_is_refused_as_before():
    b = leaf() * 2
    node = b.sin().grad_fn
    b.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _ = node._saved_self


def test_nothing_is_looked_for_but_when_a_user_asks(monkeypatch):
    def refuse():
        raise AssertionError("all tensors were looked through")

    a = leaf()
    monkeypatch.setattr(gc, "get_objects", refuse)
    with torch.autograd.forward_ad.dual_level():
        d = torch.autograd.forward_ad.make_dual(a * 1, torch.ones(2))
        (d.sin() * d.exp()).sum().backward()
    y = (a.exp() * a).sum()
    (g,) = torch.autograd.grad(y, a, create_graph=True)
    g.sum().backward()


def test_one_look_serves_a_whole_graph(monkeypatch):
    looks = []
    find = gc.get_objects
    monkeypatch.setattr(gc, "get_objects", lambda: looks.append(None) or find())
    tensors = [leaf() * 2]
    for _ in range(10):
        tensors.append(tensors[-1].sin())
    assert all(b.grad_fn._saved_self is a for a, b in zip(tensors, tensors[1:], strict=False))
    assert len(looks) == 1
