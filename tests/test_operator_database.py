"""The comparison with PyTorch's operator database: a sample of it agrees, and it notices what is wrong. The whole: ``python -m compat_suite``."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

import torchgrad_jax as tj  # noqa: E402 - needs PyTorch
from compat_suite.agreement import CHECKS, SAMPLED, agreement, applies  # noqa: E402
from compat_suite.database import entries  # noqa: E402

pytestmark = pytest.mark.operators
SAMPLE = ["mul", "max.reduction_with_dim", "index_put", "linalg.cholesky", "fft.rfft", "nn.functional.conv1d", "nn.functional.dropout", "clamp"]


@pytest.fixture(scope="module")
def database():
    return entries()


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_the_database_agrees(database, name):
    entry, compared = database[name], 0
    with tj.runtime.execution_mode("eager"):
        for check in CHECKS:
            for dtype in {"float64", "int64"} & set(entry.dtypes()):
                if applies(entry, check, dtype):
                    count = agreement(entry, check, dtype, 2)
                    compared += count.samples
                    assert count.differences == [], check
    assert compared >= 10


def differing(entry):
    return {c for c in SAMPLED if applies(entry, c, "float64") and (n := agreement(entry, c, "float64", 1)).agree < n.samples}


def test_a_wrong_value_is_noticed(database, monkeypatch):
    monkeypatch.setattr(database["sin"], "ours", tj.cos)
    assert differing(database["sin"]) == {"value", "gradient", "second", "forward", "node", "out"}  # the in-place twin is found by its name


def test_a_wrong_dtype_a_lost_graph_and_a_missing_operator_are_noticed(database, monkeypatch):
    for ours, expected in (
        (lambda x, **_: x.sin().float(), {"value", "forward", "node", "out"}),
        (lambda x, out=None: x.detach().sin(), {"gradient", "second", "forward", "node", "out"}),
        (None, {"value", "gradient", "second", "forward", "node", "out"}),
    ):
        monkeypatch.setattr(database["sin"], "ours", ours)
        assert differing(database["sin"]) == expected


def test_bad_input_that_is_taken_and_a_wrong_class_or_text_are_noticed(database, monkeypatch):
    entry = database["gather"]

    def refuse(*args, **kwargs):
        raise ZeroDivisionError("no")

    for ours in (lambda *args, **kwargs: tj.zeros(1), refuse, None):
        monkeypatch.setattr(entry, "ours", ours)
        for check in ("error", "error_text"):
            count = agreement(entry, check, "float32", 0)
            assert count.agree == 0 < count.samples
