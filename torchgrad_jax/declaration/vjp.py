"""What backward is of an operation: an operation of its own, whose operands are the gradients and what was saved."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.declaration import factors, numpy_forms
from torchgrad_jax.declaration.operator import BoundOperator, bound_ever
from torchgrad_jax.runtime import jaxprs
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.operation import ArgSpec, Signature
from torchgrad_jax.runtime.value import Aval


def single_of(outs: Sequence[Any]) -> Any:
    return outs[0] if len(outs) == 1 else tuple(outs)


def conj_of(x: Any) -> Any:
    return x.conj() if x.dtype.kind == "c" else x


class Vjp:
    """A backward operation: a BoundOp whose own derivative is JAX's. of_plan, which: whose it is, and which of those of the Plan.

    again, windows: see `op`. reshapes: see BoundOperator. results: the operands that the node itself has made, in PyTorch tensors of their own that
    writes give no other node. setting: puts a function into the surroundings in which the user's JAX code, where it is made of such, is to be traced.
    factors: what it makes, if that is one product; products: for each of its results. adds: it adds up what was expanded, and that is all.
    linear: it is in all of its operands together, as nothing was saved. adjoint: its own gradient, where that is an operator: the one that it is of.
    """

    __slots__ = (
        "setting", "again", "windows", "results", "name", "signatures", "device", "_functions", "_kindred", "_permutation",
        "reshapes", "differentiable", "factors", "products", "adds", "linear", "adjoint", "of_plan", "which", "__weakref__",
    )  # fmt: skip
    keeps_order, order = False, None

    def __init__(self, plan: Any, which: Any, functions: tuple[Any, Any] | None = None) -> None:
        """functions: what makes its function of JAX's arrays, and its `numpy_form` or None; where they are not given, the Plan is asked."""
        sig: Any = plan._sig
        self.device: Any = None
        self.factors: factors.Factors | None = None
        self.products: list[factors.Factors] = []
        self.adds = False
        self.name, self.differentiable = plan.name, True
        self.signatures: dict[tuple[ArgSpec, ...], Signature] = {}
        self._functions = functions
        self.of_plan, self.which, self.linear = plan, which, not plan.saves
        self.setting = getattr(sig.bop, "setting", None)
        bound = sig.bop if isinstance(sig.bop, BoundOperator) else None
        self.windows, self.reshapes = (False, False) if bound is None else (bound.operator.windows, bound.reshapes)
        alone = isinstance(which, tuple) and is_linear_in_the_first(sig) and sig.single and plan.saves == tuple(range(1, len(sig.specs)))
        self.adjoint: BoundOperator | None = bound if alone else None
        first = sum(which) if isinstance(which, tuple) else 0  # behind the gradients of a backward operation
        self.again = {first + i for i, name in enumerate(plan.saved_names) if bound is not None and name in bound.operator.again}
        earlier = sig.bop.results if isinstance(sig.bop, Vjp) else ()
        self.results = {first + i for i, operand in enumerate(plan.saves) if operand < 0 or operand in earlier}
        self._permutation: tuple[int, ...] | None = None
        # The same derivative of the same operator at operands of other sizes is another Vjp.
        self._kindred: dict[Any, Any] | None = None if bound is not None else {}
        if bound is not None:
            self._of_bound(bound, sig.specs)
        bound_ever.append(weakref.ref(self))

    def of(self, plan: Any) -> Vjp:
        """The same derivative of the same operator at operands that differ in sizes alone, or with other static arguments: what a Plan makes of it
        that is `of` another one."""
        made = Vjp.__new__(Vjp)
        for name, value in zip(_SHARED, _shared(self), strict=True):
            setattr(made, name, value)
        made.of_plan, made.signatures, made._functions = plan, {}, None
        sig = plan._sig
        # An operator that permutes dimensions is another one at another rank, as `transpose(1, 2)`.
        other = sig.bop is not self.of_plan._sig.bop or self._permutation is not None
        if other and isinstance(sig.bop, BoundOperator):
            made._of_bound(sig.bop, sig.specs)
        bound_ever.append(weakref.ref(made))
        return made

    def _of_bound(self, bound: BoundOperator, specs: Sequence[ArgSpec]) -> None:
        """Be told what the operator's static arguments say."""
        self.adjoint = None if self.adjoint is None else bound
        permutation = bound.permutation(specs)
        self._permutation = None if permutation is None else tuple(sorted(range(len(permutation)), key=permutation.__getitem__))

    def told(self, sizes: dict[int, str]) -> str | None:
        """See BoundOperator."""
        plan = self.of_plan
        name = jaxprs.key_of(plan._sig.bop, plan._sig.specs, sizes)
        return None if name is None else f"({name})'{plan.inputs}{self.which}{plan.saves}".replace(" ", "")

    def kin(self, specs: tuple[ArgSpec, ...]) -> tuple[dict[Any, Any] | None, tuple[ArgSpec, ...]]:
        """Where signatures that differ in sizes alone are kept, and what their sizes are those of: the operator's operands among them."""
        of = self.of_plan._sig
        kinds = of.bop.kin_of_vjps(self.of_plan.inputs, self.which) if isinstance(of.bop, BoundOperator) else self._kindred
        return kinds, (*specs, *of.specs)

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""
        make = self.of_plan.backward(self.which) if self._functions is None else self._functions[0]
        function = make(specs)
        return function if self.setting is None else self.setting(function)

    def numpy_form(self, specs: Sequence[ArgSpec]) -> Forms | None:
        """Its functions on NumPy arrays, where it has them."""
        find = self.of_plan.numpy_backward(self.which) if self._functions is None else self._functions[1]
        return None if find is None else find(specs)

    def permutation(self, specs: Sequence[ArgSpec]) -> tuple[int, ...] | None:
        """See BoundOperator."""
        return self._permutation

    def of_vectors(self) -> Vjp | None:
        """The operation that does with vectors what this does element by element; None where there is none, as this adds up what was broadcast."""
        found, avals = self.of_plan.of_vectors(), self.of_plan.avals
        if found is None or any([a.shape != avals[0].shape for a in (*avals, *self.of_plan.input_avals)]):
            return None
        return found.vjp_of(self.which)

    def check(self, specs: Sequence[ArgSpec]) -> None:
        """Backward operations check nothing of their own."""


_SHARED = tuple([name for name in Vjp.__slots__ if name not in ("of_plan", "signatures", "_functions", "__weakref__")])
_shared = attrgetter(*_SHARED)


def is_linear_in_the_first(sig: Signature) -> bool:
    """Whether an operator is linear in its first operand, and its others are Python numbers."""
    bound: Any = sig.bop
    linear = isinstance(bound, BoundOperator) and (bound.operator.linear is True or bound.names[0] in (bound.operator.linear or ()))
    return linear and isinstance(sig.specs[0], Aval) and all([isinstance(s, type) for s in sig.specs[1:]])


def numpy_of_some(sig: Signature, inputs: tuple[int, ...]) -> Callable[..., Any] | None:
    """The `numpy_form` of what an operator is of some of its operands, where it is linear in all of them together: the others are 0."""
    bound: Any = sig.bop
    form = bound.numpy_form(sig.specs) if isinstance(bound, BoundOperator) and bound.operator.linear is True else None
    if form is None or not sig.single or not all([isinstance(s, Aval) for s in sig.specs]):
        return None

    def filled(function: Callable[..., Any]) -> Callable[..., Any]:
        def of_some(*arrays: Any) -> Any:
            given = [np.zeros(s.shape, s.dtype) if i not in inputs else arrays[inputs.index(i)] for i, s in enumerate(sig.specs)]
            return function(*given)

        return of_some

    alone = Forms(filled(form.function), None if form.result is None else filled(form.result), planned=True)
    return lambda specs: alone if [(s.shape, s.dtype) for s in specs] == [(sig.specs[i].shape, sig.specs[i].dtype) for i in inputs] else None


class ByName(NamedTuple):
    """`numpy_grads` of an operator of several results: forms, by the names of the operands whose gradients are wanted, whose functions are of (the
    results' gradients, None where there is none; avals of the wanted; what is saved, by name; **statics). takes and fused: of the first and third."""

    forms: Callable[[tuple[str, ...]], Forms]

    def of(self, sig: Signature, inputs: tuple[int, ...], defined: tuple[bool, ...], saved: Sequence[str]) -> Callable[..., Any]:
        """The `numpy_form` of a Vjp."""
        bound: Any = sig.bop
        wanted, avals, keywords = self.forms(tuple([bound.names[i] for i in inputs])), [sig.specs[i] for i in inputs], bound._keywords()
        given = [aval for aval, there in zip(sig.avals, defined, strict=True) if there]

        def parted(arrays: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
            at = iter(arrays)
            return [next(at) if there else None for there in defined], dict(zip(saved, at, strict=True))

        def of_all(function: Any) -> Any:
            def call(*arrays: Any) -> Any:
                grads, named = parted(arrays)
                return function(grads, avals, named, **keywords)

            return call

        def costing(cost: Any) -> Any:
            return None if cost is None else lambda *arrays: cost(*parted(arrays))

        form = wanted.changed(of_all)._replace(takes=costing(wanted.takes), fused=costing(wanted.fused))
        return lambda specs: form if all([s is a for s, a in zip(specs, given, strict=False)]) else None


class _OfGradient:
    """A form of a gradient as a function of it and what was saved alone. (No function that closes over all this: nothing is kept of more operations,
    and each object that is kept has to be looked through by collections of garbage.)"""

    __slots__ = ("_function", "_like", "_keywords")

    def __init__(self, function: Callable[..., Any], like: Any, keywords: dict[str, Any]) -> None:
        self._function, self._like, self._keywords = function, like, keywords

    def __call__(self, grad: Any, *saved: Any) -> Any:
        return self._function(grad, self._like, *saved, **self._keywords)


def numpy_vjp(sig: Signature, inputs: tuple[int, ...], defined: tuple[bool, ...], saved: Sequence[str]) -> Callable[..., Any] | None:
    """The `numpy_form` of a Vjp of an operator that has a `numpy_vjp`. saved: the names of what its formula saves."""
    bound: Any = sig.bop
    if isinstance(bound, BoundOperator) and type(bound.operator.numpy_grads) is ByName:
        return bound.operator.numpy_grads.of(sig, inputs, defined, saved)
    if isinstance(bound, BoundOperator) and bound.operator.numpy_grads is not None:
        if not defined[0] or any(defined[1:]):  # the form is of the first result's gradient
            return None
        wanted = bound.operator.numpy_grads(tuple([bound.names[i] for i in inputs]))
        avals, keywords = [sig.specs[i] for i in inputs], bound._keywords()

        of_all = numpy_forms.applied(wanted, lambda function: _OfGradient(function, avals, keywords))
        return lambda specs: of_all if specs[0] is sig.avals[0] else None
    form = bound.operator.numpy_vjp if isinstance(bound, BoundOperator) else None
    several = form is not None and type(bound.layout[0]) is int
    if form is None or not (several or inputs == (0,)):
        return None
    keywords, tensors = bound._keywords(), [s for s in sig.specs if isinstance(s, Aval)] if several else sig.specs[0]
    grads = [a for a, there in zip(sig.avals, defined, strict=True) if there]

    def on_operands(function: Callable[..., Any]) -> Callable[..., Any]:
        def of_several_tensors(grad: Any, *numbers: Any) -> Any:
            found = function(grad, tensors, *numbers, **keywords)
            return single_of([found[i] for i in inputs])

        def of_several_results(*arrays: Any) -> Any:
            at = iter(arrays)
            return function([next(at) if there else None for there in defined], tensors, *at, **keywords)

        if not sig.single:
            return of_several_results
        return of_several_tensors if several else _OfGradient(function, tensors, keywords)

    def numpy_form(specs: Sequence[ArgSpec]) -> Any:
        alike = [isinstance(s, Aval) and s.shape == a.shape and s.dtype == a.dtype for s, a in zip(specs, grads, strict=False)]
        if several:  # they were not converted to a common dtype
            alike += [s.dtype == grads[0].dtype for s in sig.specs if isinstance(s, Aval)]
        return numpy_forms.applied(form, on_operands) if all(alike) else None

    return numpy_form
