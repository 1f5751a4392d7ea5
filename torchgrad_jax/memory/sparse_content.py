"""What the Value of a sparse tensor holds in place of an array: the tensors that it is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.runtime.value import Lifted, Value


class SparseContent(Lifted):
    """A sparse tensor's layout and parts: of `sparse_coo` indices and values, of the compressed ones where rows (columns) begin, which columns (rows)
    they have, and values. coalesced: whether indices are known to be in order and each there once. known: what has been found out about the
    indices, see `sparse/coordinates.py`. owner: the sparse leaf whose `.grad` it was read from, if any. written: how often the tensor was written to
    by other means than writing to these values.

    Operations of the library's own on such a Value go to its level, which adds them and refuses all else: so nothing takes the values alone, or
    an array that is not there, for the content. What users call is answered by `SparseTensor` (`sparse/`).
    """

    __slots__ = ("layout", "parts", "coalesced", "known", "owner", "written")
    level: Any = None  # `sparse/level.py` has it
    # What `sparse/tensors.py` makes of such a Value.
    tensor: Callable[[Value], Any]

    def __init__(self, layout: Any, parts: tuple[Any, ...], coalesced: bool, known: Any = None) -> None:
        self.layout, self.parts, self.coalesced, self.known, self.written = layout, parts, coalesced, known, 0
        self.owner: Any = None

    def concrete(self, asked: str = "") -> Any:
        """See Lifted. TypeError, always."""
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    @property
    def readable(self) -> bool:
        """See Lifted."""
        return False

    def everything(self) -> np.ndarray | None:
        """See Lifted."""
        return None

    def innermost(self) -> Value:
        """See Lifted. RuntimeError, always."""
        raise RuntimeError("sparse tensors cannot be given to what transforms functions: to_dense() first")

    def followed(self) -> bool:
        """See Lifted."""
        return False

    def shown(self) -> str:
        """See Lifted."""
        return f"<{self.layout}>"


def is_sparse(value: Value) -> bool:
    """Whether it is the Value of a sparse tensor."""
    return type(value.array) is SparseContent
