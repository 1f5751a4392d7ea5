"""The suite's own records: there is one for each operator, a sample of them agrees, and what is wrong is found."""

from __future__ import annotations

import pytest
from jax import numpy as jnp

import torchgrad_jax as tj
from compat_suite import records, self_check
from compat_suite.records import Make, Record
from compat_suite.reporting import tiers

pytestmark = pytest.mark.operators

SAMPLE = ["sin", "where", "gather", "index_add", "mv", "nn.functional.mse_loss", "nn.functional.dropout", "eq"]


def said(found):
    return [text for rows in found.values() for row in rows.values() for text in row if text is not None]


def test_every_operator_of_the_tiers_has_a_record():
    assert tiers().keys() - records.RECORDS.keys() == set()


def test_operators_without_a_record_of_their_own_are_checked_by_their_declarations():
    names = [n for n, record in records.RECORDS.items() if record.samples.__module__ == "compat_suite.records.declared"]
    assert {"exp2", "nansum", "frac"} <= set(names)
    with tj.runtime.execution_mode("eager"):
        assert said(self_check.check(names)) == []


def test_the_samples_of_every_record_can_be_made():
    for name, record in records.RECORDS.items():
        for dtype in record.dtypes:
            assert list(record.samples(Make(dtype))), name


def test_a_sample_of_the_records_agrees():
    with tj.runtime.execution_mode("eager"):
        found = self_check.check(SAMPLE)
    assert said(found) == []
    assert all(found["value"][name] for name in SAMPLE) and "eq" not in found["gradient"]


class Wrong(tj.autograd.Function):
    """The square, with the gradient of something else in one direction."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0] * grad

    @staticmethod
    def jvp(ctx, tangent):
        return 2 * ctx.saved_tensors[0] * tangent


@pytest.mark.parametrize(
    ("record", "checks"),
    [
        (dict(jax=jnp.cos), {"value"}),
        (dict(jax=lambda x: jnp.sin(x)[None]), {"value"}),
        (dict(derivatives=0), {"value"}),
        (dict(function=lambda x: x.sin().detach()), {"value"}),
        (dict(function=Wrong.apply), {"gradient", "forward"}),
        (dict(function=lambda x: x.round()), set()),
        (dict(function=None, name="no_such"), {"value"}),
    ],
)
def test_what_is_wrong_is_found(monkeypatch, record, checks):
    made = Record(**{"name": "sin", "samples": lambda make: [make(3)], "dtypes": ("float64",), **record})
    monkeypatch.setitem(records.RECORDS, "wrong", made)
    found = self_check.check(["wrong"])
    assert {c for c, rows in found.items() if any(text is not None for text in rows.get("wrong", []))} == checks


def test_the_table_says_what_differs(monkeypatch, capsys):
    monkeypatch.setitem(records.RECORDS, "sin", Record("sin", lambda make: [make(3)], jnp.cos))
    parts = [self_check.check(["sin"], ("value",)), self_check.check(["cos"], ("value",))]
    assert not self_check.report(parts, ("value",), 5)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["sin", "0/2"] and "float64 ((" in lines[2] and lines[-2].split() == ["cos", "6/6"]
    assert lines[-1] == "value: 6 of 8 samples of 2 operators agree"
