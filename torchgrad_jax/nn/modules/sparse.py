"""Tables of rows to look up: Embedding and EmbeddingBag."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.nn.functional as F
import torchgrad_jax.nn.init as init
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.parameter import empty

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """What the two share. weight: (num_embeddings, embedding_dim), drawn from a normal distribution where it is not given; the row padding_idx is
    zero to begin with and gets no gradient. AssertionError where padding_idx or the given weight do not fit."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, outside: str, max_norm: float | None, norm_type: float,
        scale_grad_by_freq: bool, sparse: bool, weight: Tensor | None, freeze: bool, device: Any, dtype: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError(outside)
            padding_idx %= num_embeddings
        self.padding_idx, self.max_norm, self.norm_type = padding_idx, max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if weight is None:
            self.weight = Parameter(empty((num_embeddings, embedding_dim), device=device, dtype=dtype), requires_grad=not freeze)
            self.reset_parameters()
            return
        if list(weight.shape) != [num_embeddings, embedding_dim]:
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Draw rows anew."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with no_grad():
                init.zeros_(self.weight[self.padding_idx])

    def _table_shown(self, names: tuple[str, ...]) -> str:
        """The sizes, and of these attributes those that are not the usual ones."""
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False, "sparse": False}
        others = [f"{name}={getattr(self, name)!r}" for name in names if name not in usual or getattr(self, name) != usual[name]]
        return ", ".join([f"{self.num_embeddings}, {self.embedding_dim}", *others])


def _sizes(embeddings: Tensor) -> tuple[int, int]:
    if embeddings.dim() != 2:
        raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
    return embeddings.shape[0], embeddings.shape[1]


class Embedding(_Table):
    """A table of rows to look up. weight: (num_embeddings, embedding_dim); the row padding_idx is zero and gets no gradient.

    max_norm: rows of a larger norm (the norm_type-norm) are scaled to it when they are looked up. scale_grad_by_freq divides gradients by how often
    a row is looked up. AssertionError where padding_idx is no row.
    """

    __constants__ = ["num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"]

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, "Padding_idx must be within num_embeddings", max_norm, norm_type, scale_grad_by_freq, sparse,
            _weight, _freeze, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        """Indices of any shape to (..., embedding_dim)."""
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)

    def extra_repr(self) -> str:
        """See Module."""
        return self._table_shown(("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"))

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> Any:  # fmt: skip
        """An Embedding of given rows (num_embeddings, embedding_dim), which get no gradient where `freeze`. AssertionError for other shapes."""
        rows, cols = _sizes(embeddings)
        return cls(
            num_embeddings=rows, embedding_dim=cols, _weight=embeddings, _freeze=freeze, padding_idx=padding_idx, max_norm=max_norm,
            norm_type=norm_type, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse,
        )  # fmt: skip


class EmbeddingBag(_Table):
    """The sum, mean or largest elements (`mode`) of the rows of bags of indices: see `F.embedding_bag`; else like Embedding."""

    __constants__ = [
        "num_embeddings", "embedding_dim", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse", "include_last_offset", "padding_idx",
    ]  # fmt: skip

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None, include_last_offset: bool = False,
        padding_idx: int | None = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, "padding_idx must be within num_embeddings", max_norm, norm_type, scale_grad_by_freq, sparse,
            _weight, False, device, dtype,
        )  # fmt: skip
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Indices (bags, indices of each), or a vector of them with the offsets where bags begin, to (bags, embedding_dim)."""
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse, per_sample_weights,
            self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """See Module."""
        return self._table_shown(("max_norm", "norm_type", "scale_grad_by_freq", "mode", "padding_idx"))

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        mode: str = "mean", sparse: bool = False, include_last_offset: bool = False, padding_idx: int | None = None,
    ) -> Any:  # fmt: skip
        """An EmbeddingBag of given rows (num_embeddings, embedding_dim), which get no gradient where `freeze`. AssertionError for other shapes."""
        rows, cols = _sizes(embeddings)
        made = cls(
            num_embeddings=rows, embedding_dim=cols, _weight=embeddings, max_norm=max_norm, norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq, mode=mode, sparse=sparse, include_last_offset=include_last_offset, padding_idx=padding_idx,
        )  # fmt: skip
        made.weight.requires_grad = not freeze
        return made
