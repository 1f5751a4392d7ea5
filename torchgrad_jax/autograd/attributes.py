"""Tensor's attributes that few programs read, set or try to delete: `_grad`, `_grad_fn`, the hooks, `grad_dtype`, `name`."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torchgrad_jax.autograd.backward import set_grad
from torchgrad_jax.autograd.engine import call_node
from torchgrad_jax.core.level import meet
from torchgrad_jax.core.node import HookList, Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes


def _get_grad(self: Tensor) -> Tensor | None:
    return None if self._extra is None else self._extra.grad


def _get_grad_fn(self: Tensor) -> Any:
    return self.grad_fn


def _set_grad_fn(self: Tensor, node: Any) -> None:
    if node is not None:
        raise RuntimeError("_grad_fn can be only set to None")
    meet(self)
    self._node, self._nr, self._rg = None, 0, False


def _get_backward_hooks(self: Tensor) -> OrderedDict[int, Any] | None:
    hooks = hooks_of(self)
    return None if hooks is None else OrderedDict(hooks)


def _set_backward_hooks(self: Tensor, hooks: Any) -> None:
    if hooks is not None and not isinstance(hooks, dict):
        raise TypeError(f"_backward_hooks has to be a dict of hooks or None, but got {type(hooks).__name__}")
    found = None if hooks is None else HookList(hooks)
    node = self.grad_fn
    if node is None:
        if found is not None or self._extra is not None:
            self._own_extra().hooks = found
    elif found is not None:
        node.own_hooks().tensor[self._nr] = found
    elif node.hooks is not None:
        node.hooks.tensor.pop(self._nr, None)


def hooks_of(t: Tensor) -> HookList | None:
    """The hooks that `Tensor.register_hook` has put on this tensor, if any."""
    node = t.grad_fn
    if node is None:
        return None if t._extra is None else t._extra.hooks
    return None if node.hooks is None else node.hooks.tensor.get(t._nr)


def _get_post_accumulate_grad_hooks(self: Tensor) -> OrderedDict[int, Any] | None:
    hooks = None if self._extra is None else self._extra.post_hooks
    return None if hooks is None else OrderedDict(hooks)


def _get_grad_dtype(self: Tensor) -> Any:
    if not self.is_leaf:
        raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
    return self.dtype


def _set_grad_dtype(self: Tensor, dtype: Any) -> None:
    if not self.is_leaf:
        raise RuntimeError("grad_dtype can only be set on leaf tensors.")
    if dtype is not None and not isinstance(dtype, dtypes.dtype):
        raise RuntimeError(f"grad_dtype must be a torch.dtype or None, but got {type(dtype).__name__}")
    if dtype is not self.dtype:
        raise NotImplementedError("grad_dtype: in torchgrad_jax a gradient has the dtype of its tensor; convert it after backward, by grad.to(dtype)")


def _set_name(self: Tensor, name: Any) -> None:
    raise AttributeError("attribute 'name' of 'torch._C.TensorBase' objects is not writable")


def _undeletable(text: str) -> Any:
    def delete(self: Tensor) -> None:
        raise RuntimeError(text)

    return delete


def attach() -> None:
    """Give Tensor these attributes, and let a Node be called."""
    for name, attribute in {
        "_grad": property(_get_grad, set_grad, lambda self: set_grad(self, None), "`grad`, without its warning."),
        "_grad_fn": property(
            _get_grad_fn, _set_grad_fn, _undeletable("Deletion of _grad_fn not allowed. Detach tensor instead!"), "`grad_fn`; may be set to None."
        ),
        "_backward_hooks": property(
            _get_backward_hooks, _set_backward_hooks, _undeletable("Deletion of _backwards_hooks not allowed!"), "The tensor's hooks, by their ids."
        ),
        "_post_accumulate_grad_hooks": property(
            _get_post_accumulate_grad_hooks, None, _undeletable("Deletion of _post_accumulate_grad_hooks not allowed!"), "The leaf's later hooks."
        ),
        "grad_dtype": property(_get_grad_dtype, _set_grad_dtype, None, "The dtype of a leaf's gradient, which is the leaf's own."),
        "name": property(lambda self: None, _set_name, None, "None: tensors have no names."),
    }.items():
        setattr(Tensor, name, attribute)
    Node.__call__ = call_node  # type: ignore[method-assign]
