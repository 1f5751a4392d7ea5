"""Tensors under `copy` and `pickle`: which memory is shared, what of the history is kept."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.level import in_transform
from torchgrad_jax.core.tensor import Tensor, created, wrap
from torchgrad_jax.core.twins import data_of, share
from torchgrad_jax.core.viewing import viewed
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.functions.subclass import retyped
from torchgrad_jax.memory.storage import Storage
from torchgrad_jax.runtime.pickles import in_pickles
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.runtime.value import Lifted


@public("torch.Tensor")
def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """A leaf of the same content, requires_grad, `.grad` and attributes. What shares memory in what is copied shares it in the copy.

    RuntimeError for the result of a recorded operation, and for a subclass whose `new_empty` does not give its instances.
    """
    if id(self) in memo:
        return memo[id(self)]
    if in_transform() and isinstance(self._content().array, Lifted):
        raise NotImplementedError("Cannot access storage of a tensor inside of a function being transformed: clone() it instead.")
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
    made = retyped(_with_memory(self, _storage_copy(self._shared(), memo)), type(self))
    made._rg = self.requires_grad
    memo[id(self)] = made
    grad = self.grad
    if grad is not None:
        made._own_extra().grad = copy.deepcopy(grad, memo)
    vars(made).update(copy.deepcopy(vars(self), memo))
    return made


def _storage_copy(storage: Storage, memo: dict[int, Any]) -> Storage:
    """The one copy of this memory."""
    key: Any = ("memory", storage.address)
    made = memo.get(key)
    if made is None:
        made = memo[key] = _written_once(created(per_thread.recorder.alias(storage.value))._shared())
    return made


def _written_once(storage: Storage) -> Storage:
    """PyTorch makes a copy by putting memory into an empty tensor, which counts as a write."""
    storage.counter.version = storage.value.version = 1
    return storage


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
    """A leaf on the same memory (`copy.copy`) or with a copy of it (pickle), with requires_grad and attributes, without `.grad` and hooks."""
    _warn_of_hooks(self)
    # Under the name torch the class itself could not be found elsewhere.
    kind = None if type(self) is Tensor else type(self)
    return _rebuild, (kind, _Memory(self), self.requires_grad, dict(vars(self)))


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


@in_pickles("_rebuild_tensor")
def _rebuild(cls: type | None, memory: _Memory, requires_grad: bool, attributes: dict[str, Any]) -> Tensor:
    twin = data_of(memory.tensor)
    assert twin._storage is not None
    _written_once(twin._storage)
    twin._value.version = 1
    made = twin if cls is None else retyped(twin, cls)
    made._rg = requires_grad
    vars(made).update(attributes)
    return made


class _Memory:
    """What a tensor is rebuilt from: itself in this process, the content of its memory elsewhere."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __reduce__(self) -> Any:
        t = self.tensor
        storage = t._shared()
        if t._view is None or storage.value.aval.dtype != t._aval.dtype:
            return _restored, (np.asarray(t._concrete()), str(t._aval.device), None)
        t._concrete()  # raises what checks have found
        part = (t._aval.shape, t._view.strides, t._view.offset)
        return _restored, (np.asarray(storage.value.concrete()), str(t._aval.device), part)


@in_pickles("_rebuild_memory")
def _restored(array: np.ndarray, where: str, part: tuple[tuple[int, ...], tuple[int, ...], int] | None) -> _Memory:
    t = created(from_data(array, None, where))
    return _Memory(t if part is None else viewed("as_strided", t, *part))
