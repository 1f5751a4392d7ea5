"""Element-wise operators seen as operators of vectors: one plan for all shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import torchgrad_jax as tj
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime import baseline_tier, execution_mode, operation
from torchgrad_jax.runtime.baseline import plan_of, same_plan
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.value import aval_of

pytestmark = pytest.mark.operators  # tries its own modes

SHAPES = [(2, 3), (3,), (2, 1), (1, 1, 3), (4, 2, 3), (0, 3), (1,), (), (40, 30, 3), (30, 1)]
OPERATORS = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "rsub": lambda a, b: 2 - a * b, "div": lambda a, b: a / (b.abs() + 1),
    "exp": lambda a, b: (a * 0.1).exp() + b, "tanh": lambda a, b: (a * b).tanh(), "pow": lambda a, b: (a.abs() + 1) ** b, "gt": lambda a, b: a > b,
    "maximum": tj.maximum, "clamp": lambda a, b: tj.clamp(a, min=b), "atan2": tj.atan2, "lerp": lambda a, b: tj.lerp(a, b, 0.3),
    "addcmul": lambda a, b: tj.addcmul(a, b, b, value=0.5), "remainder": lambda a, b: tj.remainder(a, b.abs() + 1),
    "sigmoid": lambda a, b: (a + b).sigmoid(),
}  # fmt: skip


def traces(monkeypatch):
    found = []
    trace = operation.trace
    monkeypatch.setattr(operation, "trace", lambda *args: found.append(args[1]) or trace(*args))
    return found


def test_another_shape_needs_no_trace(monkeypatch):
    found = traces(monkeypatch)
    for shapes in (((2, 3), (2, 3)), ((5,), (5,)), ((4, 1, 6), (6,)), ((7, 2, 2, 2), (2, 1, 2)), ((9, 1), (1, 9))):
        tj.bitwise_xor(*[tj.ones(*s, dtype=tj.int16) for s in shapes])
    assert [name for name in found if "xor" in name] == ["bitwise_xor"]


def test_derivatives_that_are_summed_are_those_of_their_own_shapes():
    x, y = tj.full((3, 1), 2.0, requires_grad=True), tj.full((4,), 3.0, requires_grad=True)
    z = tj.tensor(2.0, requires_grad=True)
    for _ in range(3):
        gradients = tj.autograd.grad((x * y * z).sum(), (x, y, z))
        assert [g.tolist() for g in gradients] == [[[24.0]] * 3, [12.0] * 4, 72.0]


def _broadcast(*shapes):
    try:
        return np.broadcast_shapes(*shapes) is not None
    except ValueError:
        return False


@settings(max_examples=60)
@given(st.sampled_from(sorted(OPERATORS)), st.sampled_from(SHAPES), st.sampled_from(SHAPES), st.sampled_from(["float32", "float64", "int32"]))
def test_results_are_xlas(name, left, right, dtype):
    assume(_broadcast(left, right) and not (name in ("lerp", "sigmoid") and dtype == "int32"))  # which PyTorch refuses, or makes floating point
    r = np.random.RandomState(len(left) + 7 * len(right))
    a, b = (tj.tensor(np.round(r.standard_normal(s) * 3, 2).astype(dtype)) for s in (left, right))
    with execution_mode("fused"), baseline_tier(True):
        for _ in range(2):  # the second time as part of a merged program
            found = OPERATORS[name](a, b) * 1
            interpreted = found.tolist()
    with execution_mode("eager"):
        expected = OPERATORS[name](a, b) * 1
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(interpreted, expected.tolist(), rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-6)


def test_no_elementwise_operator_has_a_size_among_its_numbers():
    """A number that came from the length would be wrong for another length: plans for two lengths have to be one and the same."""
    seen = []
    for operator in registry.values():
        for dtype in (np.float32, np.int64):
            found = [_traced(operator, n, np.dtype(dtype)) for n in (6, 10)]
            if None not in found and (plan := plan_of(found[0])) is not None and plan.everywhere:
                seen.append(operator.name)
                assert same_plan(*found), operator
    assert len(seen) > 150 and {"add", "mul", "where_self", "maximum", "exp"} <= {*seen}, sorted({*seen})


def _traced(operator, length, dtype):
    """The jaxpr of an element-wise operator of vectors of this length; None of any other, and where it does not take these operands."""
    args = [
        tj.ones(1) if p.type in ("Tensor", "Tensor|Scalar") else 2 if p.type == "Scalar" else p.default
        for p in operator.schema.parameters
        if not p.keyword_only
    ]
    try:
        bound, operands = operator.parse(tuple(args), {}, lambda x: isinstance(x, tj.Tensor))
        specs = tuple([aval_of((length,), dtype, CPU) if isinstance(o, tj.Tensor) else type(o) for o in operands])
        if not bound.elementwise or bound.check(specs) is not None:
            return None
        return operation._jaxpr_of(operation._as_tuple(bound.specialize(specs), bound.name), bound.name, specs)
    except (TypeError, RuntimeError, ValueError, NotImplementedError, AttributeError):
        return None
