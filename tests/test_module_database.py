"""The comparison with PyTorch's module database: a sample of it agrees, and what is wrong is noticed. The whole: ``compat_suite modules``."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

import torchgrad_jax as tj  # noqa: E402 - needs PyTorch
from compat_suite import modules  # noqa: E402

pytestmark = [pytest.mark.operators, pytest.mark.filterwarnings("ignore")]


def measured(names, checks=modules.CHECKS, dtype="float32", most=2):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return modules.measure(names, [dtype], list(checks), most)


SAMPLE = ["AdaptiveMaxPool2d", "BatchNorm1d", "CircularPad1d", "Conv1d", "FractionalMaxPool2d", "GRUCell", "GroupNorm", "LazyConv1d", "RMSNorm"]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_the_database_agrees(name):
    found = measured([name])
    assert sum(count for _, count, _ in found.values()) >= 10
    assert [d for _, _, differences in found.values() for d in differences] == []


def test_modules_that_are_missing_count(monkeypatch):
    monkeypatch.delattr(tj.nn, "RMSNorm")
    assert measured(["RMSNorm"]) == {"RMSNorm missing float32": [0, 1, ["there is no such module"]]}


@pytest.mark.parametrize("check, name, method, wrong", [
    ("initial", "Conv1d", "reset_parameters", lambda self: None),
    ("output", "RMSNorm", "forward", lambda self, x: x),
    ("gradients", "RMSNorm", "forward", lambda self, x: tj.nn.functional.rms_norm(x, self.normalized_shape, self.weight.detach())),
    ("after", "BatchNorm1d", "forward", lambda self, input: input),
    ("text", "RMSNorm", "extra_repr", lambda self: ""),
    ("errors", "CircularPad1d", "_check_input_dim", lambda self, input: None),
])  # fmt: skip
def test_what_is_wrong_is_noticed(monkeypatch, check, name, method, wrong):
    monkeypatch.setattr(getattr(tj.nn, name), method, wrong)
    assert all(agree < count for agree, count, _ in measured([name], [check]).values())
