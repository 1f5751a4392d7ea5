"""Records of operators that have none of their own, made from their declarations: so an operator is checked as soon as it is declared."""

from __future__ import annotations

from compat_suite.records.record import REAL, Make, Record
from torchgrad_jax.declaration.operator import NOT_IMPLEMENTED, Operator
from torchgrad_jax.declaration.schema import REQUIRED
from torchgrad_jax.operators import registry


def record_of(operator: Operator) -> Record | None:
    """The record of an operator all of whose arguments are tensors or have defaults, called with square matrices of numbers between 0 and 1;
    None for others."""
    required = [p for p in operator.schema.parameters if p.default is REQUIRED]
    public = (operator.toplevel or operator.method) and not operator.name.startswith("_")
    if not public or not required or any(p.type not in ("Tensor", "Tensor|Scalar") for p in required):
        return None

    def samples(make: Make):
        yield tuple(make(3, 3, low=0.25, high=0.75) for _ in required)

    derivatives = 2 if operator.differentiable and operator.node != NOT_IMPLEMENTED else None
    return Record(operator.name, samples, dtypes=REAL, derivatives=derivatives)


def records(known: set[str]) -> list[Record]:
    """The records of all declared operators but those of the names in `known`."""
    made = [record_of(o) for o in registry.values() if o.name not in known]
    return [r for r in made if r is not None]
