"""How sparse tensors are made: of their parts, or of ordinary tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.strides import layout as layout_type
from torchgrad_jax.declaration.strides import strided
from torchgrad_jax.functions.creation import as_device, from_data
from torchgrad_jax.sparse.coordinates import coordinates, dense_of, dense_to_sparse, host, in_layout, integers
from torchgrad_jax.sparse.tensors import COMPRESSED, COO, CSC, CSR, SparseTensor, answer, is_sparse, made_of, of_coordinates, own_values


def _data(data: Any, dtype: Any, device: Any) -> Tensor:
    """What is given as a part, a tensor or its data, as a tensor."""
    if isinstance(data, Tensor):
        found = data
        if device is not None:
            found = found.to(device)
        return found if dtype is None or dtype is found.dtype else found.to(dtype)
    return created(from_data(data, dtype, as_device(device)))


def _indices(data: Any, device: Any) -> Tensor:
    found = _data(data, None, device)
    found = found.detach()
    return found if found._aval.dtype == np.int64 else found.to(dtypes.int64)


def _numbers(size: Any) -> tuple[int, ...]:
    return tuple([int(n) for n in size])


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    check_invariants: bool | None = None, is_coalesced: bool | None = None, pin_memory: bool = False, layout: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor of the layout `torch.sparse_coo`, which has `values` at `indices` (one row for each dimension) and 0 elsewhere; what is at one place
    twice counts as added. With a size alone it has no elements. It is differentiable in the values.

    Indices are always checked. RuntimeError where they are negative or do not fit the size, or where sizes contradict each other.
    """
    if values is None:
        return _empty(indices if size is None else size, dtype, device, requires_grad)
    given = _data(values, dtype, device)
    found = _indices(indices, given.device)
    if found._aval.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(found._aval.shape)}")
    if given._aval.ndim == 0:
        given = given.expand(1)
    dims, count = found._aval.shape
    if count != given._aval.shape[0]:
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {count}, nnz from values: {given._aval.shape[0]}"
        )  # fmt: skip
    dense = given._aval.shape[1:]
    if size is not None and len(size) != dims + len(dense):
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {dims}, dense_dim = {len(dense)}"
        )
    shape = _checked(found, None if size is None else _numbers(size), dense)
    made = of_coordinates(found, own_values(given), shape, bool(is_coalesced))
    return _requiring(made, requires_grad)


def _requiring(made: SparseTensor, requires_grad: bool) -> Tensor:
    if not requires_grad or made._rg:
        return made
    content = made.content
    leaf = made_of(made._aval.shape, (*content.parts[:-1], content.parts[-1].detach()), content.layout, content.coalesced, content.known)
    return leaf.requires_grad_()


def _checked(indices: Tensor, size: tuple[int, ...] | None, dense: tuple[int, ...]) -> tuple[int, ...]:
    """The size, found where it is not given."""
    dims, count = indices._aval.shape
    if size is not None and (not count or not indices._content().readable):
        return size
    if not indices._content().readable:
        raise RuntimeError("the size of a sparse tensor cannot be found inside of a function that is being transformed: give it")
    numbers = host(indices)
    low, high = (numbers.min(1), numbers.max(1)) if count else (np.zeros(dims, np.int64), np.full(dims, -1))
    for d in range(dims):
        if low[d] < 0:
            raise RuntimeError(f"found negative index {low[d]} for dim {d}")
        if size is not None and high[d] >= size[d]:
            raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is {size[d]} but found index {high[d]}")
    if size is None:
        return (*[int(n) + 1 for n in high], *dense)
    for d, n in enumerate(dense, dims):
        if size[d] != n:
            expected = list(size[:dims])
            raise RuntimeError(f"values has incorrect size, expected {[count, *size[dims:]]}, got {[count, *dense]} (size {expected})")
    return size


def _empty(size: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    shape = _numbers(size)
    values = created(from_data(np.zeros(0, (dtype or dtypes.get_default_dtype()).np), dtype or dtypes.get_default_dtype(), as_device(device)))
    made = of_coordinates(integers(np.zeros((len(shape), 0), np.int64), values), values, shape, True)
    return _requiring(made, requires_grad)


def _compressed(
    bounds: Any, others: Any, values: Any, size: Any, layout: Any, dtype: Any, device: Any, requires_grad: bool
) -> Tensor:  # fmt: skip
    given = _data(values, dtype, device)
    first, second = _indices(bounds, given.device), _indices(others, given.device)
    if given._aval.ndim != 1 or first._aval.ndim != 1 or second._aval.ndim != 1:
        raise NotImplementedError(
            "torchgrad_jax has compressed sparse matrices, no batches of them and none whose elements are tensors: use torch.sparse_coo_tensor"
        )
    ends, found = host(first), host(second)
    name, other = ("crow", "col") if layout is CSR else ("ccol", "row")
    if not len(ends) or ends[0] != 0 or ends[-1] != len(found) or (np.diff(ends) < 0).any():
        raise RuntimeError(f"`{name}_indices` must begin with 0, never decrease and end with nnz = {len(found)}, but got {ends.tolist()}")
    if len(found) != given._aval.shape[0]:
        raise RuntimeError(f"number of elements in `{other}_indices` and `values` must be the same, but got {len(found)} and {given._aval.shape[0]}")
    if size is None:
        size = (len(ends) - 1, int(found.max()) + 1 if len(found) else 0)
        size = size if layout is CSR else size[::-1]
    shape = _numbers(size)
    outer, inner = shape if layout is CSR else shape[::-1]
    if outer != len(ends) - 1:
        raise RuntimeError(f"`{name}_indices` must have {outer + 1} elements for the size {list(shape)}, but has {len(ends)}")
    if len(found) and (found.min() < 0 or found.max() >= inner):
        raise RuntimeError(f"`{other}_indices` must be in [0, {inner}) for the size {list(shape)}")
    return _requiring(made_of(shape, (first, second, own_values(given)), layout), requires_grad)


def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    check_invariants: bool | None = None, pin_memory: bool = False, layout: Any = None,
) -> Tensor:  # fmt: skip
    """A matrix of the layout `torch.sparse_csr`: where each row begins among the elements, the column of each, and its value. It is differentiable in
    the values. RuntimeError where these do not fit each other."""
    return _compressed(crow_indices, col_indices, values, size, CSR, dtype, device, requires_grad)


def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    check_invariants: bool | None = None, pin_memory: bool = False, layout: Any = None,
) -> Tensor:  # fmt: skip
    """A matrix of the layout `torch.sparse_csc`: see `sparse_csr_tensor`, with columns in place of rows."""
    return _compressed(ccol_indices, row_indices, values, size, CSC, dtype, device, requires_grad)


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, check_invariants: bool | None = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """`sparse_csr_tensor` or `sparse_csc_tensor`, as `layout` says. NotImplementedError for another layout."""
    if layout not in COMPRESSED:
        raise NotImplementedError(f"torchgrad_jax has no tensors of the layout {layout}: use torch.sparse_csr")
    return _compressed(compressed_indices, plain_indices, values, size, layout, dtype, device, requires_grad)


FACTORIES = {f.__name__: f for f in (sparse_coo_tensor, sparse_csr_tensor, sparse_csc_tensor, sparse_compressed_tensor)}
for _factory in FACTORIES.values():
    public("torch")(_factory)
    answer(_factory.__name__)(_factory)


# ---------------------------------------------------------------------- from and to other layouts


@public("torch.Tensor")
@answer("to_sparse")
def to_sparse(self: Any, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    """The tensor as a sparse one, of `torch.sparse_coo` unless a layout is given. sparse_dim: how many of its dimensions are told by indices, all if
    None. Looks at the values."""
    if blocksize is not None or dense_dim is not None:
        raise NotImplementedError("torchgrad_jax has no layouts of blocks, nor compressed ones of tensors with more than two dimensions")
    if isinstance(sparse_dim, layout_type):
        sparse_dim, layout = None, sparse_dim
    if layout is strided:
        return dense(self)
    if layout is not None and layout is not COO and layout not in COMPRESSED:
        raise NotImplementedError(f"torchgrad_jax has no tensors of the layout {layout}: use torch.sparse_coo or torch.sparse_csr")
    if sparse_dim is not None and not 0 <= sparse_dim <= self._aval.ndim:
        raise RuntimeError(f"sparse_dim argument must be in >=0 and <= {self._aval.ndim}, got {sparse_dim}")
    if is_sparse(self):
        return in_layout(self, layout or COO)
    made = dense_to_sparse(self, sparse_dim)
    return made if layout is None else in_layout(made, layout)


def _converter(name: str, layout: Any) -> None:
    def convert(self: Tensor, dense_dim: int | None = None) -> Tensor:
        return to_sparse(self, layout=layout, dense_dim=dense_dim)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"The tensor in the layout {layout}: see `to_sparse`."
    answer(name)(public("torch.Tensor")(convert))


for _name, _layout in (("to_sparse_coo", COO), ("to_sparse_csr", CSR), ("to_sparse_csc", CSC)):
    _converter(_name, _layout)


def dense(t: Tensor) -> Tensor:
    """The tensor as an ordinary one."""
    return dense_of(coordinates(t)) if isinstance(t, SparseTensor) else t


@answer("to_dense")
def to_dense(self: SparseTensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The tensor with all its elements."""
    found = dense(self)
    return found if dtype is None or dtype is found.dtype else found.to(dtype)
