"""Hooks on what is saved for backward, and the contexts made of them."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Generator
from typing import Any

from torchgrad_jax.calling.factory_options import NO_PINNED
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.saved import CALLABLE, incompatible
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.memory.storage import outdated
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Value

__all__ = ["allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "save_on_cpu", "saved_tensors_hooks"]


class saved_tensors_hooks:
    """Within the block, ``pack_hook(tensor)`` is called on each tensor that an operation saves for backward, and what it returns is kept in the
    tensor's place; ``unpack_hook`` of that gives the tensor back whenever it is used. Of nested pairs only the innermost is called.

    A pack hook runs without grad mode and may not write to its argument (RuntimeError); an unpack hook must return a tensor (TypeError). Python
    numbers are not packed. On entering: TypeError where a hook is not callable, RuntimeError under `disable_saved_tensors_hooks`.

    Example::

        with torch.autograd.graph.saved_tensors_hooks(lambda x: x.numpy(), torch.from_numpy):
            loss = model(x).sum()
        loss.backward()
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        hooks = (self.pack_hook, self.unpack_hook)
        if not all(callable(h) for h in hooks):
            raise TypeError(incompatible("_push_saved_tensors_default_hooks", f"(arg0: {CALLABLE}, arg1: {CALLABLE})", hooks, {}))
        rec = per_thread.recorder
        disabled = rec.flags.packing_refused
        if disabled is not None:
            raise RuntimeError(disabled)
        rec.flags.packing.append(hooks)
        rec.rare += 1

    def __exit__(self, *exc: object) -> None:
        rec = per_thread.recorder
        if not rec.flags.packing:
            raise RuntimeError("saved_tensors_hooks: __exit__ without __enter__, no hooks are set in this thread")
        rec.flags.packing.pop()
        rec.rare -= 1


class save_on_cpu(saved_tensors_hooks):
    """Within the block, tensors saved for backward are kept on the host, and brought back to their device when they are used.

    pin_memory: XLA chooses the memory through which it copies, so this makes no difference, except that `device_type` may not be "cpu" then:
    RuntimeError when a tensor is saved.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        pinned_host = pin_memory and device_type == "cpu"

        def pack_to_cpu(tensor: Tensor) -> tuple[device, Tensor]:
            if pinned_host:
                raise RuntimeError(NO_PINNED)
            return tensor.device, tensor.cpu()

        def unpack_from_cpu(packed: tuple[device, Tensor]) -> Tensor:
            where, tensor = packed
            return tensor.to(where)

        super().__init__(pack_to_cpu, unpack_from_cpu)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Generator[None, None, None]:
    """Within the block, entering `saved_tensors_hooks` raises RuntimeError(error_message). So does entering this block where hooks are active.

    TypeError if the message is no string. Also a decorator.
    """
    if not isinstance(error_message, str):
        signature = "(error_message: str, fail_if_non_empty: bool = True)"
        raise TypeError(incompatible("_saved_tensors_hooks_disable", signature, (error_message,), {}))
    rec = per_thread.recorder
    if rec.flags.packing:
        raise RuntimeError(error_message)
    before = rec.flags.packing_refused
    rec.flags.packing_refused = error_message
    try:
        yield
    finally:
        rec.flags.packing_refused = before


def hooks_are_enabled() -> bool:
    """Whether `saved_tensors_hooks` may be entered in this thread."""
    return per_thread.recorder.flags.packing_refused is None


class _Handle:
    """What a node holds of a tensor saved within `allow_mutation_on_saved_tensors`: the content is the context's."""

    __slots__ = ("__weakref__",)


class _AllowMutationOnSavedContext:
    """The tensors saved within `allow_mutation_on_saved_tensors`."""

    def __init__(self) -> None:
        self._saved: weakref.WeakKeyDictionary[_Handle, Value] = weakref.WeakKeyDictionary()
        self._handles: weakref.WeakValueDictionary[int, _Handle] = weakref.WeakValueDictionary()

    @property
    def original(self) -> dict[_Handle, Tensor]:
        """The saved tensors that nobody has written to."""
        return {handle: _tensor(value) for handle, value in self._saved.items() if not outdated(value)}

    @property
    def cloned(self) -> dict[_Handle, Tensor]:
        """The saved tensors that have been written to since, as they were."""
        return {handle: _tensor(value) for handle, value in self._saved.items() if outdated(value)}

    def clear(self) -> None:
        """Forget all that was saved: a backward pass that needs it raises AssertionError."""
        self._saved.clear()
        self._handles.clear()

    def _pack(self, tensor: Tensor) -> _Handle:
        value = tensor._read()
        handle = self._handles.get(id(value))
        if handle is None:
            handle = self._handles[id(value)] = _Handle()
            self._saved[handle] = value
        return handle

    def _unpack(self, handle: _Handle) -> Tensor:
        value = self._saved.get(handle)
        if value is None:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' contextin which the graph was originally recorded."
            )
        return _tensor(value)


def _tensor(value: Value) -> Tensor:
    return wrap(per_thread.recorder.alias(value))


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Generator[_AllowMutationOnSavedContext, None, None]:
    """Within the block, tensors saved for backward may be written to: backward uses what they held when they were saved. It must be called within
    the same block (AssertionError); the blocks cannot be nested (RuntimeError).

    Example::

        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            b = a.clone()
            out = (b**2).sum()
            b.sin_()
            out.backward()  # the gradient at b before sin_
    """
    rec = per_thread.recorder
    context = _AllowMutationOnSavedContext()
    with saved_tensors_hooks(context._pack, context._unpack):
        if rec.flags.mutation:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        rec.flags.mutation = True
        try:
            yield context
        finally:
            rec.flags.mutation = False
            context.clear()
