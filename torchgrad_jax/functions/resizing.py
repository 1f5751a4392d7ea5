"""What changes a tensor itself and not its content: its layout (`transpose_`), its size (`resize_`), its memory (`set_`, `data`), its history."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from torchgrad_jax.calling.expecting import not_a_tensor
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.anomaly import note_node
from torchgrad_jax.core.dispatch import make_node, plan_of, turn
from torchgrad_jax.core.duals import tangent_of, without_duals
from torchgrad_jax.core.fields import content_of
from torchgrad_jax.core.level import meet
from torchgrad_jax.core.made import data_of, detached, wrap
from torchgrad_jax.core.node import HookList
from torchgrad_jax.core.op_node import node_class
from torchgrad_jax.core.replacing import give_memory, place, resize_strided, set_data, static_op
from torchgrad_jax.core.saved import forget_history
from torchgrad_jax.core.strided import as_strided
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.core.writing import check_differentiable, check_history
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.declaration.strides import contiguous_strides
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.functions.views import as_dims, contiguous, view
from torchgrad_jax.memory.formats import FORMATS, contiguous_format, preserve_format
from torchgrad_jax.memory.storage import Link, Relayout
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.views import stride_rules
from torchgrad_jax.runtime.operation import Signature
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.runtime.value import Lifted

# ---------------------------------------------------------------------- layout


@public("torch.Tensor", "torch.Tensor.swapaxes_", "torch.Tensor.swapdims_")
def transpose_(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """Exchange two dimensions of this tensor itself."""
    dims = _dims(self, (dim0, dim1))
    return _relayout(self, "transpose", dims, ("transpose", dims), "TransposeBackward1")


@public("torch.Tensor")
def t_(self: Tensor) -> Tensor:
    """Transpose this matrix itself. RuntimeError for more than 2 dimensions."""
    if self._aval.ndim > 2:
        check_history(per_thread.recorder, self)
        raise RuntimeError(f"t_() expects a tensor with <= 2 dimensions, but self is {self._aval.ndim}D")
    return _relayout(self, "t", (), ("t", ()), "TBackward1")


@public("torch.Tensor")
def unsqueeze_(self: Tensor, dim: int) -> Tensor:
    """Give this tensor itself a dimension of size 1 at `dim`."""
    (place,) = _dims(self, (dim,), 1)
    return _relayout(self, "unsqueeze", (place,), ("squeeze", ((place,),)), "UnsqueezeBackward1")


@public("torch.Tensor")
def squeeze_(self: Tensor, dim: Any = None) -> Tensor:
    """Take from this tensor itself its dimensions of size 1, or those of `dim` that are."""
    shape = self._aval.shape
    node = "SqueezeBackward3" if dim is None else "SqueezeBackward5" if isinstance(dim, (tuple, list)) else "SqueezeBackward4"
    asked = range(len(shape)) if dim is None else _dims(self, as_dims((dim,)))
    dims = tuple(sorted({d for d in asked if shape and shape[d] == 1}))
    return _relayout(self, "squeeze", (dims,), ("view", (shape,)), node)


def _dims(t: Tensor, dims: tuple[int, ...], extra: int = 0) -> tuple[int, ...]:
    """The dimensions counted from the front. That the tensor may not be written to is said before that they are out of range."""
    try:
        return tuple([wrap_dim(d, t._aval.ndim + extra) for d in dims])
    except IndexError:
        check_history(per_thread.recorder, t)
        raise


def _relayout(t: Tensor, name: str, arguments: tuple[Any, ...], undo: tuple[str, tuple[Any, ...]], node_name: str) -> Tensor:
    """Make `t` the view `name` of itself, with a node of that name in its history."""
    rec = per_thread.recorder
    if rec.level is not None:
        tangent = tangent_of(t)
        if tangent is not None:
            with without_duals(rec):
                _relayout(tangent, name, arguments, undo, node_name)
                return _relayout(t, name, arguments, undo, node_name)
    value = t._content()
    recording = rec.grad_enabled and t.requires_grad
    if recording:
        check_differentiable(t)
        if rec.turned:
            turn(rec)
    strides, offset = stride_rules[name](value.aval.shape, t._strides(), t._offset(), *arguments)
    read, back = static_op(name, *arguments), static_op(undo[0], *undo[1])
    out, sig = rec.call(read, (value,))
    if t._node is not None and not recording and not t._is_view() and out.aval is not value.aval:
        t._node.own_hooks().tensor.setdefault(t._nr, HookList()).add(_shape_check(value.aval.shape))
    node = make_node(rec, sig, _plan_named(sig, node_name), (t,), (value,), out) if recording else None
    if rec.rare and node is not None:
        note_node(rec, node)
    place(rec, t, out, (Relayout(read, None, (back, None)),), strides, offset)
    counter = t._shared().counter
    if not t._is_view():
        counter.relaid = (*getattr(counter, "relaid", ((0, value.aval.shape),)), (counter.version, out.aval.shape))
    if node is not None:
        before = t._node
        if before is not None and before.hooks is not None and t._nr in before.hooks.tensor and t._own_extra().hooked is None:
            t._own_extra().hooked = before, t._nr
        t._node, t._nr, t._rg = node, 0, True
        view, storage = t._view, t._storage
        assert view is not None and storage is not None
        view.node_seen = storage.counter.version
        if view.base is None:
            storage.counter.writer = storage.counter.version, node.name()
    return t


def _shape_check(shape: tuple[int, ...]) -> Callable[[Tensor | None], None]:
    """A hook for a tensor that has kept its grad_fn but not its shape."""

    def check(grad: Tensor | None) -> None:
        if grad is not None and grad._aval.shape != shape:
            raise RuntimeError(
                f"invalid gradient - got {list(grad._aval.shape)} but expected shape compatible with {list(shape)}: the tensor was given another "
                "shape without a graph. detach() it first."
            )

    return check


def _plan_named(sig: Signature, name: str) -> Any:
    """The key under which `sig` has its Plan with a node of this name."""
    key: Any = (1, name)
    if key not in sig.plans:
        made = sig.plans[key] = copy.copy(plan_of(sig, 1))
        made.name, made.node_class = name, node_class(name)
    return key


# ---------------------------------------------------------------------- size


@public("torch.Tensor")
def resize_(self: Tensor, *size: Any, memory_format: Any = None) -> Tensor:
    """Another size for this tensor itself: the first elements of its memory; where that is too small, new memory that ends with zeros.

    RuntimeError for tensors that require a gradient, and for those that shall not be in row-major order (`memory_format`).
    """
    if not size:
        raise TypeError('resize_() missing 1 required positional arguments: "size"')
    shape = as_dims(size)
    _check_row_major("resize_", shape, memory_format)
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    if self._extra is not None and self._extra.tangent is not None:
        raise RuntimeError("cannot resize variables that has a forward grad")
    if any(n < 0 for n in shape) or math.prod(shape) >= 1 << 63:
        raise RuntimeError("numel: integer multiplication overflow")
    if math.prod(shape) * self.element_size() >= 1 << 63:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    if shape == self._aval.shape:
        return self
    if not self.is_contiguous() or (self._view is not None and math.prod(shape) > self._aval.size):
        return resize_strided(self, shape)
    rec = per_thread.recorder
    numel, wanted = self._aval.size, math.prod(shape)
    if wanted > numel:
        flat = rec.call(static_op("view", (numel,)), (self._content(),))[0]
        padded = rec.call(registry["constant_pad_nd"].bind((ARRAY, Static((0, wanted - numel)), ARRAY)), (flat, 0))[0]
        return give_memory(self, wrap(rec.call(static_op("view", shape), (padded,))[0]))
    strides = contiguous_strides(shape)
    cut = static_op("as_strided", shape, strides, 0)
    content = rec.call(cut, (self._content(),))[0]
    place(rec, self, content, (Link(cut, None, ()),), strides, self._offset())
    return self


@public("torch", "torch.Tensor")
def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """See `resize_`: the size of another tensor."""
    if not isinstance(the_template, Tensor):
        raise not_a_tensor("resize_as_", the_template, "the_template", 1)
    _check_row_major("resize_as_", the_template._aval.shape, memory_format)
    return resize_(self, the_template._aval.shape)


def _check_row_major(name: str, shape: tuple[int, ...], format: Any) -> None:
    if format is None or format is contiguous_format:
        return
    if format not in FORMATS.values():
        raise TypeError(f"{name}(): argument 'memory_format' must be torch.memory_format, not {type(format).__name__}")
    if format is preserve_format:
        raise RuntimeError("Unsupported memory formatPreserve")
    format.order(len(shape))
    raise RuntimeError(f"torchgrad_jax resizes to row-major order only, not to {format}: arrays have no strides. Use contiguous(memory_format=...).")


# ---------------------------------------------------------------------- memory


@public("torch.Tensor")
def set_(self: Tensor, source: Any = None) -> Tensor:
    """Take over the memory of another tensor, or be empty; that counts as a write.

    RuntimeError for a source of another dtype. It has no derivative: backward refuses.
    """
    if source is not None and not isinstance(source, Tensor):
        raise TypeError(f"torchgrad_jax: set_() takes a tensor, not {type(source).__name__}: arrays have no storages to hand out")
    rec = per_thread.recorder
    if source is None:
        source = wrap(from_data([], self.dtype, self.device))
    if source.dtype is not self.dtype:
        raise RuntimeError(f"Could not set tensor of type {source.dtype.word} to a tensor of type {self.dtype.word}")
    _check_memory(self, source, "set_")
    mask = self.requires_grad + 2 * source.requires_grad if rec.grad_enabled else 0
    if mask:
        check_differentiable(self)
        if rec.turned:
            turn(rec)
    node = None
    if mask:
        values = (self._content(), source._content())
        out, sig = rec.call(_SET, values)
        node = make_node(rec, sig, mask, (self, source), values, out)
        if rec.rare and node is not None:
            note_node(rec, node)
    if source is self:
        self._shared().write(rec.alias(self._shared().value))
    else:
        give_memory(self, source)
    if node is not None:
        self._node, self._nr, self._rg = node, 0, True
    return self


_SET = registry["set_memory"].bind((ARRAY, ARRAY))


def get_data(t: Tensor) -> Tensor:
    """The tensor's memory without its history, with a version counter of its own. RuntimeError for what stands for a batch."""
    # Of what a level inside holds, as `grad` in `vmap`, PyTorch gives the data: `stands_for_batch` asks the levels outside as well.
    array = content_of(t).array
    if isinstance(array, Lifted) and array.batch:
        raise RuntimeError("accessing `data` under vmap transform is not allowed")
    return data_of(t)


def refuse_to_delete(t: Tensor) -> None:
    """PyTorch's refusal of `del x.data`. RuntimeError."""
    raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")


@public("torch", "torch.Tensor")
def detach_(self: Tensor) -> Tensor:
    """Cut this tensor itself off from the graph that made it; nothing happens in inference mode. Its hooks stay, should it require a gradient
    again. RuntimeError for views."""
    if per_thread.recorder.inference:
        return self
    if self._is_view():
        raise RuntimeError(
            "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, and "
            "gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be called on these gradients. To "
            "fix this error, please refer to the Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution."
        )
    meet(self)
    node = self._node
    if node is not None:
        if node.hooks is not None and (hooks := node.hooks.tensor.get(self._nr)):
            self._own_extra().hooks = hooks
        forget_history(self)
    self._node, self._nr, self._rg = None, 0, False
    if self._extra is not None:
        self._extra.tangent = None
    return self


def _check_memory(t: Tensor, new: Any, name: str) -> None:
    """RuntimeError where, inside of a transform, `t` may not take over the memory of `new`."""
    rec = per_thread.recorder
    if rec.rare and rec.level is not None and isinstance(new, Tensor) and (refusal := rec.level.refuses_memory(t, new, name)) is not None:
        raise RuntimeError(refusal)


def _set_data(t: Tensor, new: Any) -> None:
    _check_memory(t, new, "data")
    set_data(t, new)


public("torch.Tensor.data")(property(get_data, _set_data, refuse_to_delete, doc="The tensor's memory without its history."))


@public("torch.Tensor")
def resize(self: Tensor, *sizes: Any) -> Tensor:
    """Deprecated: `view`. RuntimeError where the number of elements differs."""
    warn_user("non-inplace resize is deprecated", UserWarning)
    return _viewed(self, as_dims(sizes))


@public("torch.Tensor")
def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """Deprecated: `view_as`. RuntimeError where the number of elements differs."""
    warn_user("non-inplace resize_as is deprecated", UserWarning)
    return _viewed(self, tensor._aval.shape)


def _viewed(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    if math.prod(shape) != t._aval.size:
        wanted, have = ("x".join(map(str, s)) for s in (shape, t._aval.shape))
        raise RuntimeError(
            f"requested resize to {wanted} ({math.prod(shape)} elements in total), but the given tensor has a size of {have} ({t._aval.size} "
            "elements). autograd's resize can only change the shape of a given tensor, while preserving the number of elements. "
        )
    return view(contiguous(t), shape)


@public("torch", "torch.Tensor")
def as_strided_(self: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """Make this tensor itself the part of its memory that `as_strided` gives. RuntimeError for a leaf or a view that a gradient is asked of."""
    rec = per_thread.recorder
    meet(self)
    if rec.grad_enabled and self.requires_grad:
        check_history(rec, self)
        raise NotImplementedError("as_strided_() of a tensor that requires a gradient: torchgrad_jax has no graph for it; use x = x.as_strided(...)")
    return give_memory(self, as_strided(detached(self), as_dims((size,)), as_dims((stride,)), storage_offset))


@public("torch.Tensor")
def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What a parameter or buffer becomes when `Module.load_state_dict` is given `other` for it: its own memory with that content, or (assign)
    `other`; without history. A subclass may say otherwise."""
    return other.detach() if assign else self.copy_(other).detach()
