"""What a sparse tensor is asked about, its graph, and conversions that keep where its elements are."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.autograd.backward import backward as _run
from torchgrad_jax.autograd.backward import check_grad, set_grad
from torchgrad_jax.autograd.backward import grad as _gradients
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.made import created, detached
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import viewed
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.strides import strided
from torchgrad_jax.functions.conversion import parse_to
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.sparse.arithmetic import version_of, written
from torchgrad_jax.sparse.coordinates import coalesce, coordinates, integers, known_of, nnz, sparse_dim, taken
from torchgrad_jax.sparse.making import dense, sparse_coo_tensor
from torchgrad_jax.sparse.tensors import (
    COMPRESSED,
    COO,
    CSC,
    CSR,
    SparseTensor,
    answer,
    is_sparse,
    made_of,
    of_coordinates,
    of_value,
    replace,
    value_of,
    values_of,
    with_values,
)

_TITLES = {COO: "Sparse", CSR: "SparseCsr", CSC: "SparseCsc", strided: "Strided"}


def _layout(self: SparseTensor) -> Any:
    """Which layout it has: `torch.sparse_coo`, `torch.sparse_csr` or `torch.sparse_csc`."""
    return self.content.layout


def _attribute(name: str, get: Any, doc: str = "") -> None:
    setattr(SparseTensor, name, property(get, doc=doc or get.__doc__))
    answer(f"{name}.__get__")(get)


_attribute("layout", _layout)
_attribute("is_sparse", lambda self: self.content.layout is COO, "Whether its layout is `torch.sparse_coo`.")
_attribute("is_sparse_csr", lambda self: self.content.layout is CSR, "Whether its layout is `torch.sparse_csr`.")
for _name in ("is_quantized", "is_nested", "is_mkldnn", "is_mps", "is_xpu", "is_vulkan"):
    _attribute(_name, lambda self: False, "False: there are no such tensors here.")
for _name, _result in {"is_contiguous": False, "is_pinned": False, "is_shared": False, "is_conj": False, "is_neg": False, "_is_view": False}.items():
    answer(_name)(lambda self, *args, _result=_result, **kwargs: _result)
answer("is_inference")(lambda self: values_of(self).is_inference())
answer("_version.__get__")(version_of)
answer("is_same_size")(lambda self, other: self._aval.shape == other._aval.shape)
answer("_base.__get__")(lambda self: None)
answer("stride")(lambda self, dim=None: (0,) * self._aval.ndim if dim is None else 0)


@answer("sparse_dim")
def _sparse_dim(self: SparseTensor) -> int:
    """How many dimensions are told by indices."""
    return sparse_dim(self)


@answer("dense_dim")
def _dense_dim(self: SparseTensor) -> int:
    """How many dimensions each element has."""
    return self._aval.ndim - sparse_dim(self)


# ---------------------------------------------------------------------- parts


def _expect(self: Tensor, name: str, layouts: tuple[Any, ...], words: str) -> None:
    if self.layout not in layouts:
        raise RuntimeError(f"{name} expected {words} tensor layout but got {_TITLES[self.layout]}")


def _part(t: Tensor, requires: bool = True) -> Tensor:
    """A part as the user gets it: on the same memory, with its history, but a tensor of its own."""
    return viewed("alias", t) if t._rg and requires else detached(t)


@answer("indices")
def indices(self: SparseTensor) -> Tensor:
    """Where the elements are, one row for each sparse dimension. RuntimeError where they may not be in order."""
    _expect(self, "indices", (COO,), "sparse coordinate")
    if not self.content.coalesced:
        raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
    return _part(self.content.parts[0])


@answer("values")
def values(self: SparseTensor) -> Tensor:
    """The elements that there are. RuntimeError where they may not be in order."""
    if self.content.layout is COO and not self.content.coalesced:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    return _part(values_of(self))


def _of_compressed(name: str, layout: Any, place: int, words: str) -> None:
    def part(self: SparseTensor) -> Tensor:
        _expect(self, name, (layout,), words)
        return _part(self.content.parts[place])

    answer(name)(part)


_of_compressed("crow_indices", CSR, 0, "sparse row compressed")
_of_compressed("col_indices", CSR, 1, "sparse row compressed")
_of_compressed("ccol_indices", CSC, 0, "sparse column compressed")
_of_compressed("row_indices", CSC, 1, "sparse column compressed")


def of_layout(self: Tensor, name: str, layouts: tuple[Any, ...] = (COO,)) -> SparseTensor:
    """A tensor of one of the layouts. NotImplementedError for others, as the function `name` says it."""
    if isinstance(self, SparseTensor) and self.content.layout in layouts:
        return self
    backend = "CPU" if not is_sparse(self) else "SparseCsrCPU"
    raise NotImplementedError(f"Could not run 'aten::{name}' with arguments from the '{backend}' backend. It is asked of sparse tensors.")


@public("torch.Tensor")
def _indices(self: Tensor) -> Tensor:
    """Of a tensor of `torch.sparse_coo` the indices, in whatever order."""
    return _part(of_layout(self, "_indices").content.parts[0])


@public("torch.Tensor")
def _values(self: Tensor) -> Tensor:
    """Of a sparse tensor the values, in whatever order, without history."""
    return _part(values_of(of_layout(self, "_values")), False)


@public("torch.Tensor")
def _nnz(self: Tensor) -> int:
    """Of a sparse tensor how many elements there are."""
    return nnz(of_layout(self, "_nnz", (COO, *COMPRESSED)))


@public("torch.Tensor")
def _dimI(self: Tensor) -> int:
    return sparse_dim(of_layout(self, "_dimI"))


@public("torch.Tensor")
def _dimV(self: Tensor) -> int:
    return _dense_dim(of_layout(self, "_dimV"))


@public("torch.Tensor")
def _coalesced_(self: Tensor, coalesced: bool) -> Tensor:
    """Say whether the indices are in order and each there once."""
    s = of_layout(self, "_coalesced_")
    s.content.coalesced = bool(coalesced)
    s.content.written += 1
    return s


# ---------------------------------------------------------------------- the graph


def shaped_like(s: SparseTensor, grad: Tensor) -> SparseTensor:
    """A gradient with respect to the values as one with respect to the tensor: an element that is there twice has it once."""
    content = s.content
    if content.layout is COO and not content.coalesced:
        known = known_of(s)
        if known.order is not None:
            grad = grad.index_select(0, known.order)
        if known.into is not None:
            first = np.searchsorted(np.asarray(known.into._concrete()), np.arange(len(known.places)))
            grad = grad.index_select(0, integers(first, grad))
        return of_value(value_of(s._aval.shape, (known.indices, grad), COO, True))
    return of_value(value_of(s._aval.shape, (*content.parts[:-1], grad), content.layout, content.coalesced, content.known))


def _keeps_grad(s: SparseTensor) -> bool:
    return s._node is None or values_of(s)._node is not None


def _get_grad(self: SparseTensor) -> Any:
    grad = values_of(self).grad if _keeps_grad(self) else None
    if grad is None:
        return None
    found = shaped_like(self, grad)
    found.content.owner = self
    return found


def _set_grad(self: Tensor, grad: Any) -> None:
    if not is_sparse(self):
        set_grad(self, grad)
        return
    if grad is not None:
        check_grad(self, grad)
        grad = taken(grad, self.content, self._value.aval)
    values_of(self).grad = grad


SparseTensor.grad = property(_get_grad, _set_grad, lambda self: _set_grad(self, None), "The gradient, at the places of its elements.")  # type: ignore[assignment]
answer("grad.__get__")(_get_grad)
answer("grad.__set__")(_set_grad)
answer("grad.__delete__")(lambda self: _set_grad(self, None))


@answer("requires_grad_")
def requires_grad_(self: SparseTensor, requires_grad: bool = True) -> SparseTensor:
    """See `Tensor.requires_grad_`."""
    if self._node is None:
        values_of(self).requires_grad_(requires_grad)
        self._rg = bool(requires_grad)
    elif not requires_grad:
        raise RuntimeError(
            "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a subgraph that doesn't require "
            "differentiation use var_no_grad = var.detach()."
        )
    return self


SparseTensor.requires_grad = property(lambda self: self._rg, requires_grad_, doc="Whether gradients with respect to it are recorded.")  # type: ignore[assignment]
answer("requires_grad.__get__")(lambda self: self._rg)
answer("requires_grad.__set__")(requires_grad_)


@answer("retain_grad")
def retain_grad(self: SparseTensor) -> None:
    """See `Tensor.retain_grad`."""
    values_of(self).retain_grad()


@answer("register_hook")
def register_hook(self: SparseTensor, hook: Any) -> Any:
    """See `Tensor.register_hook`: the hook sees a sparse gradient."""

    def called(grad: Tensor) -> Any:
        found = hook(shaped_like(self, grad))
        return None if found is None else taken(found, self.content, self._value.aval)

    return values_of(self).register_hook(called)


def _several(given: Any) -> list[Any]:
    return [] if given is None else [given] if isinstance(given, Tensor) or not isinstance(given, (tuple, list)) else list(given)


def _of_values(outputs: list[Any], grads: list[Any]) -> tuple[list[Any], list[Any] | None]:
    """Outputs and their gradients, with the values of sparse tensors in place of these."""
    if not any(map(is_sparse, outputs)):
        return outputs, grads or None
    if len(grads) != len(outputs) or any(g is None for t, g in zip(outputs, grads, strict=True) if is_sparse(t)):
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    pairs = [(values_of(t), taken(g, t.content, t._value.aval)) if is_sparse(t) else (t, g) for t, g in zip(outputs, grads, strict=True)]
    return [t for t, _ in pairs], [g for _, g in pairs]


@answer("backward")
def backward(
    tensors: Any, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, grad_variables: Any = None, inputs: Any = None,
    grad_tensors: Any = None,
) -> None:  # fmt: skip
    """See `torch.autograd.backward`, which `Tensor.backward` is, too."""
    outputs, grads = _of_values(_several(tensors), _several(gradient if grad_tensors is None else grad_tensors))
    wanted = None if inputs is None else [values_of(t) if is_sparse(t) else t for t in _several(inputs)]
    _run(outputs, grads, retain_graph, create_graph, grad_variables, wanted)


@answer("grad")
def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, *args: Any, **options: Any) -> tuple[Any, ...]:
    """See `torch.autograd.grad`: gradients with respect to sparse tensors are sparse."""
    outs, grads = _of_values(_several(outputs), _several(grad_outputs))
    given = _several(inputs)
    found = _gradients(outs, [values_of(t) if is_sparse(t) else t for t in given], grads, *args, **options)
    return tuple([shaped_like(t, g) if is_sparse(t) and g is not None else g for t, g in zip(given, found, strict=True)])


@answer("detach", "data.__get__")
def detach(self: SparseTensor) -> SparseTensor:
    """The tensor without history, on the same memory."""
    return with_values(self, detached(values_of(self)))


@answer("detach_")
def detach_(self: SparseTensor) -> SparseTensor:
    """The tensor, without its history."""
    return replace(self, detach(self))


@answer("data.__set__")
def _set_data(self: SparseTensor, data: Any) -> None:
    if not is_sparse(self) or not is_sparse(data) or data.layout is not self.layout:
        raise RuntimeError("Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type.")
    requires = self._rg
    grad = self.grad if requires else None
    replace(self, detach(data)).requires_grad_(requires)
    self._node = None
    if grad is not None:
        self.grad = grad


# ---------------------------------------------------------------------- copies and conversions


@answer("clone")
def clone(self: SparseTensor, *, memory_format: Any = None) -> SparseTensor:
    """A copy."""
    content = self.content
    alias = per_thread.recorder.alias
    places = [created(alias(part._content())) for part in content.parts[:-1]]
    return made_of(self._aval.shape, (*places, content.parts[-1].clone()), content.layout, content.coalesced)


@answer("copy_")
def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Become a copy of another sparse tensor of this size; the dtype stays."""
    if not is_sparse(self) and src.layout is COO:
        return self.copy_(dense(src))
    if not is_sparse(self) or not is_sparse(src):
        raise RuntimeError("copy_() between dense and sparse Tensors is not implemented! Found self type = " + " and src type = ".join(
            [t.type() for t in (self, src)]
        ))  # fmt: skip
    return written(self, clone(with_values(src, values_of(src).to(device=self.device, dtype=self.dtype))))


@answer("zero_")
def zero_(self: SparseTensor) -> Tensor:
    """Drop all elements."""
    return written(self, zeros_like(self))


@answer("zeros_like", "empty_like")
def zeros_like(input: SparseTensor, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    """A tensor of the same size without elements."""
    count, rest = sparse_dim(input), values_of(input)._aval.shape[1:]
    own = values_of(input)
    new = own.new_zeros((0, *rest), dtype=dtype or input.dtype, device=device or input.device)
    if input.layout is not COO:
        return made_of(input._aval.shape, (input.content.parts[0] * 0, input.content.parts[1][:0], new), input.layout)
    return of_coordinates(integers(np.zeros((count, 0)), new), new, input._aval.shape, True)


def _moved(self: SparseTensor, where: Any, dtype: Any) -> SparseTensor:
    new = values_of(self)
    if dtype is not None:
        new = new.to(dtype)
    if where is None or where == self.device:
        return self if new is values_of(self) else with_values(self, new)
    content = self.content
    parts = (*[part.to(where) for part in content.parts[:-1]], new.to(where))
    return made_of(self._aval.shape, parts, content.layout, content.coalesced)


@answer("to")
def to(self: Any, *args: Any, copy: bool = False, **kwargs: Any) -> Any:
    """The tensor with another dtype or on another device; itself where it is so already."""
    if not is_sparse(self):  # `dense.to(sparse)`
        other = args[0]
        return self.to(dtype=other.dtype, device=other.device)
    where, dtype, _, _ = parse_to(args, kwargs)
    found = _moved(self, where, dtype)
    return clone(found) if copy and found is self else found


@answer("cpu")
def cpu(self: SparseTensor, memory_format: Any = None) -> SparseTensor:
    """The tensor on the host."""
    return to(self, "cpu")


@answer("cuda")
def cuda(self: SparseTensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> SparseTensor:
    """The tensor on a GPU."""
    where = values_of(self).cuda(device).device
    return _moved(self, where, None)


for _name, _dtype in {**dtypes.ALIASES, "bool": dtypes.bool_, "byte": dtypes.uint8, "char": dtypes.int8, "bfloat16": dtypes.bfloat16}.items():
    answer(_name)(lambda self, memory_format=None, _dtype=_dtype: _moved(self, None, _dtype))


@answer("type", "typename")
def type_(self: SparseTensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """The name of the tensor's old class, or the tensor with another dtype."""
    if dtype is None:
        place = "torch.cuda.sparse" if self.is_cuda else "torch.sparse"
        return f"{place}{'' if self.layout is COO else '_csr'}.{self.dtype.title}Tensor"
    named = dtype.replace(".sparse.", ".") if isinstance(dtype, str) else dtype
    return with_values(self, values_of(self).type(getattr(named, "dtype", named)))


@answer("type_as")
def type_as(self: Any, other: Any) -> Any:
    """The tensor in the dtype of another."""
    return self.to(other.dtype)


@answer("new")
def new(self: SparseTensor, *args: Any, device: Any = None) -> Any:
    """A sparse tensor of this one's dtype, of indices, values and a size."""
    if len(args) > 1 and isinstance(args[0], Tensor):
        return sparse_coo_tensor(*args, dtype=self.dtype, device=device or self.device)
    return sparse_coo_tensor(args[0] if args and not isinstance(args[0], int) else args, dtype=self.dtype, device=device or self.device)


@answer("new_zeros", "new_empty")
def new_zeros(self: SparseTensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any) -> Tensor:
    """A sparse tensor of this size without elements."""
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return sparse_coo_tensor(shape, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


for _name in ("new_ones", "new_full", "new_tensor"):
    answer(_name)(lambda self, *args, _name=_name, **kwargs: getattr(values_of(self).detach(), _name)(*args, **kwargs))


@public("torch.Tensor")
@answer("sparse_mask")
def sparse_mask(self: Any, mask: Any) -> SparseTensor:
    """What `self` has where `mask` has elements."""
    if not is_sparse(mask):
        raise RuntimeError("sparse_mask(): the mask must be a sparse tensor")
    if self._aval.shape != mask._aval.shape:
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes; self has size {list(self._aval.shape)} but mask has size "
                           f"{list(mask._aval.shape)}")  # fmt: skip
    return with_values(mask, taken(self, mask.content, mask._value.aval))


@answer("item")
def item(self: SparseTensor) -> Any:
    """The one element. RuntimeError where there are others."""
    if self.numel() != 1:
        raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    return values_of(coalesce(coordinates(self))).sum().item()


for _name, _convert in {"__float__": float, "__int__": int}.items():
    answer(_name)(lambda self, _convert=_convert: _convert(item(self)))


@answer("__bool__", "is_nonzero")
def is_nonzero(self: SparseTensor) -> bool:
    """Whether the one element is not 0."""
    if self.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    return bool(item(self))


def _refused(names: str, error: type[Exception], text: str) -> None:
    def refuse(self: SparseTensor, *args: Any, **kwargs: Any) -> Any:
        raise error(text.format(_TITLES[self.layout]))

    answer(*names.split())(refuse)


_refused("numpy __array__ numpy_force", TypeError, "can't convert {} layout tensor to numpy. Use Tensor.to_dense() first.")
_refused("storage untyped_storage _typed_storage storage_offset", NotImplementedError, "Cannot access storage of SparseTensorImpl")
_refused("data_ptr tolist", RuntimeError, "Cannot access data pointer of Tensor that doesn't have storage: use to_dense()")
_refused("contiguous", RuntimeError, "unsupported memory format option Contiguous: a sparse tensor has no strides; use coalesce() or to_dense()")
_refused("reshape reshape_as", RuntimeError, "reshape is not implemented for sparse tensors: use to_dense(), or new indices and values")
_refused("expand expand_as broadcast_to", RuntimeError, "expand is unsupported for Sparse tensors")
