"""Tensors under `copy` and `pickle`: which memory is shared, what of the history is kept."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from typing import Any

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.level import in_transform
from torchgrad_jax.core.made import created, data_of, share, wrap
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import is_conj, is_neg, viewed
from torchgrad_jax.declaration.operator import ARRAY
from torchgrad_jax.declaration.strides import is_contiguous
from torchgrad_jax.functions.storages import Memory, TypedStorage, old_classes, storage_copy, written_once
from torchgrad_jax.functions.subclass import retyped
from torchgrad_jax.memory.storage import Storage
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.device import META
from torchgrad_jax.runtime.pickles import in_pickles
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.runtime.value import Lifted, aval_of, constant


@public("torch.Tensor")
def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """A leaf of the same content, requires_grad, `.grad` and attributes. What shares memory in what is copied shares it in the copy.

    RuntimeError for the result of a recorded operation, and for a subclass whose `new_empty` does not give its instances.
    """
    if id(self) in memo:
        return memo[id(self)]
    _refuse_in_transforms(self)
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  "
            "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
            "see https://github.com/pytorch/pytorch/pull/103001"
        )
    if type(self) is not Tensor and type(self.new_empty([])) is not type(self):
        raise RuntimeError(
            "The default implementation of __deepcopy__() for non-wrapper subclasses only works for subclass types that implement new_empty() and "
            "for which that function returns another instance of the same subclass. You should either properly implement new_empty() for your "
            "subclass or override __deepcopy__() if it is intended behavior for new_empty() to return an instance of a different type."
        )
    made = retyped(_with_memory(self, storage_copy(self._shared(), memo)), type(self))
    made._rg = self.requires_grad
    memo[id(self)] = made
    grad = self.grad
    if grad is not None:
        made._own_extra().grad = copy.deepcopy(grad, memo)
    vars(made).update(copy.deepcopy(vars(self), memo))
    return made


def _refuse_in_transforms(t: Tensor) -> None:
    if in_transform() and isinstance(t._content().array, Lifted):
        raise NotImplementedError("Cannot access storage of a tensor inside of a function being transformed: clone() it instead.")


def _with_memory(t: Tensor, storage: Storage) -> Tensor:
    """A tensor that is the same part of `storage` as `t` is of its own."""
    value = storage.value
    if t._view is not None:
        value = per_thread.recorder.alias(t._content())
        value.counter, value.version = storage.counter, storage.counter.version
    made = wrap(value)
    share(made, storage, t._view)
    return made


# ---------------------------------------------------------------------- copy.copy and pickle


@public("torch.Tensor")
def __reduce_ex__(self: Tensor, protocol: Any) -> Any:
    """A leaf on the same memory (`copy.copy`) or with a copy of it (pickle), with requires_grad and attributes, without `.grad` and hooks. What it
    names is what PyTorch's files name, too."""
    _refuse_in_transforms(self)
    _warn_of_hooks(self)
    make, parts = _parts(self)
    if type(self) is Tensor and not vars(self):
        return make, parts
    # Under the name torch the class itself could not be found elsewhere.
    kind = None if type(self) is Tensor else type(self)
    return rebuild_from_type, (make, kind, parts, dict(vars(self)) or None)


def _parts(t: Tensor) -> tuple[Any, tuple[Any, ...]]:
    """What a tensor without attributes is rebuilt by, and of what."""
    if t.is_meta:
        return rebuild_contentless, (t.dtype, tuple(t._aval.shape), tuple(t._strides()), t.requires_grad)
    own = OwnMemory._on(Memory(t._shared()), t.dtype)
    own.tensor = t
    described = (own, t._offset(), tuple(t._aval.shape), tuple(t._strides()), t.requires_grad, OrderedDict())
    marks = {name: True for name, marked in (("conj", is_conj(t)), ("neg", is_neg(t))) if marked}
    if t.dtype in old_classes:
        return rebuild_tensor, (*described, marks) if marks else described
    return rebuild_tensor_of, (*described, t.dtype)


class OwnMemory(TypedStorage):
    """The memory of a tensor that is being copied or pickled: in this process it is rebuilt from itself."""

    __slots__ = ("tensor",)
    tensor: Tensor


def _warn_of_hooks(t: Tensor) -> None:
    node, extra = t.grad_fn, t._extra
    hooks = None
    if node is None:
        hooks = None if extra is None else extra.hooks
    elif node.hooks is not None:
        hooks = node.hooks.tensor.get(t._nr)
    for hook in (hooks or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warn_user(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the function with "
                "@torch.utils.hooks.unserializable_hook to suppress this warning"
            )


# ---------------------------------------------------------------------- what pickles and files call


@in_pickles("_rebuild_tensor_v2")
def rebuild_tensor(
    storage: Any, storage_offset: Any, size: Any, stride: Any, requires_grad: Any, backward_hooks: Any, metadata: Any = None
) -> Tensor:
    """A leaf that is a part of a storage by strides. metadata: whether it is "conj" or "neg", shown conjugated or negative.

    RuntimeError where the storage has no such part.
    """
    if isinstance(storage, OwnMemory):
        made = data_of(storage.tensor)
    else:
        made = part_of(storage, storage.dtype, storage_offset, size, stride)
        if metadata and metadata.get("conj"):
            made = data_of(viewed("_conj", made))
        if metadata and metadata.get("neg"):
            made = created(apply(_NEG, (made,))._content())
    written_once(made._shared())
    made._value.version = 1
    if requires_grad:
        made.requires_grad_()
    for hook in (backward_hooks or {}).values():
        made.register_hook(hook)
    return made


@in_pickles("_rebuild_tensor_v3")
def rebuild_tensor_of(
    storage: Any, storage_offset: Any, size: Any, stride: Any, requires_grad: Any, backward_hooks: Any, dtype: Any, metadata: Any = None
) -> Tensor:
    """A leaf of any dtype that is a part of a storage: see `rebuild_tensor`."""
    typed = storage if isinstance(storage, OwnMemory) else TypedStorage._on(storage._memory, dtype)
    return rebuild_tensor(typed, storage_offset, size, stride, requires_grad, backward_hooks, metadata)


@in_pickles("_rebuild_meta_tensor_no_storage")
def rebuild_contentless(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    """A leaf of the device "meta"."""
    needed = 1 + sum([(n - 1) * s for n, s in zip(size, stride, strict=True)]) if all(size) else 0
    made = created(constant(None, aval_of((needed,), dtype.np, META)))
    return viewed("as_strided", made, tuple(size), tuple(stride), 0).detach().requires_grad_(requires_grad)


@in_pickles("_rebuild_tensor")
def rebuild_part(storage: Any, storage_offset: Any, size: Any, stride: Any) -> Tensor:
    """What the oldest files call: see `rebuild_tensor`."""
    return rebuild_tensor(storage, storage_offset, size, stride, False, None)


@in_pickles("_rebuild_from_type_v2")
def rebuild_from_type(func: Any, new_type: Any, args: Any, state: Any) -> Tensor:
    """A tensor of a class, with attributes. state: for its `__setstate__` where it has one, else its attributes; slots come second in a pair."""
    made = func(*args)
    if new_type is not None and new_type is not Tensor and type(made) is not new_type:
        made = retyped(made, new_type)
    if hasattr(type(made), "__setstate__"):
        made.__setstate__(state)  # type: ignore[attr-defined] - a subclass's
        return made
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    vars(made).update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(made, name, value)
    return made


def part_of(storage: Any, dtype: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    """A tensor on a storage's memory. The first one that is all of it settles the memory's shape, and is no view."""
    memory: Memory = storage._memory
    size, stride = tuple(size), tuple(stride)
    have = memory.aval()[0] // dtype.itemsize
    _check_part(offset, size, stride, have, dtype.itemsize)
    whole = offset == 0 and math.prod(size) == have and is_contiguous(size, stride)
    if not memory.taken:
        made = memory.take(dtype.np, size if whole else (have,))
        if whole:
            return made
    content = memory.storage.value.aval
    if content.dtype != dtype.np:
        raise RuntimeError("torchgrad_jax cannot have tensors of several dtypes on one memory: arrays are typed")
    base = wrap(memory.storage.value)
    share(base, memory.storage, None)
    return data_of(base if whole and content.shape == size else viewed("as_strided", base, size, stride, offset))


_MOST = 2**34


def _check_part(offset: Any, size: tuple[Any, ...], stride: tuple[Any, ...], have: int, itemsize: int) -> None:
    if not all(type(n) is int for n in (offset, *size, *stride)):
        raise TypeError("a tensor's offset, size and stride must be integers")
    if len(size) != len(stride) or len(size) > 64:
        raise RuntimeError(f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)}), and be at most 64")
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if any(n < 0 for n in size) or math.prod(size) >= 2**63:
        raise RuntimeError("numel: integer multiplication overflow")
    needed = 0 if 0 in size else offset + 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if any(s < 0 for s in stride) or needed >= 2**63:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}")
    if needed > have:
        raise RuntimeError("Trying to resize storage that is not resizable")
    if math.prod(size) > max(have, _MOST // itemsize):
        raise RuntimeError(f"torchgrad_jax cannot expand {have} elements to the size {list(size)}: arrays have all their elements")


_NEG = registry["neg"].bind((ARRAY,))
