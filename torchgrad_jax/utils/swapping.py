"""`torch.utils.swap_tensors`."""

from __future__ import annotations

import copyreg
import gc
import weakref
from typing import Any, NoReturn

from torchgrad_jax.core.level import in_transform, meet
from torchgrad_jax.core.saved import SavedTensor
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.memory.storage import View

_FIELDS = ("_value", "_storage", "_view", "_rg", "_node", "_nr", "_extra")


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Let two tensors be each other: who holds the one has what the other was, its class, attributes, memory, gradient and history.

    A graph that ends at one of them when it is swapped has no backward from then on (RuntimeError).

    RuntimeError for a tensor to which there is a weak reference, that has views, that hooks of saved tensors keep, that has a tangent, or inside of
    a transform. TypeError where the classes lie differently in memory.
    """
    if t1 is t2:
        return
    for i, t in enumerate((t1, t2), 1):
        _check(t, f"t{i}")
    meet(t1)
    meet(t2)
    values = [(t._content(), getattr(t._content(), "leaf", None)) for t in (t1, t2)]
    if type(t1) is not type(t2):
        t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    slots = {name for t in (t1, t2) for name in copyreg._slotnames(type(t))} - {*_FIELDS, "__weakref__", "__dict__"}  # type: ignore[attr-defined] - of Python
    for name in (*_FIELDS, *slots):
        _swap(t1, t2, name)
    for t, (value, leaf) in zip((t2, t1), values, strict=True):
        if leaf is not None:
            value.leaf = weakref.ref(t)
        accumulator = None if t._extra is None or t._extra.accumulator is None else t._extra.accumulator()
        if accumulator is not None:
            accumulator.variable = t
            accumulator.register_prehook(_poisoned)


def _poisoned(grads: Any) -> NoReturn:
    """The hook of the end of a graph that was made before its leaf was swapped."""
    raise RuntimeError(
        "Trying to execute AccumulateGrad node that was poisoned by swap_tensors this can happen when you try to run backward on a tensor that was "
        "swapped. For a module m with `torch.__future__.set_swap_module_params_on_conversion(True)` you should not change the device or dtype of the "
        "module (e.g. `m.cpu()` or `m.half()`) between running forward and backward. To resolve this, please only change the device/dtype before "
        "running forward (or after both forward and backward)."
    )


def _swap(a: Any, b: Any, name: str) -> None:
    missing = object()
    found = getattr(a, name, missing), getattr(b, name, missing)
    for t, value in ((a, found[1]), (b, found[0])):
        if value is not missing:
            setattr(t, name, value)
        elif hasattr(t, name):
            delattr(t, name)


def _check(t: Tensor, name: str) -> None:
    if in_transform():
        raise RuntimeError("swap_tensors is not available in torchgrad_jax inside of a function that is transformed")
    leaf = getattr(t._content(), "leaf", None)  # our own reference, which is the same object as a plain one of the user's
    if any(ref is not leaf for ref in weakref.getweakrefs(t)):
        raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    if t._extra is not None and t._extra.tangent is not None:
        raise RuntimeError(f"Cannot swap {name} because it has a tangent")
    for holder in gc.get_referrers(t):
        if (isinstance(holder, View) and holder.base is t) or (isinstance(holder, SavedTensor) and holder.kept is t):
            raise RuntimeError(f"Cannot swap {name} because {'views of it' if isinstance(holder, View) else 'saved tensors'} refer to it")
