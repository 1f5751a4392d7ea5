"""The comparison with PyTorch's optimizer database: a sample of it agrees, and what is wrong is noticed. The whole: ``compat_suite optimizers``."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

import torchgrad_jax as tj  # noqa: E402 - needs PyTorch
from compat_suite import optimizers  # noqa: E402

pytestmark = [pytest.mark.operators, pytest.mark.filterwarnings("ignore")]


def measured(names, checks, dtype="float32"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return optimizers.measure(names, [dtype], checks)


@pytest.mark.parametrize("name", ["SGD", "Adadelta", "NAdam", "SparseAdam"])
def test_a_sample_of_the_database_agrees(name):
    found = measured([name], ["loading", "text", "errors"])
    assert sum(count for _, count, _ in found.values()) >= 10
    assert [d for _, _, differences in found.values() for d in differences] == []


def test_gradients_agree():
    assert [c[2] for c in measured(["Adamax"], ["gradients"], "complex128").values()] == [[]]


def test_another_formula_is_noticed(monkeypatch):
    def formula(p, grad, s, n):
        s.exp_avg.lerp_(grad, n.toward)
        s.exp_inf.copy_((s.exp_inf * n.beta2).maximum(grad.abs()) + 1e-3)
        p.addcdiv_(s.exp_avg, s.exp_inf, value=n.step_size)

    monkeypatch.setattr(tj.optim.Adamax, "_rule_formula", staticmethod(formula))
    assert all(agree == 0 for agree, _, _ in measured(["Adamax"], ["state"]).values())


def test_another_text_is_noticed(monkeypatch):
    monkeypatch.setattr(tj.optim.Optimizer, "__repr__", lambda self: "SGD")
    assert all(agree == 0 for agree, _, _ in measured(["SGD"], ["text"]).values())
