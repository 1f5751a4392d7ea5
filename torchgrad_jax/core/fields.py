"""The fields of what there are most of, tensors and nodes: classes of nothing else, so that compiled code reads them without asking Python. And what
is asked of a tensor most."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.declaration.strides import contiguous_strides
from torchgrad_jax.memory.storage import Storage, read_through
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval, Value

# What `View.seen` is of a view that nobody has read: its tensor's Value is any of its aval.
UNREAD = -1


class TensorFields:
    """See Tensor."""

    __slots__ = ("_value", "_storage", "_view", "_rg", "_node", "_nr", "_extra")
    _value: Value
    _storage: Any
    _view: Any
    _rg: bool
    _node: Any
    _nr: int
    _extra: Any

    @property
    def _aval(self) -> Aval:
        return aval_of_tensor(self)

    def __hash__(self) -> int:
        return id(self)


class NodeFields:
    """See Node."""

    __slots__ = ("next", "seq", "hooks")
    next: tuple[Any, ...]
    seq: int
    hooks: Any


class Extra:
    """What few tensors have: a gradient, the accumulator of a leaf, hooks, a tangent. hooked: where the hooks are that the tensor had when it was
    given another layout in place: later ones join them. nested: of a Jacobian that JAX made, the same as a part of a pytree (`interop.py`)."""

    __slots__ = ("grad", "accumulator", "hooks", "post_hooks", "retains_grad", "tangent", "hooked", "nested")

    def __init__(self) -> None:
        self.grad: Any = None
        self.accumulator: Any = None
        self.hooks: Any = None
        self.post_hooks: Any = None
        self.retains_grad = False
        self.tangent: Any = None
        self.hooked: Any = None
        self.nested: Any = None


class LeafFields(NodeFields):
    """See AccumulateGrad."""

    __slots__ = ("variable",)

    def __init__(self, variable: Any) -> None:
        self.variable = variable
        self.next: tuple[Any, ...] = ()
        self.seq = 1 << 62
        self.hooks = None


class OpNodeFields(NodeFields):
    """See OpNode."""

    __slots__ = ("plan", "saved")
    plan: Any
    saved: tuple[Any, ...] | None


class FunctionFields(NodeFields):
    """See BackwardCFunction."""

    __slots__ = ("_recorded_call", "_recorded_saved")
    _recorded_call: Any
    _recorded_saved: tuple[Any, ...] | None


class SavedFields:
    """See SavedTensor."""

    __slots__ = ("kept", "value", "source", "nr", "own", "packed", "unpack_hook", "freed")
    kept: Any
    value: Value | None
    source: Any
    nr: int
    own: bool
    packed: tuple[Any, ...]
    unpack_hook: Any
    freed: bool


class CalculusFields:
    """See Calculus."""

    __slots__ = ("recorder", "call", "add", "unpack", "tensors", "records", "placed", "needed")
    recorder: Any
    call: Any
    add: Any
    unpack: Any
    tensors: bool
    records: bool
    placed: Any
    needed: Any


class CopySlicesFields(NodeFields):
    """See CopySlices."""

    __slots__ = ("inner", "links", "aval", "through_self", "has_base", "repeats", "freed", "refusal")
    inner: Any
    links: tuple[Any, ...]
    aval: Any
    through_self: bool
    has_base: bool
    repeats: bool
    freed: bool
    refusal: str | None


# ---------------------------------------------------------------------- asked of a tensor


def aval_of_tensor(t: Any) -> Any:
    """The tensor's shape, dtype and device, which are asked for without reading it."""
    storage = t._storage
    return t._value.aval if storage is None or t._view is not None else storage.value.aval


def content_of(t: Any) -> Value:
    """The tensor's present Value, whatever has become of its grad_fn."""
    storage = t._storage
    if storage is None:
        return t._value
    view = t._view
    if view is None:
        return storage.value
    if view.seen != storage.writes:
        value: Value = read_through(per_thread.recorder, view.links, storage.value)
        if value.counter is None:
            value.counter, value.version = storage.counter, storage.counter.version
        if view.seen == UNREAD and view.made_in != "default":
            value.made_in = view.made_in
        t._value = value
        view.seen = storage.writes
    return t._value


def read(t: Any) -> Value:
    """The tensor's present Value; for a view whose base was written to, the grad_fn is brought up to date too."""
    storage = t._storage
    if storage is None:
        return t._value
    view = t._view
    if view is None:
        return storage.value
    if view.seen != storage.writes:
        content_of(t)
    base = view.base
    if base is not None:
        if view.node_seen != storage.counter.version and per_thread.recorder.grad_enabled:
            view.regenerate(t, storage)
        if t._node is None:
            t._rg = base._rg or view.asked
    return t._value


def needs_grad(t: Any) -> bool:
    """Whether gradients with respect to the tensor are recorded."""
    view = t._view
    if view is not None and t._node is None:
        base = view.base
        if base is not None:
            t._rg = base._rg or view.asked
    return t._rg


def storage_of(t: Any) -> Any:
    """The tensor's storage, made when somebody begins to share it."""
    storage = t._storage
    if storage is None:
        if t._value.counter is not None:  # a Value belongs to one storage
            t._value = per_thread.recorder.alias(t._value)
        storage = t._storage = Storage(t._value)
    return storage


def strides_of(t: Any) -> tuple[int, ...]:
    """The strides, in elements, that PyTorch would report."""
    view = t._view
    return contiguous_strides(t._aval.shape) if view is None else view.strides


def offset_of(t: Any) -> int:
    """The offset of the first element in the storage, in elements."""
    view = t._view
    return 0 if view is None else view.offset


def present_node(t: Any) -> Any:
    """The tensor's grad_fn, made anew for a view whose base was written to."""
    view = t._view
    if view is not None and view.base is not None and view.node_seen != t._storage.counter.version:
        view.regenerate(t, t._storage)
    return t._node


def edge_of(t: Any) -> tuple[Any, int]:
    """Where the gradient of a tensor goes that requires one."""
    node = t._node if t._view is None else present_node(t)
    if node is not None:
        return node, t._nr
    extra: Extra | None = t._extra
    if extra is not None and extra.accumulator is not None and t._view is None:
        node = extra.accumulator()
        if node is not None:
            return node, 0
    return t._end_of_graph()
