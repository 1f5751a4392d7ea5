"""From a Signature and the set of its inputs that need gradients: what backward saves, and the operation that backward is."""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, factors, numpy_losses
from torchgrad_jax.declaration.converting import broadcast_shapes, broadcast_to, convert, is_half, wide, zeros_like_grad
from torchgrad_jax.declaration.fields import PlanFields
from torchgrad_jax.declaration.operator import ARRAY, NOT_IMPLEMENTED, SAME, BoundOperator, Static, Together, registry
from torchgrad_jax.declaration.pulling import filled_in, from_jax, transposed
from torchgrad_jax.declaration.shown import names_shown, shown_value, sizes
from torchgrad_jax.declaration.vjp import Vjp, numpy_of_some, numpy_vjp, single_of
from torchgrad_jax.runtime._jax_compat import as_x64
from torchgrad_jax.runtime.operation import ArgSpec, Known, Signature, Traced, of_vectors, operands_read, signature
from torchgrad_jax.runtime.value import Aval, aval_of
from torchgrad_jax.runtime.vectors import specs_of_vectors

RESULT = -1
NO_VECTORS: Any = object()


class Plan(PlanFields):
    """How one operation is differentiated.

    inputs: the operands that get a gradient, in order. places: where their edges stand among the `arity` entries of `next_functions`.
    saves: what backward keeps: an operand's index, or -1, -2 ... for the first, second ... result. origins: for each of these, the index in
    `inputs`, or the result (-1, -2 ...), or None: where its own gradient goes. constant: the places among them on which gradients do not depend, or
    by comparisons alone. saved_names: their names in `grad_fn._saved_*`. passes: the output's gradient is every input's, or (undefined) none has one.
    zeros: they are zeros.
    outputs: which outputs carry a gradient; output_avals: of those that the node knows of. frees: whether backward drops what was saved: a number
    that is not taken for a tensor may be used again.
    lists: whether there is a sequence of tensors among the operands. once: see `op`. jvp: see `forward.py`. node_class belongs to the layer above.
    """

    __slots__ = (
        "name", "places", "origins", "saved_names", "zeros", "outputs", "arity", "_how", "_declared", "_vjps", "jvp", "once",
        "_sig", "_unpacking", "constant", "_others", "output_avals", "_gradients", "_vectors", "_adds", "_like", "_whole", "_traced",
    )  # fmt: skip
    FIELDS = (*PlanFields.__slots__, *__slots__)

    def __init__(self, sig: Signature, bound: Any, inputs: tuple[int, ...]) -> None:
        self.name: str = bound.node(sig.specs) if isinstance(bound, BoundOperator) else getattr(bound, "node_name", bound.name)
        self.inputs = inputs
        self.avals = sig.avals
        self.single = sig.single
        self.places, self.arity = _laid_out(sig, bound, inputs, self.name)
        self.outputs = tuple(dtypes.is_float(a.dtype) for a in sig.avals)
        count = len(sig.avals)
        while count > 1 and not self.outputs[count - 1]:  # indices that come with the values
            count -= 1
        self.output_avals = sig.avals[:count]
        self.passes = self.zeros = self.undefined = False
        self.lists = isinstance(bound, BoundOperator) and any(type(item) is int for item in bound.layout)
        self.once = bound.operator.once if isinstance(bound, BoundOperator) else None
        self._vjps: Any = None  # those that are not `vjp`, by which outputs have a gradient
        self._unpacking: list[int] | None = None
        self._others: Plan | None = None
        self._like: Plan | None = None
        self._whole: Plan | None = None
        self._traced: Any = None
        self._vectors: Any = None
        self._adds = False
        self._sig = sig
        self.jvp: Any = None
        self._gradients: Any = None
        formulas = bound.formulas() if isinstance(bound, BoundOperator) else None
        self._declared = formulas is not None or (isinstance(bound, BoundOperator) and bound.operator.linear)
        if formulas is not None:
            self._from_formulas(sig, bound)
        else:
            self._without_formulas(sig, bound)
        self.constant: tuple[int, ...] = ()
        if isinstance(bound, BoundOperator) and (bound.operator.keeps or bound.operator.shows):
            constant = {*bound.kept(inputs), *(name for name in bound.operator.shows if name not in self.saved_names)}
            self._keep(bound, constant)
            self.constant = tuple(i for i, name in enumerate(self.saved_names) if name in constant)
        if isinstance(bound, BoundOperator) and bound.operator.trivial is not None and bound.operator.trivial(sig.specs[0]):
            self.constant = tuple(range(len(self.saves)))
        self.origins = tuple([i if i < 0 else inputs.index(i) if i in inputs else None for i in self.saves])
        by_tensor = not isinstance(bound, BoundOperator) or bound.operator.number_node is None
        roles = bound.number_roles() if isinstance(bound, BoundOperator) else (True,) * len(sig.specs)
        self.frees = any(i < 0 or isinstance(sig.specs[i], Aval) or (roles[i] and by_tensor) for i in self.saves)
        self.known_apart = self.vjp = self.node_class = None

    def __copy__(self) -> Plan:
        made = PlanFields.__new__(type(self))
        for name in (*Plan.FIELDS, *type(self).__slots__):
            if hasattr(self, name):
                setattr(made, name, getattr(self, name))
        return made

    @property
    def serves_all_sizes(self) -> bool:
        """Whether other signatures of its kind are differentiated like this one, whatever their sizes."""
        bound: Any = self._sig.bop
        if not isinstance(bound, BoundOperator):
            return type(self) is Plan and isinstance(bound, Vjp)
        return type(self) is Plan and bound.operator.trivial is None and bound.operator.skips is None

    def of(self, sig: Signature) -> Plan:
        """The Plan of another Signature, which differs from its own in sizes alone: what it is not told by these, it has of this one."""
        made: Any = PlanFields.__new__(Plan)
        for name, value in zip(_SHARED, _shared(self), strict=True):
            setattr(made, name, value)
        made._sig, made.avals, made.output_avals = sig, sig.avals, sig.avals[: len(self.output_avals)]
        made._like, made._whole = self, None if self._whole is None else self._whole.of(sig)
        made.vjp = made._vjps = made.jvp = made.known_apart = made._others = made._vectors = made._traced = None
        return made

    @property
    def input_avals(self) -> list[ArgSpec]:
        """Shape, dtype and device of each of `inputs`."""
        return [self._sig.specs[i] for i in self.inputs]

    @property
    def unpacking(self) -> list[int]:
        """The order in which PyTorch packs and unpacks what is saved: operands by name, then results."""
        if self._unpacking is None:
            self._unpacking = sorted(range(len(self.saves)), key=lambda i: (self.saves[i] < 0, self.saved_names[i]))
        return self._unpacking

    def keeps_name(self, place: int) -> bool:
        """Whether PyTorch goes on to name what is saved at `place` after the node that made it, whatever has been written to it since."""
        return self.saves[place] < 0 or (isinstance(self._sig.bop, Vjp) and self.saves[place] in self._sig.bop.results)

    def is_part(self, place: int) -> bool:
        """Whether what is saved there is part of another operand in PyTorch: see `parts` of `op`."""
        bound = self._sig.bop
        return isinstance(bound, BoundOperator) and self.saved_names[place] in bound.operator.parts

    @property
    def attributes(self) -> dict[str, bool]:
        """The names of all that a node of this operator shows as ``_saved_*``, whichever inputs need a gradient, and whether each is a tensor."""
        bound: Any = self._sig.bop
        if not isinstance(bound, BoundOperator) or bound.operator.grads is None:
            found = {n: i < 0 or isinstance(self._sig.specs[i], Aval) for i, n in zip(self.saves, self.saved_names, strict=True)}
            return found | dict.fromkeys(names_shown(bound) if isinstance(bound, BoundOperator) else (), False)
        more = names_shown(bound)
        names: set[str] = {*more, *bound.kept(), *bound.operator.shows}
        for f in bound.operator.grads.values():
            if f is not None and f is not SAME:
                names.update(f.__code__.co_varnames[: f.__code__.co_argcount])
        absent = {p.name for p in bound.operator.schema.parameters if p.is_tensor and p.name in bound.statics}
        tensors = {n for n, spec in zip(bound.names, self._sig.specs, strict=True) if isinstance(spec, Aval) or n == "other"}
        tensors |= absent | set(bound.operator.results or ("result",))
        others = {*more, *bound.names, *bound.statics, *sizes(self._sig)} - ({"dims"} if "indices" in bound.names else set())
        return {n: n in tensors for n in sorted(names) if n in tensors or n in others}

    def static(self, name: str) -> Any:
        """What `attributes` names but no node saves: an argument of the operation, or the shape of one."""
        return shown_value(self._sig, name)

    def only_once(self, i: int, saved: Sequence[Any]) -> str | None:
        """Why the gradient of operand `i` cannot be differentiated again, given arrays of what was saved; None where it can."""
        bound: Any = self._sig.bop
        if self.once is None or bound.names[i] != self.once[0]:
            return None
        _, occurs, text = self.once
        known = {**bound.statics, **dict(zip(self.saved_names, saved, strict=True))}
        given = [known[n] for n in occurs.__code__.co_varnames[: occurs.__code__.co_argcount]]
        return text if as_x64(occurs, given) else None

    def is_list(self, name: str) -> bool:
        """Whether the argument `name` of the operation is a list of tensors."""
        bound: Any = self._sig.bop
        if not isinstance(bound, BoundOperator):
            return False
        return any(p.name == name and type(item) is int for p, item in zip(bound.operator.schema.parameters, bound.layout, strict=True))

    def used(self, inputs: list[bool]) -> list[bool]:
        """Which gradients of `inputs` PyTorch computes where these are used: those of a list of tensors all or none."""
        if not self.lists:
            return inputs
        bound: Any = self._sig.bop
        names = [bound.names[i] for i in self.inputs]
        found = {name for name, there in zip(names, inputs, strict=True) if there}
        return [name in found for name in names]

    def others(self) -> Plan | None:
        """The Plan of those elements of a list of tensors that need no gradient: PyTorch computes theirs with the rest. None where there are none."""
        bound: Any = self._sig.bop
        rest = tuple([i for i in range(len(self._sig.specs)) if i not in self.inputs])
        if not (self.lists and bound.operator.linear is True and rest):
            return None
        if self._others is None:
            dtype = self.avals[0].dtype
            real = np.real(np.zeros((), dtype)).dtype
            alike = [aval_of(s.shape, dtype if s.dtype.kind == "c" else real, s.device) for s in self._sig.specs if isinstance(s, Aval)]
            self._others = Plan(signature(bound, tuple(alike)), bound, rest)
        return self._others

    def list_places(self, name: str) -> list[int | None]:
        """Where the elements of the argument `name`, a list of tensors, stand among `saves`: None for a dimension that is not indexed."""
        places = iter([i for i, n in enumerate(self.saved_names) if n == name])
        bound: Any = self._sig.bop
        dims = bound.statics.get("dims") if name == "indices" else None
        return list(places) if dims is None else [next(places) if d in dims else None for d in range(max(dims) + 1)]

    def _without_formulas(self, sig: Signature, bound: Any) -> None:
        if (own := getattr(bound, "factors", None)) is not None and (known := factors.gradients(own, self.inputs)) is not None:
            self._gradients, self.saves = known, known[0]
            self.saved_names, self._how = tuple([f"input{i}" for i in self.saves]), _by_factors
            return
        adjoint = getattr(bound, "adjoint", None) is not None
        if adjoint or getattr(bound, "linear", False):
            self.saves = tuple(range(1, len(sig.specs))) if adjoint else ()  # numbers
            self.saved_names = tuple([f"input{i}" for i in self.saves])
            self._how = _by_transpose
            return
        self.saves = tuple(range(len(sig.specs)))
        self._how = _by_jax
        if isinstance(bound, BoundOperator):
            linear = bound.operator.linear
            skips = bound.operator.skips
            self.zeros = skips is not None and all(skips(sig.specs[i]) for i in self.inputs)
            if linear:
                free = bound.names if linear is True else linear
                self.saves = tuple([i for i, s in enumerate(sig.specs) if isinstance(s, type) or bound.names[i] not in free])
                self._how = _by_transpose
            self.saved_names = tuple([bound.names[i] for i in self.saves])
        else:
            self.saved_names = tuple([f"input{i}" for i in self.saves])

    def _from_formulas(self, sig: Signature, bound: BoundOperator) -> None:
        wanted, needs = _asked_for(self)
        results = bound.operator.results or ("result",)
        saves: list[int] = []
        for i, name in enumerate(bound.names):
            if any(name in n for n in needs):
                saves.append(i)
        for i, name in enumerate(results):
            if any(name in n for n in needs):
                saves.append(RESULT - i)
        self.saves = tuple(saves)
        self.saved_names = tuple(bound.names[i] if i >= 0 else results[RESULT - i] for i in saves)
        self.zeros = all(f is zeros_like_grad for f in wanted)
        self.undefined = bound.undefined()
        self.passes = self.undefined or all(f is SAME and sig.specs[i] is sig.avals[0] for i, f in zip(self.inputs, wanted, strict=True))
        self._adds = wanted == [SAME] and not self.passes
        self._how = _by_formula

    def _keep(self, bound: BoundOperator, more: set[str]) -> None:
        results = bound.operator.results or ("result",)
        names = {**{i: n for i, n in enumerate(bound.names) if n in more}, **{RESULT - i: n for i, n in enumerate(results) if n in more}}
        names.update(zip(self.saves, self.saved_names, strict=True))
        self.saves = tuple(sorted(names, key=lambda i: (i < 0, abs(i))))
        self.saved_names = tuple(names[i] for i in self.saves)

    def apart(self) -> list[tuple[Any, tuple[int, ...]]]:
        """For each of `inputs` the Plan of its gradient alone, and where what that saves stands among `saves`."""
        if self.known_apart is None:
            if self._like is not None:
                self.known_apart = [(self if p is self._like else p.of(self._sig), places) for p, places in self._like.apart()]
                return self.known_apart
            plans = [self] if len(self.inputs) == 1 else [Plan(self._sig, self._sig.bop, (i,)) for i in self.inputs]
            self.known_apart = [(p, tuple(self.saves.index(i) for i in p.saves)) for p in [p._lean() for p in plans]]
        return self.known_apart

    def _lean(self) -> Plan:
        """This Plan, saving only what is read. A backward operation is linear in the gradients and often in more: a derivative of it that kept all of
        its operands would depend, in a graph, on what it is not made of. And it is differentiated the sooner the less it computes in vain."""
        bound: Any = self._sig.bop
        if not isinstance(bound, Vjp) or bound.setting is not None or self._gradients is not None or not self.saves or bound.adjoint is not None:
            return self
        count, specs = len(self.avals), self._specs()
        vectors, traced, lean = self.of_vectors(), None, None
        if vectors is None or vectors is self:
            traced = Traced(self.backward((True,) * count)(specs), specs)
            read = traced.read
        else:
            lean = vectors.apart()[0][0]
            read = {count + self.saves.index(i) for i in lean.saves}
        kept = [place for place, i in enumerate(self.saves) if count + place in read or i in bound.again]
        found = copy.copy(self)
        found._vjps, found.known_apart, found._unpacking, found._how, found._whole, found._traced = None, None, None, _by_whole, self, traced
        found._vectors = found if vectors is self else lean or NO_VECTORS
        for name in ("saves", "saved_names", "origins"):
            setattr(found, name, tuple([getattr(self, name)[place] for place in kept]))
        found.vjp = None
        return found

    def _specs(self) -> list[ArgSpec]:
        """What the operands of its backward operation are like: the gradients of all results, and what is saved."""
        given, avals = self._sig.specs, self.avals
        return [*avals, *[given[i] if i >= 0 else avals[RESULT - i] for i in self.saves]]

    def backward(self, defined: tuple[bool, ...]) -> Callable[[Sequence[ArgSpec]], Callable[..., Any]]:
        """What makes the function of JAX's arrays that its backward operation is."""
        return self._how(self, defined)

    def reads(self, place: int, wanted: Sequence[bool]) -> bool:
        """Whether those gradients of `inputs` that are wanted depend on what is saved at `place`: PyTorch would not have saved it otherwise. Asked
        where something is wrong already: what the declaration does not say, a trace does."""
        if isinstance(self._sig.bop, BoundOperator) and self.saved_names[place] in self._sig.bop.operator.copies:
            return False
        alone = zip(self.apart(), wanted if self._may_leave_out(place) else (True,) * len(wanted), strict=True)
        return any(there and place in places and p._reads(places.index(place)) for (p, places), there in alone)

    def reads_tensors(self, wanted: Sequence[bool]) -> bool:
        """Whether `reads` is so of any tensor that is saved."""
        specs = self._sig.specs
        return any([self.reads(place, wanted) for place, i in enumerate(self.saves) if i < 0 or isinstance(specs[i], Aval)])

    def _may_leave_out(self, place: int) -> bool:
        """Whether PyTorch asks whether the gradient that this is for is wanted: it does of operands, if that is one of several and the only one
        made of this."""
        if self.saves[place] < 0:
            return False
        bound: Any = self._sig.bop
        formulas = bound.formulas() if isinstance(bound, BoundOperator) else None
        if formulas is None:
            return sum([isinstance(s, Aval) and dtypes.is_float(s.dtype) for s in self._sig.specs]) > 1
        given = [f.__code__.co_varnames[: f.__code__.co_argcount] for f in formulas if f is not None and f is not SAME]
        several = sum(f is not None for f in formulas) > 1
        return several and sum(self.saved_names[place] in names for names in given) == 1

    def _reads(self, place: int) -> bool:
        bound: Any = self._sig.bop
        if self._declared or (isinstance(bound, Vjp) and self.saves[place] in bound.again):
            return True
        if isinstance(bound, BoundOperator) and self.saved_names[place] in (*bound.kept(), *bound.operator.shows):
            return True
        count, specs = len(self.avals), self._specs()
        return count + place in operands_read(self.backward((True,) * count)(specs), specs)

    def of_vectors(self) -> Plan | None:
        """The Plan of the operation that does with vectors what this one does element by element; None where there is none."""
        if self._vectors is None:
            self._vectors = self._of_vectors() or NO_VECTORS
        return None if self._vectors is NO_VECTORS else self._vectors

    def _of_vectors(self) -> Plan | None:
        sig: Any = self._sig
        bop = None if self.lists or sig.check is not None else of_vectors(sig.bop)
        specs = None if bop is None else specs_of_vectors(sig.specs)
        if bop is None or specs is None:
            return None
        known = sig if specs == sig.specs else signature(bop, specs)
        if not getattr(known.baseline, "everywhere", False):  # the numbers are reduced after that: of one it is not seen
            return None
        found = self if known is sig else known.plans.get(self.inputs)
        if found is None:
            found = plan(known, self.inputs)
            known.keep_plan(self.inputs, found)
        return found if type(found) is Plan and (found.inputs, found.saves, found.outputs) == (self.inputs, self.saves, self.outputs) else None

    def _numpy_vjp(self, defined: tuple[bool, ...]) -> Any:
        bound: Any = self._sig.bop
        if isinstance(bound, Vjp) and bound.linear and self.inputs == tuple(range(len(self._sig.specs))):
            return numpy_of_some(bound.of_plan._sig, bound.of_plan.inputs)
        if isinstance(bound, BoundOperator) and isinstance(bound.operator.numpy_of, numpy_losses.Loss):
            return bound.operator.numpy_of.vjp(bound, tuple(self._sig.specs), self._backward_of)
        return numpy_vjp(self._sig, self.inputs, defined, self.saved_names)

    def _backward_of(self, each: Signature) -> Any:
        """The backward operation of another Signature for the same inputs, if these have the result's shape; and what it saves is like."""
        made = plan(each, self.inputs)
        alike = type(made) is Plan and (made.inputs, made.saves) == (self.inputs, self.saves)
        if made is None or not alike or any([s.shape != each.avals[0].shape for s in made.input_avals if isinstance(s, Aval)]):
            return None
        return made.vjp_of((True,)), [each.specs[i] for i in made.saves]

    def vjp_of(self, defined: tuple[bool, ...]) -> Any:
        """The backward operation for the case that just these outputs have a gradient. Its operands: the defined gradients,
        then what was saved; its results: the gradients of `inputs`."""
        if (adjoint := getattr(self._sig.bop, "adjoint", None)) is not None:
            self.vjp = adjoint
            return adjoint
        whole = all(defined)
        found = self.vjp if whole else (self._vjps or {}).get(defined)
        if found is None:
            found = self._vjp(defined) if self._like is None else self._like.vjp_of(defined).of(self)
            if found.adds and sum([isinstance(s, Aval) and s.shape != self.avals[0].shape for s in self.input_avals]) == 1:
                found.adjoint = _expanding(self._sig, self.inputs[0])
            if whole:
                self.vjp = found
            else:
                self._vjps = {**(self._vjps or {}), defined: found}
        return found

    def _vjp(self, defined: tuple[bool, ...]) -> Vjp:
        known = None if self._gradients is None else self._gradients[1]
        found = Vjp(self, defined)
        if len(self.inputs) == 1 and all(defined):
            found.factors = factors.of_backward(self._sig, self.inputs, self.saves) if known is None else known[0]
        found.adds = self._adds
        found.products = known or ([] if found.factors is None else [found.factors])
        return found

    def numpy_backward(self, defined: tuple[bool, ...]) -> Callable[[Sequence[ArgSpec]], Any] | None:
        """The `numpy_form` of its backward operation."""
        return self._numpy_vjp(defined) if self._gradients is None else factors.forms(self._gradients[1])


# What a Plan has of another one, of a Signature that differs in sizes alone.
_SHARED = tuple([name for name in Plan.FIELDS if name not in (
    "avals", "output_avals", "_sig", "_like", "_whole", "_vjps", "vjp", "jvp", "known_apart", "_others", "_vectors", "_traced",
)])  # fmt: skip
_shared = operator.attrgetter(*_SHARED)


def _laid_out(sig: Signature, bound: Any, inputs: tuple[int, ...], name: str) -> tuple[tuple[int, ...], int]:
    if name == NOT_IMPLEMENTED:
        return tuple(range(len(inputs))), len(inputs)
    if not isinstance(bound, BoundOperator):
        return inputs, len(sig.specs)
    edges = bound.edges(sig.specs)
    return tuple([edges.index(i) for i in inputs]), len(edges)


def _expanding(sig: Signature, operand: int) -> BoundOperator | None:
    """The operator that expands an operand to the shape of the result."""
    given, aval = sig.specs[operand], sig.avals[0]
    alike = isinstance(given, Aval) and given.dtype == aval.dtype
    return registry["expand"].bind((ARRAY, Static(aval.shape))) if alike else None


def plan(sig: Signature, inputs: tuple[int, ...]) -> Plan | None:
    """The Plan of a recorded operation for the operands `inputs` that need a gradient; None where the result has none."""
    bound: Any = sig.bop
    if (own := getattr(bound, "plan", None)) is not None:
        return own(sig, inputs)
    differentiable = [i for i in inputs if isinstance(sig.specs[i], Aval) and dtypes.is_float(sig.specs[i].dtype)]
    if not bound.differentiable or not any(dtypes.is_float(a.dtype) for a in sig.avals):
        return None
    formulas = bound.formulas() if isinstance(bound, BoundOperator) else None
    if isinstance(bound, BoundOperator) and bound.operator.constants:
        for i in differentiable:
            _refuse_constant(bound.operator.constants, bound.names[i])
    if formulas is not None:
        differentiable = [i for i in differentiable if formulas[i] is not None]
    if not differentiable:
        return None
    if isinstance(bound, BoundOperator) and bound.operator.real:
        refuse_complex(bound.operator.real, sig.avals)
    return Plan(sig, bound, tuple(differentiable))


def refuse_complex(name: str, avals: Sequence[Aval]) -> None:
    """RuntimeError for complex results of what PyTorch differentiates where they are real only."""
    if any(a.dtype.kind == "c" for a in avals):
        raise RuntimeError(f"{name} does not support automatic differentiation for outputs with complex dtype.")


def _refuse_constant(constants: dict[str, str], name: str) -> None:
    if name in constants:
        raise RuntimeError(
            f"The function '{constants[name]}' is not differentiable with respect to argument '{name}'. This input cannot have requires_grad True."
        )


def _unbroadcast(g: Any, aval: Aval) -> Any:
    """Sum `g` over what the input of `aval` was expanded along, and give it the input's dtype."""
    if g.shape != aval.shape:
        g = broadcast_to(g, _wider(g.shape, aval.shape))
        extra = g.ndim - aval.ndim
        dims = tuple(range(extra)) + tuple(extra + i for i, n in enumerate(aval.shape) if n == 1 and g.shape[extra + i] != 1)
        g = lax.reshape(_total(g, dims), aval.shape) if dims else g
    return convert(g, aval.dtype)


def _total(g: Any, dims: tuple[int, ...]) -> Any:
    """The sum over some dimensions, as that of `jax.numpy`, which takes three times as long to be traced."""
    return convert(lax.reduce_sum(wide(g), dims), g.dtype) if dtypes.is_float(np.dtype(g.dtype)) else jnp.sum(g, dims)


def _wider(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Formulas may return a gradient that still has to expand, such as a 0-dim one."""
    return broadcast_shapes(a, b)


def _by_factors(plan: Plan, defined: tuple[bool, ...]) -> Any:
    return factors.backward(plan._gradients[1])


def _by_transpose(plan: Plan, defined: tuple[bool, ...]) -> Any:
    return transposed(plan._sig, plan.inputs, plan.saves, defined)


def _by_jax(plan: Plan, defined: tuple[bool, ...]) -> Any:
    return from_jax(plan._sig, plan.inputs, defined)


def _by_whole(plan: Plan, defined: tuple[bool, ...]) -> Any:
    """Of a Plan that saves only what is read: the function of the one that saves it all."""
    whole: Any = plan._whole
    specs, count, kept = whole._specs(), len(plan.avals), [whole.saves.index(i) for i in plan.saves]
    known = plan._traced if all(defined) else None
    filled: Any = filled_in(known or whole.backward(defined)(specs), sum(defined), kept, specs[count:])
    if known is not None:
        filled = Known(filled, known.of([*range(count), *[count + place for place in kept]]))
    return lambda specs: filled


def _asked_for(plan: Plan) -> tuple[list[Any], list[Any]]:
    """The formulas of the gradients that a Plan makes, and what each of them names."""
    bound: Any = plan._sig.bop
    formulas = bound.formulas()
    wanted = [formulas[i] for i in plan.inputs]
    return wanted, [() if f is SAME else f.__code__.co_varnames[: f.__code__.co_argcount] for f in wanted]


def _by_formula(plan: Plan, defined: tuple[bool, ...]) -> Any:
    sig: Any = plan._sig
    bound, (wanted, needs) = sig.bop, _asked_for(plan)
    grad_names = ("grad",) if len(sig.avals) == 1 else tuple(f"grad{i}" for i in range(len(sig.avals)))
    targets = [spec for spec in (sig.specs[i] for i in plan.inputs) if isinstance(spec, Aval)]
    together = any(type(f) is Together for f in wanted)

    def specialize(specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        def backward(*arrays: Any) -> Any:
            at = iter(arrays)
            env: dict[str, Any] = {**bound.statics, **sizes(sig)}
            for name, aval, there in zip(grad_names, sig.avals, defined, strict=True):
                env[name] = next(at) if there else None if together else jnp.zeros(aval.shape, aval.dtype)
            env.setdefault("grad", env[grad_names[0]])
            main = sig.avals[0]
            precision = np.dtype(np.float32) if is_half(main.dtype) else main.dtype
            for name, x, spec in zip(plan.saved_names, at, specs[sum(defined) :], strict=True):
                # A Python number takes part in the tensors' precision, not in its own.
                x = convert(x, precision) if isinstance(spec, type) and x.dtype.kind == "f" and main.dtype.kind != "c" else x
                env[name] = [*env.get(name, ()), x] if plan.is_list(name) else x
            try:
                grads = _evaluated(wanted, needs, env)
            except (TypeError, ValueError) as error:
                _refuse_shapes(str(error))
                raise
            return single_of([_unbroadcast(g, aval) for g, aval in zip(grads, targets, strict=True)])

        return backward

    return specialize


def _evaluated(wanted: list[Any], needs: list[Any], env: dict[str, Any]) -> list[Any]:
    shared: dict[Any, dict[str, Any]] = {}
    found = []
    for f, names in zip(wanted, needs, strict=True):
        if type(f) is not Together:
            found.append(env["grad"] if f is SAME else f(*(env[n] for n in names)))
            continue
        if f.formula not in shared:
            shared[f.formula] = f.formula(*(env[n] for n in names))
        found.append(shared[f.formula][f.name])
    return found


def _refuse_shapes(text: str) -> None:
    """PyTorch's refusal where JAX has told that arrays do not broadcast: hooks may return what was saved in another shape. RuntimeError."""
    _, found, shapes = text.partition("ncompatible shapes for broadcasting: ")
    if found:
        broadcast_shapes(*[tuple(map(int, re.findall(r"\d+", shape))) for shape in re.findall(r"\([\d, ]*\)", shapes)])
