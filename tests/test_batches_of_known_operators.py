"""Batches of operations of which an operator is known that does the same with the whole batch: nothing is traced for them, and they are what
`jax.vmap` makes of the operation."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.declaration.batching import batched
from torchgrad_jax.declaration.derivative import plan
from torchgrad_jax.declaration.forward import _is_its_own_transpose, jvp_of
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime._jax_compat import call_x64
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import Signature, of_vectors, signature
from torchgrad_jax.runtime.value import aval_of

pytestmark = pytest.mark.operators

SIZE = 3
# An operator, the shape of its operand for a part of the batch, and its static arguments.
VIEWS = [
    ("view", (2, 3), ((6,),)), ("view", (1,), ((),)), ("_reshape_alias", (4,), ((2, 2),)), ("unsqueeze", (2, 3), (1,)), ("unsqueeze", (), (0,)),
    ("squeeze", (1, 3, 1), ((0, 2),)), ("squeeze_dim", (2, 1), ((1,),)), ("transpose", (2, 3, 4), (0, 2)), ("transpose", (2, 3), (-1, 0)),
    ("permute", (2, 3, 4), ((2, 0, 1),)), ("t", (2, 3), ()), ("t", (2,), ()), ("view", (0, 2), ((2, 0),)),
]  # fmt: skip
# An operator, the shapes of its operands for a part of the batch, and whether each operand is of the batch.
ELEMENTWISE = [
    ("mul", [(2, 3), (2, 3)], (True, True)), ("mul", [(2, 3), (2, 3)], (True, False)), ("mul", [(2, 3), (3,)], (True, False)),
    ("mul", [(), ()], (True, True)), ("mul", [(2, 3), float], (True, False)), ("maximum", [(2, 1), (1, 3)], (True, True)),
    ("tanh", [(2, 3)], (True,)), ("exp", [()], (True,)),
]  # fmt: skip
# The batch's dimension would be in front of the wrong one.
NOT_IN_FRONT = [("mul", [(2, 3), (3,)], (True, True)), ("mul", [(3,), (2, 3)], (True, False)), ("maximum", [(), (2,)], (True, False))]


def spec(shape):
    """What an operand of this shape is like; a Python number is told by its class."""
    return shape if shape is float else aval_of(shape, np.dtype(np.float32), CPU)


def numbers(specs):
    random = np.random.default_rng(0)
    return [np.float64(0.7) if s is float else np.asarray(random.standard_normal(s.shape), s.dtype) for s in specs]


def of_batch(one, mapped):
    """The operation for a batch, and what its operands are like."""
    specs = tuple([spec((SIZE, *s.shape)) if there else s for s, there in zip(one.specs, mapped, strict=True)])
    return signature(batched(one, mapped), specs)


def is_what_vmap_gives(made):
    given = numbers(made.specs)
    wanted = call_x64(made.function, *given)
    assert [(a.shape, a.dtype) for a in made.avals] == [(w.shape, w.dtype) for w in wanted]
    for found, expected in zip(made.baseline(*given), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)  # XLA's own functions differ in the last bit


@pytest.mark.parametrize(("name", "shape", "statics"), VIEWS)
def test_views_and_their_derivatives(name, shape, statics, monkeypatch):
    one = signature(registry[name].bind((ARRAY, *[Static(s) for s in statics])), (spec(shape),))
    there = plan(one, (0,))
    assert jvp_of(one, there) is one.bop
    with monkeypatch.context() as patched:
        patched.setattr(Signature, "_trace", lambda sig: pytest.fail(f"{sig.bop.name} is traced"))
        back = signature(there.vjp_of((True,)), one.avals)
        made = [of_batch(operation, (True,)) for operation in (one, back)]
        made += [of_batch(operation, (True,)) for operation in made]  # a batch of batches
    for batch in made:
        is_what_vmap_gives(batch)


@pytest.mark.parametrize(("name", "shapes", "mapped"), ELEMENTWISE)
def test_what_is_element_by_element(name, shapes, mapped):
    one = signature(registry[name].bind((ARRAY,) * len(shapes)), tuple([spec(s) for s in shapes]))
    made = of_batch(one, mapped)
    assert of_vectors(made.bop) is one.bop
    is_what_vmap_gives(made)


@pytest.mark.parametrize(("name", "shapes", "mapped"), NOT_IN_FRONT)
def test_what_is_not_the_operator_itself(name, shapes, mapped):
    made = of_batch(signature(registry[name].bind((ARRAY, ARRAY)), tuple([spec(s) for s in shapes])), mapped)
    assert of_vectors(made.bop) is None
    is_what_vmap_gives(made)


@pytest.mark.parametrize(("name", "shapes"), [("tanh", [(2, 3)]), ("div", [(2, 3), (2, 3)]), ("atan2", [(), ()]), ("div", [(2, 3), (3,)])])
def test_tangents_of_what_is_element_by_element(name, shapes):
    """By the formulas as they stand where nothing is expanded, and else by their transpose."""
    one = signature(registry[name].bind((ARRAY,) * len(shapes)), tuple([spec(s) for s in shapes]))
    there = plan(one, tuple(range(len(shapes))))
    assert _is_its_own_transpose(one, there) == (len(set(shapes)) == 1)
    given, tangents = numbers(one.specs), numbers(one.specs[::-1])[::-1]
    function = one.bop.specialize(one.specs)
    made, expected = jax.jvp(function, given, tangents)
    saved = [given[i] if i >= 0 else np.asarray(made) for i in there.saves]
    specs = tuple([one.specs[i] if i >= 0 else one.avals[0] for i in there.saves]) + one.specs
    (found,) = signature(jvp_of(one, there), specs).baseline(*saved, *tangents)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_operands_of_two_dtypes_are_promoted_as_those_of_a_part():
    """A tensor of no dimension decides less than others: for a part of the batch both may be such, and the batch has one."""
    mul, halves, numbers = torch.func.vmap(torch.mul), torch.ones(SIZE, 2, dtype=torch.float16), torch.ones(SIZE)
    assert mul(halves, numbers).dtype is torch.float16
    assert torch.func.vmap(torch.mul, (0, None))(halves[:, 0], numbers[0]).dtype is torch.float32


def test_a_tangent_of_a_view_is_differentiated_as_a_view():
    x = torch.arange(6.0).requires_grad_()
    _, tangent = torch.func.jvp(lambda t: t.view(2, 3), (torch.ones(6),), (x,))
    assert tangent.grad_fn.name() == "ViewBackward0"
    (tangent * torch.arange(6.0).view(2, 3)).sum().backward()
    assert x.grad.tolist() == [0, 1, 2, 3, 4, 5]
