"""The level of vmap: its tensors stand for all of a batch, and lack the dimension that counts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor, wrap
from torchgrad_jax.core.viewing import viewed
from torchgrad_jax.core.writing import apply_inplace
from torchgrad_jax.declaration.batching import batched
from torchgrad_jax.lifting.level import ESCAPED, Held, Level, held
from torchgrad_jax.memory.storage import MAPPED
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.value import Aval, Value, aval_of, constant

LOOKED = (
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, please try to rewrite what "
    "you're doing with other operations. If error is occurring somewhere inside PyTorch internals, please file a bug report."
)


class Mapped(Held):
    """A tensor of the level outside whose first dimension is the batch."""

    __slots__ = ()

    def concrete(self) -> Any:
        """See Lifted."""
        raise RuntimeError(LOOKED if self.level.open else ESCAPED)


class BatchLevel(Level):
    """See the module. size: of the batch. randomness: "error", "different" or "same": what random operations do."""

    __slots__ = ("size", "randomness")

    def __init__(self, size: int, randomness: str = "error") -> None:
        super().__init__()
        self.size, self.randomness = size, randomness

    def wrap(self, t: Tensor, dim: int | None) -> Tensor:
        """What the function is given for `t`: a tensor that lacks `dim`, or the tensor itself. IndexError where there is no such dimension."""
        if dim is None:
            return t
        with self.outside:
            first = _first(t, dim)
        return self.argument(self.mapped(first), first)

    def mapped(self, t: Tensor) -> Tensor:
        """The tensor of this level whose batch is the first dimension of `t`."""
        return wrap(self._value(t))

    def _value(self, t: Tensor) -> Value:
        aval = t._aval
        return constant(Mapped(self, t), aval_of(aval.shape[1:], aval.dtype, aval.device))

    def is_mapped(self, t: Tensor) -> bool:
        """Whether a tensor stands for a batch of this level."""
        array = held(t)
        return isinstance(array, Mapped) and array.level is self

    def unwrap(self, t: Tensor, dim: int | None = 0) -> Tensor:
        """The tensor of the level outside that has the batch as its dimension `dim`: what is no batch is repeated. dim None: it must be none.

        ValueError where `dim` is None for a batch.
        """
        if not self.is_mapped(t):
            inner = super().unwrap(t)
            if dim is None:
                return inner
            with self.outside:
                return _moved(viewed("expand", inner, (self.size, *inner._aval.shape)), 0, dim)
        if dim is None:
            raise ValueError("vmap: out_dims is None for a result that is mapped over")
        inner = self.content(t)
        with self.outside:
            return _moved(inner, 0, dim)

    # ------------------------------------------------------------------ operations

    def apart(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Level: it is an operation of the level outside."""
        with self.outside:
            return apply(bound, operands)

    def write_outside(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """See Level: what is no batch may be written to with what is none."""
        if any([isinstance(o, Tensor) and self.owns(o) for o in operands]):
            raise RuntimeError(MAPPED)
        with self.outside:
            return apply_inplace(bound, operands)

    def created(self, t: Tensor) -> None:
        """See Interpreter: it is made for all of the batch, outside."""
        if self.outside.level is not None:
            self.outside.level.created(t)

    def call(self, bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
        """See Level."""
        mapped = tuple([type(v) is Value and type(v.array) is Mapped and v.array.level is self for v in values])
        if True not in mapped:
            return super().call(bound, values)
        sig = signature(bound, tuple([v.aval if type(v) is Value else type(v) for v in values]))
        given = [self._below(v) for v in values]
        with self.outside:
            found = apply(batched(sig, mapped), given)
        return self._lifted_batch(found, sig.avals), sig

    def _lifted_batch(self, found: Any, avals: Sequence[Aval]) -> Any:
        if type(found) is tuple:
            return tuple([constant(Mapped(self, t), aval) for t, aval in zip(found, avals, strict=True)])
        return constant(Mapped(self, found), avals[0])


def _first(t: Tensor, dim: int) -> Tensor:
    """`t` with dimension `dim` as its first."""
    return _moved(t, dim % t._aval.ndim if t._aval.ndim else 0, 0)


def _moved(t: Tensor, source: int, target: int) -> Tensor:
    """`t` with its dimension `source` at `target`, which may be negative."""
    ndim = t._aval.ndim
    if not -ndim <= target < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {target})")
    target %= ndim
    if source == target:
        return t
    order = [i for i in range(ndim) if i != source]
    order.insert(target, source)
    return viewed("permute", t, tuple(order))


def batch_level(size: int, randomness: str = "error") -> BatchLevel:
    """Opens a level of vmap for a block."""
    return BatchLevel(size, randomness)
