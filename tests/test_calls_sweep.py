"""The sweep of calling conventions: its table of signatures is what PyTorch tells, and a sample of it agrees."""

from __future__ import annotations

from importlib import resources

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

from compat_suite.calls import __main__ as sweep  # noqa: E402
from compat_suite.calls import cases, signatures  # noqa: E402

pytestmark = pytest.mark.operators

KEPT = resources.files("torchgrad_jax.calling").joinpath("signatures.txt").read_text().splitlines()


@pytest.mark.parametrize("name", ["gather", "topk", "linalg.det", "Tensor.view", "special.xlogy", "fft.fft", "nn.functional.gelu"])
def test_the_table_is_what_pytorch_tells(name):
    namespace, _, short = name.rpartition(".")
    told = [signatures._as_bound(line) for line in signatures.signatures_of(namespace + "." * bool(namespace), short)]
    assert told and told == [line for line in KEPT if line.startswith(f"{name}(")]


@pytest.mark.parametrize("name", ["sum", "gather", "Tensor.amax", "cumsum", "linalg.det", "nn.functional.gelu", "topk", "zeros"])
def test_keywords_and_wrong_types_agree(name):
    found = sweep.compared(name, ["keywords", "types"], texts=False)
    # What is written to `out` has a category of its own.
    assert [row for rows in found.values() for row in rows[2] if "out=" not in row[0]] == []


def test_a_difference_is_found(monkeypatch):
    import torchgrad_jax as tj

    monkeypatch.setattr(tj, "sin", lambda input: input)
    rows = sweep.compared("sin", ["keywords"], texts=False)
    assert any("torch.sin(x=A)" in text for text, _, _ in rows["keywords"][2])


def test_calls_are_made_of_signatures():
    signature = cases.parsed("sum(Tensor input, int[1]? dim, bool keepdim = False, *, dtype dtype = None)")
    call = cases.base_call(signature)
    assert call is not None and call.text() == "torch.sum(A, (0,))"
    assert "torch.sum(input=A, axis=(0,))" in set(cases.calls_of(call, "keywords"))
