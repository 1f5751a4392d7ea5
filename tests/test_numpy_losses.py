"""Losses of new sizes need no trace: their forms, and those of their gradients, are what their plans are, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.declaration.derivative import plan
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.baseline import Merged, NumPyForm, Part
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.value import aval_of

pytestmark = pytest.mark.operators

# An operator, its arguments after the tensors, and how many tensors it has.
LOSSES = [
    ("mse_loss", 2, ()), ("smooth_l1_loss", 2, (0.7,)), ("huber_loss", 2, (0.7,)), ("soft_margin_loss", 2, ()),
    ("binary_cross_entropy_with_logits", 2, ()), ("binary_cross_entropy_with_logits", 3, ()), ("binary_cross_entropy_with_logits", 4, ()),
]  # fmt: skip
SHAPES = [(5, 3), (7,), ()]


def bound(name, tensors, others, reduction):
    absent = [Static(None)] * (4 - tensors) if name.startswith("binary") else []
    return registry[name].bind((*[ARRAY] * tensors, *absent, Static(reduction), *map(Static, others)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(("name", "tensors", "others"), LOSSES)
def test_forms_and_plans_have_the_same_bits(name, tensors, others, reduction, shape, dtype):
    random = np.random.default_rng(0)
    given = [np.asarray(random.uniform(0.1, 0.9, shape), dtype) for _ in range(tensors)]
    sig = signature(bound(name, tensors, others, reduction), tuple([aval_of(shape, np.dtype(dtype), CPU)] * tensors))
    made, operands = [sig], [given]
    for inputs in [(0,)] + [(0, 1)] * (name != "soft_margin_loss"):
        there = plan(sig, inputs)
        made.append(signature(there.vjp_of((True,)), (sig.avals[0], *[sig.specs[i] for i in there.saves])))
        operands.append([np.asarray(1.7, dtype), *[given[i] for i in there.saves]])
        assert len(made[-1].avals) == len(inputs)
    for one, arrays in zip(made, operands, strict=True):
        assert not shape or type(one.baseline) is NumPyForm
        for aval, of_form, of_plan in zip(one.avals, one.baseline(*arrays), one._plan()(*arrays), strict=True):
            assert aval.shape == np.shape(of_form) and np.array_equal(of_form, of_plan)
        assert not shape or len(one.avals) > 1 or one.in_lists is one.baseline
        names = list(range(len(arrays) + len(one.avals)))
        listed, other = one.in_lists, one._plan()
        assert listed is not None and other is not None
        merged = Merged([Part(listed, names[: len(arrays)], names[len(arrays) :])], names[: len(arrays)], names[len(arrays) :])
        for _ in range(3):
            with np.errstate(all="ignore"):
                assert [np.asarray(a).tobytes() for a in merged(list(arrays))] == [np.asarray(a).tobytes() for a in other(*arrays)]


def test_a_new_size_is_not_traced(monkeypatch):
    def loss_of(n):
        x = torch.arange(float(n)).requires_grad_()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(x, torch.ones(n))
        loss.backward()
        return loss.item(), x.grad.tolist()

    loss_of(6)
    monkeypatch.setattr(Signature, "_trace", lambda sig: pytest.fail(f"{sig.bop.name} is traced"))
    loss, gradient = loss_of(9)
    x = np.arange(9.0)
    assert loss == pytest.approx(np.log1p(np.exp(-x)).mean(), rel=1e-6)
    assert gradient == pytest.approx(-1 / (1 + np.exp(x)) / 9, abs=1e-7)


def test_what_expands_or_has_two_dtypes_is_traced():
    loss = torch.nn.functional.mse_loss
    x, y = torch.ones(4, 3, requires_grad=True), torch.zeros(4, 3, dtype=torch.float64)
    loss(x, y).backward()
    assert loss(x, y).dtype is torch.float64 and torch.allclose(x.grad, torch.full((4, 3), 2 / 12))
    target = torch.zeros(3, requires_grad=True)
    with pytest.warns(UserWarning, match="broadcasting"):
        loss(torch.ones(4, 3), target, reduction="sum").backward()
    assert target.grad.tolist() == [-8, -8, -8]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(3, 4), (5,), (), (0, 3), (300, 7)])
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy_is_what_it_says(shape, reduction, weighted):
    rng = np.random.default_rng(0)
    arrays = [rng.random(shape).astype(np.float32) for _ in range(3)]
    x, y, w = (torch.tensor(a) for a in arrays)
    x.requires_grad_(), y.requires_grad_()
    loss = torch.nn.functional.binary_cross_entropy(x, y, w if weighted else None, reduction=reduction)
    gradients = torch.autograd.grad((loss * 3).sum(), (x, y))
    a, b, c = (a.astype(np.float64) for a in arrays)
    c = c if weighted else np.ones_like(c)
    with np.errstate(all="ignore"):
        share = 1 / max(a.size, 1) if reduction == "mean" else 1
        each = -c * (b * np.log(a) + (1 - b) * np.log1p(-a))
        want = each if reduction == "none" else each.sum() / np.float64(a.size if reduction == "mean" else 1)
    np.testing.assert_allclose(loss.detach().numpy(), want, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(gradients[0].numpy(), 3 * share * c * (a - b) / ((1 - a) * a), rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(gradients[1].numpy(), 3 * share * c * (np.log1p(-a) - np.log(a)), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(("input", "target", "which"), [([0.1, 1.2], [0.0, 1.0], "input"), ([0.1, float("nan")], [0.0, 1.0], "input"),
                                                        ([0.1, 0.2], [0.0, -0.1], "target"), ([0.1, 2.0], [0.0, 2.0], "input")])  # fmt: skip
def test_binary_cross_entropy_refuses_what_is_no_probability_in_every_call(input, target, which):
    x, good = torch.tensor(input), torch.tensor([0.5, 0.5])
    for _ in range(8):
        assert torch.nn.functional.binary_cross_entropy(good, good).isfinite()
        with pytest.raises(RuntimeError, match=f"all elements of {which} should be between 0 and 1"):
            torch.nn.functional.binary_cross_entropy(x, torch.tensor(target)).item()


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_divisions_of_integers_refuse_zeros_in_every_call(name):
    divide, numpys = getattr(torch, name), getattr(np, name)
    for n in (3, 4, 3, 5, 3, 3, 3):
        x, y = torch.arange(-n, n), torch.arange(1, 2 * n + 1) * torch.tensor([1, -1] * n)
        assert divide(x, y).tolist() == numpys(x.numpy(), y.numpy()).tolist()
        assert divide(x[:, None], y).tolist() == numpys(x.numpy()[:, None], y.numpy()).tolist()
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            divide(x, y - y[n]).tolist()


def test_a_check_of_another_size_is_not_traced(monkeypatch):
    def step(n):
        x, i = torch.linspace(0.1, 0.9, n).requires_grad_(), torch.arange(n)
        torch.nn.functional.binary_cross_entropy(x, torch.ones(n)).backward()
        return x.grad.tolist(), (i // (i + 1)).tolist(), (i % (i + 2)).tolist()

    step(6)
    monkeypatch.setattr(Signature, "_trace", lambda sig: pytest.fail(f"{sig.bop.name} is traced"))
    gradient, quotient, rest = step(9)
    assert gradient == pytest.approx((-1 / np.linspace(0.1, 0.9, 9) / 9).tolist(), rel=1e-5)
    assert (quotient, rest) == ([0] * 9, list(range(9)))
