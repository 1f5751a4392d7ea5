"""The forward derivative of a recorded operation, as an operation of its own: tangents of the inputs in, tangents of the results out.

An operator with gradient formulas is pushed forward by the transpose of its backward operation, which is linear in the gradients: so both
directions follow PyTorch's subgradients, and nothing is declared twice. The others, and products, use JAX's own derivative of their function. What
is linear in its only operand, as views are, is its own.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from torchgrad_jax.declaration import factors
from torchgrad_jax.declaration.converting import convert
from torchgrad_jax.declaration.derivative import Plan
from torchgrad_jax.declaration.operator import BoundOperator
from torchgrad_jax.declaration.pulling import of_inputs
from torchgrad_jax.declaration.vjp import Vjp, conj_of, is_linear_in_the_first, numpy_of_some, single_of
from torchgrad_jax.runtime.operation import ArgSpec, Signature
from torchgrad_jax.runtime.recording.step import NUMBER_DTYPES
from torchgrad_jax.runtime.value import Aval

NO_FORWARD = (
    "Trying to use forward AD with {} that does not support it because it has not been implemented yet.\nPlease file an issue to PyTorch at "
    "https://github.com/pytorch/pytorch/issues/new?template=feature-request.yml so that we can prioritize its implementation or submit a PR adding "
    "the implementation to derivatives.yaml"
)


class Jvp(Vjp):
    """A forward derivative. Its operands: what the Plan saves, then the tangents of the Plan's inputs; its results: the tangents of the results
    that carry a gradient."""

    __slots__ = ()

    def of_vectors(self) -> Any:
        """See Vjp. None, too, where the result has a shape that it is not told by these operands, but by one that does not move."""
        found, sig = self.of_plan.of_vectors(), self.of_plan._sig
        given = [sig.specs[i] if i >= 0 else sig.avals[-1 - i] for i in (*self.of_plan.saves, *self.of_plan.inputs)]
        told = np.broadcast_shapes(*[s.shape for s in given if isinstance(s, Aval)]) if found is not None else ()
        return jvp_of(found._sig, found) if found is not None and told == sig.avals[0].shape else None


def jvp_of(sig: Signature, plan: Plan) -> Any:
    """The forward derivative of an operation for the inputs of a Plan."""
    found: Any = plan.jvp
    if found is None:
        bound: Any = sig.bop
        if _is_its_own(sig, plan):
            plan.jvp = bound
            return bound
        by_formula = isinstance(bound, BoundOperator) and bound.operator.grads is not None and not bound.operator.multilinear
        made = _transposed_backward(sig, plan) if by_formula else _by_jax(sig, plan)
        product = factors.pushed(sig, plan.inputs, plan.saves)
        found = plan.jvp = Jvp(plan, "forward", (made, _numpy_jvp(sig, plan) if product is None else factors.forms([product])))
        if product is not None:
            found.factors, found.products = product, [product]
    return found


def _numpy_jvp(sig: Signature, plan: Plan) -> Any:
    """The `numpy_form` of the forward derivative of what is linear."""
    if not plan.saves:
        return numpy_of_some(sig, plan.inputs)
    bound, count = sig.bop, len(plan.saves)
    if not is_linear_in_the_first(sig) or plan.saves != tuple(range(1, len(sig.specs))) or not isinstance(bound, BoundOperator):
        return None
    form = bound.numpy_form(sig.specs)
    # The numbers are saved, and come before the tangent.
    moved = None if form is None else form.changed(lambda f: lambda *given: f(given[count], *given[:count]))._replace(steps=None, planned=True)
    return lambda specs: moved if specs[count].dtype == sig.specs[0].dtype else None


def _is_its_own(sig: Signature, plan: Plan) -> bool:
    """Whether the operation is linear in all that it is of, and all of that moves."""
    bound: Any = sig.bop
    linear = bound.operator.linear is True if isinstance(bound, BoundOperator) else isinstance(bound, Vjp) and bound.linear
    if not linear or plan.saves or (len(sig.avals) == 1 and not sig.single) or plan.inputs != tuple(range(len(sig.specs))):
        return False
    return len(sig.specs) == 1 or (not sig.half and len({s.dtype for s in sig.specs if isinstance(s, Aval)}) == 1)


def _given(sig: Signature, plan: Plan, tangents: Sequence[Any]) -> list[Any]:
    """The tangents in the dtypes of what they belong to."""
    specs: list[Any] = [sig.specs[i] for i in plan.inputs]
    return [convert(t, s.dtype) for t, s in zip(tangents, specs, strict=True)]


def _transposed_backward(sig: Signature, plan: Plan) -> Callable[[Sequence[ArgSpec]], Callable[..., Any]]:
    count, carried = len(plan.saves), [a for a, there in zip(plan.avals, plan.outputs, strict=True) if there]

    def transposed(one: Plan, specs: Sequence[ArgSpec], saved: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        pull = one.vjp_of(one.outputs).specialize([*carried, *specs])
        # Backward is linear in the gradients, so its derivative may be taken anywhere. The conjugates are PyTorch's convention.
        _, transpose = jax.vjp(lambda *grads: pull(*grads, *saved), *[jnp.zeros(a.shape, a.dtype) for a in carried])
        return [conj_of(t) for t in transpose(single_of([conj_of(t) for t in tangents]))]

    def specialize(specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        def push(*arrays: Any) -> Any:
            saved, tangents = arrays[:count], _given(sig, plan, arrays[count:])
            if _is_its_own_transpose(sig, plan):
                parts = zip(plan.apart(), tangents, strict=True)
                pulled = [one.vjp_of((True,)).specialize([*carried, *[specs[i] for i in at]])(t, *[saved[i] for i in at]) for (one, at), t in parts]
                return functools.reduce(operator.add, pulled)
            if not sig.half:
                return single_of(transposed(plan, specs[:count], saved, tangents))
            parts = zip(plan.apart(), tangents, strict=True)
            return _rounded_sum([transposed(one, [specs[i] for i in at], [saved[i] for i in at], [t]) for (one, at), t in parts])

        return _or_refused(sig, push)

    return specialize


def _is_its_own_transpose(sig: Signature, plan: Plan) -> bool:
    """Whether the backward operation is a diagonal matrix of real numbers for each operand: of what is element-wise, where nothing is broadcast."""
    bound: Any = sig.bop
    alike = len(sig.avals) == 1 and all([sig.specs[i] is sig.avals[0] for i in plan.inputs])
    return alike and bound.elementwise and sig.avals[0].dtype.kind == "f" and not sig.half


def _rounded_sum(parts: list[list[Any]]) -> Any:
    """What each operand's tangent contributes, added up. In half precision PyTorch rounds it before."""
    return single_of([functools.reduce(operator.add, terms) for terms in zip(*parts, strict=True)])


def _by_jax(sig: Signature, plan: Plan) -> Callable[[Sequence[ArgSpec]], Callable[..., Any]]:
    count = len(plan.saves)

    def push(*arrays: Any) -> Any:
        # What is not saved is what the function is linear in.
        saved = dict(zip(plan.saves, arrays[:count], strict=True))
        primals = [saved[i] if i in saved else _zeros(spec) for i, spec in enumerate(sig.specs)]

        def pushed(inputs: Sequence[int], tangents: list[Any]) -> list[Any]:
            return jax.jvp(of_inputs(sig, inputs, primals), [primals[i] for i in inputs], tangents)[1]

        tangents = _given(sig, plan, arrays[count:])
        if not sig.half:
            return single_of(pushed(plan.inputs, tangents))
        return _rounded_sum([pushed([i], [t]) for i, t in zip(plan.inputs, tangents, strict=True)])

    return lambda specs: _or_refused(sig, push)


def _zeros(spec: ArgSpec) -> Any:
    return jnp.zeros((), NUMBER_DTYPES[spec]) if isinstance(spec, type) else jnp.zeros(spec.shape, spec.dtype)


def _or_refused(sig: Signature, push: Callable[..., Any]) -> Callable[..., Any]:
    """NotImplementedError in PyTorch's words for an operator that has no derivative."""

    def call(*arrays: Any) -> Any:
        try:
            return push(*arrays)
        except RuntimeError as error:
            if "is not implemented" not in str(error):
                raise
            raise NotImplementedError(NO_FORWARD.format(sig.bop.name)) from None

    return call
