"""docs/derivatives.md keeps its word: its code runs, and where JAX's and ours stand next to each other they give the same numbers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from torchgrad_jax.runtime import execution_mode
from torchgrad_jax.runtime.counters import counters

pytestmark = pytest.mark.operators

PAGE = Path(__file__).parents[1] / "docs" / "derivatives.md"
TEXT = PAGE.read_text()


def blocks():
    """The heading above each block of Python, its first line's number in the page, and its text."""
    for found in re.finditer(r"^```python\n(.*?)^```$", TEXT, re.M | re.S):
        before = TEXT[: found.start(1)]
        yield re.findall(r"^##? (.*)$", before, re.M)[-1], before.count("\n"), found[1]


def leaves(result):
    """The numbers of a result, by their place in it."""
    return {name: np.asarray(t) for name, t in result.items()} if isinstance(result, dict) else {"": np.asarray(result)}


def test_what_is_written_twice_agrees():
    names = {"__name__": "derivatives"}
    pairs = []
    with execution_mode("fused"):
        for heading, line, code in blocks():
            before = counters.flushed
            exec(compile("\n" * line + code, str(PAGE), "exec"), names)
            if "ours" not in code:
                continue
            ours = leaves(names["ours"])
            assert counters.flushed - before <= 1 or "jax.vmap(jax.grad(lambda" in code, f"{heading}: not one program"
            theirs = leaves(names["theirs"])
            assert ours.keys() == theirs.keys()
            for name, found in ours.items():
                np.testing.assert_allclose(found, theirs[name], rtol=2e-4, atol=1e-5, err_msg=f"{heading} {name}")
            pairs.append(heading)
    assert pairs == ["Per-sample gradients", *["Hessian-vector products"] * 2, "Gauss-Newton-vector products", *["Batched Jacobians"] * 2,
                     *["Across the border"] * 2]  # fmt: skip
