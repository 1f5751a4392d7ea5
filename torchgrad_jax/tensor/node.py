"""The graph: Nodes and the edges between them. Dispatch builds it; `torchgrad_jax.autograd` runs it.

An edge is ``(node, n)``: the gradient of the n-th output of `node`. A node's gradients are Values while the backward pass
itself is not differentiated, and Tensors under `create_graph`: `run` works on either, by way of `Calculus`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

from torchgrad_jax.ops.derivative import Plan
from torchgrad_jax.runtime.recorder import Recorder
from torchgrad_jax.runtime.value import Aval, Value
from torchgrad_jax.tensor.messages import DETACHED_MESSAGE, FREED_MESSAGE, MODIFIED_INDIRECTLY, modified_message, untracked
from torchgrad_jax.tensor.storage import cut_off, outdated, present

Edge = tuple["Node", int]


class Calculus:
    """How a node computes: on Values (`ops` are recorded) or on Tensors (`ops` are dispatched, passing on what Tensors carry).

    records: whether the operations extend the graph.
    placed: while a pass is rehearsed, what each node uses in place of its saved values or links: its numbers are `Placed`.
    needed: the nodes whose gradients the pass uses; None: all.
    """

    __slots__ = ("recorder", "call", "add", "unpack", "tensors", "records", "placed", "needed")

    def __init__(self, rec: Recorder, call: Any, add: Any, unpack: Any, tensors: bool, records: bool | None = None) -> None:
        self.recorder: Recorder = rec
        self.call: Callable[[Any, tuple[Any, ...]], Any] = call
        self.add: Callable[[Any, Any], Any] = add
        self.unpack: Callable[[OpNode], tuple[Any, ...]] = unpack
        self.tensors: bool = tensors
        self.records: bool = tensors if records is None else records
        self.placed: dict[Node, Any] | None = None
        self.needed: Collection[Node] | None = None


class Placed:
    """A Python number that knows which operand of a whole backward pass it is: equal numbers may be one object."""

    __slots__ = ("number", "place")

    def __init__(self, number: Any, place: int) -> None:
        self.number, self.place = number, place


def kind_of(number: Any) -> type:
    """The type of a number, placed or not."""
    return type(number.number) if type(number) is Placed else type(number)


class Saved:
    """A tensor that a node keeps in another form than as its bare Value: what hooks took, what a Function saved, what the user asked to see."""

    __slots__ = ()

    def tensor_for(self, node: Node | None) -> Any:
        """The tensor again, as `node` uses it. RuntimeError where it was written to since."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop the tensor: the node was freed."""
        raise NotImplementedError


class WithSaved(tuple[Any, ...]):
    """What an OpNode keeps, where `Saved` objects are among it: ordinary nodes are told from such by the tuple's type."""

    __slots__ = ()


class Node:
    """One operation in the graph. `next` are its edges, one for each input that needs a gradient."""

    __slots__ = ("next", "seq", "hooks", "__weakref__", "__dict__")
    next: tuple[Edge, ...]
    seq: int
    hooks: Hooks | None
    # A node whose outputs got no gradient passes none on, unless it is the user's own function.
    runs_without_gradient = False
    # Whether it leaves out the gradients that a pass does not need.
    skips_unneeded = False
    # Whether its outputs share memory with its input.
    is_view = False
    # Whether PyTorch has no such node: the edge to it is shown as none. How the view was made at which it ends the graph: see `View`.
    hidden, made_in = False, "default"

    def name(self) -> str:
        """The node's name, such as ``MulBackward0``."""
        return type(self).__name__

    def told(self, nr: int) -> tuple[str, int]:
        """How an error names the tensor whose gradient comes here: its present node's name, "" where it has none, and which of its outputs it is."""
        return (self.name(), nr) if self.next else ("", 0)

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes that this one passes gradients on to, one entry for each tensor input; ``(None, 0)`` where none."""
        return tuple([shown(e) for e in self.next])

    @property
    def edge_places(self) -> Sequence[int]:
        """Where in `next_functions` each of the edges stands."""
        entries = self.next_functions
        return range(len(entries)) if len(entries) == len(self.next) else [i for i, (node, _) in enumerate(entries) if node is not None]

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict for the user's own notes."""
        return self.__dict__.setdefault("_metadata", {})

    @property
    def requires_grad(self) -> bool:
        """True: there is no node without a gradient to pass on."""
        return True

    def _sequence_nr(self) -> int:
        return self.seq

    def _set_sequence_nr(self, number: int) -> None:
        self.seq = number

    @property
    def _input_metadata(self) -> tuple[InputMetadata, ...]:
        return tuple([InputMetadata(aval) for aval in self.output_avals])

    def __call__(self, *grad_outputs: Any) -> Any:
        """The gradients of the inputs, given those of the outputs: a tensor, or a tuple laid out as `next_functions`. No hook is called.

        TypeError for another number of gradients, RuntimeError where the graph was freed.
        """
        return call_node(self, grad_outputs)

    def used(self, edges: list[bool]) -> list[bool]:
        """Along which edges it gives a gradient where it skips those that are not needed. edges: which are."""
        return edges

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """Shape, dtype and device of each output of the forward operation."""
        raise NotImplementedError

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """The gradients to pass along `next`, given those of the outputs (None: no gradient)."""
        raise NotImplementedError

    def describe(self) -> tuple[list[Any], Sequence[Any]] | None:
        """What tells this node from others, apart from values, and the values; None where `run` runs the user's Python."""
        return None

    def place(self, values: Sequence[Any]) -> dict[Node, Any]:
        """What `Calculus.placed` holds for this node, given what `describe` gave with its numbers placed."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop what was saved for backward."""

    def content(self) -> Any:
        """What `release` drops, as far as it can be put back."""
        return None

    def put_back(self, content: Any) -> None:
        """Undo `release`."""

    def register_hook(self, fn: Callable[..., Any]) -> Any:
        """Call ``fn(grad_inputs, grad_outputs)`` after this node has run; what it returns replaces grad_inputs."""
        return self.own_hooks().post.add(fn)

    def register_prehook(self, fn: Callable[..., Any]) -> Any:
        """Call ``fn(grad_outputs)`` before this node runs; what it returns replaces grad_outputs."""
        return self.own_hooks().pre.add(fn)

    def own_hooks(self) -> Hooks:
        """The node's hooks, made on first use."""
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"


class InputMetadata:
    """What a node knows of one of the gradients that it is given: that of an output of its operation."""

    __slots__ = ("shape", "dtype", "device", "is_nested_tensor", "is_cpp_nested_tensor")

    def __init__(self, aval: Aval) -> None:
        from torchgrad_jax.ops import dtypes

        self.shape: list[int] = list(aval.shape)
        self.dtype: dtypes.dtype = dtypes.of(aval.dtype)
        self.device: Any = aval.device
        self.is_nested_tensor = self.is_cpp_nested_tensor = False


def shown(edge: Edge) -> tuple[Node | None, int]:
    """An edge as the user sees it."""
    return (None, 0) if edge[0].hidden else edge


class HookList(dict[int, Callable[..., Any]]):
    """Hooks in the order of their registration."""

    __slots__ = ("__weakref__",)
    _count = 0

    def add(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Append a hook; the handle removes it."""
        handle = RemovableHandle(self)
        self[handle.id] = fn
        return handle


class RemovableHandle:
    """Removes its hook on `remove`, or when a ``with`` block that it opened ends."""

    __slots__ = ("id", "_hooks", "__weakref__")
    next_id = 0

    def __init__(self, hooks: HookList) -> None:
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        self._hooks = weakref.ref(hooks)

    def remove(self) -> None:
        """Remove the hook; nothing happens if it is gone already."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class Hooks:
    """A node's hooks by kind, in the order in which the kinds run.

    tensor: pre-hooks of the outputs (``Tensor.register_hook``), by output number. retain: tensors that keep their gradient,
    by output number. pre, post: hooks of the node itself.
    """

    __slots__ = ("tensor", "retain", "pre", "post")

    def __init__(self) -> None:
        self.tensor: dict[int, HookList] = {}
        self.retain: dict[int, Callable[[Any], None]] = {}
        self.pre, self.post = HookList(), HookList()


def _converted(calculus: Calculus, grad: Any, aval: Aval) -> Any:
    """A gradient of what was written in place into a tensor of another dtype than the operation's own."""
    from torchgrad_jax.tensor.inplace import cast_to

    return calculus.call(cast_to(aval.dtype), (grad,))


class OpNode(Node):
    """The node of a declared operator. Its class is made for each name, so that ``type(grad_fn).__name__`` is PyTorch's.

    saved: Values and numbers, or where somebody asked for it `Saved` objects and numbers; None once freed."""

    __slots__ = ("plan", "saved")
    plan: Plan
    saved: tuple[Any, ...] | None
    skips_unneeded = True

    def used(self, edges: list[bool]) -> list[bool]:
        """See Node."""
        return self.plan.used(edges)

    def name(self) -> str:
        """See Node."""
        return self.plan.name

    @property
    def is_view(self) -> bool:
        """See Node."""
        return self.plan.name in VIEW_NODES

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """See Node."""
        found: list[tuple[Node | None, int]] = [(None, 0)] * self.plan.arity
        for i, e in zip(self.plan.places, self.next, strict=True):
            found[i] = shown(e)
        return tuple(found)

    @property
    def edge_places(self) -> Sequence[int]:
        """See Node."""
        return self.plan.places

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return self.plan.output_avals

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        plan = self.plan
        saved = self.saved if calculus.placed is None else calculus.placed[self]
        if saved is None:
            # Of what is for no gradient that leads anywhere PyTorch saves nothing, and so misses nothing.
            if all([target.hidden for target, _ in self.next]) and not plan.reads_tensors([False] * len(self.next)):
                return (None,) * len(self.next)
            raise RuntimeError(FREED_MESSAGE)
        if plan.single and grads[0] is not None:
            given = grads[0]._aval if calculus.tensors else grads[0].aval
            if given is not plan.avals[0] and given.dtype != plan.avals[0].dtype:
                grads = [_converted(calculus, grads[0], plan.avals[0])]
        if plan.passes:
            return (None if plan.undefined else grads[0],) * len(self.next)
        if calculus.tensors:
            return self._run_apart(calculus, grads)
        if type(saved) is not tuple:
            saved = saved_values(self)
        else:
            for v in saved:
                if type(v) is Value and v.counter is not None and v.counter.version != v.version:
                    saved = saved_values(self)
                    break
        if plan.single:
            outs = calculus.call(plan.vjp, (grads[0], *saved))
        else:
            if len(grads) < len(plan.avals):
                grads = grads + [None] * (len(plan.avals) - len(grads))
            defined = tuple([g is not None for g in grads])
            outs = calculus.call(plan.vjp_of(defined), (*[g for g in grads if g is not None], *saved))
        return outs if type(outs) is tuple else (outs,)

    def _run_apart(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """The gradients one by one, so that each depends in the new graph on nothing but what it is made of; only those that are needed."""
        plan, needed = self.plan, calculus.needed
        saved = calculus.unpack(self)
        grads = grads + [None] * (len(plan.avals) - len(grads))
        defined = None if plan.single else tuple([g is not None for g in grads])
        given = [g for g in grads if g is not None]
        used = (True,) * len(self.next) if needed is None else plan.used([target in needed for target, _ in self.next])
        outs = []
        for (one, places), there in zip(plan.apart(), used, strict=True):
            if not there:
                outs.append(None)
            elif one.passes:
                outs.append(grads[0])
            elif one.zeros:
                outs.append(zeros_of(one))
            else:
                kept = saved if one is plan else [saved[i] for i in places]
                found = calculus.call(one.vjp if defined is None else one.vjp_of(defined), (*given, *kept))
                outs.append(found if plan.once is None else _refusing(one, found, kept))
        return tuple(outs)

    def place(self, values: Sequence[Any]) -> dict[Node, Any]:
        """See Node."""
        return {self: tuple(values)}

    def content(self) -> Any:
        """See Node."""
        return self.saved

    def put_back(self, content: Any) -> None:
        """See Node."""
        if type(content) is not WithSaved:
            self.saved = content

    def release(self) -> None:
        """See Node."""
        if self.plan.frees:
            saved, self.saved = self.saved, None
            if type(saved) is WithSaved:
                for v in saved:
                    if isinstance(v, Saved):
                        v.release()

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_saved_", "_raw_saved_")):
            from torchgrad_jax.tensor.saved import raw_saved, saved_attribute

            raw = name.startswith("_raw")
            found = raw_saved(self, name[11:]) if raw else saved_attribute(self, name[7:])
            if found is not NotImplemented:
                return found
        raise AttributeError(f"'{self.name()}' object has no attribute '{name}'")

    def __dir__(self) -> list[str]:
        plan = self.plan
        tensors = [n for n in plan.attributes if plan.attributes[n]]
        return [*super().__dir__(), *(f"_saved_{n}" for n in plan.attributes), *(f"_raw_saved_{n}" for n in tensors)]


def zeros_of(plan: Plan) -> Any:
    """A gradient of zeros that no graph leads to, for the only input of `plan`."""
    from torchgrad_jax.tensor.creation import full_value
    from torchgrad_jax.tensor.tensor import created

    aval: Any = plan.input_avals[0]
    return created(full_value(aval.shape, 0, aval.dtype, aval.device))


def _refusing(plan: Plan, grad: Any, saved: Sequence[Any]) -> Any:
    """The only gradient of `plan`, whose own derivative is refused if what was saved makes it so."""
    from torchgrad_jax.tensor.refusal import DelayedError

    text = plan.only_once(plan.inputs[0], [s._concrete() for s in saved])
    return grad if text is None or not grad.requires_grad else DelayedError.outputs([grad], text)[0]


def call_node(node: Node, grads: tuple[Any, ...]) -> Any:
    """What calling a node does. The engine, which knows how to run one, puts its own in this place."""
    raise NotImplementedError


def saved_values(node: OpNode) -> tuple[Any, ...]:
    """What `node` saved, as Values and numbers. RuntimeError where a tensor was written to, or detached in place."""
    assert node.saved is not None
    found: list[Any] = list(node.saved)
    for i in node.plan.unpacking:
        kept = found[i]
        if isinstance(kept, Saved):
            found[i] = kept.tensor_for(node)
        elif type(kept) is Value:
            if is_detached(node, i, kept):
                raise RuntimeError(DETACHED_MESSAGE)
            found[i] = unchanged(node, i)
    # What one unpack hook writes to may be what another returned.
    return tuple(t._read() if isinstance(kept, Saved) else t for kept, t in zip(node.saved, found, strict=True))


def is_detached(node: OpNode, i: int, kept: Value) -> bool:
    """Whether the operand whose value `node` saved at place `i` was cut off from its graph in place, and PyTorch has saved it too."""
    edge, plan = edge_of_saved(node, i), node.plan
    if edge is None or not edge[0].next or plan.keeps_name(i) or _is_of_view(kept, edge) or not cut_off(kept, edge):
        return False
    return plan.reads(i, [not target.hidden for target, _ in node.next])


def unchanged(node: OpNode, i: int) -> Any:
    """What `node` saved at place `i`. RuntimeError where it was written to since."""
    assert node.saved is not None
    value = node.saved[i]
    if type(value) is Value and outdated(value):
        value = present(value, edge_of_saved(node, i))
        # What no gradient needs that goes anywhere, PyTorch has not saved.
        if outdated(value) and node.plan.reads(i, [not target.hidden for target, _ in node.next]):
            raise_modified(node, i, value)
    return value


def edge_of_saved(node: OpNode, i: int) -> Edge | None:
    """Where the gradient of what `node` saved at place `i` goes; None where nowhere, and for the node's own result."""
    operand = node.plan.saves[i]
    return node.next[node.plan.inputs.index(operand)] if operand in node.plan.inputs else None


def raise_modified(node: OpNode, i: int, value: Value) -> None:
    """PyTorch's error for a saved value whose tensor was written to since."""
    operand = node.plan.saves[i]
    origin = edge_of_saved(node, i) if operand >= 0 else (node, -1 - operand) if node.plan.outputs[-1 - operand] else None
    name, nr = ("", 0) if origin is None else origin[0].told(origin[1])
    # PyTorch names the node that the tensor has now; a leaf was written to by way of a twin.
    if not node.plan.keeps_name(i) and (origin is None or origin[0].next) and written_itself(value, origin is not None):
        name, nr = name_since_write(value), 0
        made_in = getattr(value, "made_in", None)
        if origin is None and made_in is not None:
            raise RuntimeError(untracked(made_in, None, 0, MODIFIED_INDIRECTLY))
    if operand >= 0 and origin is not None and (origin[0].hidden or origin[0].is_view):
        made_in = _view_made_in(origin[0])
        if made_in != "default":  # to name the tensor, PyTorch asks for its present node
            raise RuntimeError(untracked(made_in, None if origin[0].hidden else origin[0], origin[1], MODIFIED_INDIRECTLY))
        name, nr, origin = "AsStridedBackward0", 0, None if origin[0].hidden else origin
    shape = value.aval.shape
    if operand >= 0 and origin is not None and not origin[0].next:
        avals: Any = origin[0].output_avals
        shape = avals[0].shape
    relaid: Any = getattr(value.counter, "relaid", ())
    had: list[tuple[int, ...]] = [s for version, s in relaid if version <= value.version]
    if had and shape == had[-1] and (operand >= 0 or origin is None):  # PyTorch has kept the tensor itself
        shape = relaid[-1][1]
    raise RuntimeError(modified_message(value, name, nr, shape))


def written_itself(value: Value, tracked: bool) -> bool:
    """Whether a saved tensor was given another node since by a write: not if the write was to its twin by `detach`, which is told by their gradients.
    tracked: whether the tensor had one when it was saved."""
    counter = value.counter
    written = counter.writer is not None and counter.writer[0] > value.version
    return written and tracked != (getattr(counter, "tracked", 0) > value.version)


def name_since_write(value: Value) -> str:
    """The name of the node that a tensor was given by a write to its memory: a view gets one of its own when PyTorch asks for it. "" if it was cut
    off from that in place."""
    if _is_of_view(value):
        return "AsStridedBackward0"
    version, name = value.counter.writer
    return name if version > getattr(value.counter, "cut", -1) else ""


def _is_of_view(value: Value, edge: Edge | None = None) -> bool:
    """Whether a saved Value was the content of a view, and not of a tensor that was itself given another layout."""
    if hasattr(value, "part"):
        return True
    signature = getattr(value, "signature", None)
    operator = None if signature is None else getattr(signature.bop, "operator", None)
    return operator is not None and operator.view is not None and not hasattr(present(value, edge).counter, "relaid")


def _view_made_in(node: Node) -> str:
    """How a view was made, as `View` says, told by its node and those of the views that it is a view of."""
    while node.is_view:
        if node.name() in SEVERAL_VIEWS:  # be it that there is but one
            return "several"
        node = node.next[0][0]
    return node.made_in


SEVERAL_VIEWS = ("UnbindBackward0", "SplitBackward0", "SplitWithSizesBackward0")
VIEW_NODES = {
    f"{name}Backward0"
    for name in ("Alias", "AsStrided", "Diagonal", "Expand", "Permute", "ReshapeAlias", "Select", "Slice", "Squeeze", "T", "Transpose", "Unfold",
                 "Unsqueeze", "View", "Unbind", "Split", "SplitWithSizes")
} | {"SqueezeBackward1", "SqueezeBackward2"}  # fmt: skip
_classes: dict[str, type[OpNode]] = {}


def node_class(name: str) -> type[OpNode]:
    """The class of operator nodes of this name."""
    found = _classes.get(name)
    if found is None:
        short = name.rpartition("::")[2]
        found = _classes[name] = type(short, (OpNode,), {"__slots__": (), "__module__": "torch.autograd.graph", "__qualname__": short})
    return found
