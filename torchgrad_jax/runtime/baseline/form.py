"""Plans that are not made of a jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from torchgrad_jax.runtime.baseline import blocks
from torchgrad_jax.runtime.baseline.cost import CHEAP, FUSED, STEP


class Forms(NamedTuple):
    """What an operator is on NumPy arrays.

    function: of its operands in order; it never writes to them, and its result may be a view of them. result: gives, of the same arguments, what has
    the result's shape and dtype and takes no memory, None where they are not for the form; without it the function itself tells. fresh: the result is
    always memory of its own. overwriting: the function with the result written into the first operand, which it returns. picks: it reads no more of
    its first operand than it returns, however large that is. each: nanoseconds for each element of that, or of the results where these are more,
    which XLA takes as well. takes: gives the nanoseconds that products of matrices take, of the arrays, by functions that XLA's programs call as
    well, or what XLA takes where that is more: then `fused` is less than 0, and both together are what this takes.
    steps: gives, of such arrays, functions with what each is of: places of operands, -1, -2 ... for the first, second ... of what they give,
    constant arrays; and, if it is more than one, how many results each gives; or 1 and whether that is memory of its own, as those of others are, but
    for a `Spread` that says otherwise. The last ones are the operator's. None where there are none. A program is merged of them. planned: such a
    program asks for the plan of its jaxpr instead. fused: gives the nanoseconds that it takes besides, of which XLA's programs take a part only.
    often: for so many new programs it is taken, and after them the plan, which has loops of its own and has paid for its trace by then; 0: always.
    """

    function: Callable[..., Any]
    result: Callable[..., Any] | None = None
    fresh: bool = False
    overwriting: Callable[..., Any] | None = None
    picks: bool = False
    each: float = 0.0
    takes: Callable[..., float] | None = None
    steps: Callable[..., Any] | None = None
    planned: bool = False
    fused: Callable[..., float] | None = None
    often: int = 0

    def changed(self, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Forms:
        """Each of the functions by what `change` makes of it."""
        result, overwriting, steps = [None if f is None else change(f) for f in (self.result, self.overwriting, self.steps)]
        return self._replace(function=change(self.function), result=result, overwriting=overwriting, steps=steps)


_NEVER: Mapping[int, Any] = MappingProxyType({})


class NumPyForm:
    """A function of NumPy arrays that returns an array, or a tuple of them, as a plan. `fresh`, `overwriting`: see `places.Assignable`.

    left: of how many more programs it is part before its plan is. quick: once it was called twice, its `steps` where each is of operands alone.
    moved: how many bytes it copies. elements: how many its first operand has, or its results. products, fused, planned: see Forms. multiplies,
    alike, unfused: see Plan.
    """

    multiplies = False
    __slots__ = ("cost", "alike", "size", "compiling", "function", "single", "fresh", "overwriting", "planned", "left", "quick", "_steps", "_given")

    def __init__(self, forms: Forms, single: bool, moved: int, elements: int, products: float = 0.0, fused: float = 0.0) -> None:
        self.function, self.single, self.fresh, self.planned = forms.function, single, forms.fresh, forms.planned
        self.overwriting: Mapping[int, Any] = _NEVER if forms.overwriting is None else {0: forms.overwriting}
        self.size = self.compiling = 1
        self.left = forms.often
        self.quick: Any = None
        self._steps: Any = None
        self._given: tuple[Any, ...] | None = None
        self.alike = forms.each * elements + products
        self.cost = STEP + CHEAP * moved / 4 + self.alike + fused

    @property
    def unfused(self) -> float:
        """XLA takes no less for the steps of a form, which become chains, where it does not fuse them with others."""
        stepwise = blocks.by_numbers and (self._given is not None or self._steps is not None)
        return (1 - FUSED) * (self.cost - self.alike - STEP) if stepwise else 0.0

    def step_by(self, steps: Callable[..., Any], given: Sequence[Any]) -> None:
        """What gives its `steps`, which most never ask for, of arrays like its operands."""
        self._steps, self._given = steps, tuple(given)

    @property
    def steps(self) -> Any:
        """See Forms."""
        given = self._given
        if given is not None:
            self._steps, self._given = self._steps(*given), None
        return self._steps

    def __call__(self, *arrays: Any) -> list[Any]:
        outs = self.function(*arrays)
        results = [outs] if self.single else list(outs)
        if not self.quick and self._steps is not None:
            if self.quick is None:  # of what is new most is never called again
                self.quick = False
            elif self.quick is False:
                self.quick = _quick(self.steps or (), len(results))
        return results


def _quick(steps: Sequence[Any], results: int) -> Any:
    """The steps as functions and places of operands, if each is of operands alone: they take half of the time of the form, whose function asks how it
    is to be done. () for others."""
    counts = [rest[0] if rest else 1 for _, _, *rest in steps]
    alone = len(counts) == 1 or max(counts, default=1) == 1
    if not alone or sum(counts) != results or not all([isinstance(p, int) and p >= 0 for _, places, *_ in steps for p in places]):
        return ()
    return tuple([(function, tuple(places)) for function, places, *_ in steps])
