"""Gradients of which one is sparse, added up in `.grad`."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.made import fresh
from torchgrad_jax.core.node import Calculus
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import overwrite
from torchgrad_jax.memory.sparse_content import SparseContent, is_sparse
from torchgrad_jax.runtime.recorder import Recorder
from torchgrad_jax.runtime.value import Value


def gradient(rec: Recorder, value: Value) -> Tensor:
    """A gradient as a tensor, without history: see `fresh`. That of a table which is looked up by `embedding(sparse=True)` is sparse."""
    return SparseContent.tensor(value) if type(value.array) is SparseContent else fresh(rec, value)


def with_sparse(calculus: Calculus, old: Tensor | None, grad: Any) -> Tensor:
    """The sum of what `.grad` is and a gradient, where one of them is sparse: dense if the other one is not, and written into `.grad` if that is."""
    if old is None:
        return grad if calculus.records else gradient(calculus.recorder, grad)
    if calculus.records:
        return old + grad
    found = calculus.add(old._read(), grad)
    if is_sparse(found) or is_sparse(old._value):
        return gradient(calculus.recorder, found)
    overwrite(old, found)
    return old
