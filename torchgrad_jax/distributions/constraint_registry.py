"""From a constraint to a transform of unconstrained numbers into it: `biject_to` to a bijection, `transform_to` to any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torchgrad_jax.distributions.constraints as C
import torchgrad_jax.distributions.transforms as T

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

_Factory = Callable[[Any], Any]


class ConstraintRegistry:
    """Makers of transforms, by types of constraints."""

    def __init__(self) -> None:
        self._registry: dict[type, _Factory] = {}

    def register(self, constraint: Any, factory: _Factory | None = None) -> Any:
        """Let `factory(constraint)` make the transforms for constraints of this type, given by itself or an object of it. Without `factory`: a
        decorator. TypeError where it is no constraint."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, C.Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, C.Constraint)):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """A transform of which the codomain is `constraint`. NotImplementedError where none is known."""
        kind = type(constraint)
        if kind not in self._registry:
            raise NotImplementedError(f"Cannot transform {kind.__name__} constraints")
        return self._registry[kind](constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _from(end: Any, scale: int) -> Any:
    return T.ComposeTransform([T.ExpTransform(), T.AffineTransform(end, scale)])


def _between(c: Any) -> Any:
    low, high = c.lower_bound, c.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return T.SigmoidTransform()
    return T.ComposeTransform([T.SigmoidTransform(), T.AffineTransform(low, high - low)])


_OF_NUMBERS: dict[type, _Factory] = {
    C._Real: lambda c: T.identity_transform,
    C._GreaterThan: lambda c: _from(c.lower_bound, 1),
    C._GreaterThanEq: lambda c: _from(c.lower_bound, 1),
    C._LessThan: lambda c: _from(c.upper_bound, -1),
    C._Interval: _between,
    C._HalfOpenInterval: _between,
    C._CorrCholesky: lambda c: T.CorrCholeskyTransform(),
}
for _registry in (biject_to, transform_to):
    _registry._registry.update(_OF_NUMBERS)
    _registry._registry.update({
        C._IndependentConstraint: lambda c, to=_registry: T.IndependentTransform(to(c.base_constraint), c.reinterpreted_batch_ndims),
        C._Cat: lambda c, to=_registry: T.CatTransform([to(part) for part in c.cseq], c.dim, c.lengths),
        C._Stack: lambda c, to=_registry: T.StackTransform([to(part) for part in c.cseq], c.dim),
    })  # fmt: skip
biject_to._registry[C._Simplex] = lambda c: T.StickBreakingTransform()
transform_to._registry.update({
    C._Simplex: lambda c: T.SoftmaxTransform(),
    C._LowerCholesky: lambda c: T.LowerCholeskyTransform(),
    C._PositiveDefinite: lambda c: T.PositiveDefiniteTransform(),
    C._PositiveSemidefinite: lambda c: T.PositiveDefiniteTransform(),
})  # fmt: skip
