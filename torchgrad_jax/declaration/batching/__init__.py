"""An operation for a whole batch at once: `jax.vmap` of what the operator declares, and so are its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from torchgrad_jax.declaration.batching.along import whole
from torchgrad_jax.declaration.batching.leading import Leading, first_bad, leading, reduced
from torchgrad_jax.declaration.derivative import Plan, plan
from torchgrad_jax.declaration.forward import jvp_of
from torchgrad_jax.declaration.operator import ARRAY, BoundOperator, Static, registry
from torchgrad_jax.declaration.vjp import single_of
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.operation import ArgSpec, Signature, of_vectors, signature, stand_in
from torchgrad_jax.runtime.value import Aval

Flags = tuple[bool, ...]


def batched(sig: Signature, mapped: Flags, summed: Flags = (), size: int = 0) -> Batched:
    """The operation `sig` for a batch.

    mapped: for each operand, whether its first dimension is that of the batch; the others are the same for all of it. summed: for each result,
    whether those of the batch are added up; none by default, and then the batch is the first dimension of every result. size: of the batch, for
    where no operand tells it.
    """
    known = sig.batched
    if known is None:
        known = sig.batched = {}
    given = 0 if any(mapped) else size
    found = known.get((mapped, summed, given))
    if found is None:
        found = known[mapped, summed, given] = Batched(sig, mapped, summed or (False,) * len(sig.avals), given)
    return found


class Batched:
    """A BoundOp: see `batched`. one: the operation on a part of the batch."""

    __slots__ = ("one", "mapped", "summed", "size", "name", "device", "signatures", "differentiable", "__weakref__")
    keeps_order, order = False, None

    def __init__(self, one: Signature, mapped: Flags, summed: Flags, size: int) -> None:
        self.one, self.mapped, self.summed, self.size = one, mapped, summed, size
        self.name, self.differentiable = one.bop.name, getattr(one.bop, "differentiable", False)
        self.device: device | None = one.bop.device
        self.signatures: dict[tuple[ArgSpec, ...], Signature] = {}

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""
        axes = tuple([0 if there else None for there in self.mapped])
        function = jax.vmap(self.one.bop.specialize(self.one.specs), axes, axis_size=None if any(self.mapped) else self.size)
        summed, checks = self.summed, self.one.check is not None
        if not (any(summed) or checks):
            return function

        def call(*arrays: Any) -> Any:
            found = function(*arrays)
            outs = list(found) if isinstance(found, (tuple, list)) else [found]
            if checks:
                outs[-1] = _first_bad(outs[-1])
            made = [jnp.sum(o, 0, dtype=o.dtype) if there else o for o, there in zip(outs, summed, strict=False)]
            return single_of([*made, *outs[len(made) :]])

        return call

    def check(self, specs: Sequence[ArgSpec]) -> Callable[..., Exception] | None:
        """See the runtime's BoundOp."""
        return self.one.check

    def kin(self, specs: tuple[ArgSpec, ...]) -> tuple[dict[Any, Any] | None, tuple[ArgSpec, ...]]:
        """Where signatures that differ in sizes alone are kept, and what their sizes are those of."""
        find = getattr(self.one.bop, "kin", None)
        if find is None:
            return None, specs
        kindred, given = find(self.one.specs)
        if kindred is None:
            return None, specs
        return kindred.setdefault((Batched, self.mapped, self.summed, self.size), {}), (*specs, *given)

    def as_another(self, specs: Sequence[ArgSpec]) -> Signature | None:
        """The Signature of an operator that does with the whole batch what this does, so that `jax.vmap` need not be traced; None where none is
        known: it is of views that give all of the elements, and of what is along one dimension (`along.py`)."""
        one: Signature | None = self.one
        while one is not None and isinstance(one.bop, Batched):
            one = one.bop.as_another(one.specs)
        if one is None or any(self.summed) or one.check is not None:
            return None
        if self.mapped == (True,) and (view := _view_of_all(one.bop, one, specs[0])) is not None:
            return signature(view, tuple(specs))
        all_mapped = all([there or not isinstance(s, Aval) for s, there in zip(one.specs, self.mapped, strict=True)])
        return whole(one, self.size_of(specs)) if all_mapped and any(self.mapped) else None

    def of_vectors(self) -> Any:
        """The operation that does with vectors what this does element by element, however often it is a batch; None where there is none."""
        arrays = [(s, there) for s, there in zip(self.one.specs, self.mapped, strict=True) if isinstance(s, Aval)]
        # Dimensions are counted from the last one, so that the batch's is in front where no dimension is missing.
        in_front = any(self.mapped) and all([s.ndim == self.one.avals[0].ndim or not there for s, there in arrays])
        if any(self.summed) or self.one.check is not None or not in_front or len({s.dtype for s, _ in arrays}) != 1:
            return None
        return of_vectors(self.one.bop)

    def numpy_form(self, specs: Sequence[ArgSpec]) -> Forms | None:
        """Its form where `leading` knows one. A program that is run often asks for the plan of what `jax.vmap` makes of it."""
        run = self.leading(specs, 1) if self.of_vectors() is None else None
        if run is None:
            return None
        size = self.size_of(specs)
        shapes = [(a.shape if adds else (size, *a.shape), a.dtype) for a, adds in zip(self.one.avals, self.summed, strict=True)]
        checks = self.one.check is not None
        alone = self.one.single and not checks

        def function(*arrays: Any) -> Any:
            found = run(arrays, 0)
            return found[0] if alone else tuple(found)

        def result(*arrays: Any) -> Any:
            made = [stand_in(*given) for given in shapes] + [stand_in((2,), np.dtype(np.int64))] * checks
            return made[0] if alone else tuple(made)

        return Forms(function, result, planned=True)

    def size_of(self, specs: Sequence[ArgSpec]) -> int:
        sizes = [s.shape[0] for s, there in zip(specs, self.mapped, strict=True) if there and isinstance(s, Aval)]
        return sizes[0] if sizes else self.size

    def leading(self, specs: Sequence[ArgSpec], parts: int) -> Leading | None:
        """See `leading`: this batch's dimension is behind those that are in front."""
        size = self.size_of(specs)
        exact = all([a.dtype.char in "fd" for a, adds in zip(self.one.avals, self.summed, strict=True) if adds])
        inner = leading(self.one, parts * size) if exact else None
        if inner is None:
            return None
        the_same = [isinstance(s, Aval) and not there for s, there in zip(self.one.specs, self.mapped, strict=True)]
        summed = self.summed

        def function(arrays: Sequence[Any], lead: int) -> list[Any]:
            inside = [x.reshape(*x.shape[:lead], 1, *x.shape[lead:]) if same else x for x, same in zip(arrays, the_same, strict=True)]
            made = inner(inside, lead + 1)
            found = [reduced(out, lead, size, adds) for out, adds in zip(made, summed, strict=False)]
            return found + [first_bad(pairs, lead) for pairs in made[len(summed) :]]

        return function

    def plan(self, sig: Signature, inputs: tuple[int, ...]) -> Plan | None:
        """How it is differentiated: as the operation is, for each part of the batch."""
        one = plan(self.one, inputs)
        return None if one is None else BatchedPlan(sig, self, one)


def _view_of_all(bound: Any, one: Signature, of: Any) -> BoundOperator | None:
    """The operator that does with the batch what `bound`, which gives all elements of its operand in another shape or order, does with a part."""
    if getattr(bound, "reshapes", False):
        return registry["view"].bind((ARRAY, Static((of.shape[0], *one.avals[0].shape))))
    find = getattr(bound, "permutation", None)
    order = None if find is None else find(one.specs)
    return None if order is None else registry["permute"].bind((ARRAY, Static((0, *[1 + dim for dim in order]))))


def _first_bad(pairs: jax.Array) -> jax.Array:
    """Of the outcomes of a check for each part of the batch that of the first which is bad."""
    return pairs[jnp.argmax(pairs[:, 0] != 0)] if len(pairs) else jnp.zeros(2, pairs.dtype)


class BatchedPlan(Plan):
    """The Plan of a Batched operation. one: that of the operation on a part of the batch."""

    __slots__ = ("one", "bound", "_jvp")

    def __init__(self, sig: Signature, bound: Batched, one: Plan) -> None:
        for name in Plan.FIELDS:
            if name not in ("vjp", "jvp", "_vectors") and hasattr(one, name):
                setattr(self, name, getattr(one, name))
        self.one, self.bound, self._sig, self._jvp = one, bound, sig, None
        self.avals, self.output_avals = sig.avals, sig.avals[: len(one.output_avals)]
        self._vjps, self.known_apart, self._others, self._unpacking, self._vectors = {}, None, None, None, None
        self.lists, self.once = False, None
        self.passes = one.undefined or (one.passes and not any(bound.summed) and all([bound.mapped[i] for i in one.inputs]))
        self.vjp = None

    def vjp_of(self, defined: Flags) -> Any:
        """See Plan: the gradients of what is the same for all of the batch are added up."""
        found = self._vjps.get(defined)
        if found is None:
            one, bound = self.one, self.bound
            pull = one.vjp_of(defined)
            grads = [(aval, not total) for aval, total, there in zip(one.avals, bound.summed, defined, strict=True) if there]
            specs = tuple([aval for aval, _ in grads] + self._specs_saved())
            mapped = tuple([there for _, there in grads] + self._mapped_saved())
            found = self._vjps[defined] = batched(
                signature(pull, specs), mapped, tuple([not bound.mapped[i] for i in one.inputs]), self.bound.size_of(self._sig.specs)
            )
        return found

    def _specs_saved(self) -> list[ArgSpec]:
        return [self.bound.one.specs[i] if i >= 0 else self.one.avals[-1 - i] for i in self.one.saves]

    def _mapped_saved(self) -> list[bool]:
        return [self.bound.mapped[i] if i >= 0 else not self.bound.summed[-1 - i] for i in self.one.saves]

    @property
    def jvp(self) -> Any:  # type: ignore[override] - found at once here, and when it is asked for elsewhere
        """See Plan."""
        if self._jvp is None:
            one, bound = self.one, self.bound
            push = jvp_of(bound.one, one)
            specs = tuple(self._specs_saved() + [bound.one.specs[i] for i in one.inputs])
            mapped = tuple(self._mapped_saved() + [bound.mapped[i] for i in one.inputs])
            summed = tuple([total for total, there in zip(bound.summed, one.outputs, strict=True) if there])
            self._jvp = batched(signature(push, specs), mapped, summed, bound.size_of(self._sig.specs))
        return self._jvp

    def apart(self) -> list[tuple[Any, tuple[int, ...]]]:
        """See Plan."""
        if self.known_apart is None:
            plans = [self] if len(self.inputs) == 1 else [BatchedPlan(self._sig, self.bound, p) for p, _ in self.one.apart()]
            self.known_apart = [(p, tuple(self.saves.index(i) for i in p.saves)) for p in plans]
        return self.known_apart

    def others(self) -> Plan | None:
        """See Plan."""
        return None

    def _reads(self, place: int) -> bool:
        return self.one._reads(place)

    def _may_leave_out(self, place: int) -> bool:
        return self.one._may_leave_out(place)

    @property
    def attributes(self) -> dict[str, bool]:
        """See Plan: what it saved."""
        return {n: i < 0 or isinstance(self._sig.specs[i], Aval) for i, n in zip(self.saves, self.saved_names, strict=True)}
