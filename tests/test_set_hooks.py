"""Hooks set as a dict, requires_grad set by hand, and what hooks after accumulation may return."""

from __future__ import annotations

import pytest
from side_by_side import error_of, leaf, like_pytorch


def without_hooks(m, where):
    x, seen = leaf(m, 1.0, 2.0), []
    y = x * 2
    t = x if where == "leaf" else y
    t.register_hook(seen.append)
    before = len(t._backward_hooks)
    t._backward_hooks = None
    y.sum().backward()
    return before, t._backward_hooks, seen, x.grad


test_setting_hooks_of_a_leaf_to_none_removes_them = like_pytorch(lambda m: without_hooks(m, "leaf"))


def test_setting_hooks_of_a_result_to_none_removes_them_too():
    """PyTorch forgets them but calls them still."""
    import torchgrad_jax as tj

    assert without_hooks(tj, "result")[1:3] == (None, [])


@like_pytorch
def test_hooks_set_as_a_dict_are_called_in_its_order(m):
    x, seen = leaf(m, 1.0), []
    x._backward_hooks = {3: lambda grad: seen.append(3), 1: lambda grad: seen.append(1) or grad * 2}
    (x * 1).sum().backward()
    return seen, x.grad, list(x._backward_hooks)


def test_hooks_set_to_anything_else_are_refused():
    import torchgrad_jax as tj

    with pytest.raises(TypeError, match="dict"):
        tj.ones(1)._backward_hooks = 3


@pytest.mark.parametrize("returned", ["None", "a number", "another tensor", "the tensor"])
def test_a_hook_after_accumulation_returns_nothing(returned):
    @like_pytorch
    def check(m):
        x = leaf(m, 1.0)
        x.register_post_accumulate_grad_hook(lambda t: {"a number": 1, "another tensor": x * 2, "the tensor": t}.get(returned))
        return error_of(lambda: x.sum().backward()), x.grad

    check()


@like_pytorch
def test_requires_grad_of_a_result_cannot_be_set(m):
    y = leaf(m, 1.0) * 2

    def assign(flag):
        y.requires_grad = flag

    return error_of(lambda: assign(True)), error_of(lambda: assign(False)), y.requires_grad_(True) is y, error_of(lambda: y.requires_grad_(False))


@like_pytorch
def test_requires_grad_of_views_without_a_node_can_be_set(m):
    x, v = leaf(m, 1.0, 2.0), m.ones(2)[:1]
    v.requires_grad = True
    with m.no_grad():
        w = x[:1]
    return v.requires_grad, v.is_leaf, w.requires_grad_().is_leaf


@like_pytorch
def test_functions_in_place_are_in_the_namespace(m):
    x = leaf(m, 1.0, 2.0)
    return m.detach_(x * 2), m.fill_(m.ones(2), 3), m.zero_(m.ones(2))
