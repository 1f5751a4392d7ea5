"""What the library itself does with sparse Values, as gradients: they are added up."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.memory.sparse_content import SparseContent
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Value
from torchgrad_jax.sparse.arithmetic import add
from torchgrad_jax.sparse.tensors import is_sparse, of_value


class Sums:
    """The level of sparse Values, below all others: of operations on them it carries out `add` alone."""

    depth = -1

    def call(self, bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
        """The Value of the result, and the Signature. RuntimeError for an operation that is none of gradients."""
        operator = getattr(bound, "operator", None)
        if operator is not registry["add"] or len(values) != 2:
            name = getattr(operator, "name", "an operation")
            raise RuntimeError(f"torchgrad_jax cannot apply {name} to a sparse tensor here: use to_dense(), or values() and indices()") from None
        a, b = map(_tensor, values)
        found = add(a, b) if is_sparse(b) else add(b, a)
        return found._read(), signature(bound, (values[0].aval, values[1].aval))


def _tensor(value: Value) -> Tensor:
    return of_value(value) if type(value.array) is SparseContent else wrap(per_thread.recorder.alias(value))


SparseContent.level = Sums()
