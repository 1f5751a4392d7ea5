"""What nodes save for backward, as the user may see and replace it.

An operator's node ordinarily keeps bare Values. A `SavedTensor` stands in a Value's place where `saved_tensors_hooks` took the tensor when it was
saved, and from when the user asks for `grad_fn._raw_saved_self`. What a Function saves is a `SavedTensor` always.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torchgrad_jax.core.fields import SavedFields, read
from torchgrad_jax.core.made import detached, wrap
from torchgrad_jax.core.messages import DETACHED_MESSAGE, modified_message
from torchgrad_jax.core.node import AccumulateGrad, Node, Saved
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.memory.storage import Detached, counted_on, has_moved, outdated, present
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.value import Value


class SavedTensor(Saved, SavedFields):
    """A tensor that a node saved: an element of ``grad_fn._raw_saved_*``, which only the library makes.

    kept: the tensor itself, weakly where a later write to it could make it depend on the node; None for an output of the node. value: what it held
    when it was saved; None if nothing was saved, or hooks took it. source, nr: where its gradient goes; `own`: to the saving node itself. packed:
    what the pack hook returned.
    """

    __slots__ = ("__weakref__",)
    kept: Tensor | weakref.ref[Tensor] | None
    value: Value | None
    source: Node | None
    nr: int
    own: bool
    packed: tuple[Any, ...]
    unpack_hook: Callable[[Any], Tensor] | None
    freed: bool

    def __init__(self) -> None:
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden.")

    def register_hooks(self, *hooks: Any, **named: Any) -> None:
        """Call ``pack(tensor)`` now, keep what it returns, and use ``unpack`` of that in place of the tensor.

        TypeError where the two are not callable. RuntimeError if the tensor has hooks already or was freed, if None was saved, or if `pack` writes to
        the tensor.
        """
        if named or len(hooks) != 2 or not all(callable(h) for h in hooks):
            raise TypeError(incompatible("register_hooks", f"(self: {_NAME}, arg0: {CALLABLE}, arg1: {CALLABLE})", (self, *hooks), named))
        if self.freed:
            raise RuntimeError(_REGISTERED_LATE)
        if self.unpack_hook is not None:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is allowed at a time."
            )
        if self.value is None:
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        t, value = self.tensor, self.value
        pack, unpack = hooks
        _pack(self, wrap(readable(value)) if t is None else detached(t), pack, unpack)

    @property
    def tensor(self) -> Tensor | None:
        """The tensor itself, while it is there."""
        return self.kept() if isinstance(self.kept, weakref.ref) else self.kept

    @property
    def data(self) -> Any:
        """What is kept: the tensor, or what the pack hook returned."""
        if self.unpack_hook is not None:
            return self.packed[0]
        t = self.tensor
        return t if t is not None or self.value is None else wrap(readable(self.value))

    def unpack(self) -> Any:
        """The tensor. RuntimeError where it is an output of its own node, TypeError where the unpack hook returns no tensor."""
        if self.own:
            raise RuntimeError(DETACHED_MESSAGE)
        return self.tensor_for(None)

    def tensor_for(self, node: Node | None) -> Any:
        """See Saved. None if None was saved. TypeError where the unpack hook returns no tensor."""
        return tensor_for(self, node)

    def _unpacked_by_hook(self, node: Node | None, hook: Callable[..., Tensor]) -> Tensor:
        found = hook(*[p.again(node) if type(p) is _Itself else p for p in self.packed])
        if not isinstance(found, Tensor):
            raise TypeError(f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(found).__name__}")
        source = node if self.own else self.source
        return found if source is None and not found.requires_grad else with_history(detached(found), source, self.nr)

    def _raise_modified(self, node: Node | None, value: Value) -> None:
        t = self.tensor
        origin = node if self.own else self.source if t is None else t._present_node()
        name, nr = ("", 0) if origin is None or type(origin) is AccumulateGrad else (origin.name(), self.nr)
        if t is None and not self.own and written_itself(value, origin is not None):  # the node that the tensor has now
            name, nr = name_since_write(value), 0
        raise RuntimeError(modified_message(value, name, nr))

    def release(self) -> None:
        """See Saved."""
        self.kept = self.value = self.source = self.unpack_hook = None
        self.packed = ()
        self.freed = True


_NAME, CALLABLE = "torch._C._autograd.SavedTensor", "collections.abc.Callable"
SavedTensor.__module__ = _NAME.rpartition(".")[0]
_REGISTERED_LATE = (
    "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the graph are freed when you call .backward() or "
    "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved variables "
    "after calling backward."
)


def incompatible(name: str, signature: str, given: tuple[Any, ...], named: dict[str, Any], result: str = "None") -> str:
    """PyTorch's text for arguments that fit none of a function's signatures."""
    shown = ", ".join(map(repr, given))
    keywords = "; kwargs: " + ", ".join(f"{n}={v!r}" for n, v in named.items()) if named else ""
    return (
        f"{name}(): incompatible function arguments. The following argument types are supported:\n    1. {signature} -> {result}\n\n"
        f"Invoked with: {shown}{keywords}"
    )


def tensor_for(saved: Any, node: Node | None) -> Any:
    """`Saved.tensor_for` of a SavedTensor."""
    if saved.unpack_hook is not None:
        return saved._unpacked_by_hook(node, saved.unpack_hook)
    value: Value | None = saved.value
    if value is None:
        return None
    if value.counter is not None and outdated(value):
        value = present(value)
        value = counted_on(value) if has_moved(value) else value
        if outdated(value):
            saved._raise_modified(node, value)
    t = saved.kept
    if type(t) is not Tensor and isinstance(t, weakref.ref):
        t = t()
    if t is not None:
        return t
    return with_history(wrap(readable(value)), node if saved.own else saved.source, saved.nr)


def readable(value: Value) -> Value:
    """A Value with this content that may become another tensor's: one belongs to one storage."""
    return value if value.counter is None else per_thread.recorder.alias(value)


def with_history(t: Tensor, source: Node | None, nr: int) -> Tensor:
    """`t`, a new tensor, as one whose gradient goes to `source`."""
    if source is None:
        return t
    if source.face is not None and (shown := source.face[0]()) is not None:
        source, nr = shown, source.face[1]
    t._rg = True
    if isinstance(source, AccumulateGrad):
        t._own_extra().accumulator = weakref.ref(source)
    else:
        t._node, t._nr = source, nr
    return t


# ---------------------------------------------------------------------- what has become of a tensor since


def written_itself(value: Value, tracked: bool) -> bool:
    """Whether a saved tensor was given another node since by a write: not if the write was to its twin by `detach`, which is told by their gradients.
    tracked: whether the tensor had one when it was saved."""
    counter = value.counter
    written = counter.writer is not None and counter.writer[0] > value.version
    return written and tracked != (getattr(counter, "tracked", 0) > value.version)


def name_since_write(value: Value) -> str:
    """The name of the node that a tensor was given by a write to its memory: a view gets one of its own when PyTorch asks for it. "" if it was cut
    off from that in place."""
    if is_of_view(value):
        return "AsStridedBackward0"
    version, name = value.counter.writer
    return name if version > getattr(value.counter, "cut", -1) else ""


def is_of_view(value: Value, edge: Any = None) -> bool:
    """Whether a saved Value was the content of a view, and not of a tensor that was itself given another layout."""
    if getattr(value, "part", False):
        return True
    signature = getattr(value, "signature", None)
    operator = None if signature is None else getattr(signature.bop, "operator", None)
    return operator is not None and operator.view is not None and not hasattr(present(value, edge).counter, "relaid")


# ---------------------------------------------------------------------- saving


def blank() -> SavedTensor:
    made: Any = SavedFields.__new__(SavedTensor)
    made.kept = made.value = made.source = made.unpack_hook = None
    made.nr, made.own, made.packed, made.freed = 0, False, (), False
    return made


def save(rec: Recorder, tensor: Tensor | None, node: Node | None, own: bool, holds: bool) -> SavedTensor:
    """What `node` (None: something else) keeps of a tensor. own: it is an output of the node. holds: it refers to the node in some way, so the node
    must not refer to it."""
    made: Any = blank()
    if tensor is None:
        return made
    t: Any = tensor
    made.value, made.own, made.nr = read(t), own, t._nr
    if t._rg and not own:
        made.source, made.nr = tensor._edge()
    hooks = rec.flags.packing
    if hooks:
        pack, unpack = hooks[-1]
        _pack(made, tensor, pack, unpack, holds)
    elif not holds:
        # Nobody can make a leaf that requires a gradient depend on anything; a tensor of the user's class is more than its content.
        made.kept = tensor if type(made.source) is AccumulateGrad or type(tensor) is not Tensor else weakref.ref(tensor)
    return made


class _Itself:
    """In place of a tensor that its pack hook returned as it was, where its own node would hold it."""

    __slots__ = ("tensor", "value", "saved")

    def __init__(self, t: Tensor, value: Value, saved: SavedTensor) -> None:
        self.tensor, self.value, self.saved = weakref.ref(t), value, weakref.ref(saved)

    def again(self, node: Node | None) -> Tensor:
        """The tensor, or one like it if it is gone."""
        t, saved = self.tensor(), self.saved()
        assert saved is not None
        return t if t is not None else with_history(wrap(readable(present(self.value))), node if saved.own else saved.source, saved.nr)


def _pack(saved: SavedTensor, t: Tensor, pack: Callable[..., Any], unpack: Callable[..., Any], holds: bool = False) -> None:
    """Let `pack` take `t`. RuntimeError if it writes to it."""
    rec = per_thread.recorder
    value = saved.value
    assert value is not None
    saved.unpack_hook, saved.kept, saved.value = unpack, None, None
    version, recording, flags = t._version, rec.grad_enabled, rec.flags
    rec.grad_enabled = False
    passing, suspended = (rec.level, flags.forward_grad), flags.suspended
    if suspended is not None:  # the user's code sees tangents even where the library itself passes none on
        rec.level, flags.forward_grad = suspended
    try:
        found = pack(t)
    finally:
        rec.grad_enabled = recording
        if suspended is not None:
            rec.level, flags.forward_grad = passing
    saved.packed = (_Itself(t, value, saved) if holds and found is t else found,)
    if t._version != version:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot be modified by in-place "
            "operations as this can lead to unexpected side-effects. Please open an issue if you need to perform in-place operations on the input to "
            "a pack hook."
        )


def reset_hooks(rec: Recorder, hooks: list[Any]) -> None:
    """Make `hooks` the active ones: a backward pass leaves those that it found, whatever hooks it has called have entered or left."""
    rec.rare += len(hooks) - len(rec.flags.packing)
    rec.flags.packing[:] = hooks


def forget_history(t: Tensor) -> None:
    """Let nodes that saved `t`, the result of an operation, notice that it is about to be cut off from its graph in place."""
    value = t._content()
    content = per_thread.recorder.alias(value)
    if t._storage is not None:
        content.counter, content.version = value.counter, value.version
        t._storage.counter.cut = t._storage.counter.version
        if t._view is None:  # what was given another layout in place is a view of its memory
            t._storage.value = content
    t._value = content
    value.counter, value.version = Detached(content), 0
