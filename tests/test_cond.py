"""`torch.cond` and `torch.while_loop`."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import torchgrad_jax as tj


def sine(x):
    return x.sin()


def cosine(x):
    return x.cos()


@pytest.mark.parametrize("chosen", [True, False])
def test_one_of_the_functions_is_called(chosen):
    x = tj.tensor([0.5, -1.0])
    called = []
    for pred in (chosen, int(chosen), tj.tensor(chosen), tj.tensor([chosen]), tj.tensor(2.5 * chosen)):
        found = tj.cond(pred, lambda x: called.append(1) or x.sin(), lambda x: called.append(0) or x.cos(), (x,))
        assert tj.equal(found, x.sin() if chosen else x.cos())
    assert called == [int(chosen)] * 5
    nested = tj.cond(chosen, lambda d, y: {"b": d["a"] * y}, lambda d, y: {"b": d["a"] - y}, [{"a": x}, x])
    assert tj.equal(nested["b"], x * x if chosen else x - x)
    assert tj.cond(chosen, lambda: x + 1, lambda: x).tolist() == (x + chosen).tolist()


def test_gradients_pass_through_the_one_that_was_chosen():
    w = tj.ones(3, requires_grad=True)
    tj.cond(w.sum() > 0, lambda x: (x * w).sum(), lambda x: (x + w).sum(), (tj.tensor([1.0, 2.0, 3.0]),)).backward()
    assert w.grad.tolist() == [1.0, 2.0, 3.0]


def branch(x):
    return tj.cond(x.sum() > 0, lambda x: {"y": x.sin()}, lambda x: {"y": x.cos()}, (x,))["y"]


def test_each_of_a_batch_chooses_for_itself():
    xs = tj.tensor([[1.0, 2.0], [-1.0, -2.0], [3.0, -1.0]], dtype=tj.float64)
    expected = tj.stack([branch(x) for x in xs])
    np.testing.assert_allclose(tj.vmap(branch)(xs).numpy(), expected.numpy())
    gradients = tj.vmap(tj.func.grad(lambda x: branch(x).sum()))(xs)
    np.testing.assert_allclose(gradients.numpy(), [[np.cos(v) if sum(x) > 0 else -np.sin(v) for v in x] for x in xs.tolist()])
    with pytest.raises(RuntimeError, match="to be alike"):
        tj.vmap(lambda x: tj.cond(x.sum() > 0, lambda x: x, lambda x: x[:1], (x,)))(xs)


def test_a_compiled_function_holds_both():
    compiled = tj.compile(branch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is said of a value that was looked at
        for x in (tj.tensor([1.0, 2.0]), tj.tensor([-1.0, -2.0]), tj.tensor([1.0, 3.0])):
            np.testing.assert_allclose(compiled(x).numpy(), branch(x).numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("a", sine, cosine, (tj.ones(2),)), "Expected pred to be bool or tensor, but got a"),
        ((tj.tensor([True, False]), sine, cosine, (tj.ones(2),)), "Expected pred to be bool or single-element tensor"),
        ((True, sine, cosine, (2.0,)), "Expect operands to be a tuple of possibly nested dict/list/tuple"),
        ((True, sine, cosine, tj.ones(2)), "Expect operands to be a tuple of possibly nested dict/list/tuple"),
    ],
)
def test_what_is_refused(arguments, error):
    with pytest.raises(RuntimeError, match=error):
        tj.cond(*arguments)


def test_a_body_goes_round_while_the_condition_holds():
    w = tj.full((2,), 3.0, requires_grad=True)
    count, x = tj.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * w), (tj.tensor(0), tj.ones(2)))
    x.sum().backward()
    assert count.item() == 3 and x.tolist() == [27.0, 27.0] and w.grad.tolist() == [27.0, 27.0]
    assert tj.while_loop(lambda i, d: i < 0, lambda i, d: (i, d), (1, {"a": 2})) == (1, {"a": 2})
    assert tj.while_loop(lambda n: n > 1, lambda n: [n // 2], [40]) == [1]
    with pytest.raises(RuntimeError, match="Expect cond_fn and body_fn to be callable"):
        tj.while_loop(3, lambda i: (i,), (1,))
    with pytest.raises(RuntimeError, match="Expect carried_inputs to be a tuple"):
        tj.while_loop(lambda i: False, lambda i: (i,), tj.tensor(1))
