"""An exception at a line of a function that is transformed leaves what PyTorch leaves, no level or trace open, and calls after it are right."""

from __future__ import annotations

import pytest

from compat_suite.faults.functions import FUNCTIONS, OURS
from compat_suite.faults.lines import search
from compat_suite.faults.transforms import TRACED, TRANSFORMS

# JAX refuses forward mode of a `custom_vjp` when the program runs.
pytestmark = [pytest.mark.operators, pytest.mark.failing_programs]

try:
    import torch as reference
except ImportError:
    reference = None


@pytest.mark.parametrize("function", [*FUNCTIONS, *OURS])
def test_an_exception_at_a_line_leaves_nothing_half_done(function):
    """Every sixteenth line under every fourth transform, other ones under the next; `python -m compat_suite faults` takes all."""
    found, stride = [], 48 if function == "nested" else 16
    place = [*FUNCTIONS, *OURS].index(function)
    for i, transform in enumerate([*TRANSFORMS, *TRACED]):
        if (i + place) % 4 == 0 and not transform.startswith("jax.hessian"):  # which compiles for seconds
            found += search(function, transform, reference, 1 + i % stride, stride)
    assert found
    assert not [difference for difference in found if difference is not None]
