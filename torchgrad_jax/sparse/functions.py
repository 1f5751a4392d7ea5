"""`torch.sparse`: the functions, and the old classes such as `torch.sparse.FloatTensor`."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.legacy import classes as old_classes
from torchgrad_jax.sparse import arithmetic, products
from torchgrad_jax.sparse.coordinates import coordinates, elements, in_layout, indices_of, integers
from torchgrad_jax.sparse.making import sparse_coo_tensor
from torchgrad_jax.sparse.tensors import COMPRESSED, COO, SparseTensor, is_sparse, of_coordinates, with_values


def mm(input: Tensor, mat2: Tensor, reduce: str | None = None) -> Tensor:
    """The product of two matrices, the first one sparse: dense, or sparse where both are. NotImplementedError for a `reduce` but "sum"."""
    if reduce not in (None, "sum"):
        raise NotImplementedError(f"torch.sparse.mm(reduce={reduce!r}): torchgrad_jax adds; scatter_reduce of gathered rows has the others")
    return products.mm(input, mat2) if is_sparse(input) or is_sparse(mat2) else input.mm(mat2)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), of which mat1 is sparse."""
    if not is_sparse(mat1):
        return input.addmm(mat1, mat2, beta=beta, alpha=alpha)
    return products.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
    """alpha * (mat1 @ mat2) + beta * input where `input`, a sparse matrix, has elements: no other products are computed."""
    s = _expected("sampled_addmm", input)
    rows, cols = indices_of(s.content).unbind(0)
    found = (mat1.index_select(0, rows) * mat2.t().index_select(0, cols)).sum(1) * alpha
    return with_values(s, found + s.content.parts[-1] * beta)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of all elements of a sparse tensor, or of those along dimensions."""
    return arithmetic.sum(_expected("sum", input), dim, dtype=dtype)


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """softmax along a dimension of the elements that are there: what is not counts as minus infinity."""
    return arithmetic.softmax_of(coordinates(_expected("softmax", input)), dim, dtype, False)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`."""
    return arithmetic.softmax_of(coordinates(_expected("log_softmax", input)), dim, dtype, True)


def _expected(name: str, t: Any) -> SparseTensor:
    if not isinstance(t, SparseTensor):
        raise RuntimeError(f"torch.sparse.{name} expects a sparse tensor, but got one of the layout torch.strided: to_sparse() first")
    return t


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> Tensor:
    """A sparse matrix that has the rows of `diagonals` as its diagonals, `offsets` above the main one. RuntimeError where these do not fit."""
    rows = diagonals if diagonals._aval.ndim == 2 else diagonals.unsqueeze(0)
    places = np.asarray(offsets._concrete("spdiags")).reshape(-1)
    if len(places) != rows._aval.shape[0]:
        raise RuntimeError(f"Number of diagonals ({rows._aval.shape[0]}) does not match the number of offsets ({len(places)})")
    if len(set(places.tolist())) != len(places):
        raise RuntimeError("Offset tensor contains duplicate values")
    if layout not in (None, COO, *COMPRESSED):
        raise RuntimeError(f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {layout}")
    m, n = (int(k) for k in shape)
    found = []
    for k, offset in enumerate(places.tolist()):
        columns = np.arange(max(offset, 0), min(n, m + offset, rows._aval.shape[1]))
        found.append(np.stack((columns - offset, columns, np.full(len(columns), k))))
    at = np.concatenate(found, 1) if found else np.zeros((3, 0), np.int64)
    values = elements(rows, integers(at[[2, 1]], rows), rows._aval.shape)
    made = of_coordinates(integers(at[:2], rows), values, (m, n))
    return made if layout is None else in_layout(made, layout)


def as_sparse_gradcheck(gradcheck: Any) -> Any:
    """NotImplementedError: check the gradient with respect to values, of a function that makes the sparse tensor itself."""
    raise NotImplementedError("torchgrad_jax checks gradients of dense tensors: let the function make the sparse tensor of its values")


class check_sparse_tensor_invariants:
    """Whether indices are checked when a tensor is made: here they always are. As a block and as a decorator it changes nothing."""

    _enabled = False

    def __init__(self, enable: bool = True) -> None:
        self._enable = enable
        self._before: list[bool] = []

    @classmethod
    def is_enabled(cls) -> bool:
        """What was last set."""
        return check_sparse_tensor_invariants._enabled

    @classmethod
    def enable(cls) -> None:
        """Note that checks are wanted."""
        check_sparse_tensor_invariants._enabled = True

    @classmethod
    def disable(cls) -> None:
        """Note that checks are not wanted."""
        check_sparse_tensor_invariants._enabled = False

    def __enter__(self) -> None:
        self._before.append(self.is_enabled())
        check_sparse_tensor_invariants._enabled = self._enable

    def __exit__(self, *exc: object) -> None:
        check_sparse_tensor_invariants._enabled = self._before.pop()

    def __call__(self, function: Any) -> Any:
        """The function, as it is."""
        return function


# ---------------------------------------------------------------------- old classes


class _SparseType(type):
    """The class of the typed classes: sparse tensors of their dtype are their instances."""

    dtype: dtypes.dtype
    is_cuda = False
    is_sparse = True
    layout = COO

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        """A sparse tensor of indices, values and a size, or of a size alone."""
        if len(args) > 1 and isinstance(args[0], Tensor) and isinstance(args[1], Tensor):
            return sparse_coo_tensor(*args, device=device)
        if len(args) == 1 and isinstance(args[0], Tensor):
            return args[0].detach()
        size = args[0] if len(args) == 1 and isinstance(args[0], (Size, tuple, list)) else args
        return sparse_coo_tensor(size or (0,), dtype=cls.dtype, device=device)

    def __repr__(cls) -> str:
        return f"<class 'torch.sparse.{cls.__name__}'>"

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, SparseTensor) and instance.dtype is cls.dtype and instance.layout is COO and not instance.is_cuda


CLASSES = {
    name: _SparseType(name, (), {"dtype": kind.dtype, "__module__": "torchgrad_jax.sparse", "__doc__": f"Sparse tensors of {kind.dtype.name}."})
    for name, kind in old_classes().items()
}
