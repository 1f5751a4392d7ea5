"""Every operator's nodes and edges are PyTorch's, whichever of its inputs need a gradient.

The calls are in `calls/`, one a line; what the names in them stand for is in `operator_calls.py`.
"""

from __future__ import annotations

import pathlib
import warnings

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from graphs import graph_of  # noqa: E402 - needs torch
from operator_calls import leaves_in, perform  # noqa: E402

pytestmark = pytest.mark.operators

CALLS = [line for file in sorted((pathlib.Path(__file__).parent / "calls").glob("*.txt")) for line in file.read_text().splitlines()]


def graph(m, call, tracked):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result, leaves = perform(m, call, tracked)
    return graph_of(result, **leaves)


@pytest.mark.parametrize("call", CALLS)
def test_graph_of_a_call_is_pytorchs(call):
    names = leaves_in(call)
    for tracked in (None, *(names if len(names) > 1 else ())):
        assert graph(tj, call, tracked) == graph(torch, call, tracked), f"where {tracked or 'everything'} requires grad"
