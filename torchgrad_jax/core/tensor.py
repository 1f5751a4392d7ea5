"""Tensor: a Value with an identity, a place in the graph, and perhaps memory shared with others."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from torchgrad_jax.core.fields import Extra, TensorFields, content_of, edge_of, needs_grad, offset_of, present_node, read, storage_of, strides_of
from torchgrad_jax.core.level import begins, in_transform, lies, meet, stands_for_batch
from torchgrad_jax.core.messages import NO_STORAGE
from torchgrad_jax.core.node import Node, end_of_graph
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.strides import is_contiguous, strided
from torchgrad_jax.memory.formats import lies_in
from torchgrad_jax.memory.storage import Storage, View
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.pickles import in_pickles
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Lifted, Value

if TYPE_CHECKING:
    from torchgrad_jax.core.declared import Declared as _Base
else:
    _Base = object

_tuple = tuple.__new__  # of what is known to be sizes: `shape` is asked for often


def _integer(place: int, size: Any) -> Any:
    try:
        return size if isinstance(size, (int, np.integer)) and size is not True and size is not False else operator.index(size)
    except TypeError:
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item {place} is '{type(size).__name__}')") from None


class Size(tuple[int, ...]):
    """The shape of a tensor.

    TypeError for what is no integer: a 0-dim tensor of one is, and is read.
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Size:
        """See the class."""
        found = tuple(sizes)
        for i, size in enumerate(found):
            if type(size) is not int:
                return tuple.__new__(cls, found[:i] + tuple([_integer(i + j, item) for j, item in enumerate(found[i:])]))
        return tuple.__new__(cls, found)

    def numel(self) -> int:
        """The number of elements."""
        found = 1
        for n in self:
            found *= n
        return found

    def __getitem__(self, key: Any) -> Any:
        found = tuple.__getitem__(self, key)
        return _tuple(Size, found) if isinstance(key, slice) else found

    def __add__(self, other: tuple[int, ...]) -> Size:
        if not isinstance(other, tuple):
            raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size")
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: tuple[int, ...]) -> Size:
        if isinstance(other, tuple):
            return Size(other) + self
        kind = type(other).__name__
        sequence = f'can only concatenate {kind} (not "torch.Size") to {kind}'
        raise TypeError(sequence if isinstance(other, list) else f"unsupported operand type(s) for +: '{kind}' and 'torch.Size'")

    def __mul__(self, times: SupportsIndex) -> Size:
        if not hasattr(times, "__index__"):
            raise TypeError(f"can't multiply sequence by non-int of type '{type(times).__name__}'")
        return _tuple(Size, tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"torch.Size({[int(n) for n in self]})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _size, (tuple(self),)


@in_pickles("_rebuild_size")
def _size(content: tuple[int, ...]) -> Size:
    """What pickle calls: the class goes by PyTorch's name where the package does."""
    return Size(content)


def _is_none_of_these(self: Any) -> bool:
    """False: there are no such tensors here."""
    return False


class Tensor(TensorFields, _Base):
    """A multi-dimensional array that autograd can follow.

    `_value` is its content while the tensor has its memory for itself (`_storage` is None); else `_read()` gives it.
    `_rg`: requires_grad. `_node`, `_nr`: the node that made it and which of the node's outputs it is.
    """

    __slots__ = ("__weakref__", "__dict__")
    _value: Value
    _storage: Storage | None
    _view: View | None
    _rg: bool
    _node: Node | None
    _nr: int
    _extra: Extra | None

    # ------------------------------------------------------------------ content

    _read = read
    _content = content_of
    _shared = storage_of
    _strides = strides_of
    _offset = offset_of

    def _concrete(self, asked: str = "") -> Any:
        """The content as a `jax.Array` (or host array), computed now. Raises what value-dependent checks have found. asked: by what function, if
        that is said where there is none, inside of a transform."""
        value = self._content()
        return value.array.concrete(asked) if asked and isinstance(value.array, Lifted) else value.concrete()

    # ------------------------------------------------------------------ metadata

    @property
    def shape(self) -> Size:
        """The size of each dimension."""
        return _tuple(Size, self._aval.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension. IndexError where there is no such dimension."""
        shape = self._aval.shape
        if dim is None:
            return _tuple(Size, shape)
        return shape[wrap_dim(dim, len(shape))]

    @property
    def dtype(self) -> dtypes.dtype:
        """The element type."""
        return dtypes.of(self._aval.dtype)

    @property
    def device(self) -> device:
        """Where the content is."""
        return self._aval.device

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._aval.ndim

    def dim(self) -> int:
        """The number of dimensions."""
        return self._aval.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self._aval.size

    nelement = numel
    ndimension = dim

    def element_size(self) -> int:
        """Bytes per element."""
        return self._aval.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self._aval.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._aval.nbytes

    def stride(self, dim: int | None = None) -> Any:
        """The strides, in elements, that PyTorch would report; of one dimension if `dim` is given."""
        strides = lies(self)[0]
        return strides if dim is None else strides[wrap_dim(dim, len(strides))]

    def storage_offset(self) -> int:
        """The offset of the first element in the base's memory, in elements."""
        return begins(self)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the strides are those of row-major storage, or of `memory_format`."""
        if memory_format is not None:
            return lies_in(self._aval.shape, self._strides(), memory_format)
        return self._view is None or is_contiguous(self._aval.shape, self._view.strides)

    def is_floating_point(self) -> bool:
        """Whether the dtype is real floating point."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self.dtype.is_complex

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return self.dtype.is_signed

    @property
    def is_cuda(self) -> bool:
        """Whether the content is on a GPU."""
        return self._aval.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        """Whether the content is on the host."""
        return self._aval.device.type == "cpu"

    @property
    def is_meta(self) -> bool:
        """Whether there is no content, on the device `meta`."""
        return self._aval.device.type == "meta"

    @property
    def is_xla(self) -> bool:
        """Whether the content is on a device of the type `xla`."""
        return self._aval.device.type == "xla"

    # Attributes as PyTorch's: subclasses are asked about them, by `torch.Tensor.is_sparse.__get__` and its like, and they cannot be written to.
    is_sparse, is_sparse_csr, is_quantized, is_nested, is_mkldnn, is_vulkan = (property(_is_none_of_these) for _ in range(6))
    is_mps, is_xpu, is_ipu, is_maia, is_mtia = (property(_is_none_of_these) for _ in range(5))

    @property
    def layout(self) -> Any:
        """`torch.strided`, always."""
        return strided

    __array_priority__ = 1000  # NumPy's scalars and arrays leave their operators to the tensor's

    def get_device(self) -> int:
        """The device's index, -1 on the host."""
        return -1 if self._aval.device.index is None else self._aval.device.index

    def data_ptr(self) -> int:
        """A number that is equal for tensors that begin at the same element of shared memory, 0 for those without elements. No address: XLA moves
        arrays. RuntimeError for what stands for a batch."""
        if stands_for_batch(self):
            raise RuntimeError(NO_STORAGE)
        if not self._aval.size or self.is_meta:
            return 0
        return self._shared().address + self._offset() * self.element_size()

    def __len__(self) -> int:
        shape = self._aval.shape
        if not shape:
            raise TypeError("len() of a 0-d tensor")
        return shape[0]

    # ------------------------------------------------------------------ autograd's face

    requires_grad = property(needs_grad)

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        if not isinstance(flag, bool):
            raise RuntimeError("requires_grad must be a bool")
        if self._is_computed():
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables."
                + ("" if flag else " If you want to use a computed variable in a subgraph that doesn't require differentiation use var_no_grad = "
                   "var.detach().")
            )  # fmt: skip
        if flag and not dtypes.is_float(self._aval.dtype):
            raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
        if flag and self.is_inference() and not per_thread.recorder.inference:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
        meet(self)
        self._rg = bool(flag)
        if self._view is not None:
            self._view.asked = self._rg
        if flag and self._node is None and not (self._storage is not None and hasattr(self._storage, "twinned")):  # for what has been saved of it
            self._content().leaf = weakref.ref(self)

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise RuntimeError("requires_grad must be a bool")

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set `requires_grad` in place and return the tensor."""
        if not isinstance(requires_grad, bool):
            given = type(requires_grad).__name__
            raise TypeError(f"requires_grad_(): argument 'requires_grad' (position 1) must be bool, not {given}")
        if in_transform():
            raise RuntimeError(
                "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* APIs) inside of a function being "
                "transformed by a functorch transform. This is unsupported, please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, "
                "jacfwd, hessian) or call requires_grad_() outside of a function being transformed instead."
            )
        if requires_grad and not dtypes.is_float(self._aval.dtype):
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        if not requires_grad or not self._is_computed():  # what was computed requires a gradient already
            self.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor is not the result of a recorded operation."""
        return self.grad_fn is None

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor; None for a leaf."""
        return self._present_node()

    def _is_computed(self) -> bool:
        """Whether it has a grad_fn, be it one out of date. A view that was written to itself has got its own then."""
        view = self._view
        return self._node is not None if view is None or view.node_seen != -1 else self._present_node() is not None

    _present_node = present_node

    @property
    def output_nr(self) -> int:
        """Which output of `grad_fn` this is."""
        return self._nr

    @property
    def _version(self) -> int:
        if self._storage is None:
            return 0
        if not self._storage.counted:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._storage.counter.version

    def is_inference(self) -> bool:
        """Whether its memory was allocated in inference mode."""
        return self._storage is not None and self._storage.inference

    @property
    def _base(self) -> Tensor | None:
        return None if self._view is None else self._view.base

    def _is_view(self) -> bool:
        return self._view is not None and self._view.base is not None

    def _own_extra(self) -> Extra:
        extra = self._extra
        if extra is None:
            extra = self._extra = Extra()
        return extra

    _edge = edge_of

    _end_of_graph = end_of_graph


def wrap_dim(dim: int, ndim: int) -> int:
    """A dimension counted from the front. IndexError with PyTorch's text where it is out of range."""
    if 0 <= dim < ndim:
        return dim
    size = max(ndim, 1)
    if not -size <= dim < size:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {dim})")
    return dim + size if dim < 0 else dim
