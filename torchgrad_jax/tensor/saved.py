"""What nodes save for backward, as the user may see and replace it.

An operator's node ordinarily keeps bare Values. A `SavedTensor` stands in a Value's place where `saved_tensors_hooks` took the tensor when it was
saved, and from when the user asks for `grad_fn._raw_saved_self`. What a Function saves is a `SavedTensor` always.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.ops.declare import ARRAY, registry
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.value import Value, constant
from torchgrad_jax.tensor.messages import DETACHED_MESSAGE, FREED_MESSAGE, modified_message
from torchgrad_jax.tensor.node import Node, OpNode, Saved, WithSaved, is_detached, name_since_write, unchanged, written_itself
from torchgrad_jax.tensor.storage import Detached, outdated, present
from torchgrad_jax.tensor.tensor import AccumulateGrad, Tensor, result, wrap

HOOKS = "saved_tensors_hooks"  # the recorder's flag that lists a thread's pairs of hooks, innermost last
_new = object.__new__


class SavedTensor(Saved):
    """A tensor that a node saved: an element of ``grad_fn._raw_saved_*``, which only the library makes.

    kept: the tensor itself, weakly where a later write to it could make it depend on the node; None for an output of the node. value: what it held
    when it was saved; None if nothing was saved, or hooks took it. source, nr: where its gradient goes; `own`: to the saving node itself. packed:
    what the pack hook returned.
    """

    __slots__ = ("kept", "value", "source", "nr", "own", "packed", "unpack_hook", "freed", "__weakref__")
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
        from torchgrad_jax.tensor.inplace import detached

        t, value = self.tensor, self.value
        pack, unpack = hooks
        _pack(self, wrap(_readable(value)) if t is None else detached(t), pack, unpack)

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
        return t if t is not None or self.value is None else wrap(_readable(self.value))

    def unpack(self) -> Any:
        """The tensor. RuntimeError where it is an output of its own node, TypeError where the unpack hook returns no tensor."""
        if self.own:
            raise RuntimeError(DETACHED_MESSAGE)
        return self.tensor_for(None)

    def tensor_for(self, node: Node | None) -> Any:
        """See Saved. None if None was saved. TypeError where the unpack hook returns no tensor."""
        if self.unpack_hook is not None:
            return self._unpacked_by_hook(node, self.unpack_hook)
        value = self.value
        if value is None:
            return None
        if outdated(value):
            value = present(value)
            if outdated(value):
                self._raise_modified(node, value)
        t = self.tensor
        if t is not None:
            return t
        return with_history(wrap(_readable(value)), node if self.own else self.source, self.nr)

    def _unpacked_by_hook(self, node: Node | None, hook: Callable[..., Tensor]) -> Tensor:
        from torchgrad_jax.tensor.inplace import detached

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


def _readable(value: Value) -> Value:
    """A Value with this content that may become another tensor's: one belongs to one storage."""
    return value if value.counter is None else per_thread.recorder.alias(value)


def with_history(t: Tensor, source: Node | None, nr: int) -> Tensor:
    """`t`, a new tensor, as one whose gradient goes to `source`."""
    if source is None:
        return t
    t._rg = True
    if isinstance(source, AccumulateGrad):
        t._own_extra().accumulator = weakref.ref(source)
    else:
        t._node, t._nr = source, nr
    return t


# ---------------------------------------------------------------------- saving


def _blank() -> SavedTensor:
    made = _new(SavedTensor)
    made.kept = made.value = made.source = made.unpack_hook = None
    made.nr, made.own, made.packed, made.freed = 0, False, (), False
    return made


def save(rec: Recorder, t: Tensor | None, node: Node, own: bool, holds: bool) -> SavedTensor:
    """What `node` keeps of `t`. own: `t` is an output of the node. holds: `t` refers to the node in some way, so the node must not refer to it."""
    made = _blank()
    if t is None:
        return made
    made.value, made.own, made.nr = t._read(), own, t._nr
    if t._rg and not own:
        made.source, made.nr = t._edge()
    hooks = rec.flags.get(HOOKS)
    if hooks:
        pack, unpack = hooks[-1]
        _pack(made, t, pack, unpack, holds)
    elif not holds:
        # Nobody can make a leaf that requires a gradient depend on anything; a tensor of the user's class is more than its content.
        made.kept = t if type(made.source) is AccumulateGrad or type(t) is not Tensor else weakref.ref(t)
    return made


# The recorder's flag for those of its flags that say whether operations pass tangents on, as the user has them; while the library itself stops it.
SUSPENDED = "suspended"


class _Itself:
    """In place of a tensor that its pack hook returned as it was, where its own node would hold it."""

    __slots__ = ("tensor", "value", "saved")

    def __init__(self, t: Tensor, value: Value, saved: SavedTensor) -> None:
        self.tensor, self.value, self.saved = weakref.ref(t), value, weakref.ref(saved)

    def again(self, node: Node | None) -> Tensor:
        """The tensor, or one like it if it is gone."""
        t, saved = self.tensor(), self.saved()
        assert saved is not None
        return t if t is not None else with_history(wrap(_readable(present(self.value))), node if saved.own else saved.source, saved.nr)


def _pack(saved: SavedTensor, t: Tensor, pack: Callable[..., Any], unpack: Callable[..., Any], holds: bool = False) -> None:
    """Let `pack` take `t`. RuntimeError if it writes to it."""
    rec = per_thread.recorder
    value = saved.value
    assert value is not None
    saved.unpack_hook, saved.kept, saved.value = unpack, None, None
    version, recording, flags = t._version, rec.grad_enabled, rec.flags
    rec.grad_enabled = False
    suspended = flags.get(SUSPENDED)
    if suspended is not None:  # the user's code sees tangents even where the library itself passes none on
        passing = {name: flags[name] for name in suspended}
        flags.update(suspended)
    try:
        found = pack(t)
    finally:
        rec.grad_enabled = recording
        if suspended is not None:
            flags.update(passing)
    saved.packed = (_Itself(t, value, saved) if holds and found is t else found,)
    if t._version != version:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot be modified by in-place "
            "operations as this can lead to unexpected side-effects. Please open an issue if you need to perform in-place operations on the input to "
            "a pack hook."
        )


def reset_hooks(rec: Recorder, hooks: list[Any]) -> None:
    """Make `hooks` the active ones: a backward pass leaves those that it found, whatever hooks it has called have entered or left."""
    rec.rare += len(hooks) - len(rec.flags.get(HOOKS, ()))
    rec.flags[HOOKS] = hooks


def pack_operands(rec: Recorder, node: OpNode, operands: Sequence[Any], target: Tensor | None = None) -> None:
    """Give what `node` saved of its operands to the hooks that are active, if any. target: the operand that is about to be written to."""
    if not rec.flags.get(HOOKS):
        return
    saves = node.plan.saves
    saved: list[Any] = list(node.saved or ())
    for i in node.plan.unpacking:
        t = operands[saves[i]] if saves[i] >= 0 else None
        if isinstance(t, Tensor):
            if target is not None and saves[i] == 0:
                from torchgrad_jax.tensor.dispatch import apply

                t = apply(registry["clone"].bind((ARRAY,)), (t,))
            saved[i] = save(rec, t, node, False, False)
    node.saved = WithSaved(saved)


def pack_results(rec: Recorder, node: OpNode, results: Any) -> None:
    """Give what `node` saved of its results to the hooks that are active, if any."""
    if not rec.flags.get(HOOKS):
        return
    outs = results if isinstance(results, tuple) else (results,)
    saves = node.plan.saves
    saved: list[Any] = list(node.saved or ())
    for i in node.plan.unpacking:
        if saves[i] < 0:
            t = outs[-1 - saves[i]]
            saved[i] = save(rec, t, node, t._rg, True)
    node.saved = WithSaved(saved)


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


# ---------------------------------------------------------------------- the saved tensors of an operator's node


def saved_attribute(node: OpNode, name: str) -> Any:
    """``grad_fn._saved_<name>``: a tensor, a number, None where it was not needed. NotImplemented where there is no such attribute."""
    plan = node.plan
    if name not in plan.attributes:
        return NotImplemented
    if not plan.attributes[name]:
        return plan.static(name) if name not in plan.saved_names else _saved_number(node, plan.saved_names.index(name))
    if node.saved is None:
        raise RuntimeError(FREED_MESSAGE)
    places = [i for i, n in enumerate(plan.saved_names) if n == name]
    if plan.is_list(name):
        return tuple(None if i is None else unpack_saved(node, i) for i in plan.list_places(name))
    if not places:
        return None
    if name == "other" and type(node.saved[places[0]]) in (int, float, complex, bool):
        return wrap(_of_number(node.saved[places[0]]))
    return unpack_saved(node, places[0])


def _saved_number(node: OpNode, i: int) -> Any:
    if node.saved is None:
        raise RuntimeError(FREED_MESSAGE)
    return node.saved[i]


def raw_saved(node: OpNode, name: str) -> Any:
    """``grad_fn._raw_saved_<name>``: a SavedTensor, or a tuple of them. NotImplemented where there is no such attribute."""
    plan = node.plan
    if not plan.attributes.get(name):
        return NotImplemented
    places = [i for i, n in enumerate(plan.saved_names) if n == name]
    if not places or node.saved is None:
        made = _blank()
        made.freed = node.saved is None
        return made
    saved = list(node.saved)
    for i, kept in enumerate(saved):
        if type(kept) is Value:
            saved[i] = _from_value(node, i, kept)
        elif i in places and not isinstance(kept, Saved):
            if name != "other":
                return NotImplemented
            saved[i] = _blank()
            saved[i].value = _of_number(kept)
    node.saved = WithSaved(saved)
    return tuple(_blank() if i is None else saved[i] for i in plan.list_places(name)) if plan.is_list(name) else saved[places[0]]


def keep_as_saved(node: OpNode, i: int) -> Saved:
    """What `node` saved at place `i`, a tensor, as a Saved."""
    assert node.saved is not None
    kept = node.saved[i]
    return kept if isinstance(kept, Saved) else _from_value(node, i, kept)


def _of_number(number: Any) -> Value:
    return constant(np.asarray(number))


def _from_value(node: OpNode, i: int, value: Value) -> SavedTensor:
    made = _blank()
    made.value = value
    source, made.nr = _origin(node, i)
    made.own = source is node
    if type(source) is AccumulateGrad:
        made.kept = source.variable
    if not made.own:
        made.source = source
    return made


def _origin(node: OpNode, i: int) -> tuple[Node | None, int]:
    """The edge of what `node` saved at place `i`; (None, 0) if it has no gradient."""
    origin = node.plan.origins[i]
    if origin is None:
        return None, 0
    if origin < 0:
        return (node, -1 - origin) if node.plan.outputs[-1 - origin] else (None, 0)
    return node.next[origin]


def unpack_saved(node: OpNode, i: int) -> Any:
    """What `node` saved at place `i`, as the Tensor it was (with its history) or the number."""
    assert node.saved is not None
    kept = node.saved[i]
    if isinstance(kept, Saved):
        return kept.tensor_for(node)
    if type(kept) is not Value:
        return kept
    source, nr = _origin(node, i)
    value = unchanged(node, i)
    if source is None and (leaf := _later_leaf(value)) is not None:
        return leaf
    if type(kept.counter) is Detached and source is not node:
        source = None
    if isinstance(source, AccumulateGrad):
        return source.variable
    if value.counter is None:  # the first storage that this one belongs to is to be that of the tensor that was saved
        value = per_thread.recorder.alias(value)
    return with_history(wrap(value), source, nr)


def unpack_all(node: OpNode) -> tuple[Any, ...]:
    """What `node` saved, as Tensors and numbers, for a pass that is itself differentiated. RuntimeError where it was freed."""
    if node.saved is None:
        raise RuntimeError(FREED_MESSAGE)
    found: list[Any] = []
    for kept, origin in zip(node.saved, node.plan.origins, strict=True):
        if type(kept) is not Value:
            if isinstance(kept, Saved):
                return _unpack_in_order(node, node.saved)
            found.append(kept)
        elif kept.counter is not None:
            if outdated(kept):  # which of several is told first depends on the order
                return _unpack_in_order(node, node.saved)
            found.append(unpack_saved(node, len(found)))
        elif origin is None:
            leaf = _later_leaf(kept)
            found.append(wrap(kept) if leaf is None else leaf)
        elif origin < 0:
            found.append(result(kept, node, -1 - origin))
        else:
            source, nr = node.next[origin]
            found.append(source.variable if type(source) is AccumulateGrad else result(kept, source, nr))
    return _with_constants(node, found) if node.plan.constant else tuple(found)


def _later_leaf(value: Value) -> Tensor | None:
    """The tensor that was saved when it required no gradient, if it is a leaf that does now: PyTorch has saved the tensor itself."""
    t: Tensor | None = value.leaf() if hasattr(value, "leaf") else None
    return t if t is not None and t.requires_grad and t._node is None and t._content() is value else None


def _with_constants(node: OpNode, found: list[Any]) -> tuple[Any, ...]:
    """What was unpacked, without the history of what gradients do not depend on, or by steps alone."""
    for i in node.plan.constant:
        if isinstance(found[i], Tensor):
            found[i] = wrap(_readable(found[i]._content()))
    return tuple(found)


def _unpack_in_order(node: OpNode, saved: tuple[Any, ...]) -> tuple[Any, ...]:
    found: list[Any] = list(saved)
    for i in node.plan.unpacking:
        kept = saved[i]
        if type(kept) is Value and is_detached(node, i, kept):
            raise RuntimeError(DETACHED_MESSAGE)
        found[i] = unpack_saved(node, i)
    return _with_constants(node, found)
